"""A comparison's rows as CSV, in the shape that the reference's users know as outliers.csv: key columns, reference, metric, new.

What follows them is ours: the verdict, the ratio with its interval, the adjusted p value, runs, and why. Unlike the reference's,
the file says which way a row went, has rows for what is missing, new, failed or not comparable, and an empty cell for what is
missing. Rows that are no news are left out unless asked for. Base units at full precision, worst first.
"""

from __future__ import annotations

from typing import Any

from orchestrator.compare.values import Comparison, Pair, Row
from orchestrator.compare_view import wording
from orchestrator.compare_view.wording import Which
from orchestrator.report import as_csv
from orchestrator.rows import Value

JUDGED = {
    **{"reference": "Float64", "metric": "string", "new": "Float64"},
    **{
        "verdict": "string",
        "ratio": "Float64",
        "ratio_low": "Float64",
        "ratio_high": "Float64",
        "p_adjusted": "Float64",
    },
    **{"runs_base": "Int64", "runs_new": "Int64", "needs": "Int64", "why": "string", "label": "string"},
}
"""Columns beside the key's, with the pandas type of each."""


def text(comparison: Comparison, *, everything: bool = False) -> str:
    """One line a row of the comparison, with a header line."""
    import pandas as pd

    found = wording.blocks(comparison, Which.ALL if everything else Which.TELLING)
    rows = [(block.pair, row) for block in found for row in block.rows]
    names = [
        name for name in dict.fromkeys(name for pair in comparison.pairs for name in _key(pair)) if name not in JUDGED
    ]
    columns: dict[str, Any] = {name: _column([_key(pair).get(name) for pair, _ in rows]) for name in names}
    cells = [_judged(row) for _, row in rows]
    columns |= {name: pd.Series([one[name] for one in cells], dtype=kind) for name, kind in JUDGED.items()}
    return as_csv.text(pd.DataFrame(columns, columns=[*names, *JUDGED]))


def _key(pair: Pair) -> dict[str, Value]:
    entry = pair.base or pair.new
    return dict(entry.key) if entry else {}


def _column(values: list[Value]) -> Any:
    """A key's values as they are; as text where they are of several kinds."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or abs(int(value)) < 2**63 for value in values):
        return pd.Series(values, dtype="Int64")
    if kinds == {float}:
        return pd.Series(values, dtype="Float64")
    return pd.Series([None if value is None else str(value) for value in values], dtype="string")


def _judged(row: Row) -> dict[str, Value]:
    ratio = row.ratio
    interval = ratio.interval if ratio else None
    return {
        "reference": row.base,
        "metric": row.metric or None,
        "new": row.new,
        "verdict": row.verdict.value,
        "ratio": ratio.value if ratio else None,
        "ratio_low": interval.low if interval else None,
        "ratio_high": interval.high if interval else None,
        "p_adjusted": row.p_adjusted,
        "runs_base": ratio.n_base if ratio else None,
        "runs_new": ratio.n_new if ratio else None,
        "needs": row.needs,
        "why": row.why or None,
        "label": row.label,
    }

"""Write the rows of a comparison as CSV, in the shape of the reference's outliers.csv: key columns, reference, metric, new.

More columns follow: the verdict, the ratio with its interval, the adjusted p value, the numbers of runs, and the reason. A
missing value is an empty cell. Pairs that are missing, new, failed or not comparable have a row, too. Unchanged rows are left
out unless requested. Numbers are in base units at full precision, and the worst row is first.
"""

from __future__ import annotations

from orchestrator.compare.comparison import Comparison, Pair, Row
from orchestrator.compare.view import wording
from orchestrator.compare.view.wording import Which
from orchestrator.report.tables import as_csv
from orchestrator.results.table.rows import Value

# Columns that follow the columns of the key.
JUDGED = (
    *("reference", "metric", "new", "verdict", "ratio", "ratio_low", "ratio_high", "p_adjusted"),
    *("runs_base", "runs_new", "first_runs", "highest_reference", "highest_new"),
    *("needs", "may_be_worse_by", "why", "label"),
)


def text(comparison: Comparison, *, everything: bool = False) -> str:
    """Return one line for each row of the comparison, with a header line."""
    blocks = wording.blocks(comparison, Which.ALL if everything else Which.NOTABLE)
    keys = dict.fromkeys(name for pair in comparison.pairs for name in _key(pair) if name not in JUDGED)
    rows = [{**_key(block.pair), **_judged(row)} for block in blocks for row in block.rows]
    return as_csv.rows_text(rows, (*keys, *JUDGED))


def _key(pair: Pair) -> dict[str, Value]:
    entry = pair.base or pair.new
    return dict(entry.key) if entry else {}


def _judged(row: Row) -> dict[str, Value]:
    ratio = row.ratio
    interval = ratio.interval if ratio else None
    highest_base, highest_new = row.highest or (None, None)
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
        "first_runs": row.first_runs.value if row.metric else None,
        "highest_reference": highest_base,
        "highest_new": highest_new,
        "needs": row.needs,
        "may_be_worse_by": row.may_be_worse_by,
        "why": row.why or None,
        "label": row.label,
    }

"""Make the table of a comparison's page for its script: a row for each row of the comparison, worst first. Pure.

Numbers are there twice, to sort by and to read. Words are there once, with the places of their rows. The names that pair
experiments are hidden columns, used by filters for a framework or a model. A row opens to the runs of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from orchestrator.compare.comparison import Comparison, Entry, Pair, Row
from orchestrator.compare.view import marks, wording
from orchestrator.measure.metrics import DASH, metric, show
from orchestrator.report.page.table_data import in_words
from orchestrator.report.page.texts import one_line, rounded
from orchestrator.results.table.rows import Value

MOST_KEYS, MOST_DIFFERENCES, MOST_RUNS = 8, 6, 10
LABEL, REMARK, WORD = 160, 300, 32

Line = tuple[Pair, Row]


def of(comparison: Comparison, *, most: int) -> dict[str, Any]:
    """Return the table of the `most` worst rows."""
    lines = _worst_first(comparison)[:most]
    keys = _keys(lines)
    columns = [
        _words("verdict", "verdict", [marks.signed(row.verdict) for _, row in lines]),
        _words("experiment", "experiment", [one_line(row.label, width=LABEL) for _, row in lines]),
        _words("metric", "metric", [_metric(row) for _, row in lines]),
        *_numbers(lines),
        _words("why", "why", [one_line(row.why, width=REMARK) or None for _, row in lines]),
        _words(
            "differs",
            "differs in",
            _differences(comparison, lines),
            title="Arguments, and facts of the environment that not all pairs share.",
        ),
        *(
            _words(f"key:{name}", one_line(metric(name).label, width=WORD), _key(lines, name), hidden=True)
            for name in keys
        ),
    ]
    return {
        "rows": len(lines),
        "columns": columns,
        "filters": ["verdict", "metric", *(f"key:{name}" for name in keys)],
        "ids": [one_line(" · ".join(filter(None, (row.label, _metric(row)))), width=LABEL) for _, row in lines],
        "details": [{"runs": list(_sides(pair, row.metric))} for pair, row in lines],
        "fileSets": [],
        "linked": False,
    }


def _worst_first(comparison: Comparison) -> list[Line]:
    """Return all rows, not grouped by experiment; failures on both sides come last."""
    pairs, old = {pair.label: pair for pair in comparison.pairs}, wording.old_failures(comparison)
    rows = sorted(comparison.rows, key=lambda row: (row.label in old, wording.badness(row)))
    return [(pairs[row.label], row) for row in rows if row.label in pairs]


def _metric(row: Row) -> str | None:
    return one_line(wording.heading(row.metric)) if row.metric else None


def _words(
    name: str, label: str, words: Sequence[str | None], *, title: str = "", hidden: bool = False
) -> dict[str, Any]:
    hidden = hidden or all(word is None for word in words)
    return {"name": name, "label": label, "title": title or label, "hidden": hidden, **in_words(words)}


def _numbers(lines: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Yield the columns of numbers, which are sorted by their base units."""
    rows = [row for _, row in lines]

    def column(
        name: str,
        label: str,
        title: str,
        raw: Callable[[Row], float | None],
        text: Callable[[Row], str],
        hidden: bool = False,
    ) -> dict[str, Any]:
        found = [rounded(raw(row), digits=9) for row in rows]
        texts = [DASH if number is None else one_line(text(row)) for number, row in zip(found, rows, strict=True)]
        return {
            "name": name,
            "label": label,
            "title": title,
            "hidden": hidden or all(one is None for one in found),
            "raw": found,
            "shown": texts,
        }

    yield column("base", "base", "Base: the mean over runs; for memory the highest.", lambda row: row.base, _base)
    yield column("new", "new", "New side, likewise.", lambda row: row.new, _new)
    yield column("change", "change", "New ÷ base, as a change.", _ratio, lambda row: wording.percent(_ratio(row) or 1))
    yield column("ratio", "ratio", "New ÷ base.", _ratio, lambda row: f"{_ratio(row):.4f}", hidden=True)
    yield column("interval", "95 % interval", "Interval of the change; sorted by its lower end.", _low, _interval)
    yield column("p", "p", "After correction over all rows of the metric.", lambda row: row.p_adjusted, _p)
    yield column(
        "needs",
        "needs",
        "About how many more runs per side would settle it.",
        lambda row: row.needs,
        lambda row: f"{row.needs}",
    )


def _ratio(row: Row) -> float | None:
    return row.ratio.value if row.ratio else None


def _low(row: Row) -> float | None:
    return row.ratio.interval.low if row.ratio and row.ratio.interval else None


def _interval(row: Row) -> str:
    return wording.interval(row.ratio) if row.ratio else DASH


def _base(row: Row) -> str:
    return show(row.metric, row.base)


def _new(row: Row) -> str:
    return show(row.metric, row.new)


def _p(row: Row) -> str:
    p = row.p_adjusted
    return DASH if p is None else "< 0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def _differences(comparison: Comparison, lines: Sequence[Line]) -> list[str | None]:
    """Return the differences next to each row, computed once for each pair."""
    known: dict[str, str | None] = {}
    for pair, _ in lines:
        if pair.label not in known:
            known[pair.label] = _differing(comparison, pair)
    return [known[pair.label] for pair, _ in lines]


def _differing(comparison: Comparison, pair: Pair) -> str | None:
    found = wording.own_differences(pair, comparison)
    more = [f"and in {len(found) - MOST_DIFFERENCES} more"] if len(found) > MOST_DIFFERENCES else []
    said = [wording.difference(one) for one in found[:MOST_DIFFERENCES]]
    return one_line("; ".join([*said, *more]), width=2 * REMARK) or None


def _keys(lines: Sequence[Line]) -> list[str]:
    """Return the first names of the keys in which the experiments differ."""
    found: dict[str, set[str | None]] = {}
    for pair, _ in lines:
        for name, value in _entry(pair).key.items():
            found.setdefault(name, set()).add(_word(value))
    return [name for name, values in found.items() if len(values) > 1][:MOST_KEYS]


def _key(lines: Sequence[Line], name: str) -> list[str | None]:
    return [_word(_entry(pair).key.get(name)) for pair, _ in lines]


def _word(value: Value) -> str | None:
    return None if value is None else one_line(value, width=WORD)


def _entry(pair: Pair) -> Entry:
    found = pair.base or pair.new
    assert found is not None, "a pair has a side"
    return found


def _sides(pair: Pair, name: str) -> Iterator[dict[str, Any]]:
    """Yield both sides' runs, as the script lists them."""
    for side, entry in (("base", pair.base), ("new", pair.new)):
        if entry is None:
            yield {"name": side, "status": "not there", "wall": DASH}
            continue
        values = [show(name, run.numbers.get(name)) for run in entry.runs] if name else []
        more = [f"and {len(values) - MOST_RUNS} more"] if len(values) > MOST_RUNS else []
        said = {"name": side, "status": one_line(entry.status), "wall": ", ".join([*values[:MOST_RUNS], *more]) or DASH}
        yield said | ({"cause": one_line(entry.failure, width=REMARK)} if entry.failure else {})

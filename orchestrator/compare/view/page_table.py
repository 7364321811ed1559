"""Make the table for the script of a comparison's page: one table row per row of the comparison, worst first. Pure.

The table has each number twice, for sorting and for reading. It has each distinct word once, with the rows in which the word
occurs. The names that pair experiments are hidden columns, so that users can filter by framework or model. The page first shows
only the news. A user can open a row to see the runs of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from orchestrator.compare.comparison import Comparison, Entry, Pair, Row
from orchestrator.compare.sides.profiles import CHANGED, Profiles
from orchestrator.compare.view import marks, wording
from orchestrator.measure.metrics import DASH, metric, show
from orchestrator.report.page.table_data import in_words
from orchestrator.report.page.texts import one_line, rounded
from orchestrator.report.profile.view import COLUMNS
from orchestrator.results.table.rows import Value

MOST_KEYS, MOST_DIFFERENCES, MOST_RUNS = 8, 6, 10
LABEL, REMARK, WORD = 160, 300, 32

Line = tuple[Pair, Row]
NO_PROFILES: Mapping[str, Profiles] = MappingProxyType({})


def of(comparison: Comparison, *, most: int, profiles: Mapping[str, Profiles] = NO_PROFILES) -> dict[str, Any]:
    """Return the table of the `most` worst rows. The details of a changed row have the profiles of its pair."""
    lines = _worst_first(comparison)[:most]
    keys, old = _keys(lines), wording.old_failures(comparison)
    distinct_pairs = {pair.label: pair for pair, _ in lines}
    differences = {label: _differences(pair, comparison) for label, pair in distinct_pairs.items()}
    differs_in = "Arguments, and facts of the environment that not all pairs share."
    columns = [
        _words("verdict", "verdict", [marks.signed(row.verdict) for _, row in lines]),
        _words("experiment", "experiment", [one_line(row.label, width=LABEL) for _, row in lines]),
        _words("metric", "metric", [_metric(row) for _, row in lines]),
        *_numbers([row for _, row in lines]),
        _words("why", "why", [one_line(wording.why(row), width=REMARK) or None for _, row in lines]),
        _words("differs", "differs in", [differences[pair.label] for pair, _ in lines], title=differs_in),
    ]
    for name in keys:
        words = [_word(_entry(pair).key.get(name)) for pair, _ in lines]
        columns.append(_words(f"key:{name}", one_line(metric(name).label, width=WORD), words, hidden=True))
    remarks: dict[tuple[str, ...], int] = {}
    at = {label: place for place, label in enumerate(profiles)}
    return {
        "rows": len(lines),
        "columns": columns,
        "filters": ["verdict", "metric", *(f"key:{name}" for name in keys)],
        "ids": [one_line(" · ".join(filter(None, (row.label, _metric(row)))), width=LABEL) for _, row in lines],
        "doubts": [""] * len(lines),
        "panels": [],
        "withoutNews": [place for place, (_, row) in enumerate(lines) if wording.is_unchanged(row, old)],
        "sticky": ("verdict", "experiment"),
        "runColumns": ["side", "status", "values of the runs"],
        "details": [_detail(pair, row, remarks, at) for pair, row in lines],
        "profiles": [_profile(found) for found in profiles.values()],
        "remarks": [list(sentences) for sentences in remarks],
        "fileSets": [],
        "linked": False,
    }


def _worst_first(comparison: Comparison) -> list[Line]:
    """Return all rows, not grouped by experiment. Failures on both sides come last."""
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


def _numbers(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield the columns of numbers. The page sorts rows by a column's value, not by its text."""

    def column(
        name: str, title: str, number: Callable[[Row], float | None], text: Callable[[Row], str], **more: Any
    ) -> dict[str, Any]:
        raw = [rounded(number(row), digits=9) for row in rows]
        texts = [DASH if value is None else one_line(text(row)) for value, row in zip(raw, rows, strict=True)]
        hidden = all(value is None for value in raw)
        return {"name": name, "label": name, "title": title, "hidden": hidden, "raw": raw, "shown": texts} | more

    def ratio(row: Row) -> float | None:
        return row.ratio.value if row.ratio else None

    def low(row: Row) -> float | None:
        return row.ratio.interval.low if row.ratio and row.ratio.interval else None

    of_base = "Base: the mean over runs; for memory the lowest of equally many runs."
    yield column("base", of_base, lambda row: row.base, lambda row: show(row.metric, row.base))
    yield column("new", "New side, likewise.", lambda row: row.new, lambda row: show(row.metric, row.new))
    yield column(
        "change", "Change from base to new: new ÷ base, minus 1.", ratio, lambda row: wording.change(row.ratio)
    )
    yield column("ratio", "New ÷ base.", ratio, lambda row: f"{ratio(row):.4f}", hidden=True)
    of_interval = "Interval of the change; sorted by its lower end."
    yield column("interval", of_interval, low, lambda row: wording.interval(row.ratio), label="95 % interval")
    yield column("p", "p value, corrected over all rows of the metric.", lambda row: row.p_adjusted, _p)
    of_needs = "About how many more runs per side would settle it with a chance of 80 %."
    yield column("needs", of_needs, lambda row: row.needs, lambda row: f"{row.needs}")


def _p(row: Row) -> str:
    p = row.p_adjusted or 0.0
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def _differences(pair: Pair, comparison: Comparison) -> str | None:
    differences = wording.own_differences(pair, comparison)
    texts = [wording.difference(difference) for difference in differences[:MOST_DIFFERENCES]]
    more = len(differences) - len(texts)
    return one_line("; ".join([*texts, *([f"and in {more} more"] if more else [])]), width=2 * REMARK) or None


def _keys(lines: Sequence[Line]) -> list[str]:
    """Return the first few names of the key whose values differ between the experiments."""
    values: dict[str, set[str | None]] = {}
    for pair, _ in lines:
        for name, value in _entry(pair).key.items():
            values.setdefault(name, set()).add(_word(value))
    return [name for name, distinct in values.items() if len(distinct) > 1][:MOST_KEYS]


def _word(value: Value) -> str | None:
    return None if value is None else one_line(value, width=WORD)


def _entry(pair: Pair) -> Entry:
    entry = pair.base or pair.new
    assert entry is not None, "a pair has at least one side"
    return entry


def _detail(pair: Pair, row: Row, remarks: dict[tuple[str, ...], int], profiles: Mapping[str, int]) -> dict[str, Any]:
    """Return the runs of both sides. If the row is changed, add the index of the profiles of its pair."""
    runs = {"runs": list(_sides(pair, row.metric, remarks))}
    return runs | ({"profile": profiles[row.label]} if row.verdict in CHANGED and row.label in profiles else {})


def _sides(pair: Pair, name: str, remarks: dict[tuple[str, ...], int]) -> Iterator[dict[str, Any]]:
    """Yield the runs of both sides in the form that the script lists. Add their remarks to `remarks`, each with its index."""
    for side, entry in (("base", pair.base), ("new", pair.new)):
        values = [show(name, run.numbers.get(name)) for run in entry.runs] if name and entry else []
        more = [f"and {len(values) - MOST_RUNS} more"] if len(values) > MOST_RUNS else []
        shown = ", ".join([*values[:MOST_RUNS], *more]) or DASH
        said = (one_line(entry.failure, width=REMARK),) if entry and entry.failure else ()
        status = one_line(entry.status) if entry else "not there"
        yield {"cells": [side, status, shown], "remarks": remarks.setdefault(said, len(remarks))}


def _profile(profiles: Profiles) -> dict[str, Any]:
    """Return the difference of two profiles and the links to their traces, in the form that the script shows."""
    found, traces = profiles.difference, zip(("base", "new"), profiles.traces, strict=True)
    return {
        "sentence": one_line(" ".join([wording.elsewhere(profiles), profiles.sentence]).strip(), width=2 * REMARK),
        "columns": COLUMNS,
        "rows": [[one_line(cell) for cell in row] for row in found.rows] if found else [],
        "more": found.changed - len(found.rows) if found else 0,
        "summaries": found.summaries if found else ("", ""),
        "traces": [
            {"side": side, "href": path.as_uri(), "text": one_line(path, width=REMARK)} for side, path in traces
        ],
    }

"""Sentences about failed experiments, one for each kind of failure, with the cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from orchestrator.files.printable_text import counted, one_line
from orchestrator.records import Status
from orchestrator.report.highlights.highlight import MOST_OTHERS, Highlight, HighlightKind, Known
from orchestrator.report.highlights.labels import listed
from orchestrator.results.table.column_choice import column

_FAILED = frozenset(status.value for status in Status if status is not Status.OK)


def failures(known: Known) -> Iterator[Highlight]:
    """Yield a sentence for each kind of failure, the most frequent first."""
    frame = known.table.experiments
    groups: dict[str, list[int]] = defaultdict(list)
    for row, (status, kind) in enumerate(zip(column(frame, "status"), column(frame, "failure_kind"), strict=True)):
        if status in _FAILED:
            groups[str(kind or status)].append(row)
    often = sorted(groups.items(), key=lambda group: -len(group[1]))
    yield from (_failure(known, kind, rows) for kind, rows in often[:MOST_OTHERS])
    rest = [row for _, rows in often[MOST_OTHERS:] for row in rows]
    if rest:
        kinds = counted(len(often) - MOST_OTHERS, "other kind")
        text = f"{counted(len(rest), 'more experiment')} of {kinds} of failure"
        yield known.sentence(HighlightKind.FAILURE, text, rest)


def _failure(known: Known, kind: str, rows: Sequence[int]) -> Highlight:
    partly = sum(bool(known.numbers("runs_ok", row)) for row in rows)
    some = f", {partly} of them only in some runs" if partly else ""
    names = listed([known.names.whole(row) for row in rows])
    words = "ended as" if kind in _FAILED else "failed with"
    text = f"{counted(len(rows), 'experiment')} {words} {one_line(kind)}{some} ({names}){_why(known, rows)}"
    return known.sentence(HighlightKind.FAILURE, text, rows)


def _why(known: Known, rows: Sequence[int]) -> str:
    causes = column(known.table.experiments, "failure_cause")
    distinct = list(dict.fromkeys(one_line(causes[row]) for row in rows if causes[row]))
    more = f" (and {counted(len(distinct) - 1, 'other cause')})" if len(distinct) > 1 else ""
    return f": {distinct[0]}{more}" if distinct else ""

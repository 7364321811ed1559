"""Sentences about failed experiments, one for each kind of failure, with the cause; and the ways in which an experiment failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.files.printable_text import counted, one_line, without_numbers
from orchestrator.records import Status
from orchestrator.report.highlights.highlight import MOST_OTHERS, Highlight, HighlightKind, Known
from orchestrator.report.highlights.labels import listed
from orchestrator.results.table.rows import Value

_FAILED = frozenset(status.value for status in Status if status is not Status.OK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """A way in which repeats of an experiment failed: their number, and the end of the last of them."""

    runs: int
    status: str
    kind: str | None
    cause: str | None
    hint: str | None


def ways(failed: Iterable[Mapping[str, Value]]) -> list[Way]:
    """Return the ways in which the repeats with these outcomes failed, the most frequent first.

    Repeats failed in the same way if their status, their kind and their cause are equal. Numbers in a cause do not count.
    """
    alike: dict[tuple[str, ...], list[Mapping[str, Value]]] = defaultdict(list)
    for outcome in failed:
        kind, cause = (str(outcome.get(name) or "") for name in ("failure_kind", "failure_cause"))
        alike[str(outcome["status"]), kind, without_numbers(cause)].append(outcome)
    return [_way(group) for group in sorted(alike.values(), key=len, reverse=True)]


def _way(alike: list[Mapping[str, Value]]) -> Way:
    kind, cause, hint = (str(alike[-1].get(f"failure_{name}") or "") or None for name in ("kind", "cause", "hint"))
    return Way(runs=len(alike), status=str(alike[-1]["status"]), kind=kind, cause=cause, hint=hint)


def failures(known: Known) -> Iterator[Highlight]:
    """Yield a sentence for each kind of failure, the most frequent first. An experiment may have failed with several kinds."""
    groups: dict[str, dict[int, list[Way]]] = defaultdict(lambda: defaultdict(list))
    for row, failed in enumerate(known.table.failed):
        for way in ways(failed):
            if way.status in _FAILED:
                groups[way.kind or way.status][row].append(way)
    often = sorted(groups.items(), key=lambda group: -len(group[1]))
    yield from (_failure(known, kind, rows) for kind, rows in often[:MOST_OTHERS])
    rest = list(dict.fromkeys(row for _, rows in often[MOST_OTHERS:] for row in rows))
    if rest:
        kinds = counted(len(often) - MOST_OTHERS, "other kind")
        text = f"{counted(len(rest), 'experiment')} had {kinds} of failure"
        yield known.sentence(HighlightKind.FAILURE, text, rest)


def _failure(known: Known, kind: str, rows: Mapping[int, list[Way]]) -> Highlight:
    partly = sum(sum(way.runs for way in of_row) < (known.numbers("runs", row) or 0) for row, of_row in rows.items())
    some = f", {partly} of them only in some runs" if partly else ""
    names = listed([known.names.whole(row) for row in rows])
    words = "ended as" if kind in _FAILED else "failed with"
    why = _why(way for of_row in rows.values() for way in of_row)
    text = f"{counted(len(rows), 'experiment')} {words} {one_line(kind)}{some} ({names}){why}"
    return known.sentence(HighlightKind.FAILURE, text, list(rows))


def _why(of_kind: Iterable[Way]) -> str:
    causes = [one_line(way.cause) for way in of_kind if way.cause]
    others = len({*map(without_numbers, causes)}) - 1
    more = f" (and {counted(others, 'other cause')})" if others > 0 else ""
    return f": {causes[0]}{more}" if causes else ""

"""Show a profile, or the difference of two, as a table: the operations that take the most time, or change the most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.files.printable_text import counted, one_line, rounded
from orchestrator.measure.metrics import DASH, Show
from orchestrator.measure.metrics.shown import text
from orchestrator.report.profile.difference import Change, changes
from orchestrator.report.profile.memory import Memory
from orchestrator.report.profile.trace import Profile

MOST_ROWS, LONGEST_NAME = 15, 100
COLUMNS = ("operation", "base", "new", "change", "calls")


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The difference of two profiles in words: its verdict, the summaries of both, and rows of COLUMNS.

    `changed` is the number of all operations whose time changed.
    """

    verdict: str
    summaries: tuple[str, str]
    rows: tuple[tuple[str, ...], ...]
    changed: int


def of_one(profile: Profile, *, title: str) -> RenderableType:
    """Return the summary of a profile and its longest operations."""
    table = _table("operation", "time", "share", "calls")
    rows = sorted(profile.operations.items(), key=lambda item: item[1].seconds, reverse=True)
    for name, operation in rows[:MOST_ROWS]:
        share = f"{operation.seconds / profile.step_s:.1%}" if profile.step_s else DASH
        table.add_row(Text(_name(name)), _time(operation.seconds), share, rounded(operation.calls, 4))
    parts: list[RenderableType] = [_path(title, style="bold"), Text(_summary(profile)), Text(""), table]
    return Group(*parts, *_rest(len(rows), "operations"))


def of_two(base: Profile, new: Profile, *, names: tuple[str, str]) -> RenderableType:
    """Return the summaries of two profiles and the operations with the largest changes."""
    found = difference(base, new)
    table = _table(*COLUMNS)
    for row in found.rows:
        table.add_row(*map(Text, row))
    head = [
        line
        for word, name, summary in zip(("base", "new "), names, found.summaries, strict=True)
        for line in (_path(f"{word}  {name}"), Text(f"      {summary}"))
    ]
    return Group(*head, Text(""), table, *_rest(found.changed, "operations"), Text(found.verdict))


def difference(base: Profile, new: Profile, *, most: int = MOST_ROWS) -> Difference:
    """Return the difference of two profiles in words. The operations with the largest changes come first."""
    found = [change for change in changes(base, new) if change.seconds]
    return Difference(
        verdict=verdict(base, new, found),
        summaries=(_summary(base), _summary(new)),
        rows=tuple(map(_row, found[:most])),
        changed=len(found),
    )


def _row(change: Change) -> tuple[str, ...]:
    calls = [rounded(side.calls, 4) for side in (change.base, change.new)]
    return (
        _name(change.name),
        *(_time(side.seconds) if side.calls else DASH for side in (change.base, change.new)),
        _signed(change),
        calls[0] if calls[0] == calls[1] else " → ".join(calls),
    )


def verdict(base: Profile, new: Profile, found: Sequence[Change]) -> str:
    """Return a sentence about what changed the most."""
    step = new.step_s - base.step_s
    words = f"A step takes {_time(abs(step))} {'more' if step >= 0 else 'less'} ({_percent(base.step_s, new.step_s)})"
    if not found:
        return f"{words}. No operation changed."
    first = found[0]
    kind = "more" if first.seconds > 0 else "less"
    if not first.base.calls:
        kind = "more, since it is new"
    elif not first.new.calls:
        kind = "less, since it is gone"
    return f"{words}. The largest change: {_name(first.name)} takes {_time(abs(first.seconds))} {kind}."


def _path(words: str, *, style: str = "") -> Text:
    """Return a line that no terminal's width breaks, so that its path can be copied."""
    return Text(words, style=style, no_wrap=True, overflow="ignore")


def _summary(profile: Profile) -> str:
    return ", ".join(_facts(profile))


def _facts(profile: Profile) -> Iterator[str]:
    yield f"{counted(profile.steps, 'step')} of {_time(profile.step_s)}"
    if profile.busy_s is None:
        yield "no device: operators of the host"
        return
    yield f"GPU busy {_time(profile.busy_s)}" + (f" ({profile.busy_s / profile.step_s:.0%})" if profile.step_s else "")
    yield f"{profile.launches:,.0f} launches"
    if profile.communication_s:
        yield f"communication {_time(profile.communication_s)}, exposed {_time(profile.exposed_s or 0.0)}"


def _percent(base: float, new: float) -> str:
    return f"{new / base - 1:+.1%}" if base else DASH


def _time(value: float) -> str:
    return text(value, Show.SECONDS)


def _signed(change: Change) -> str:
    return f"{'+' if change.seconds >= 0 else '−'}{_time(abs(change.seconds))}"


def _name(name: str) -> str:
    return one_line(name, longest=LONGEST_NAME)


def _rest(count: int, noun: str) -> Iterator[Text]:
    if count > MOST_ROWS:
        yield Text(f"and {count - MOST_ROWS} more {noun}")


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at == 0 else "right", overflow="fold")
    return table


def of_memory(memory: Memory, *, title: str) -> RenderableType:
    """Return the places that hold the most memory at its peak."""
    table = _table("place", "memory", "share", "blocks")
    rows = sorted(memory.held.items(), key=lambda item: item[1].bytes, reverse=True)
    for place, held in rows[:MOST_ROWS]:
        share = f"{held.bytes / memory.peak_bytes:.1%}" if memory.peak_bytes else DASH
        table.add_row(Text(_name(place)), text(held.bytes, Show.BYTES), share, f"{held.blocks:,}")
    head = f"{text(memory.peak_bytes, Show.BYTES)} at the peak, from {counted(memory.events, 'event')}"
    return Group(_path(title, style="bold"), Text(head), Text(""), table, *_rest(len(rows), "places"))

"""A campaign's status as people and programs read it: text, live on a terminal, lines of what changes elsewhere, one JSON document.

Turns values into text and reads nothing. `tunebench status` and the live display of `tunebench run` are drawn here.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from orchestrator.campaign.status.activity import Activity
from orchestrator.campaign.status.campaign import CampaignStatus
from orchestrator.campaign.status.experiment import ExperimentStatus, RepeatState, RepeatStatus
from orchestrator.files.printable_text import escaped, printable
from orchestrator.measure.metrics import Show
from orchestrator.measure.metrics import show as show_number
from orchestrator.measure.metrics.shown import text
from orchestrator.records import Status

SCHEMA = 1
SEPARATOR = " · "
ROWS = 12
"""Lines of a section; JSON has all."""

STYLES = {
    RepeatState.DONE: "green",
    RepeatState.RUNNING: "cyan",
    RepeatState.FAILED: "red",
    RepeatState.LOST: "red",
    RepeatState.SILENT: "yellow",
}
_ALWAYS = (RepeatState.DONE, RepeatState.RUNNING, RepeatState.FAILED, RepeatState.PENDING)
_Key = tuple[str, int]
_Line = tuple[int, Text]
"""How deep it is indented, and what it says."""


def as_json(status: CampaignStatus) -> str:
    """One JSON document. Seconds and bytes; null is what is not known."""
    document = {
        "schema": SCHEMA,
        "results": str(status.root),
        "seen_at": status.seen_at,
        "over": status.is_over(),
        "left_s": status.left_s,
        "counts": {state.value: count for state, count in status.counts().items()},
        "experiments": [_experiment(one) for one in status.experiments],
        "warnings": list(status.warnings),
    }
    return escaped(json.dumps(document, indent=1)) + "\n"


def _experiment(one: ExperimentStatus) -> dict[str, Any]:
    experiment = one.experiment
    return {
        "id": experiment.id,
        "scenario": experiment.scenario,
        "framework_config": experiment.framework.name if experiment.framework else None,
        "model_name_or_path": experiment.model,
        "num_gpus": experiment.num_gpus,
        "skip": asdict(experiment.skip) if experiment.skip else None,
        "cannot_run_here": asdict(experiment.cannot_run_here) if experiment.cannot_run_here else None,
        "may_follow": one.may_follow,
        "repeats": [_repeat(repeat) for repeat in one.repeats],
    }


def _repeat(one: RepeatStatus) -> dict[str, Any]:
    fields = asdict(one)
    owner, _ = fields.pop("owner"), fields.pop("experiment_id")
    return {**fields, "host": owner and owner["host"], "pid": owner and owner["pid"]}


def as_view(status: CampaignStatus, *, title: str) -> RenderableType:
    """What a terminal shows of it: the counts, then each state that somebody may want to do something about."""
    return Group(*(Padding.indent(_shown(line), 2 * depth) for depth, line in _lines(status, title)))


def show(status: CampaignStatus, console: Console, *, title: str) -> None:
    """One look. Where there is no terminal with its width, a line stays a line."""
    if console.is_terminal:
        return console.print(as_view(status, title=title))
    for depth, line in _lines(status, title):
        console.print(Text("  " * depth).append_text(_shown(line)), soft_wrap=True)


def _shown(line: Text) -> Text:
    """What a file says may hold what steers a terminal; a sign for each such character, so that styles stay where they are."""
    line.plain = printable(line.plain)
    return line


def _lines(status: CampaignStatus, title: str) -> Iterator[_Line]:
    yield 0, headline(status, title=title)
    yield from _left_out(status.experiments)
    running = [line for one in status.of(RepeatState.RUNNING) for line in _running(one, status.seen_at)]
    yield from _section("running", running, rows=2 * ROWS)
    yield from _section("failed", _failed(status.of(RepeatState.FAILED)))
    yield from _section("lost (the next `tunebench run` records them and tries again)", _gone(status, RepeatState.LOST))
    silent = "silent, on another host (if that is gone, `tunebench run --take-over` runs them here)"
    yield from _section(silent, _gone(status, RepeatState.SILENT))
    yield from _section("pending", _pending(status.of(RepeatState.PENDING)))
    yield from _section("cannot be read", ((1, Text(warning, style="yellow")) for warning in status.warnings))


def headline(status: CampaignStatus, *, title: str) -> Text:
    """The counts of all states, and the time left."""
    counts = status.counts()
    shown = [state for state in RepeatState if counts[state] or state in _ALWAYS]
    total = sum(counts.values())
    line = Text(f"{title}: ", style="bold")
    for number, state in enumerate(shown):
        of = f" of {total}" if state is RepeatState.DONE else ""
        style = STYLES.get(state, "") if counts[state] else ""
        line.append(f"{SEPARATOR if number else ''}", style="not bold")
        line.append(f"{counts[state]}{of} {state}", style=f"not bold {style}".strip())
    return line.append(f"{SEPARATOR}{_time_left(status)}", style="not bold")


def _time_left(status: CampaignStatus) -> str:
    if not any(status.counts().values()):
        return "no runs"
    if status.is_over():
        return "nothing left to do"
    left = "unknown" if status.left_s is None else f"about {seconds(status.left_s)}"
    more = sum(one.may_follow for one in status.experiments)
    return f"time left {left}" + (f", not counting up to {more} adaptive repeat(s)" if more else "")


def _left_out(experiments: Sequence[ExperimentStatus]) -> Iterator[_Line]:
    skipped = sum(1 for one in experiments if one.experiment.skip)
    elsewhere = sum(1 for one in experiments if one.experiment.cannot_run_here and not one.experiment.skip)
    said = [f"{count} {what}" for count, what in ((skipped, "skipped"), (elsewhere, "cannot run here")) if count]
    if said:
        yield 0, Text(f"experiments that owe nothing: {', '.join(said)}", style="dim")


def _section(heading: str, found: Iterable[_Line], *, rows: int = ROWS) -> Iterator[_Line]:
    lines = list(found)
    if lines:
        yield 0, Text(heading, style="bold")
    yield from lines[:rows]
    if len(lines) > rows:
        yield 1, Text(f"… and {len(lines) - rows} more line(s); --json has all", style="dim")


def _name(one: RepeatStatus) -> str:
    return f"{one.experiment_id} r{one.repeat}" + (f"-t{one.attempt}" if one.attempt > 1 else "")


def _running(one: RepeatStatus, now: float) -> Iterator[_Line]:
    yield 1, Text(f"{one.experiment_id} r{one.repeat}-t{one.attempt}", style="cyan")
    parts = [doing(one.activity)] if one.activity else []
    if one.since is not None:
        parts.append(f"since {_clock(one.since, now)} ({seconds(max(0.0, now - one.since))})")
    if one.owner is not None:
        parts.append(f"{one.owner.host}, process {one.owner.pid}")
    yield 2, Text(SEPARATOR.join(parts))


def doing(activity: Activity) -> str:
    """Return what a run is doing, in one line: its phase, and of the rest what is known."""
    return SEPARATOR.join(_parts(activity))


def _parts(activity: Activity) -> Iterator[str]:
    yield activity.phase
    if activity.step is not None:
        yield f"step {activity.step}" + (f"/{activity.of}" if activity.of is not None else "")
    if activity.step_time_s is not None:
        yield f"{seconds(activity.step_time_s)}/step"
    if activity.tokens_per_s is not None:
        yield f"{show_number('tokens_per_s', activity.tokens_per_s)} tokens/s"
    if activity.loss is not None:
        yield f"loss {activity.loss:.3f}"
    if activity.memory_bytes is not None:
        yield f"{text(activity.memory_bytes, Show.BYTES)} in use"


def seconds(value: float) -> str:
    """Return a duration as people read it."""
    return text(value, Show.SECONDS)


def _clock(moment: float, now: float) -> str:
    """The time of day; with its date where that is another one."""
    then, today = time.localtime(moment), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def _failed(found: Iterable[RepeatStatus]) -> Iterator[_Line]:
    """A line for each experiment and way to fail: repeats mostly fail alike."""
    alike: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    for one in found:
        alike[one.experiment_id, _why(one), one.cause].append(f"r{one.repeat}")
    for (experiment_id, kind, cause), repeats in alike.items():
        line = Text(f"{experiment_id} {' '.join(repeats)}  ")
        line.append(kind, style="red")
        first = (cause or "").strip().splitlines()[:1]
        yield 1, line.append(f": {first[0]}" if first else "")


def _why(one: RepeatStatus) -> str:
    return one.kind or (one.status.value if one.status else "unknown")


def _gone(status: CampaignStatus, state: RepeatState) -> Iterator[_Line]:
    for one in status.of(state):
        who = f"process {one.owner.pid} on {one.owner.host}" if one.owner else "of nobody known"
        yield 1, Text(f"{_name(one)}  {who}")


def _pending(found: Iterable[RepeatStatus]) -> Iterator[_Line]:
    """A line for each experiment: how many runs of it, and of which an earlier attempt counts for nothing."""
    every: dict[str, list[RepeatStatus]] = defaultdict(list)
    for one in found:
        every[one.experiment_id].append(one)
    for experiment_id, repeats in every.items():
        again = [f"r{one.repeat} again ({_why(one)} before)" for one in repeats if one.attempt > 1]
        line = Text(f"{experiment_id}  {len(repeats)}×")
        yield 1, line.append(f"  {', '.join(again)}" if again else "", style="dim")


def changes(before: CampaignStatus, after: CampaignStatus) -> Iterator[str]:
    """A line for each repeat that is in another state, or at another attempt, and for each new warning."""
    was = _by_repeat(before)
    for key, one in _by_repeat(after).items():
        earlier = was.get(key)
        if earlier is None or (earlier.state, earlier.attempt) != (one.state, one.attempt):
            yield _change(one)
    yield from (f"cannot be read: {one}" for one in after.warnings if one not in before.warnings)


def _by_repeat(status: CampaignStatus) -> dict[_Key, RepeatStatus]:
    return {(one.experiment_id, one.repeat): one for cell in status.experiments for one in cell.repeats}


def _change(one: RepeatStatus) -> str:
    if one.state is RepeatState.RUNNING and one.owner is not None:
        return f"running {_name(one)}  {one.owner.host}, process {one.owner.pid}"
    if one.state is RepeatState.PENDING and one.status is not None:
        return f"pending {_name(one)} again ({_why(one)} before)"
    if one.state is RepeatState.FAILED:
        return f"{one.status or one.state} {_name(one)}  {_why(one)}: {one.cause or ''}".rstrip(": ")
    took = f"  {seconds(one.took_s)}" if one.took_s is not None and one.status is Status.OK else ""
    return f"{one.state} {_name(one)}{took}"


def follow(shown: Iterable[CampaignStatus], console: Console, *, title: str) -> None:
    """Each look in the place of the one before on a terminal, where the last one stays; elsewhere lines of what changed."""
    if not console.is_terminal:
        return _follow_in_lines(shown, console, title=title)
    with Live(console=console, auto_refresh=False) as live:
        for status in shown:
            live.update(as_view(status, title=title), refresh=True)


def _follow_in_lines(shown: Iterable[CampaignStatus], console: Console, *, title: str) -> None:
    before: CampaignStatus | None = None
    for status in shown:
        new = changes(before, status) if before else ()
        for line in new:
            console.print(printable(line), markup=False, soft_wrap=True)
        if before is None:
            show(status, console, title=title)
        before = status
    if before is not None:
        console.print(_shown(headline(before, title=title)), soft_wrap=True)

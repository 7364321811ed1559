"""A campaign's status as text: a live view on a terminal, lines of changes in a pipe or file, or one JSON document.

This module turns values into text and reads no files. It draws `tunebench status` and the live display of `tunebench run`.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from orchestrator.files.redaction import masker
from orchestrator.measure.metrics import Show
from orchestrator.measure.metrics import show as show_number
from orchestrator.measure.metrics.shown import text
from orchestrator.measure.steps import recompilations
from orchestrator.records import Status

SCHEMA = 1
SEPARATOR = " · "
# The largest number of lines in a section. JSON has all lines.
ROWS = 12
STYLES = {
    RepeatState.DONE: "green",
    RepeatState.RUNNING: "cyan",
    RepeatState.FAILED: "red",
    RepeatState.LOST: "red",
    RepeatState.SILENT: "yellow",
}
_ALWAYS = (RepeatState.DONE, RepeatState.RUNNING, RepeatState.FAILED, RepeatState.PENDING)
_ENDED = (RepeatState.DONE, RepeatState.FAILED)
# A line's depth of indentation, and its text.
_Line = tuple[int, Text]


def as_json(status: CampaignStatus) -> str:
    """Return one JSON document. Times are in seconds and sizes in bytes; unknown values are null."""
    document = {
        "schema": SCHEMA,
        "results": str(status.root),
        "seen_at": status.seen_at,
        "over": status.is_over(),
        "left_s": status.left_s,
        "counts": {state.value: count for state, count in status.counts().items()},
        "experiments": [_experiment(experiment) for experiment in status.experiments],
        "warnings": list(status.warnings),
        "queue": list(status.queue),
    }
    return escaped(json.dumps(masker()(document), indent=1)) + "\n"


def _experiment(status: ExperimentStatus) -> dict[str, Any]:
    experiment = status.experiment
    return {
        "id": experiment.id,
        "scenario": experiment.scenario,
        "framework_config": experiment.framework.name if experiment.framework else None,
        "model_name_or_path": experiment.model,
        "num_gpus": experiment.num_gpus,
        **({"num_nodes": experiment.num_nodes} if experiment.num_nodes > 1 else {}),
        **({"environment": experiment.environment.name} if experiment.environment else {}),
        "skip": asdict(experiment.skip) if experiment.skip else None,
        "cannot_run_here": asdict(experiment.cannot_run_here) if experiment.cannot_run_here else None,
        "may_follow": status.may_follow,
        "repeats": [_repeat(repeat) for repeat in status.repeats],
    }


def _repeat(repeat: RepeatStatus) -> dict[str, Any]:
    fields = asdict(repeat)
    owner, _ = fields.pop("owner"), fields.pop("experiment_id")
    return {**fields, "host": owner and owner["host"], "pid": owner and owner["pid"]}


def as_view(status: CampaignStatus, *, title: str) -> RenderableType:
    """Return the view for a terminal: the counts, then a section for each state except `DONE`."""
    return Group(*(Padding.indent(_shown(line), 2 * depth) for depth, line in _lines(status, title)))


def show(status: CampaignStatus, console: Console, *, title: str) -> None:
    """Print the view. Lines are wrapped only on a terminal."""
    if console.is_terminal:
        return console.print(as_view(status, title=title))
    for depth, line in _lines(status, title):
        console.print(Text("  " * depth).append_text(_shown(line)), soft_wrap=True)


def _shown(line: Text) -> Text:
    """Replace control characters by visible characters, because the text may come from a file. Keep the positions of the styles."""
    line.plain = printable(line.plain)
    return line


def _lines(status: CampaignStatus, title: str) -> Iterator[_Line]:
    yield 0, headline(status, title=title)
    yield from _left_out(status.experiments)
    running = [line for repeat in status.of(RepeatState.RUNNING) for line in _running(repeat, status)]
    yield from _section("running", running, rows=2 * ROWS)
    yield from _section("failed", _failed(status))
    yield from _section(
        "lost (the next `tunebench run` records and repeats these runs)", _gone(status, RepeatState.LOST)
    )
    silent = (
        "silent, on another host or for another user (if they are gone, `tunebench run --take-over` repeats them here)"
    )
    yield from _section(silent, _gone(status, RepeatState.SILENT))
    yield from _section("pending", _pending(status))
    yield from _section("in Slurm's queue", ((1, Text(sentence)) for sentence in status.queue))
    yield from _section("cannot be read", ((1, Text(warning, style="yellow")) for warning in status.warnings))


def headline(status: CampaignStatus, *, title: str) -> Text:
    """Return the line with the counts of all states and the time left."""
    counts = status.counts()
    shown = [state for state in RepeatState if counts[state] or state in _ALWAYS]
    total = sum(counts.values())
    line = Text(f"{title}: ", style="bold")
    for number, state in enumerate(shown):
        of = f" of {total}" if state is RepeatState.DONE and not status.is_racing else ""
        in_round = " in this round" if state is RepeatState.PENDING and status.is_racing else ""
        style = STYLES.get(state, "") if counts[state] else ""
        line.append(f"{SEPARATOR if number else ''}", style="not bold")
        line.append(f"{counts[state]}{of} {state}{in_round}", style=f"not bold {style}".strip())
    return line.append(f"{SEPARATOR}{_time_left(status)}", style="not bold")


def _time_left(status: CampaignStatus) -> str:
    if not any(status.counts().values()):
        return "no runs"
    if status.is_over():
        return "nothing left to do"
    if status.is_racing and not any(count for state, count in status.counts().items() if state not in _ENDED):
        return "the race is not over"
    left = "unknown" if status.left_s is None or status.unread else f"about {seconds(status.left_s)}"
    more = sum(experiment.may_follow for experiment in status.experiments)
    of_round = "in this round " if status.is_racing else ""
    return f"time left {of_round}{left}" + (f", plus up to {more} adaptive repeat(s)" if more else "")


def _left_out(experiments: Sequence[ExperimentStatus]) -> Iterator[_Line]:
    skipped = sum(bool(status.experiment.skip) for status in experiments)
    elsewhere = sum(bool(status.experiment.cannot_run_here and not status.experiment.skip) for status in experiments)
    counts = [f"{count} {what}" for count, what in ((skipped, "skipped"), (elsewhere, "cannot run here")) if count]
    if counts:
        yield 0, Text(f"experiments without due runs: {', '.join(counts)}", style="dim")


def _section(heading: str, every: Iterable[_Line], *, rows: int = ROWS) -> Iterator[_Line]:
    lines = list(every)
    if lines:
        yield 0, Text(heading, style="bold")
    yield from lines[:rows]
    if len(lines) > rows:
        yield 1, Text(f"… and {len(lines) - rows} more line(s); --json prints all", style="dim")


def _name(repeat: RepeatStatus, labels: Mapping[str, str]) -> str:
    run = f"r{repeat.repeat}" + (f"-t{repeat.attempt}" if repeat.attempt > 1 else "")
    return _labelled(repeat.experiment_id, run, labels)


def _labelled(experiment_id: str, runs: str, labels: Mapping[str, str]) -> str:
    """Return the id and the runs. If other experiments have the same readable part, also return the values that distinguish it."""
    label = labels.get(experiment_id)
    return f"{experiment_id} {runs}" + (f"  {label}" if label else "")


def _running(repeat: RepeatStatus, status: CampaignStatus) -> Iterator[_Line]:
    now = status.seen_at
    name = _labelled(repeat.experiment_id, f"r{repeat.repeat}-t{repeat.attempt}", status.labels)
    yield 1, Text(name, style="cyan")
    parts = [doing(repeat.activity)] if repeat.activity else []
    if repeat.since is not None:
        parts.append(f"since {_clock(repeat.since, now)} ({seconds(max(0.0, now - repeat.since))})")
    if repeat.owner is not None:
        parts.append(f"{repeat.owner.host}, process {repeat.owner.pid}")
    yield 2, Text(SEPARATOR.join(parts))


def doing(activity: Activity) -> str:
    """Return the activity of a run in one line: the phase and all other known values."""
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
    if activity.recompiled_at:
        yield recompilations.sentence(activity.recompiled_at, widths_vary=activity.widths_vary)


def seconds(value: float) -> str:
    """Return a duration as text for people."""
    return text(value, Show.SECONDS)


def _clock(moment: float, now: float) -> str:
    """Return the time of day. Add the date if it is not today."""
    then, today = time.localtime(moment), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def _failed(status: CampaignStatus) -> Iterator[_Line]:
    """Yield a line for each experiment and cause, because repeats mostly fail for the same cause."""
    alike: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    for repeat in status.of(RepeatState.FAILED):
        alike[repeat.experiment_id, _why(repeat), repeat.cause].append(f"r{repeat.repeat}")
    for (experiment_id, kind, cause), repeats in alike.items():
        line = Text(f"{_labelled(experiment_id, ' '.join(repeats), status.labels)}  ")
        line.append(kind, style="red")
        first = (cause or "").strip().splitlines()[:1]
        yield 1, line.append(f": {first[0]}" if first else "")


def _why(repeat: RepeatStatus) -> str:
    return repeat.kind or (repeat.status.value if repeat.status else "unknown")


def _gone(status: CampaignStatus, state: RepeatState) -> Iterator[_Line]:
    for repeat in status.of(state):
        owner = f"process {repeat.owner.pid} on {repeat.owner.host}" if repeat.owner else "owner unknown"
        yield 1, Text(f"{_name(repeat, status.labels)}  {owner}")


def _pending(status: CampaignStatus) -> Iterator[_Line]:
    """Yield a line for each experiment: the number of its pending runs, and the repeats that have failed before."""
    by_experiment: dict[str, list[RepeatStatus]] = defaultdict(list)
    for repeat in status.of(RepeatState.PENDING):
        by_experiment[repeat.experiment_id].append(repeat)
    for experiment_id, repeats in by_experiment.items():
        again = [f"r{repeat.repeat} again ({_why(repeat)} before)" for repeat in repeats if repeat.attempt > 1]
        line = Text(_labelled(experiment_id, f" {len(repeats)}×", status.labels))
        yield 1, line.append(f"  {', '.join(again)}" if again else "", style="dim")


def changes(before: CampaignStatus, after: CampaignStatus) -> Iterator[str]:
    """Yield a line for each repeat with a new state or attempt, and for each new warning."""
    earlier = {(one.experiment_id, one.repeat, one.state, one.attempt) for one in before.repeats()}
    for one in after.repeats():
        if (one.experiment_id, one.repeat, one.state, one.attempt) not in earlier:
            yield _change(one, after.labels)
    yield from (f"cannot be read: {warning}" for warning in after.warnings if warning not in before.warnings)


def _change(repeat: RepeatStatus, labels: Mapping[str, str]) -> str:
    name = _name(repeat, labels)
    if repeat.state is RepeatState.RUNNING and repeat.owner is not None:
        return f"running {name}  {repeat.owner.host}, process {repeat.owner.pid}"
    if repeat.state is RepeatState.PENDING and repeat.status is not None:
        return f"pending {name} again ({_why(repeat)} before)"
    if repeat.state is RepeatState.FAILED:
        return f"{repeat.status or repeat.state} {name}  {_why(repeat)}: {repeat.cause or ''}".rstrip(": ")
    took = f"  {seconds(repeat.took_s)}" if repeat.took_s is not None and repeat.status is Status.OK else ""
    return f"{repeat.state} {name}{took}"


def follow(shown: Iterable[CampaignStatus], console: Console, *, title: str) -> None:
    """Show each status. On a terminal, each status replaces the previous one. In a pipe or file, print a line for each change."""
    if not console.is_terminal:
        return _follow_in_lines(shown, console, title=title)
    with Live(console=console, auto_refresh=False) as live:
        for status in shown:
            live.update(as_view(status, title=title), refresh=True)


def _follow_in_lines(shown: Iterable[CampaignStatus], console: Console, *, title: str) -> None:
    before: CampaignStatus | None = None
    for status in shown:
        if before is None:
            show(status, console, title=title)
        for line in changes(before, status) if before else ():
            console.print(printable(line), markup=False, soft_wrap=True)
        before = status
    if before is not None:
        console.print(_shown(headline(before, title=title)), soft_wrap=True)

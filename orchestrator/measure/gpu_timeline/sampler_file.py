"""Reads the file of an NVML sampler: its lines become the values of each device over time.

A line is `time,gpu,what,value`. The sampler's last line starts with `# ` and has its own cost. Other lines are messages of NVML or
of its library.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from orchestrator.files import reading, writing
from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import redactor
from orchestrator.measure.gpu_timeline import LONGEST_REPEAT_S, Device, Timeline, Window

SAMPLES, HEADER = "samples-nvml.csv", "time,gpu,what,value"
# The largest file of samples that is read: half a day on eight GPUs. Reading such a file takes 3 GB of memory.
LARGEST_BYTES = 256 * reading.MIB
# A clock that is wrong by less is made slower for a while, and not set.
_SET_BACK_S = 0.1
_TEXTS = ("uuid", "processes", "lost", "failed")
# A line that is not `time,gpu,what,number`.
_TEXT = re.compile(r"^(?![0-9.]+,[0-9]+,[a-z_]+,[-+.0-9e]+$).+$", re.MULTILINE)


def parse(text: str) -> Timeline:
    """Return the samples of a run. Skip a last line that was cut off, and lines that are not samples."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return Timeline(problem="the sampler wrote nothing")
    if not has_header(text):
        return Timeline(problem=_reason(lines))
    if not text.endswith("\n"):
        lines = lines[:-1]
    by_place: dict[int, dict[str, list[tuple[float, str]]]] = {}
    moments: dict[int, list[float]] = {}
    for place, what, moment, value in _readings(lines):
        moments.setdefault(place, []).append(moment)
        by_place.setdefault(place, {}).setdefault(what, []).append((moment, value))
    cost = _cost(lines)
    until = max(map(max, moments.values()), default=-math.inf)
    pause_s = cost.get("worst_period_s", math.inf)
    devices = {
        place: _device(lines_by_kind, _stretches(moments[place], pause_s=pause_s), to_the_end=bool(cost), until=until)
        for place, lines_by_kind in sorted(by_place.items())
    }
    nothing = not any(device.points for device in devices.values())
    return Timeline(devices=devices, cost=cost, problem="it has no reading" if nothing else None)


def has_header(text: str) -> bool:
    """Return whether the sampler began its samples. A library may print text before the header, without a line end."""
    return any(line.endswith(HEADER) for line in text.splitlines())


def joined(nodes: Mapping[str, Timeline]) -> Timeline:
    """Return the samples of several nodes as those of one run. If one node has no samples, the run has none."""
    for node, timeline in nodes.items():
        if timeline.problem:
            return Timeline(problem=f"node {node}: {timeline.problem}")
    devices = [replace(one, node=node) for node, timeline in nodes.items() for one in timeline.devices.values()]
    costs = [timeline.cost for timeline in nodes.values()]
    known = [name for name in costs[0] if all(name in cost for cost in costs)] if costs else []
    lists = {name: [cost[name] for cost in costs] for name in known}
    cost = {name: max(values) if "period" in name else sum(values) for name, values in lists.items()}
    return Timeline(devices=dict(enumerate(devices)), cost=cost)


def mask_texts(samples: Path) -> None:
    """Mask the secrets in the messages of NVML and of its library. Lines with numbers have none."""
    masked = redactor()
    with suppress(OSError, ValueError):
        text = reading.read_text(samples, limit=LARGEST_BYTES)
        if (safe := _TEXT.sub(lambda line: masked(line[0]), text)) != text:
            writing.replace(samples, safe)


def _device(
    lines: Mapping[str, Sequence[tuple[float, str]]], stretches: Iterable[Window], *, to_the_end: bool, until: float
) -> Device:
    lists = [frozenset(value.split()) for _, value in lines.get("processes", ())]
    texts = {what: lines[what][-1][1] for what in ("uuid", "lost") if what in lines}
    readings = {
        what: [(moment, float(value)) for moment, value in points]
        for what, points in lines.items()
        if what not in _TEXTS
    }
    memory = readings.get("memory", [None])
    return Device(
        uuid=texts.get("uuid"),
        points={what: sorted(points, key=itemgetter(0)) for what, points in readings.items()},  # a clock may go back
        first_memory=memory[0],
        last_memory=memory[-1],
        processes_before=lists[0] if lists else frozenset(),
        processes=frozenset().union(*lists),
        lost=texts.get("lost"),
        failed=frozenset(value for _, value in lines.get("failed", ())),
        to_the_end=to_the_end,
        until=until,
        stretches=tuple(stretches),
    )


def _stretches(moments: Sequence[float], *, pause_s: float) -> Iterator[Window]:
    """Yield the windows in which the clock was not set.

    `moments` are the times of a device's lines, in the order of the file. The sampler made no longer pause than `pause_s`.
    """
    begin = moments[0]
    for before, after in pairwise(moments):
        if not -_SET_BACK_S <= after - before <= pause_s + LONGEST_REPEAT_S:
            yield begin, before
            begin = after
    yield begin, moments[-1]


def _reason(lines: Sequence[str]) -> str:
    """Return the reason from the lines of a sampler that did not start. It is the last one: a library's warnings may precede it."""
    if any(_readings(lines)):
        return "the first line of the samples is missing"
    said = [line for line in lines if not line.startswith("# {")]
    return one_line(said[-1], longest=200) if said else "the sampler wrote nothing"


def _readings(lines: Iterable[str]) -> Iterator[tuple[int, str, float, str]]:
    for line in lines:
        try:
            moment, place, what, value = line.split(",", 3)
            finite = math.isfinite(float(moment)) and (what in _TEXTS or math.isfinite(float(value)))
            found = int(place), what, float(moment), value
        except ValueError:
            continue
        if finite:
            yield found


def _cost(lines: Sequence[str]) -> dict[str, Any]:
    last = next((line for line in reversed(lines) if line.startswith("# {")), "# {}")
    try:
        cost = json.loads(last[2:])
        return {name: value for name, value in cost.items() if value is not None and math.isfinite(value)}
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}

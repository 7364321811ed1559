"""Reads a trace of torch's profiler into a `Profile`: where the time of a step goes, on the device and on the host.

A trace is a JSON file in Chrome's format, compressed or not. Its events have a name, a category, a start and a duration in
microseconds. The steps are the host's annotations `ProfilerStep#<N>`. Every number is a mean per step.

On the device, each kernel, copy or fill is an operation; their times may overlap, so `busy_s` is the time in which at least one of
them runs. An operation belongs to the steps in which the host launched it; the device may run it later. So a step's time is the
longer one of the host's and the device's. A kernel with `nccl` in its name is communication. It is exposed while no other kernel
runs. On the host, the time of an operator is its own time, without that of the operators that it calls.

What the numbers leave out: operations that were launched before the first profiled step; the time that the profiler itself takes,
which is in the host's operators.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.errors import SelectionError
from orchestrator.files import reading
from orchestrator.measure.memory_logs import finite

# A trace of three steps of a large model has some 100 MB.
MOST_BYTES = 1024 * reading.MIB
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
# A longer name is cut, because comparing names takes time. Times beyond this one, 30,000 years, are wrong.
_LONGEST_NAME, _LATEST_US = 4096, 1e18
_STEP, _OPERATOR, _COMMUNICATION = "ProfilerStep#", "cpu_op", "nccl"
_US = 1e-6


class Operation(NamedTuple):
    """The time and the number of calls of all operations of a name, per step."""

    seconds: float
    calls: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The profiled steps of one rank. The numbers of a device are None if the trace has no kernel."""

    steps: int
    step_s: float
    device: Mapping[str, Operation]
    host: Mapping[str, Operation]
    busy_s: float | None = None
    communication_s: float | None = None
    exposed_s: float | None = None

    @property
    def operations(self) -> Mapping[str, Operation]:
        """The operations that compute: those of the device if there is one."""
        return self.device or self.host

    @property
    def launches(self) -> float:
        """The number of operations of the device per step."""
        return sum(operation.calls for operation in self.device.values())


class _Event(NamedTuple):
    name: str
    begin: float
    end: float
    place: tuple[Any, Any]
    launch: str | None


def read(path: Path) -> Profile:
    """Return the profile of a trace file. Raise SelectionError if the file is not such a trace."""
    try:
        document = json.loads(text(path), parse_int=float)  # a whole number may have thousands of digits
    except FileNotFoundError:
        raise SelectionError(f"{path}: there is no such file; name a trace, or a folder with one") from None
    except (OSError, ValueError, RecursionError) as error:
        why = "it is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        raise SelectionError(f"{path}: the trace cannot be read: {why}; remove it and profile again") from None
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise SelectionError(f"{path}: this is not a trace of torch's profiler; name a file such as rank0.json.gz")
    found = _profile(events)
    if found is None:
        raise SelectionError(f"{path}: the trace has no {_STEP}…, so it is not known which steps it has; profile again")
    return found


def text(path: Path, *, limit: int = MOST_BYTES) -> bytes:
    """Return the JSON text of a trace file. Raise OSError, or ValueError if it is larger than the limit or damaged."""
    try:
        with reading.opened(path) as file, gzip.open(file) if path.suffix == ".gz" else nullcontext(file) as source:
            found: bytes = source.read(limit + 1)
    except (EOFError, zlib.error) as error:
        raise ValueError(str(error)) from None
    if len(found) > limit:
        raise ValueError(f"it has more than {limit // reading.MIB} MiB")
    return found


def _profile(events: Iterable[Any]) -> Profile | None:
    steps: list[_Event] = []
    device: list[_Event] = []
    host: list[_Event] = []
    launches: dict[str, float] = {}
    for category, event in _timed(events):
        if category in _ON_DEVICE:
            device.append(event)
        elif category in _LAUNCHES and event.launch:
            launches[event.launch] = event.begin
        elif category == _OPERATOR:
            host.append(event)
        elif category == "user_annotation" and event.name.startswith(_STEP):
            steps.append(event)
    if not steps:
        return None
    count = len(steps)
    first, last = min(step.begin for step in steps), max(step.end for step in steps)
    if launches:
        device = [event for event in device if first <= launches.get(event.launch or "", last) < last]
    computing = [event for event in device if _COMMUNICATION not in event.name.lower()]
    busy, alone = _covered(device), _covered(computing)
    talking = _covered([event for event in device if _COMMUNICATION in event.name.lower()])
    of_device = {"busy_s": busy / count, "communication_s": talking / count, "exposed_s": (busy - alone) / count}
    return Profile(
        steps=count,
        step_s=max(last - first, _span(device)) / count,
        device=_summed(((event.name, event.end - event.begin) for event in device), count),
        host=_summed(_own_times(host), count),
        **(of_device if device else {}),
    )


def _timed(events: Iterable[Any]) -> Iterator[tuple[str, _Event]]:
    """Yield the category of each event with a duration, and the event in seconds. Events of another form are left out."""
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        name, begin, length = event.get("name"), finite(event.get("ts")), finite(event.get("dur", 0))
        if isinstance(name, str) and begin is not None and length is not None and 0 <= length < _LATEST_US > abs(begin):
            place, more = (str(event.get("pid")), str(event.get("tid"))), event.get("args")
            launch = str(more["correlation"]) if isinstance(more, dict) and "correlation" in more else None
            found = _Event(name[:_LONGEST_NAME], begin * _US, (begin + length) * _US, place, launch)
            yield str(event.get("cat")), found


def _summed(times: Iterable[tuple[str, float]], steps: int) -> dict[str, Operation]:
    sums: dict[str, tuple[float, int]] = {}
    for name, seconds in times:
        before, calls = sums.get(name, (0.0, 0))
        sums[name] = (before + seconds, calls + 1)
    return {name: Operation(seconds / steps, calls / steps) for name, (seconds, calls) in sums.items()}


def _span(events: Sequence[_Event]) -> float:
    return max(event.end for event in events) - min(event.begin for event in events) if events else 0.0


def _covered(events: Iterable[_Event]) -> float:
    """Return the time in which at least one of the events runs."""
    total, end = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event.begin):
        total += max(0.0, event.end - max(event.begin, end))
        end = max(end, event.end)
    return total


def _own_times(events: Iterable[_Event]) -> Iterator[tuple[str, float]]:
    """Yield the name of each event and its own time. The events of a thread are nested in each other."""
    open_events: list[tuple[_Event, list[float]]] = []

    def closed() -> tuple[str, float]:
        event, children = open_events.pop()
        return event.name, max(0.0, event.end - event.begin - sum(children))

    for event in sorted(events, key=lambda event: (event.place, event.begin, -event.end)):
        while open_events and (open_events[-1][0].place != event.place or open_events[-1][0].end <= event.begin):
            yield closed()
        if open_events:
            open_events[-1][1].append(event.end - event.begin)
        open_events.append((event, []))
    while open_events:
        yield closed()

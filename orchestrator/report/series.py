"""A run over time, reduced to the points of a drawing: its step times, and each GPU's memory and power.

Reads `steps-rank<R>.jsonl` and `samples-nvml.csv` in a run's folder, at most MAX_BYTES of one run. Each series is thinned to at
most POINTS points, which include its lowest and its highest value. As in `measure.throughput`, a step lasts until the last rank has
ended it. The end of the warm-up comes from the number of discarded steps in the run's record.

What it leaves out: the cause of a change, and everything between two points. Numbers come from `measure` and the monitors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orchestrator.files import reading
from orchestrator.measure import steady_state, steps
from orchestrator.measure.gpu_timeline import Timeline, sampler_file
from orchestrator.measure.steps import Step
from orchestrator.records import RunFolder

Point = tuple[float, float]

# The largest number of points of a series, and of the part of a GPU's series before the first step.
POINTS, POINTS_BEFORE = 200, 40
# The largest size of one run's steps and samples together. A GPU that is read every 10 ms for an hour writes about 2 MiB.
MAX_BYTES = 24 * 2**20

_EXTREMES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The step times of a run with `ranks` ranks, as thinned points: (number of the step, seconds).

    `cut` is the number of warm-up steps. `median_s` is the median of the steps after the warm-up. `spikes` are later steps that
    took much longer. If there was no steady state, `cut` and `median_s` are None, and `spikes` is empty.
    """

    points: tuple[Point, ...]
    first: Point
    steps: int
    ranks: int
    cut: int | None = None
    median_s: float | None = None
    spikes: tuple[Point, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One GPU over time, as thinned points: (seconds on the clock of the series, value). A value is valid until the next point."""

    place: int
    uuid: str | None
    memory_bytes: tuple[Point, ...]
    power_w: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSeries:
    """A run's series.

    The clock of the devices starts when the first step begins (`from_first_step`), or, if this moment is unknown, with the first
    reading. `window` is the time of the steady state on this clock. `problem` says why something is missing.
    """

    steps: Steps | None = None
    devices: tuple[Device, ...] = ()
    window: tuple[float, float] | None = None
    from_first_step: bool = False
    problem: str | None = None


def read(run_dir: Path, *, discarded_steps: int | None, with_gpus: bool = True) -> RunSeries:
    """Return the series of a run.

    `discarded_steps` is the number of warm-up steps in the run's record; None means that the run has no steady state.
    """
    if size(run_dir, with_gpus=with_gpus) > MAX_BYTES:
        return RunSeries(problem=f"its series take more than {MAX_BYTES // 2**20} MiB, and are not drawn")
    ranks = {rank: sound for rank, series in steps.read(run_dir).items() if (sound := [*filter(_is_sound, series)])}
    together = steps.together(ranks)
    state = _state(together, discarded_steps)
    samples = samples_of(run_dir, limit=MAX_BYTES) if with_gpus else Timeline()
    first_step = _first_step(together, samples)
    start = start_of(samples) if first_step is None else first_step
    return RunSeries(
        steps=_steps(together, len(ranks), state) if together else None,
        devices=tuple(
            Device(
                place=place,
                uuid=device.uuid,
                memory_bytes=_since(device.points.get("memory", ()), start),
                power_w=_since(device.points.get("power", ()), start),
            )
            for place, device in samples.devices.items()
        ),
        window=_window(together, state, start),
        from_first_step=first_step is not None,
        problem=samples.problem,
    )


def size(run_dir: Path, *, with_gpus: bool = True) -> int:
    """Return the number of bytes that `read` reads of a run."""
    total, samples = 0, [run_dir / sampler_file.SAMPLES] if with_gpus else []
    for path in (*RunFolder(run_dir).all_steps().values(), *samples):
        try:
            total += path.lstat().st_size
        except OSError:
            continue
    return total


def samples_of(run_dir: Path, *, limit: int) -> Timeline:
    """Return the GPU samples of a run. If they cannot be read, the result has no devices, but names the problem."""
    path = run_dir / sampler_file.SAMPLES
    try:
        return sampler_file.parse(reading.read_text(path, limit=limit))
    except FileNotFoundError:
        return Timeline(problem="no GPU was watched")
    except (OSError, ValueError) as error:
        return Timeline(problem=f"{path.name} cannot be read: {reading.reason(error)}")


def start_of(samples: Timeline) -> float:
    """Return the moment of the first reading of any GPU, in seconds since the epoch. Return 0 if there are no readings."""
    series = [points for device in samples.devices.values() for points in device.points.values()]
    return min((points[0][0] for points in series if points), default=0.0)


def _first_step(series: Sequence[Step], samples: Timeline) -> float | None:
    """Return the moment when the first step began, in seconds since the epoch. Return None if no GPU was read around it."""
    readings = [points for device in samples.devices.values() for points in device.points.values() if points]
    if not series or series[0].ended_at is None or not readings:
        return None
    began = series[0].ended_at - series[0].seconds
    return began if start_of(samples) <= began <= max(points[-1][0] for points in readings) else None


def thin(points: Sequence[Point], *, limit: int = POINTS) -> tuple[Point, ...]:
    """Return at most `limit` of the points, in their order. The first, last, lowest and highest points are always included.

    The points in between are divided into equal stretches, and each stretch keeps its lowest and its highest point. Raise
    ValueError for a limit below 4.
    """
    if limit < _EXTREMES + 2:
        raise ValueError(f"a series is thinned to 4 points or more, not {limit}")
    if len(points) <= limit:
        return tuple(points)
    inner, stretches = len(points) - 2, (limit - 2) // _EXTREMES
    edges = [1 + inner * at // stretches for at in range(stretches + 1)]
    kept = [0]
    for begin, end in pairwise(edges):
        lowest = min(range(begin, end), key=lambda at: points[at][1])
        highest = max(range(begin, end), key=lambda at: points[at][1])
        kept += sorted({lowest, highest})
    return tuple(points[at] for at in (*kept, len(points) - 1))


def _state(series: Sequence[Step], discarded_steps: int | None) -> steady_state.Steady | None:
    if discarded_steps is None or not 0 <= discarded_steps < len(series):
        return None
    state = steady_state.find(
        [step.seconds for step in series],
        discard_steps=discarded_steps,
        at_least_steps=1,  # the run's record has decided that there is a steady state; only its spikes are searched here
        waits_s=[step.wait_s or 0.0 for step in series],
        after=[step.after for step in series],
    )
    return state if isinstance(state, steady_state.Steady) else None


def _steps(series: Sequence[Step], ranks: int, state: steady_state.Steady | None) -> Steps | None:
    points = [(float(step.number), step.seconds) for step in series]
    sound = _sound(points)
    if not sound:
        return None
    return Steps(
        points=thin(sound),
        first=sound[0],
        steps=len(series),
        ranks=ranks,
        cut=state.discarded_steps if state else None,
        median_s=state.median_s if state else None,
        spikes=thin(_sound(points[at] for at in state.spikes)) if state else (),
    )


def _window(series: Sequence[Step], state: steady_state.Steady | None, start: float) -> tuple[float, float] | None:
    """Return the beginning and the end of the steady state, in seconds since `start`. Return None if its time is unknown."""
    if state is None:
        return None
    first, last = series[state.discarded_steps], series[-1]
    if first.ended_at is None or last.ended_at is None:
        return None
    ends = _sound([(first.ended_at - first.seconds - start, last.ended_at - start)])
    return ends[0] if ends else None


def _since(points: Sequence[Point], start: float) -> tuple[Point, ...]:
    """Return the points on the clock that starts at `start`. Fewer points are kept of the time before it."""
    sound = _sound((moment - start, value) for moment, value in points)
    before = [point for point in sound if point[0] < 0]
    return (*thin(before, limit=POINTS_BEFORE), *thin(sound[len(before) :]))


def _is_sound(step: Step) -> bool:
    """Return whether a step's times can be used in sums. A file from other people may contain any number."""
    times = (step.number, step.ended_at, step.seconds, step.compute_s, step.wait_s)
    return all(reading.sound_number(value) is not None for value in times if value is not None)


def _sound(points: Iterable[Point]) -> list[Point]:
    """Return the points that can be drawn."""
    return [(x, y) for x, y in points if reading.sound_number(x) is not None and reading.sound_number(y) is not None]

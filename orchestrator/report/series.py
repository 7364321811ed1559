"""What a run did over time, small enough to be drawn: its step times, and each GPU's memory and power.

Reads a run's folder (`steps-rank<R>.jsonl`, `samples-nvml.csv`) as `untrusted` does, never more than MAX_BYTES a run, and thins
each series to at most POINTS points that keep the lows and highs of the whole. The steps are those of all ranks together, as in
`throughput`; the warm-up is not looked for again: it is what the run's record says was cut.

What it leaves out: causes, and everything between the points. Numbers are `throughput`'s and the monitors'; this is for the
eye.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orchestrator.files import reading
from orchestrator.measure import gpu_timeline, steady_state, steps
from orchestrator.measure.steps import Step
from orchestrator.records import RunFolder

Point = tuple[float, float]

POINTS = 200
MAX_BYTES = 24 * 2**20
"""Of one run's steps and samples together: a GPU that is read every 10 ms for an hour writes about 2 MiB."""

_EXTREMES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """Step times, of `ranks` together: (number of the step, seconds), thinned.

    `first` is the first step. `cut` is how many steps were warm-up, `median_s` the median of the steps after it, `spikes`
    those of them that took much longer; all three are empty where there was no steady state.
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
    """One GPU over time: (seconds since the run's first reading, value), thinned. A value holds until the next."""

    place: int
    uuid: str | None
    memory_bytes: tuple[Point, ...]
    power_w: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSeries:
    """A run's series; `window` is its steady state, on the clock of the devices. `problem`: why something is missing."""

    steps: Steps | None = None
    devices: tuple[Device, ...] = ()
    window: tuple[float, float] | None = None
    problem: str | None = None


def read(run_dir: Path, *, discarded_steps: int | None) -> RunSeries:
    """The series of a run whose record cut `discarded_steps` off (None: it had no steady state)."""
    if size(run_dir) > MAX_BYTES:
        return RunSeries(problem=f"its series take more than {MAX_BYTES // 2**20} MiB, and are not drawn")
    ranks = _sound_ranks(steps.read(run_dir))
    together = steps.together(ranks)
    state = _state(together, discarded_steps)
    samples = _samples(run_dir)
    start = min(
        (points[0][0] for one in samples.devices.values() for points in one.points.values() if points), default=0.0
    )
    return RunSeries(
        steps=_steps(together, len(ranks), state) if together else None,
        devices=tuple(_devices(samples, start)),
        window=_window(together, state, start),
        problem=samples.problem,
    )


def size(run_dir: Path) -> int:
    """How many bytes `read` would read of a run."""
    return sum(_bytes(path) for path in (*RunFolder(run_dir).all_steps().values(), run_dir / gpu_timeline.SAMPLES))


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def thin(points: Sequence[Point], *, limit: int = POINTS) -> tuple[Point, ...]:
    """At most `limit` of the points, in their order: the first, the last, and of as many equal stretches between them as
    there is room for the lowest and the highest. The lowest and the highest of all are therefore among them. Raises
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


def _sound_ranks(ranks: Mapping[int, Sequence[Step]]) -> dict[int, tuple[Step, ...]]:
    found = {rank: tuple(filter(_is_sound, series)) for rank, series in ranks.items()}
    return {rank: series for rank, series in found.items() if series}


def _state(series: Sequence[Step], discarded_steps: int | None) -> steady_state.Steady | None:
    if discarded_steps is None or not 0 <= discarded_steps < len(series):
        return None
    found = steady_state.find(
        [step.seconds for step in series],
        discard_steps=discarded_steps,
        at_least_steps=1,  # the record has judged already: it is only said again where the spikes were
        waits_s=[step.wait_s for step in series],
        after=[step.after for step in series],
    )
    return found if isinstance(found, steady_state.Steady) else None


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
    """The steady state in seconds since `start`, as `throughput.steady_window` has it since the epoch."""
    if state is None:
        return None
    first, last = series[state.discarded_steps], series[-1]
    ends = _sound([(first.ended_at - first.seconds - start, last.ended_at - start)])
    return ends[0] if ends else None


def _samples(run_dir: Path) -> gpu_timeline.Timeline:
    path = run_dir / gpu_timeline.SAMPLES
    try:
        return gpu_timeline.parse(reading.read_text(path, limit=MAX_BYTES))
    except FileNotFoundError:
        return gpu_timeline.Timeline(problem="no GPU was watched")
    except (OSError, ValueError) as error:
        return gpu_timeline.Timeline(problem=f"{path.name} cannot be read: {error}")


def _devices(samples: gpu_timeline.Timeline, start: float) -> Iterator[Device]:
    for place, device in samples.devices.items():
        yield Device(
            place=place,
            uuid=device.uuid,
            memory_bytes=_since(device.points.get("memory", ()), start),
            power_w=_since(device.points.get("power", ()), start),
        )


def _since(points: Sequence[Point], start: float) -> tuple[Point, ...]:
    return thin(_sound((moment - start, value) for moment, value in points))


def _is_sound(step: Step) -> bool:
    """Whether a step's times can be reckoned with: a file from elsewhere may hold anything that is a number."""
    times = (step.number, step.ended_at, step.seconds, step.compute_s, step.wait_s)
    return all(reading.sound_number(value) is not None for value in times)


def _sound(points: Iterable[Point]) -> list[Point]:
    """The points that can be drawn."""
    return [(x, y) for x, y in points if reading.sound_number(x) is not None and reading.sound_number(y) is not None]

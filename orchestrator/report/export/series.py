"""The series of a run for a tracker's charts: steps, losses, memory and power of the GPUs.

Reads `steps-rank<R>.jsonl` and `samples-nvml.csv`, up to a limit, and skips lines and values that are invalid. As in
`measure.throughput`, a step lasts until the last rank has ended it. A long series is thinned as for the report, but keeps more
points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from orchestrator.files import reading
from orchestrator.measure import steps
from orchestrator.records import RunFolder
from orchestrator.report.export.tracker import Point
from orchestrator.report.series import samples_of, start_of, thin

# The largest number of points in a series. A tracker stores every point, and no chart is wider than this number of pixels.
MOST_POINTS = 1000

_LARGEST_STEP = 2**53

_LONGEST_LINE = 64 * 2**10
# The sampler's name of a reading, and our name, which contains the unit.
_WATCHED = {"memory": "memory_bytes", "power": "power_w", "utilization": "utilization"}


def of_run(run_dir: Path) -> dict[str, tuple[Point, ...]]:
    """Return a dict from name (`steps/…`, `gpu<N>/…`) to thinned series. Empty series are left out."""
    series = {**_step_series(run_dir), "steps/loss": tuple(_losses(run_dir)), **_gpu_series(run_dir)}
    sound = {name: [point for point in points if _is_sound(point)] for name, points in series.items()}
    return {name: _thinned(points) for name, points in sound.items() if points}


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    kept = thin([(float(at), point.value) for at, point in enumerate(points)], limit=MOST_POINTS)
    return tuple(points[int(at)] for at, _ in kept)


def _is_sound(point: Point) -> bool:
    return 0 <= point.step < _LARGEST_STEP and 0 <= point.at < steps.LATEST and math.isfinite(point.value)


def _step_series(run_dir: Path) -> Mapping[str, tuple[Point, ...]]:
    """Return the step times and the waits for data.

    If the end of a step is unknown, its moment is the sum of the step times so far.
    """
    together = steps.together({rank: series for rank, series in steps.read(run_dir).items() if series})
    times = [*zip(together, accumulate(step.seconds for step in together), strict=True)]
    ends = [(step, so_far if step.ended_at is None else step.ended_at) for step, so_far in times]
    return {
        "steps/step_time_s": tuple(Point(step=step.number, at=at, value=step.seconds) for step, at in ends),
        "steps/data_wait_s": tuple(
            Point(step=step.number, at=at, value=step.wait_s) for step, at in ends if step.wait_s is not None
        ),
    }


def _losses(run_dir: Path) -> Iterator[Point]:
    """Yield the losses that the Trainer logged. They are in the step file of rank 0."""
    try:
        lines = reading.read_lines(RunFolder(run_dir).steps(0), limit=steps.MAX_BYTES, longest=_LONGEST_LINE)
        for line in lines:
            if b'"loss"' in line and (point := _loss(line)) is not None:
                yield point
    except (OSError, reading.Unreadable):
        return


def _loss(line: bytes) -> Point | None:
    try:
        fields = json.loads(line)
        return Point(step=int(fields["step"]), at=float(fields["t"]), value=float(fields["loss"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _gpu_series(run_dir: Path) -> Mapping[str, tuple[Point, ...]]:
    samples = samples_of(run_dir, limit=reading.LOG_BYTES)
    begin = start_of(samples)
    return {
        f"gpu{place}/{name}": tuple(_by_milliseconds(device.points.get(kind, ()), begin))
        for place, device in samples.devices.items()
        for kind, name in _WATCHED.items()
    }


def _by_milliseconds(points: Iterable[tuple[float, float]], begin: float) -> Iterator[Point]:
    for moment, value in points:
        if 0 <= moment - begin < steps.LATEST:  # a clock may be set back, and a file may contain any number
            yield Point(step=round((moment - begin) * 1000), at=moment, value=value)

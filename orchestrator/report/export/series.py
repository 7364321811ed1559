"""The series of a run for a tracker's charts: its steps, its losses, its GPUs' memory and power.

Reads `steps-rank<R>.jsonl` and `samples-nvml.csv`, bounded and trusting neither. Step times are those of all ranks together, as
in `throughput`. A long series is thinned as for the report (`series`), to more points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.files import reading
from orchestrator.measure import gpu_timeline, steps
from orchestrator.records import RunFolder
from orchestrator.report.export.tracker import Point
from orchestrator.report.series import thin

# The most points of a series. A tracker stores every point, and no chart has more columns of pixels.
MOST_POINTS = 1000

_LARGEST_STEP = 2**53

_LONGEST_LINE = 64 * 2**10
# The sampler's name of a reading, and ours, with its unit.
_WATCHED = {"memory": "memory_bytes", "power": "power_w", "utilization": "utilization"}


def of_run(run_dir: Path) -> dict[str, tuple[Point, ...]]:
    """Return the thinned series by name (`steps/…`, `gpu<N>/…`), without empty ones."""
    found = {**_step_series(run_dir), "steps/loss": tuple(_losses(run_dir)), **_gpu_series(run_dir)}
    sound = {name: [point for point in points if _is_sound(point)] for name, points in found.items()}
    return {name: _thinned(points) for name, points in sound.items() if points}


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    kept = thin([(float(at), point.value) for at, point in enumerate(points)], limit=MOST_POINTS)
    return tuple(points[int(at)] for at, _ in kept)


def _is_sound(point: Point) -> bool:
    return 0 <= point.step < _LARGEST_STEP and 0 <= point.at < steps.LATEST and math.isfinite(point.value)


def _step_series(run_dir: Path) -> Mapping[str, tuple[Point, ...]]:
    found = steps.together({rank: series for rank, series in steps.read(run_dir).items() if series})
    return {
        "steps/step_time_s": tuple(Point(step=one.number, at=one.ended_at, value=one.seconds) for one in found),
        "steps/data_wait_s": tuple(Point(step=one.number, at=one.ended_at, value=one.wait_s) for one in found),
    }


def _losses(run_dir: Path) -> Iterator[Point]:
    """Yield the losses that the Trainer logged in the lines of rank 0, without those that are not finite."""
    try:
        lines = reading.read_lines(RunFolder(run_dir).steps(0), limit=steps.MAX_BYTES, longest=_LONGEST_LINE)
        for line in lines:
            if b'"loss"' in line and (point := _loss(line)) is not None:
                yield point
    except (OSError, reading.Unreadable):
        return


def _loss(line: bytes) -> Point | None:
    try:
        said = json.loads(line)
        return Point(step=int(said["step"]), at=float(said["t"]), value=float(said["loss"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _gpu_series(run_dir: Path) -> Mapping[str, tuple[Point, ...]]:
    try:
        samples = gpu_timeline.parse(reading.read_text(run_dir / gpu_timeline.SAMPLES, limit=reading.LOG_BYTES))
    except (OSError, reading.Unreadable):
        return {}
    begin = min(
        (one[0][0] for device in samples.devices.values() for one in device.points.values() if one), default=0.0
    )
    return {
        f"gpu{place}/{name}": tuple(_by_milliseconds(device.points.get(what, ()), begin))
        for place, device in samples.devices.items()
        for what, name in _WATCHED.items()
    }


def _by_milliseconds(points: Iterable[tuple[float, float]], begin: float) -> Iterator[Point]:
    for moment, value in points:
        if 0 <= moment - begin < steps.LATEST:  # a clock may be set back, and a file may say anything
            yield Point(step=round((moment - begin) * 1000), at=moment, value=value)

"""A sentence about the share of the GPU time in which nothing was measured: start-up, loading, warm-up."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.files.printable_text import rounded
from orchestrator.records import Device
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.wording import percent
from orchestrator.results.table.column_choice import column, number

# A smaller share is not mentioned: every run has to start and to warm up.
LEAST = 0.5
_COLUMNS = ("device", "num_gpus", "wall_s", "steady_s", "steady_steps", "steps_per_s")


def gpu_time(known: Known) -> Iterator[Highlight]:
    """Yield a sentence if at least LEAST of the GPU time is outside the steady state. Runs without a steady state do not count."""
    wall_hours = steady_hours = 0.0
    left_out = False
    for device, *values in zip(*(column(known.table.runs, name) for name in _COLUMNS), strict=True):
        gpus, wall_s, steady_s, steps, steps_per_s = map(number, values)
        if steady_s is None and steps and steps_per_s:  # older records have no steady_s
            steady_s = steps / steps_per_s
        if device != Device.CUDA.value or not gpus or not wall_s:
            continue
        left_out |= steady_s is None
        if steady_s is not None:
            wall_hours += gpus * wall_s / 3600
            steady_hours += gpus * min(steady_s, wall_s) / 3600
    share = 1 - steady_hours / wall_hours if wall_hours else 0.0
    if share >= LEAST:
        text = (
            f"{percent(share)} of the GPU time measured nothing: start-up, loading and warm-up took "
            f"{rounded(wall_hours - steady_hours, 2)} of {rounded(wall_hours, 2)} GPU-hours"
            f"{' of runs with a steady state' if left_out else ''}; runs with more steps measure more"
        )
        yield known.sentence(HighlightKind.GAIN, text, [])

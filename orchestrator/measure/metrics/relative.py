"""Columns that compare an experiment with its baseline, in a report that names a baseline (`--baseline`)."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Metric, Show, Where

_ALIKE = "Missing where no cell of the baseline differs only by its framework configuration."

_ratio = partial(
    Metric,
    source="the table, with `--baseline`",
    unit="ratio",
    direction=Direction.HIGHER,
    show=Show.RATIO,
    by_ratio=True,
)

RELATIVE = (
    _ratio(
        "speedup",
        "speed-up",
        (
            "Tokens per second ÷ the baseline's, for the same cell: real_tokens_per_s, else tokens_per_s, "
            "means of logs over runs (train_tokens_per_second if no run has steps)."
        ),
        leaves_out=_ALIKE,
        where=Where.FIRST | Where.KEPT | Where.PAGE,
        order=50,
    ),
    _ratio(
        "speedup_low",
        "speed-up low",
        "Lower end of the 95 % interval of speedup: Welch's t over the logarithms of the runs.",
        leaves_out="Differences that all runs share. Missing where a side has one run.",
        where=Where.FIRST | Where.KEPT,
        order=60,
    ),
    _ratio(
        "speedup_high",
        "speed-up high",
        "Upper end of the interval of speedup.",
        where=Where.FIRST | Where.KEPT,
        order=70,
    ),
    _ratio(
        "memory_ratio",
        "memory ×",
        (
            "Peak memory ÷ the baseline's, by the first source that both have: peak_allocated_bytes, peak_reserved_bytes, "
            "device_peak_used_bytes, mem_peak_torch_mem_alloc_in_bytes, mem_nvidia_mem_reserved."
        ),
        direction=Direction.LOWER,
        leaves_out=_ALIKE,
        where=Where.FIRST | Where.KEPT | Where.PAGE,
        order=80,
    ),
)

"""Columns that compare an experiment with its reference.

`--baseline` or the scenario's `baseline:` names the reference. Without a name, Tunebench chooses the reference.
"""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Metric, Show, Where

_ALIKE = "Missing if no cell with the baseline's value is otherwise equal."
_DOUBT = "Missing, too, if one of the two speeds is in doubt, except if `--baseline` names the baseline."

_ratio = partial(
    Metric,
    source="the table, along one axis (`compared_with`)",
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
            "The row's speed ÷ the speed of the cell that has the baseline's value and is otherwise equal. Speeds are geometric "
            "means over runs. The speed is the first of these metrics that both rows have: real_tokens_per_s, tokens_per_s, "
            "samples_per_s, 1 ÷ step_time_s. If no run of the trainer has steps, it is the first of train_tokens_per_second, "
            "train_samples_per_second, 1 ÷ train_runtime."
        ),
        leaves_out=f"{_ALIKE} {_DOUBT}",
        where=Where.FIRST | Where.KEPT | Where.PAGE,
        order=50,
    ),
    _ratio(
        "speedup_low",
        "speed-up low",
        "Lower end of the 95 % interval of speedup: Welch's t over the logarithms of the runs' speeds.",
        leaves_out="Effects that all runs share, such as machine or day. Missing if one of the two rows has only one run.",
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
            "The row's peak memory ÷ the peak memory of the cell that has the baseline's value and is otherwise equal. The metric "
            "is the first of these that both rows have: peak_allocated_bytes, peak_reserved_bytes, "
            "device_peak_used_bytes, mem_peak_torch_mem_alloc_in_bytes, mem_nvidia_mem_reserved."
        ),
        direction=Direction.LOWER,
        leaves_out=_ALIKE,
        where=Where.FIRST | Where.KEPT | Where.PAGE,
        order=80,
    ),
    Metric(
        "compared_with",
        "compared with",
        "The value that speedup and memory_ratio compare with, as in `--baseline`: `optim=sgd`, or a framework configuration.",
        show=Show.TEXT,
        source="`--baseline`, the scenario's `baseline:`, or the first value of the axis",
        leaves_out="Missing if all experiments are compared with a framework configuration.",
        where=Where.TABLES | Where.KEPT,
    ),
)

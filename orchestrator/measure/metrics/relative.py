"""Columns that compare an experiment with its reference.

`--baseline` or the scenario's `baseline:` names the reference, or Tunebench chooses it.
"""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Metric, Show, Where

_ALIKE = "Missing where no cell of the baseline differs only in the axis."

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
            "Tokens per second ÷ the baseline's, for the same cell: real_tokens_per_s, else tokens_per_s, "
            "samples_per_s, 1 ÷ step_time_s; means of logs over runs. If no run of the trainer has steps: "
            "train_tokens_per_second, else train_samples_per_second, 1 ÷ train_runtime."
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
    Metric(
        "compared_with",
        "compared with",
        "Reference of speedup and memory_ratio, as `--baseline` names it: `optim=sgd`, or a framework configuration.",
        show=Show.TEXT,
        source="`--baseline`, the scenario's `baseline:`, or the first value of the axis",
        leaves_out="Missing where all experiments are compared with a framework configuration.",
        where=Where.TABLES | Where.KEPT,
    ),
)

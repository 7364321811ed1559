"""What an experiment is beside its baseline's: columns that are there where a baseline was named (`--baseline`)."""

from __future__ import annotations

from orchestrator.metrics.metric import Direction, Metric, Show


def _ratio(name: str, label: str, better: Direction, text: str, without: str) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="ratio",
        direction=better,
        show=Show.RATIO,
        description=text,
        source="the table, with `--baseline`",
        leaves_out=without,
        by_ratio=True,
    )


_ALIKE = "Missing where no cell of the baseline differs by its framework configuration alone."

RELATIVE = (
    _ratio(
        "speedup",
        "speed-up",
        Direction.HIGHER,
        "Tokens a second ÷ the baseline's, of the same cell: real_tokens_per_s, else tokens_per_s, means of logs over runs "
        "(train_tokens_per_second where no run has steps).",
        _ALIKE,
    ),
    _ratio(
        "speedup_low",
        "speed-up low",
        Direction.HIGHER,
        "Lower end of its 95 % interval: Welch's t over the logarithms of the runs.",
        "Differences that all runs share. Missing where a side has one run.",
    ),
    _ratio("speedup_high", "speed-up high", Direction.HIGHER, "Upper end of that interval.", ""),
    _ratio(
        "memory_ratio",
        "memory ×",
        Direction.LOWER,
        "Peak memory ÷ the baseline's, by the first source that both have: peak_allocated_bytes, peak_reserved_bytes, "
        "device_peak_used_bytes, mem_peak_torch_mem_alloc_in_bytes, mem_nvidia_mem_reserved.",
        _ALIKE,
    ),
)

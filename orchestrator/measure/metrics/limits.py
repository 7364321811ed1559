"""Limits for the values of metrics. Depending on the metric, a value cannot be negative, 0, above 1, or longer than the run.

A metric that is not registered may have any value.
"""

from __future__ import annotations

from orchestrator.measure.metrics.metric import Metric, Where

# A loss and a temperature may be negative, and so may a change.
_SIGNED_UNITS = ("nats", "°C")
_SIGNED = ("loss_difference", "device_residue_bytes")
_CHANGE = "_delta"
# Shares of a whole. `core_wait_share` is different: it adds up threads that wait at the same time.
_AT_MOST_ONE = ("mfu", "hfu", "gpu_utilization", "data_wait_share", "padding_share", "spike_share", "steal_share")
# A program may round its times, and its clock is not the clock of this process.
LATE_S, LATE_SHARE = 5.0, 0.01


def broken_limit(metric: Metric, value: float, *, wall_s: float | None, may_be_0: bool = False) -> str | None:
    """Return the limit that a value of this metric breaks, as "must be …"; None if the value keeps all limits.

    `may_be_0` also allows 0 for a metric that cannot be 0: a Trainer writes 0 for a speed that it does not know.
    """
    if metric.unit is None or metric.unit in _SIGNED_UNITS or metric.name in _SIGNED or metric.name.endswith(_CHANGE):
        return None
    if value < 0 or (value == 0 and not may_be_0 and _is_positive(metric)):
        return "must be above 0" if _is_positive(metric) else "cannot be below 0"
    if metric.name in _AT_MOST_ONE and value > 1:
        return "must be at most 1; for percent, write the unit '%'"
    if metric.unit == "s" and wall_s is not None and value > longest_s(wall_s):
        return f"must be at most the {wall_s:.4g} s of the whole run"
    return None


def longest_s(wall_s: float) -> float:
    """Return the longest time that a run of `wall_s` seconds may report."""
    return wall_s * (1 + LATE_SHARE) + LATE_S


def _is_positive(metric: Metric) -> bool:
    """Return whether the metric cannot be 0: it is a speed, or its logarithm is averaged."""
    return metric.by_ratio or Where.SPEED in metric.where or "/s" in (metric.unit or "")

"""Limits for the values of metrics. Depending on the metric, a value cannot be negative, 0, above 1, or longer than the run.

A speed, an amount of work or a memory cannot exceed what machines can do. A metric that is not registered may have any value.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.files.printable_text import counted, quoted
from orchestrator.measure.memory_logs import finite
from orchestrator.measure.metrics import METRICS
from orchestrator.measure.metrics.metric import Metric, Where

# A loss and a temperature may be negative, and so may a change.
_SIGNED_UNITS = ("nats", "°C")
_SIGNED = ("loss_difference", "device_residue_bytes")
_CHANGE = "_delta"
# Liquid nitrogen, the coldest cooling, has -196 °C. No device works at 1,000 °C.
_COLDEST, _HOTTEST = -200.0, 1000.0
# Shares of a whole. `core_wait_share` is different: it adds up threads that wait at the same time.
_SHARES = ("mfu", "hfu", "forward_mfu", "backward_mfu", "gpu_utilization", "data_wait_share", "padding_share")
_AT_MOST_ONE = (*_SHARES, "host_bound_share", "spike_share", "steal_share", "throttled_share")
# The most that one device does per second. The fastest device in `flops.PEAKS` has 2,250 TFLOP/s in 16 bits; numbers of 4 bits are
# about four times as fast. A trained weight takes 6 FLOP per token, so 1e10 tokens/s at 1e5 TFLOP/s leave room for fewer than two
# million weights. A sample has at least one token. In less than 1 µs, not even the line of a step can be written. The 148 units of
# a B200 read 128 bytes per cycle from their first caches, at 2 GHz, which is 3.8e13 bytes/s.
_MOST_PER_S = {
    **{"TFLOP/s per device": 1e5, "bytes/s per device": 1e14, "optimizer steps/s": 1e6, "steps": 1e6},
    "tokens/step per device": 1e10,
    **dict.fromkeys(("tokens/s per device", "tokens/s, all devices", "tokens, all devices"), 1e10),
    **dict.fromkeys(("samples/s, all devices", "samples, all devices", "pairs/s, all devices"), 1e10),
    "J, all devices": 1e5,
}
# The most that one core of a CPU does per second, at 6 GHz. Per cycle, its matrix unit (AMX) makes 2,048 operations, and it reads
# two vectors of 64 bytes from its first cache and writes one.
_MOST_PER_S_AND_CORE = {"TFLOP/s per device": 2048 * 6e9 / 1e12, "bytes/s per device": 192 * 6e9}
# What one device, or one token, cannot exceed or fall below. A GPU of today takes up to 1,400 W and runs at up to 3,000 MHz. At
# 1,000 W and 1e10 tokens/s, a token takes 1e-7 J.
_BETWEEN = {"W per device": (1e-3, 1e5), "MHz": (0.0, 1e5), "J/token": (1e-8, 1e9), "bytes": (1.0, math.inf)}
# The most memory that one process can use. The processors of today address it with at most 52 bits.
_MOST_MEMORY = {"bytes": 2.0**52, "MiB": 2.0**32}
# Values of a GPU that cannot be 0, and memory that one GPU must have.
_NEVER_0 = ("energy_j", "integrated_energy_j", "mean_power_w", "energy_per_real_token_j")
_ON_ONE_GPU = (
    *("device_peak_used_bytes", "device_mean_peak_used_bytes", "device_baseline_bytes", "mem_nvidia_mem_reserved"),
    *("device_residue_bytes", "mem_peak_torch_mem_alloc_in_bytes", "mem_torch_mem_alloc_in_bytes"),
)
# In less time than this, a core makes fewer than ten steps, and does not even begin a call.
_OF_CALLS, _SHORTEST_CALL_S = ("call_time_s", "round_time_s"), 1e-9
_BYTES = {"bytes": 1, "MiB": 2**20}
# Pairs of numbers of one run: the first is a part of the second, or cannot be above it for another reason. Speeds and mean times
# are in none of them: a program may measure one with its warm-up and another one without.
_IN_ORDER = (
    ("peak_allocated_bytes", "peak_reserved_bytes"),
    *((f"peak_allocated_{part}_bytes", "peak_allocated_bytes") for part in ("first_step", "steady")),
    ("mem_torch_mem_alloc_in_bytes", "mem_peak_torch_mem_alloc_in_bytes"),
    *((name, "device_peak_used_bytes") for name in ("device_mean_peak_used_bytes", "device_baseline_bytes")),
    *(("trainable_parameters", "total_parameters"), ("allocated_after_load_bytes", "peak_allocated_bytes")),
    *(("steps_to_target", "steps"), ("samples_processed", "tokens_processed"), ("mfu", "hfu")),
    *((f"step_time_{low}_s", f"step_time_{high}_s") for low, high in (("low", "high"), ("p5", "p95"))),
    *((f"{count}_steps", "steps") for count in ("discarded", "steady", "recompiled", "profiled")),
)
# A program may round its numbers, and may count the steps around its loop, too.
_ROUNDED = 0.05
# A program may round its times, and its clock is not the clock of this process.
LATE_S, LATE_SHARE = 5.0, 0.01


def broken_limit(
    metric: Metric,
    value: float,
    *,
    wall_s: float | None,
    devices: int = 1,
    cores: int | None = None,
    may_be_0: bool = False,
) -> str | None:
    """Return the limit that a value of this metric breaks, as "must be …"; None if the value keeps all limits.

    The run had `devices` devices and took `wall_s` seconds. If a device is a CPU, it has at most `cores` cores. `may_be_0` also
    allows 0 for a metric that cannot be 0: a Trainer writes 0 for a speed that it does not know.
    """
    if metric.unit is None:
        # A count or a share of Tunebench; a metric of the user may have any value.
        return "cannot be below 0" if value < 0 and metric.name in METRICS else None
    if metric.unit == "°C" and not _COLDEST <= value <= _HOTTEST:
        return f"must be between {_COLDEST:g} and {_HOTTEST:g} °C"
    if metric.unit in _SIGNED_UNITS or metric.name in _SIGNED or metric.name.endswith(_CHANGE):
        return None
    if value < 0 or (value == 0 and not may_be_0 and _is_positive(metric)):
        return "must be above 0" if _is_positive(metric) else "cannot be below 0"
    if metric.name in _AT_MOST_ONE and value > 1:
        return "must be at most 1; for percent, write the unit '%'"
    return _broken_time(metric, value, wall_s) or _broken_amount(
        metric.unit, value, wall_s=wall_s, devices=devices, cores=cores
    )


def _broken_time(metric: Metric, value: float, wall_s: float | None) -> str | None:
    if metric.name in _OF_CALLS and 0 < value < _SHORTEST_CALL_S:
        return f"must be at least {_SHORTEST_CALL_S:g} s, because no call takes less"
    if metric.unit == "s" and wall_s is not None and value > longest_s(wall_s):
        return f"must be at most the {wall_s:.4g} s of the whole run"
    return None


def _broken_amount(unit: str, value: float, *, wall_s: float | None, devices: int, cores: int | None) -> str | None:
    low, high = _BETWEEN.get(unit, (0.0, math.inf))
    if value > high or 0 < value < low:
        ends = f"between {low:.3g} and {high:.3g} {unit}" if high < math.inf else f"at least {low:.3g}"
        return f"must be {ends}"
    most = _most(unit, wall_s=wall_s, devices=devices)
    if most is not None and value > most:
        return f"must be at most {most:.3g}, because {counted(devices, 'device')} cannot reach more"
    most = _MOST_PER_S_AND_CORE[unit] * cores if cores is not None and unit in _MOST_PER_S_AND_CORE else None
    if most is not None and value > most:
        return f"must be at most {most:.3g}, because {counted(cores or 0, 'core')} cannot reach more"
    return None


def longer_than_the_run(benchmarks: Iterable[Mapping[str, Any]], wall_s: float | None) -> str | None:
    """Return a sentence about a benchmark whose rounds took longer than the run of `wall_s` seconds. Return None if there is none.

    At least half of the rounds took the median or longer, and a round has one call or more. A suite may measure its rounds in
    several processes, and each core runs one of them at a time.
    """
    for benchmark in benchmarks:
        time, rounds = finite(benchmark.get("round_time_s")) or 0.0, finite(benchmark.get("rounds")) or 1
        if wall_s is not None and time * max(1, rounds / 2 / (os.cpu_count() or 1)) > longest_s(wall_s):
            name, count = quoted(benchmark.get("fullname"), longest=200), counted(int(rounds), "round")
            return f"round_time_s of {name} is {time:.6g}, and its {count} must fit into the {wall_s:.4g} s of the whole run"
    return None


def broken_by_reading(metric: Metric, value: float, *, wall_s: float | None, gpu_bytes: int | None) -> str | None:
    """Return the limit that a monitor's value breaks, as "must be …"; None if the value keeps all limits.

    Besides the limits of every value, a GPU that works uses energy, and it has `gpu_bytes` of memory (None: unknown).
    """
    if metric.name in _NEVER_0 and value == 0:
        return "must be above 0, because a GPU uses energy all the time"
    if metric.name == "sm_clock_mhz" and value == 0:
        return "must be above 0, because a GPU that works has a clock"
    if gpu_bytes is not None and metric.name in _ON_ONE_GPU and value * _BYTES[metric.unit or ""] > gpu_bytes:
        return f"must be at most the {gpu_bytes / 2**30:.4g} GiB of the GPU"
    return broken_limit(metric, value, wall_s=wall_s, may_be_0=metric.name not in _NEVER_0)


def contradiction(own: Mapping[str, float], measured: Mapping[str, float]) -> str | None:
    """Return a sentence about two numbers of a trainer that contradict each other, or None.

    Its own numbers of steps are also held to the number of steps that Tunebench has `measured`. The two may measure other numbers
    in different ways, such as a speed with its warm-up, so those are not held to each other.
    """
    known = {**own} | {name: value for name, value in measured.items() if name == "steps"}
    for unknown in ("tokens_processed", "hfu"):
        if known.get(unknown) == 0:  # a program may write 0 for what it does not have
            del known[unknown]
    for less, more in _IN_ORDER:
        if less in known and more in known and known[less] > known[more] * (1 + _ROUNDED):
            return f"{less} is {known[less]:.6g}, and must be at most {more}, which is {known[more]:.6g}"
    return None


def replaced(own: Mapping[str, float], measured: Mapping[str, float]) -> list[str]:
    """Return a sentence about each number of a command that differs from the number that Tunebench has measured from its steps."""
    return [
        f"the command's {name} is {value:.6g}; that of its steps counts, which is {measured[name]:.6g}"
        for name, value in own.items()
        if name in measured and abs(value - measured[name]) > _ROUNDED * measured[name]
    ]


def _most(unit: str, *, wall_s: float | None, devices: int) -> float | None:
    """Return the largest value of this unit that the devices can reach during the run. Return None if it is not known."""
    if unit in _MOST_MEMORY:
        return _MOST_MEMORY[unit] * devices
    if unit not in _MOST_PER_S or (wall_s is None and "/s" not in unit):
        return None
    seconds = 1.0 if "/s" in unit or wall_s is None else longest_s(wall_s)
    return _MOST_PER_S[unit] * seconds * (devices if "all devices" in unit else 1)


def longest_s(wall_s: float) -> float:
    """Return the longest time that a run of `wall_s` seconds may report."""
    return wall_s * (1 + LATE_SHARE) + LATE_S


def _is_positive(metric: Metric) -> bool:
    """Return whether the metric cannot be 0: it is a speed, or its logarithm is averaged."""
    return metric.by_ratio or Where.SPEED in metric.where or "/s" in (metric.unit or "")

"""The times of a call: in total, on the host, and on the device.

- total: torch's own Timer. It waits for the device at both ends of a block of calls, so a call takes the longer of its two parts.
- host: the time to launch the call's kernels, without waiting. The blocks are so short that the launch queue never fills.
- device: the sum of the kernels' times by the profiler, as the median of several calls, with the number of launches. As a check,
  events around calls that were launched while the device slept: the kernels one after the other, without the host.

On a CPU, the host computes, so the device's times are missing.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

# CUDA's launch queue has about 1,024 places. Beyond them, the host waits for the device.
MOST_LAUNCHES = 800
MOST_CALLS_OF_BLOCK, LEAST_BLOCKS, MOST_BLOCKS = 100, 11, 101
# Processes that call each other all make so many calls in a block.
CALLS_TOGETHER = 20
# The device works on a block for at most this time, except for a single call that takes longer.
MOST_BLOCK_S = 0.2
# The profiler sees so many calls, or fewer if they take longer.
PROFILED, MOST_PROFILED_S = 20, 1.0
# A GPU's clock makes at most about this number of cycles per second.
CYCLES_PER_S = 2.0e9
MOST_SLEEP_S = 0.5

Work = Callable[[], Any]


def wait() -> None:
    """Wait until the device has done everything that was launched."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(work: Work) -> float:
    """Return the time of one call, with the wait for the device."""
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def total(call: Work, *, least_s: float) -> Dict[str, float]:
    """Return the median time of a call, its quartiles' distance, and the number of blocks and of calls."""
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    measured = timer.blocked_autorange(min_run_time=least_s)
    return {
        "call_time_s": measured.median,
        "call_time_iqr_s": measured.iqr,
        "blocks": len(measured.times),
        "calls": len(measured.times) * measured.number_per_run,
    }


def result_as_timed(call: Work) -> Any:
    """Return the result of a call that `total` would time. A function may return something else to its other callers."""
    from torch.utils.benchmark import Timer

    found: List[Any] = []
    Timer("found[:] = [call()]", globals={"found": found, "call": call}).timeit(1)
    return found[0]


def in_blocks(call: Work) -> Dict[str, float]:
    """Return the same as `total`, from a fixed number of calls. Processes that call each other must all make as many calls."""
    blocks = []
    for _ in range(LEAST_BLOCKS):
        wait()
        began = time.perf_counter()
        for _ in range(CALLS_TOGETHER):
            call()
        wait()
        blocks.append((time.perf_counter() - began) / CALLS_TOGETHER)
    lower, _, upper = statistics.quantiles(blocks, n=4)
    spread = {"call_time_iqr_s": upper - lower, "blocks": len(blocks), "calls": CALLS_TOGETHER * len(blocks)}
    return {"call_time_s": statistics.median(blocks), **spread}


def fitting(most: int, call_s: float, within_s: float) -> int:
    """Return the number of calls that take at most `within_s` seconds: `most` or fewer, and at least one."""
    return max(1, min(most, int(within_s / call_s)))


def host(call: Work, *, calls: int, least_s: float = 0.0) -> float:
    """Return the median time that the host needs to launch a call, in seconds, from blocks of so many calls."""
    blocks: List[float] = []
    until = time.perf_counter() + least_s
    while len(blocks) < LEAST_BLOCKS or (time.perf_counter() < until and len(blocks) < MOST_BLOCKS):
        wait()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        blocks.append((time.perf_counter() - began) / calls)
    wait()
    return statistics.median(blocks)


def device(call: Work, *, calls: int = PROFILED) -> Dict[str, float]:
    """Return the kernels' time of a call by the profiler, in seconds, and the number of launches of a call.

    The median of the calls is robust: the first kernel of a collective operation waits until the other processes have begun, too.
    """
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    wait()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(calls):
            call()
        wait()
    kernels = [
        event
        for event in found.events()
        if event.device_type == DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
    ]
    kernels.sort(key=lambda event: event.time_range.start)
    spent = [event.time_range.elapsed_us() / 1e6 for event in kernels]
    return {"device_time_s": of_a_call(spent, calls), "launches_per_call": len(kernels) / calls}


def of_a_call(spent: Sequence[float], calls: int) -> float:
    """Return the median of the calls' sums, or the mean if not all calls have as many kernels. `spent` has the kernels in order."""
    if not spent or len(spent) % calls:
        return sum(spent) / calls
    launches = len(spent) // calls
    return statistics.median(sum(spent[first : first + launches]) for first in range(0, len(spent), launches))


def behind_sleep(call: Work, *, host_s: float, calls: int = PROFILED) -> Optional[float]:
    """Return the time of a call on the device by events, in seconds. Return None if the device can't sleep for long enough.

    The device sleeps while the host launches, so kernels follow each other as closely as the device can start them.
    """
    needed = 2 * calls * host_s
    if needed > MOST_SLEEP_S:
        return None
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    wait()
    torch.cuda._sleep(int(needed * CYCLES_PER_S))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    wait()
    elapsed_ms: float = begin.elapsed_time(end)
    return elapsed_ms / 1000 / calls

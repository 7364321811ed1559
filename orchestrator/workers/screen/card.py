"""The figures of one GPU. Each has five samples, after a warm-up. Times are the GPU's own, by events, except for launches.

- matmul: 8192 × 8192 × 8192 in bfloat16 with random numbers, after two seconds of the same. What it leaves out: the host.
- HBM: a copy of 2 GiB inside the GPU's memory. Bytes that are read and bytes that are written both count.
- host to device, device to host: a copy of 256 MiB from or to pinned memory.
- launches: the host's time to launch an empty kernel, in a loop that does not wait. The loop is so short that the launch queue
  never fills.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List

import torch
from written_figures import SAMPLES

SIZE, HBM_BYTES, COPIED_BYTES = 8192, 2**31, 2**28
WARM_UP_S, SAMPLE_S = 2.0, 0.5
SHORT_WARM_UP_S, SHORT_SAMPLE_S = 0.2, 0.05
# CUDA's launch queue has about 1,024 places.
LAUNCHES, BLOCKS = 800, 21

Call = Callable[[], Any]


def begin(index: int) -> None:
    """Choose the GPU and use it for the first time."""
    torch.cuda.set_device(index)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def seconds_per_call(call: Call, *, warm_up_s: float, sample_s: float) -> List[float]:
    """Return five times of a call by the GPU's clock. Each is the mean over as many calls as fit into `sample_s`."""
    call()
    torch.cuda.synchronize()
    calls, began = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - began < warm_up_s:
        for _ in range(10):
            call()
        torch.cuda.synchronize()
        calls += 10
    count = max(1, round(sample_s * calls / (time.perf_counter() - began)))
    return [events_around(call, count) for _ in range(SAMPLES)]


def events_around(call: Call, count: int) -> float:
    """Return the time of one call, from events around `count` calls."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(count):
        call()
    last.record()
    last.synchronize()
    elapsed_ms: float = first.elapsed_time(last)
    return elapsed_ms / 1000 / count


def matmul() -> List[float]:
    """Return FLOP/s."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    result = torch.empty_like(a)
    times = seconds_per_call(lambda: torch.mm(a, b, out=result), warm_up_s=WARM_UP_S, sample_s=SAMPLE_S)
    return [2 * SIZE**3 / one for one in times]


def hbm() -> List[float]:
    """Return bytes per second."""
    source = torch.ones(HBM_BYTES, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    times = seconds_per_call(lambda: target.copy_(source), warm_up_s=SHORT_WARM_UP_S, sample_s=SAMPLE_S)
    return [2 * HBM_BYTES / one for one in times]


def host_to_device() -> List[float]:
    """Return bytes per second."""
    host, device = _pinned_and_device()
    return _copy_rates(lambda: device.copy_(host, non_blocking=True))


def device_to_host() -> List[float]:
    """Return bytes per second."""
    host, device = _pinned_and_device()
    return _copy_rates(lambda: host.copy_(device, non_blocking=True))


def _pinned_and_device() -> Any:
    host = torch.ones(COPIED_BYTES, dtype=torch.uint8).pin_memory()
    return host, torch.ones(COPIED_BYTES, device="cuda", dtype=torch.uint8)


def _copy_rates(copy: Call) -> List[float]:
    times = seconds_per_call(copy, warm_up_s=SHORT_WARM_UP_S, sample_s=SHORT_SAMPLE_S)
    return [COPIED_BYTES / one for one in times]


def launch() -> List[float]:
    """Return seconds per launch. Each sample is the median over blocks of launches."""
    _launch_block()
    return [statistics.median(_launch_block() for _ in range(BLOCKS)) for _ in range(SAMPLES)]


def _launch_block() -> float:
    empty_kernel = torch.cuda._sleep  # it returns at once if it sleeps for 0 cycles
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(LAUNCHES):
        empty_kernel(0)
    spent = time.perf_counter() - began
    torch.cuda.synchronize()
    return spent / LAUNCHES


AT_THE_SAME_TIME: Dict[str, Callable[[], List[float]]] = {"matmul_flops_per_s": matmul, "hbm_bytes_per_s": hbm}
IN_TURNS: Dict[str, Callable[[], List[float]]] = {
    "host_to_device_bytes_per_s": host_to_device,
    "device_to_host_bytes_per_s": device_to_host,
    "launch_s": launch,
}

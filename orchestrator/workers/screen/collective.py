"""The figures of several processes: all-reduce over all of them, and an exchange between each pair. NCCL on GPUs, gloo on a CPU.

- all-reduce: the bus bandwidth, 2 (n - 1) / n × bytes / seconds, so that numbers of GPUs can be compared.
- pair: both send and receive at the same time. Bytes per second of one direction.

Both are measured with 256 MiB and with 1 MiB. With 1 MiB, the launch of the call counts. The pairs take turns.
"""

from __future__ import annotations

import itertools
import os
import time
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist
from written_figures import SAMPLES, Figures, in_words

SIZES: Dict[str, int] = {"256mib": 2**28, "1mib": 2**20}
# If a process ends, the others wait this long for it.
PATIENCE = timedelta(seconds=60)
WARM_UP_CALLS, SAMPLE_S, MOST_CALLS = 5, 0.1, 1000
# A pair makes fewer calls than an all-reduce, because there may be 28 pairs.
PAIR_SHARE = 4

Call = Callable[[], Any]


class Together:
    """All processes of the screen. They meet in a file, so that no port and no host name is needed."""

    def __init__(self, folder: str, rank: int, processes: int) -> None:
        self.rank, self.processes = rank, processes
        if processes > 1:
            meeting = f"file://{os.path.join(os.path.abspath(folder), 'meeting')}"
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes, timeout=PATIENCE)

    def barrier(self) -> None:
        if self.processes > 1:
            dist.barrier()

    def agreed(self, value: Any) -> List[Any]:
        """Return the values of all processes."""
        values: List[Any] = [None] * self.processes
        dist.all_gather_object(values, value)
        return values

    def end(self) -> None:
        if self.processes > 1:
            dist.destroy_process_group()


class Timed:
    """Calls that several processes make together, on GPUs with NCCL or on a CPU with gloo."""

    def __init__(self, together: Together, on_gpu: bool) -> None:
        self.together, self.on_gpu = together, on_gpu
        self.group: Any = dist.new_group(backend="nccl", timeout=PATIENCE) if on_gpu else None

    def tensor(self, size: int) -> Any:
        return torch.zeros(size // 4, device="cuda" if self.on_gpu else "cpu")

    def seconds(self, call: Call, count: int) -> float:
        """Return the time of one of `count` calls."""
        if self.on_gpu:
            import card

            return card.events_around(call, count)
        began = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - began) / count

    def calls_of_sample(self, call: Call) -> int:
        """Warm up, and return the number of calls of a sample. All processes get the same number."""
        self.seconds(call, WARM_UP_CALLS if self.on_gpu else 1)
        self.together.barrier()
        slowest: float = max(self.together.agreed(self.seconds(call, WARM_UP_CALLS if self.on_gpu else 1)))
        count = round(SAMPLE_S / slowest)
        return max(1, min(MOST_CALLS, count))

    def exchange(self, peer: int, sent: Any, got: Any) -> None:
        operations = [dist.P2POp(dist.isend, sent, peer, self.group), dist.P2POp(dist.irecv, got, peer, self.group)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()


def measure(figures: Figures, together: Together, *, on_gpu: bool, works: bool) -> None:
    """Measure all-reduce and the pairs. If a GPU cannot be used, note the reason instead."""
    broken = [rank for rank, one in enumerate(together.agreed(works)) if not one]
    if broken:
        figures.note(collective_problem=f"the GPU of process {broken[0]} cannot be used")
        return
    try:
        timed = Timed(together, on_gpu)
        calls = {size: _all_reduce(figures, timed, size) for size in SIZES}
    except Exception as error:
        figures.note(collective_problem=in_words(error))
        return
    figures.note(backend="nccl" if on_gpu else "gloo", nccl=_nccl_version() if on_gpu else None)
    for first, second in itertools.combinations(range(together.processes), 2):
        together.barrier()
        if together.rank in (first, second):
            for size in SIZES:
                _pair(figures, timed, size, (first, second), max(1, calls[size] // PAIR_SHARE))
    together.barrier()


def _all_reduce(figures: Figures, timed: Timed, size: str) -> int:
    """Measure all-reduce with this size, and return the number of calls of a sample. Only the first process keeps the figure."""
    tensor, processes = timed.tensor(SIZES[size]), timed.together.processes

    def call() -> None:
        dist.all_reduce(tensor, group=timed.group)

    count = timed.calls_of_sample(call)
    moved = 2 * (processes - 1) / processes * SIZES[size]
    rates = []
    for _ in range(SAMPLES):
        timed.together.barrier()
        rates.append(moved / timed.seconds(call, count))
    if timed.together.rank == 0:
        figures.measure(f"all_reduce_{size}_bytes_per_s", range(processes), lambda: rates)
    return count


def _pair(figures: Figures, timed: Timed, size: str, ranks: Any, count: int) -> None:
    """Measure the exchange of two processes. Only the first of them keeps the figure."""
    first, second = ranks
    is_first = timed.together.rank == first
    sent, got = timed.tensor(SIZES[size]), timed.tensor(SIZES[size])

    def call() -> None:
        timed.exchange(second if is_first else first, sent, got)

    def samples() -> List[float]:
        timed.seconds(call, WARM_UP_CALLS if timed.on_gpu else 1)
        return [SIZES[size] / timed.seconds(call, count) for _ in range(SAMPLES)]

    if is_first:
        figures.measure(f"pair_{size}_bytes_per_s", [first, second], samples)
    else:
        samples()


def _nccl_version() -> Optional[str]:
    return ".".join(map(str, torch.cuda.nccl.version()))

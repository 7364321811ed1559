"""Measures the device memory in use once per second with `nvidia-smi --loop=1`, as the reference system does.

How: the first reading is taken before the run starts, so it shows the memory that other programs use. The value of each device
is its maximum minus its first reading. The mean over the run's devices is `mem_nvidia_mem_reserved`, in MiB.

The number leaves out: peaks between two readings (in a test it missed four spikes of 5 to 200 ms), and the share of each
process. The number includes CUDA contexts, communication buffers, and the memory of every other process that starts to use the
device during the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from orchestrator.files import reading, writing
from orchestrator.measure.memory_logs import read_summary, readings
from orchestrator.monitors.monitor import Monitor
from orchestrator.records import Caveat, Gpu, Measurement

SAMPLES, COST = "samples-nvidia-smi.csv", "cost-nvidia-smi.json"
_FIELDS = "timestamp,name,index,memory.used"


class NvidiaSmi(Monitor):
    """The monitor that runs `nvidia-smi`. Without `nvidia-smi`, or without GPUs, its numbers are missing."""

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        return _watching(run_dir / SAMPLES, gpus) if gpus else nullcontext()

    def measurements(self, run_dir: Path) -> list[Measurement]:
        summary = read_summary(run_dir / SAMPLES)
        source = SAMPLES + (f" ({summary.unreadable} unreadable line(s) left out)" if summary.unreadable else "")
        why = Caveat(detail=f"{SAMPLES}: {summary.problem}") if summary.problem else None
        return [
            Measurement(name="mem_nvidia_mem_reserved", value=summary.mean, source=source, missing=why),
            Measurement(name="gpu_device_name", value=summary.device_name, source=source, missing=why),
            *_cost(run_dir / COST),
        ]


def _cost(path: Path) -> Iterator[Measurement]:
    try:
        used = reading.read_json(path, limit=reading.CLAIM_BYTES)
    except (OSError, ValueError):
        return
    for name in ("cpu_s", "rss_bytes"):
        value = used.get(name) if isinstance(used, dict) else None
        if type(value) in (int, float):
            yield Measurement(name=f"monitor_{name}", value=value, source=COST)


@contextmanager
def _watching(path: Path, gpus: Sequence[Gpu]) -> Iterator[None]:
    from orchestrator.machine import process
    from orchestrator.monitors.sampling import sampling

    ids = ",".join(gpu.uuid or str(gpu.index) for gpu in gpus)
    argv = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv", f"--id={ids}", "--loop=1"]
    # The run starts after the first reading of each device.
    with sampling(lambda: argv, path, has_read=lambda text: len(readings(text)) >= len(gpus)) as sampler:
        yield
        if sampler is not None:
            with suppress(OSError):  # such as a full disk: only the cost of this monitor is not recorded
                writing.replace(path.parent / COST, json.dumps(process.usage(sampler)) + "\n")

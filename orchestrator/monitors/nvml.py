"""What is measured: each device's memory, power, energy, clocks and processes by NVML, by a light process beside the run.

How: `nvml_sampler.py` reads memory every 10 ms (TUNEBENCH_NVML_PERIOD_S sets another period) and the rest less often, from before
the run starts until its memory is given back. `timeline` reads what it wrote. Memory is over the whole run; energy, power,
clocks and throttling are over the steady state alone, by the steps' own times (`throughput.steady_window`).

What the numbers leave out: memory that is taken and given back between two readings; the host's energy. On MIG parts NVML
gives memory alone. What is missing is a dash, and `missing` says why.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from orchestrator.errors import LaunchError
from orchestrator.measure.gpu_timeline import SAMPLES, parse
from orchestrator.monitors.monitor import Monitor
from orchestrator.monitors.sampling import sampling
from orchestrator.records import Caveat, Gpu, Measurement

SAMPLER = Path(__file__).with_name("nvml_sampler.py")
PERIOD_S, PERIOD_VARIABLE = 0.01, "TUNEBENCH_NVML_PERIOD_S"
_LAST_READINGS_S = 0.5


class Nvml(Monitor):
    """NVML's sampler as a sidecar; a machine without a driver, or a run without GPUs, gives dashes."""

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        return _watching(run_dir / SAMPLES, gpus) if gpus else nullcontext()

    def measurements(self, run_dir: Path) -> list[Measurement]:
        from orchestrator.monitors import nvml_numbers

        return nvml_numbers.measurements(run_dir)

    def devices(self, run_dir: Path) -> list[Mapping[str, Any]]:
        from orchestrator.monitors import nvml_numbers

        return nvml_numbers.devices(run_dir)

    def warnings(self, run_dir: Path) -> Sequence[Caveat]:
        from orchestrator.monitors import nvml_numbers

        return nvml_numbers.warnings(run_dir)


@contextmanager
def _watching(path: Path, gpus: Sequence[Gpu]) -> Iterator[None]:
    def argv() -> list[str]:
        return [sys.executable, "-P", str(SAMPLER), str(period()), *(gpu.uuid for gpu in gpus)]

    def has_read(text: str) -> bool:
        """Each device once, memory first, which is its baseline."""
        found = parse(text).devices.values()
        return len([device for device in found if device.points or device.lost]) >= len(gpus)

    with sampling(argv, path, has_read=has_read) as sampler:
        yield
        if sampler is not None:
            time.sleep(max(_LAST_READINGS_S, 1.5 * period()))  # what the run gives back is seen given back


def period() -> float:
    """Seconds between two readings of memory. Raises LaunchError for a value that is none."""
    text = os.environ.get(PERIOD_VARIABLE, str(PERIOD_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 1:  # a sampler asleep is told to stop only when it wakes
        raise LaunchError(f"{PERIOD_VARIABLE}={text}: allowed are 0.001 to 1 seconds")
    return seconds

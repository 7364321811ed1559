"""Measures memory, power, energy, clocks and processes of each device with NVML, in a separate light process.

How: `nvml_sampler.py` reads memory every 10 ms (TUNEBENCH_NVML_PERIOD_S sets another period), and the other values less often.
The sampler runs from before the start of the run until the run has freed its memory. `measure/gpu_timeline/` reads the
samples. Memory is measured over the whole run. Energy, power, clocks and throttling cover only the steady state
(`throughput.steady_window`).

The numbers leave out: memory that is allocated and freed between two readings, and the energy of the host. On MIG devices NVML
reports only memory. If a number is missing, the report shows a dash, and the measurement's `missing` gives the reason.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from orchestrator.errors import LaunchError
from orchestrator.files import reading, writing
from orchestrator.monitors.monitor import Monitor
from orchestrator.records import Caveat, Gpu, Measurement

SAMPLER = Path(__file__).with_name("nvml_sampler.py")
PERIOD_S, PERIOD_VARIABLE = 0.01, "TUNEBENCH_NVML_PERIOD_S"
_LAST_READINGS_S = 0.5


class Nvml(Monitor):
    """The monitor that runs the NVML sampler. Without a driver, or without GPUs, its numbers are missing."""

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        from orchestrator.measure.gpu_timeline.sampler_file import SAMPLES
        from orchestrator.monitors.sampling import not_sampling

        return _watching(run_dir, gpus) if gpus else not_sampling(run_dir / SAMPLES)

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
def _watching(run_dir: Path, gpus: Sequence[Gpu]) -> Iterator[None]:
    from orchestrator.measure.gpu_timeline.sampler_file import SAMPLES, parse
    from orchestrator.monitors.sampling import sampling

    def argv() -> list[str]:
        return [sys.executable, "-P", str(SAMPLER), str(period()), *(gpu.uuid for gpu in gpus)]

    def has_read(text: str) -> bool:
        """Return whether each device was read at least once. The first reading of a device's memory is the baseline."""
        return sum(bool(device.points or device.lost) for device in parse(text).devices.values()) >= len(gpus)

    with sampling(argv, run_dir / SAMPLES, has_read=has_read) as sampler:
        yield
        if sampler is not None and sampler.poll() is None:
            time.sleep(max(_LAST_READINGS_S, 1.5 * period()))  # for some readings after the run freed its memory
        elif sampler is not None:
            _note_early_end(run_dir / SAMPLES)


def _note_early_end(samples: Path) -> None:
    """Add a closing line without content: a signal may have ended the sampler, which then writes its own, before the run ended."""
    from orchestrator.measure.gpu_timeline.sampler_file import has_header

    with suppress(OSError, ValueError):
        if has_header(reading.read_head(samples, limit=reading.CLAIM_BYTES)):
            writing.append(samples, "# {}\n")


def period() -> float:
    """Return the seconds between two readings of memory. Raise LaunchError if the variable has an invalid value."""
    text = os.environ.get(PERIOD_VARIABLE, str(PERIOD_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 1:  # a sampler that sleeps longer would stop too late
        raise LaunchError(f"{PERIOD_VARIABLE}={text}: the period is invalid; give 0.001 to 1 seconds")
    return seconds

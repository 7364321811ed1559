"""Measure what `tunebench monitor` costs next to a benchmark: CPU time as a share of one core, by number of GPUs and interval.

    python benchmarks/watching.py [--seconds 20]

NVIDIA GPUs are watched if there are any, and the CPU time of a reading is printed too. Otherwise a fake NVML of the
tests answers at once, and only our own part is measured. Views are drawn for a wide terminal.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.campaign.gpu_monitor import readings, view
from orchestrator.machine.gpus import all_gpus, nvml_session
from orchestrator.monitors import nvml_sampler
from orchestrator.records import Gpu

sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit"))
from fake_pynvml import FakeGpu, FakeNvml

INTERVALS_S = (1.0, 0.1)
READINGS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each")
    given = parser.parse_args()
    with nvml_session() as nvml:
        if nvml is not None and all_gpus(nvml):
            print_readings(nvml, all_gpus(nvml)[0])
            print_shares(nvml, all_gpus(nvml), "", given.seconds)
            return
    for count in (1, 8):
        fake = FakeNvml([FakeGpu(uuid=f"GPU-{place}", pids=[os.getpid()]) for place in range(count)])
        print_shares(fake, all_gpus(fake), ", NVML's answers for nothing", given.seconds)


def print_shares(nvml: Any, gpus: Sequence[Gpu], how: str, seconds: float) -> None:
    for interval_s in INTERVALS_S:
        share = cpu_share(readings.Watch(nvml, gpus), interval_s, seconds)
        print(f"{len(gpus)} GPU(s), a view every {interval_s:g} s{how}: {share:.2%} of a core")


def cpu_share(watch: readings.Watch, interval_s: float, seconds: float) -> float:
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(file=nowhere, force_terminal=True, width=160)
        began, used = time.monotonic(), time.process_time()
        stopped = ending(began + seconds)
        view.follow(readings.views(watch, interval_s=interval_s, stopped=lambda: next(stopped)), console)
        return (time.process_time() - used) / (time.monotonic() - began)


def ending(deadline: float) -> Iterator[bool]:
    while True:
        yield time.monotonic() >= deadline


def print_readings(nvml: Any, gpu: Gpu) -> None:
    handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    for what, (_, read) in nvml_sampler.READERS.items():
        try:
            read(nvml, handle)
        except nvml.NVMLError as error:
            print(f"{what}: {error}")
            continue
        began = time.process_time()
        for _ in range(READINGS):
            read(nvml, handle)
        print(f"a reading of {what}: {(time.process_time() - began) / READINGS * 1e6:.1f} us of CPU time")


if __name__ == "__main__":
    main()

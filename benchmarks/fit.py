"""Compare the estimated peak memory with the measured one, for every experiment of results folders.

    python benchmarks/fit.py RESULTS [RESULTS ...]

Reads `experiment.json` and `record.json` of each run that ended ok on a GPU. Prints torch's peak allocated memory
(highest rank), the estimate, the error, the moment of the highest estimate, and the device's use if NVML was read.
Repeats with equal measurements are one row. The estimate does not use measurements.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from orchestrator import records
from orchestrator.plan.forecast.memory_fit import Estimate, Unknown, estimate
from orchestrator.records import Experiment, RunRecord, Status

GIB = 1 << 30
TOLD = (
    "num_hidden_layers", "per_device_train_batch_size", "max_seq_len", "dtype", "peft_method", "r", "optim",
    "attn_implementation", "use_liger_kernel", "gradient_accumulation_steps",
)  # fmt: skip


def measured(root: Path) -> Iterator[tuple[Experiment, RunRecord]]:
    """Yield the experiments of a results folder with their runs that ended ok."""
    for file in sorted(root.glob("experiments/*/experiment.json")):
        experiment = records.load(Experiment, file.read_bytes())
        for record in sorted(file.parent.glob("runs/r*/record.json")):
            run = records.load(RunRecord, record.read_bytes())
            if run.status is Status.OK:
                yield experiment, run


def value(run: RunRecord, name: str) -> float | None:
    found = [one.value for one in run.measurements if one.name == name and isinstance(one.value, int | float)]
    return float(found[0]) if found and found[0] else None


def row(experiment: Experiment, run: RunRecord) -> tuple[str, ...] | None:
    peak, device = value(run, "peak_allocated_bytes"), value(run, "device_peak_used_bytes")
    if peak is None:
        return None
    framework = experiment.framework.name if experiment.framework else "none"
    told = " ".join(f"{name}={experiment.arguments[name]}" for name in TOLD if name in experiment.arguments)
    what = (experiment.model, framework, str(experiment.num_gpus), told)
    shown = (f"{peak / GIB:.2f}", f"{device / GIB:.2f}" if device else "-")
    found: Estimate | Unknown = estimate(experiment)
    if isinstance(found, Unknown):
        return (*what, shown[0], "-", "-", found.reason, shown[1], "-")
    ours = found.peak_allocated_bytes
    error = f"{ours / peak - 1:+.1%}"
    return (*what, shown[0], f"{ours / GIB:.2f}", error, found.moment, shown[1], f"{found.device_bytes / GIB:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path)
    table = Table(title="Peak memory a GPU, GiB")
    headings = (
        "model",
        "framework",
        "GPUs",
        "arguments",
        "measured",
        "estimate",
        "error",
        "moment",
        "device",
        "estimate",
    )
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index in (2, 4, 5, 6, 8, 9) else "left")
    rows = (row(*one) for root in parser.parse_args().results for one in measured(root))
    for cells in dict.fromkeys(cells for cells in rows if cells):
        table.add_row(*cells)
    Console().print(table)


if __name__ == "__main__":
    main()

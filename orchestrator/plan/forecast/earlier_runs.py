"""The speed and start-up time of earlier runs, as the best forecast for runs of the same model, framework and kind of training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from orchestrator.files.printable_text import counted
from orchestrator.measure.flops import PEAKS
from orchestrator.measure.memory_logs import finite
from orchestrator.plan.forecast.memory_fit.launch import is_checkpointed, is_offloaded, quantization_of
from orchestrator.records import Experiment, RunRecord, Status
from orchestrator.results.store import Store


class Kind(NamedTuple):
    """The settings that have the largest effect on the speed."""

    adapters: bool
    quantised: bool
    checkpointed: bool
    offloaded: bool


def kind_of(experiment: Experiment) -> Kind:
    """Return the kind of training that the experiment asks for."""
    return Kind(
        adapters=str(experiment.arguments.get("peft_method", "none")) not in ("none", "None"),
        quantised=quantization_of(experiment) is not None,
        checkpointed=is_checkpointed(experiment),
        offloaded=is_offloaded(experiment),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The medians of similar runs, and a text that says which runs these are."""

    mfu: float
    startup_s: float
    source: str


class _Run(NamedTuple):
    num_gpus: int
    device: str
    mfu: float
    startup_s: float


class EarlierRuns:
    """Measured runs by model, framework configuration and kind of training."""

    def __init__(self, measured: Iterable[tuple[Experiment, RunRecord]] = ()) -> None:
        self._runs: dict[tuple[object, ...], list[_Run]] = {}
        for experiment, record in measured:
            run = _run(experiment, record)
            if run is not None:
                self._runs.setdefault(_key(experiment), []).append(run)

    @staticmethod
    def of(root: Path) -> EarlierRuns:
        """Return the runs of a results folder that ended ok and have a speed. Raises ResultsError if the folder cannot be read."""
        contents = Store.resume(root).contents()
        return EarlierRuns((stored.experiment, record) for stored in contents.experiments for record in stored.records)

    def like(self, experiment: Experiment) -> Measured | None:
        """Return the medians of runs like this experiment, or None if there are no such runs.

        Runs on the same number of GPUs are preferred.
        """
        runs = self._runs.get(_key(experiment), [])
        runs = [run for run in runs if run.num_gpus == experiment.num_gpus] or runs
        if not runs:
            return None
        return Measured(
            mfu=median(run.mfu for run in runs),
            startup_s=median(run.startup_s for run in runs),
            source=f"{counted(len(runs), 'earlier run')} on {', '.join(sorted({run.device for run in runs}))}",
        )


def _key(experiment: Experiment) -> tuple[object, ...]:
    return experiment.model, experiment.framework and experiment.framework.name, kind_of(experiment)


def _run(experiment: Experiment, record: RunRecord) -> _Run | None:
    """Return a run's GPU, its speed (as a share of the GPU's peak) and its start-up time. Return None if a number is missing.

    The share is also computed for runs with quantised weights, although such runs have no metric `mfu`.
    """
    values = {one.name: one.value for one in record.measurements}
    tflops, seconds = finite(values.get("tflops_per_s_per_gpu")), finite(values.get("train_runtime"))
    name = str(values.get("gpu_device_name")).removeprefix("NVIDIA ").strip()
    if record.status is not Status.OK or name not in PEAKS:
        return None
    if tflops is None or seconds is None or tflops <= 0:
        return None
    return _Run(experiment.num_gpus, name, tflops * 1e12 / PEAKS[name], max(0.0, record.wall_s - seconds))

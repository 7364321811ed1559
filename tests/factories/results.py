"""Experiments, records of their runs, and results folders that hold them, written through the store as a run would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.records import (
    CustomCommand,
    Device,
    Experiment,
    Job,
    Measurement,
    MetricSource,
    RunRecord,
    Status,
)
from orchestrator.results.store import Store, write_record


def experiment(name: str = "a", **fields: Any) -> Experiment:
    """Make an experiment, by default the smallest one: no arguments, on a CPU, by the built-in trainer."""
    least = {"id": f"s-{name}-0123456789ab", "scenario": "s", "model": "m", "num_gpus": 1, "device": Device.CPU}
    return Experiment(**{**least, "trainer": "huggingface", "arguments": {}, **fields})


def of_command(*words: str, name: str = "a", **fields: Any) -> Experiment:
    """Make an experiment whose trainer is this command, which prints the runtime and the loss."""
    metrics = {"train_runtime": MetricSource(), "train_loss": MetricSource()}
    custom = CustomCommand(command=words, launcher="none", metrics=metrics)
    return experiment(name, **{"trainer": "custom", "custom": custom, **fields})


BASE = experiment(
    id="full-tiny-000000000000",
    scenario="full",
    model="config:tiny-llama",
    arguments={"model_name_or_path": "config:tiny-llama", "learning_rate": "2e-5", "per_device_train_batch_size": "8"},
    repeats=3,
)


def measured(**values: float | int | str | None) -> tuple[Measurement, ...]:
    return tuple(Measurement(name=name, value=value, source="test") for name, value in values.items())


def job(repeat: int = 1, *, attempt: int = 1, run_dir: Path = Path("/nowhere"), experiment_id: str = "e") -> Job:
    """Make a job of a run that need not exist."""
    return Job(experiment_id=experiment_id, repeat=repeat, attempt=attempt, run_dir=run_dir)


def record_of(job: Job, status: Status = Status.OK, **more: Any) -> RunRecord:
    """Make a record of this run that says only how it ended; `more` are other fields."""
    run = {"experiment_id": job.experiment_id, "repeat": job.repeat, "attempt": job.attempt, "status": status}
    return RunRecord(**{**run, "started_at": 1.0, "wall_s": 2.5, **more})


def ended(experiment: Experiment, repeat: int, *, attempt: int = 1, **values: float | int | str | None) -> RunRecord:
    """Make the record of a run that ended well, with these numbers."""
    return RunRecord(
        experiment_id=experiment.id,
        repeat=repeat,
        attempt=attempt,
        status=Status.OK,
        started_at=1.7e9,
        wall_s=12.5,
        exit_code=0,
        measurements=measured(**values),
        settings={"dtype": "float32", "world_size": 1, "wrapper_classes": [], "liger": False},
        provenance={
            "git": {"commit": "abc", "dirty": False},
            "packages": {"torch": "2.13.0", "other": "1"},
            "gpus": [],
        },
    )


def failed(experiment: Experiment, repeat: int, *, attempt: int = 1, kind: str = "oom_cuda") -> RunRecord:
    record = ended(experiment, repeat, attempt=attempt, mem_nvidia_mem_reserved=80000.0)
    return replace(record, status=Status.FAILED, kind=kind, cause=f"{kind}, in a sentence", exit_code=1)


def stored(root: Path, *cells: tuple[Experiment, list[RunRecord]]) -> Path:
    store = Store.create(root, {})
    store.add([experiment for experiment, _ in cells])
    for experiment, records in cells:
        for record in records:
            run_dir = store.run_dir(experiment.id, record.repeat, record.attempt)
            run_dir.mkdir(parents=True)
            assert write_record(run_dir, record)
    return root

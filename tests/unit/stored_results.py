"""Results folders for tests, written through the store as a real run would: experiments, records, no processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.records import Device, Experiment, Job, Measurement, RunRecord, Status
from orchestrator.store import Store, write_record

BASE = Experiment(
    id="full-tiny-000000000000",
    scenario="full",
    model="config:tiny-llama",
    num_gpus=1,
    device=Device.CPU,
    trainer="huggingface",
    arguments={"model_name_or_path": "config:tiny-llama", "learning_rate": "2e-5", "per_device_train_batch_size": "8"},
    repeats=3,
)


def measured(**values: float | int | str | None) -> tuple[Measurement, ...]:
    return tuple(Measurement(name=name, value=value, source="test") for name, value in values.items())


def record_of(job: Job, status: Status = Status.OK, **more: Any) -> RunRecord:
    """The least that a run's record says."""
    return RunRecord(
        **{
            "experiment_id": job.experiment_id,
            "repeat": job.repeat,
            "attempt": job.attempt,
            "status": status,
            "started_at": 1.0,
            "wall_s": 2.5,
            **more,
        }
    )


def ended(experiment: Experiment, repeat: int, *, attempt: int = 1, **values: float | int | str | None) -> RunRecord:
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

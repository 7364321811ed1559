"""A cluster ends an allocation: it signals the processes of a run one after the other, the training perhaps first."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from campaigns import started
from factories.results import of_command

from orchestrator.records import RunRecord
from orchestrator.results import claims
from orchestrator.results.store import Store

DYING = "import os, pathlib, signal; pathlib.Path('../dying').touch(); os.kill(os.getpid(), signal.SIGTERM)"
IN_SLURM = {"slurm": {"batch": "tb-0.0001", "element": 0, "job_id": 1, "restart": 0, "node": "n1"}}


def ended(
    folder: Path, details: dict[str, object], *, signalled: bool, command: str = DYING
) -> tuple[RunRecord, float]:
    """Run a training that dies of SIGTERM. Then send the signal to the process of the run, too."""
    store = Store.create(folder / "r", {})
    experiment = of_command("{python}", "-c", command)
    store.add([experiment])
    job = store.job(experiment.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="slurm", details=details)
    process = started(folder, "-m", "orchestrator", "run-one", str(job.run_dir))
    while not (job.run_dir / "dying").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    began = time.monotonic()
    if signalled:
        time.sleep(0.2)
        process.terminate()
    process.communicate(timeout=60)
    record = store.run(job).record
    assert record is not None
    return record, time.monotonic() - began


def test_a_run_whose_allocation_ends_is_cancelled(tmp_path: Path) -> None:
    record, _ = ended(tmp_path, IN_SLURM, signalled=True)
    assert (record.status, record.kind) == ("cancelled", "cancelled")


@pytest.mark.parametrize("details", [IN_SLURM, {}])
def test_a_training_that_dies_alone_has_failed(tmp_path: Path, details: dict[str, object]) -> None:
    record, _ = ended(tmp_path, details, signalled=False)
    assert (record.status, record.kind) == ("failed", "killed")


def test_a_run_whose_log_was_not_searched_because_its_allocation_ended_is_cancelled(tmp_path: Path) -> None:
    """The training ended well. Its metrics are missing, because the signal ended the program that searches the log."""
    silent = "import pathlib; pathlib.Path('../dying').touch()"
    record, _ = ended(tmp_path, IN_SLURM, signalled=True, command=silent)
    assert (record.status, record.kind) == ("cancelled", "cancelled")

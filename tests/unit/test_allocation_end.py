"""The cause of a run's end in the log of its allocation, in Slurm's words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from factories.results import BASE

from orchestrator.records import Status
from orchestrator.results import claims
from orchestrator.results.allocation_end import cause
from orchestrator.results.claims import Claim
from orchestrator.results.store import Store
from orchestrator.results.unfinished_record import unfinished_record

LINE = "slurmstepd-n1: error: *** JOB 14 ON n1 CANCELLED AT {at}{why} ***\n"


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    store = Store.create(tmp_path / "r", {})
    store.add([BASE])
    job = store.job(BASE.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="slurm", details={"slurm": {"log": "element-0.log"}})
    found = claims.read_claim(job.run_dir)
    assert found is not None
    return found


def written(*lines: tuple[float, str]) -> str:
    """Return a log with lines of these ages in seconds."""
    times = [time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - age_s)) for age_s, _ in lines]
    return "".join(LINE.format(at=at, why=why) for at, (_, why) in zip(times, lines, strict=True))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [(0, " DUE TO TIME LIMIT")],
            "the time limit of its job in Slurm ended it; repeat the command to run it again, with",
        ),
        (
            [(0, " DUE TO PREEMPTION")],
            "Slurm preempted its job; if Slurm does not start the job again, repeat the command",
        ),
        ([(0, " DUE TO JOB REQUEUE")], "Slurm requeued its job; "),
        ([(0, " DUE TO NODE FAILURE")], "a node of its job failed; "),
        ([(60, " DUE TO PREEMPTION"), (0, "")], "its job was cancelled in Slurm; repeat the command to run it again"),
        ([(60, " DUE TO PREEMPTION")], None),
        ([], None),
    ],
)
def test_the_cause_is_the_last_line_of_this_start(
    claim: Claim, tmp_path: Path, lines: list[tuple[float, str]], expected: str | None
) -> None:
    (tmp_path / "element-0.log").write_text(f"module load cuda\n{written(*lines)}Interrupted.\n")
    found = cause(claim, tmp_path)
    assert (found or "").startswith(expected or "") and (found is None) == (expected is None)


def test_a_log_that_is_not_there_says_nothing(claim: Claim, tmp_path: Path) -> None:
    assert cause(claim, tmp_path) is None
    (tmp_path / "element-0.log").write_text(LINE.format(at="9999-99-99T99:99:99", why=""))
    assert cause(claim, tmp_path) is None
    assert cause(None, tmp_path) is None


def test_a_run_whose_process_had_not_begun_has_the_cause_too(claim: Claim, tmp_path: Path) -> None:
    store = Store.resume(tmp_path / "r")
    (store.root / "element-0.log").write_text(written((0, " DUE TO TIME LIMIT")))
    record = unfinished_record(store.job(claim.experiment_id, repeat=1, attempt=1), Status.CANCELLED)
    assert str(record.cause).startswith("the time limit of its job in Slurm ended it")

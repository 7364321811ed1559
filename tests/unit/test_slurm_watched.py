"""What an element's marks, its records and Slurm's word mean for its runs: rows as squeue prints them, and real files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from factories.claimed_runs import changed
from factories.results import BASE, record_of

from orchestrator.executors.slurm import watched
from orchestrator.executors.slurm.batches import BatchFolder, Mark, batch_folders, new_batch
from orchestrator.executors.slurm.client import Row
from orchestrator.executors.slurm.judging import is_normal
from orchestrator.executors.slurm.shapes import shape_of
from orchestrator.executors.slurm.site import Site
from orchestrator.executors.slurm.watched import Queue, Watched, look, settle
from orchestrator.records import Job, JobState, Status
from orchestrator.results import claims
from orchestrator.results.store import Store, write_record

Fake = Callable[[str, str], None]
SUBMITTED, ASKED, NAME = 1000.0, 2000.0, "tb"


@dataclass
class Case:
    """An element with two runs, of which the first has begun, and its queue."""

    folder: BatchFolder
    element: Watched
    begun: Job
    waiting: Job
    queue: Queue

    def listed(self, state: str | None, reason: str = "None", *, asked_at: float = ASKED, **fields: Any) -> None:
        """Let squeue answer with this state of the element; None: the element is not listed."""
        row = {"name": self.element.name, "job_id": 5, "element": 0, "state": state, "reason": reason, "start": "N/A"}
        rows = [] if state is None else [Row(**{**row, **fields})]
        self.queue.rows = {(one.name, one.job_id, one.element): one for one in rows}
        self.queue.asked_at = asked_at

    def look(self) -> tuple[list[str], watched.Word | None]:
        ended, end = look(self.element, self.folder.marks().get(0, {}), self.queue)
        return [job.name for job in ended], end

    def settled(self) -> list[tuple[str, str, str | None]]:
        """Wait for the grace period, and return each run with its state or its status, and its kind."""
        self.look()
        self.queue.asked_at += 100
        _, end = self.look()
        assert end is not None
        store = Store(self.folder.results)
        found = []
        for job, state in settle(self.element, end):
            record = store.run(job).record
            found.append((job.name, record.status if record else state, record.kind if record else None))
        return found


@pytest.fixture
def case(tmp_path: Path) -> Callable[..., Case]:
    def made(*, claimed: bool = True, memory_mb: int | None = None, **site: Any) -> Case:
        store = Store.create(tmp_path / "r", {})
        store.add([BASE])
        begun, waiting = (store.job(BASE.id, repeat=repeat, attempt=1) for repeat in (1, 2))
        folder = new_batch(store.root, shape_of(BASE), [[begun, waiting]], time_s=None)
        (batch,) = [one.batch() for one in batch_folders(store.root)]
        assert batch is not None
        if claimed:
            folder.mark(0, 0, Mark.STARTED)
            details = {"slurm": {"batch": batch.name, "element": 0, "restart": 0, "memory_mb": memory_mb}}
            assert claims.claim(begun, executor="slurm", details=details)
            changed(begun.folder.claim, host="node7", boot_id="another")
        element = Watched(folder=folder, name=batch.name, number=0, job_id=5, since=SUBMITTED)
        element.left = dict.fromkeys((begun, waiting), False)
        return Case(folder, element, begun, waiting, Queue(site=Site(grace_s=60.0, **site)))

    return made


def silent(case: Case) -> Case:
    """Let the heartbeat of the run that has begun be old."""

    for path in (case.begun.folder.claim, case.begun.run_dir):
        os.utime(path, (1.0, 1.0))
    return case


LOST = ("lost", "lost")
ENDS = {  # state → the run that had begun; the run that had not
    "BOOT_FAIL": (LOST, ("pending", None)),
    "CANCELLED": (("cancelled", "cancelled"), ("cancelled", "cancelled")),
    "COMPLETED": (LOST, ("pending", None)),
    "DEADLINE": (("timeout", "timeout"), ("pending", None)),
    "FAILED": (LOST, ("pending", None)),
    "LAUNCH_FAILED": (LOST, ("pending", None)),
    "NODE_FAIL": (LOST, ("pending", None)),
    "OUT_OF_MEMORY": (("failed", "oom_host"), ("pending", None)),
    "PREEMPTED": (LOST, ("pending", None)),
    "REVOKED": (LOST, ("pending", None)),
    "TIMEOUT": (("timeout", "timeout"), ("pending", None)),
    None: (LOST, ("pending", None)),
}
GO_ON = (
    *("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *(
        "SPECIAL_EXIT",
        "RESIZING",
        "STOPPED",
        "SIGNALING",
        "STAGE_OUT",
        "RESV_DEL_HOLD",
        "POWER_UP_NODE",
        "NEW_IN_SLURM_99",
    ),
)


@pytest.mark.parametrize("state", ENDS)
def test_ends(case: Callable[..., Case], state: str | None) -> None:
    one = silent(case())
    one.listed(state)
    begun, waiting = ENDS[state]
    assert one.settled() == [("r1-t1", *begun), ("r2-t1", *waiting)]


KILLED = {  # what slurmstepd writes into the log of an element that it ended for its memory
    "control groups": "Detected 1 oom-kill event(s) in StepId=9.batch. Some of your processes may have been killed",
    "older control groups": "Detected 2 oom-kill event(s) in step 9.batch cgroup.",
    "a look": "StepId=9.batch exceeded memory limit (468049920 > 419430400), being killed",
    "an older look": "Exceeded job memory limit",
}


@pytest.mark.parametrize("state", ["FAILED", None])
@pytest.mark.parametrize("said", KILLED.values(), ids=KILLED)
def test_the_log_says_that_the_memory_ran_out(case: Callable[..., Case], state: str | None, said: str) -> None:
    one = case()
    one.folder.log(0).write_text(f"Loading module\nslurmstepd-n1: error: {said}\n")
    one.listed(state)
    assert one.settled() == [("r1-t1", "failed", "oom_host"), ("r2-t1", "pending", None)]


def test_a_record_names_the_memory_of_the_allocation(case: Callable[..., Case]) -> None:
    one = silent(case(memory_mb=400))
    one.listed("OUT_OF_MEMORY")
    one.settled()
    record = Store(one.folder.results).run(one.begun).record
    assert record is not None and record.cause == (
        "its memory ran out; its allocation had 400 MiB: give it more by `mem_per_gpu:`, or `--mem` in `lines:`, in the site file"
    )


@pytest.mark.parametrize("state", GO_ON)
def test_states_that_go_on(case: Callable[..., Case], state: str) -> None:
    one = silent(case())
    one.listed(state, asked_at=ASKED)
    one.look()
    one.listed(state, asked_at=time.time() + 1e6)
    assert one.look() == ([], None)


@pytest.mark.parametrize("state", [None, "FAILED", "COMPLETED"])
def test_a_run_whose_heart_beats_is_running_whatever_the_queue_lists(case: Callable[..., Case], state: str) -> None:
    one = case()
    one.listed(state)
    one.look()
    one.queue.asked_at += 1000
    assert one.look() == ([], None)


def test_an_answer_from_before_the_submission_says_nothing(case: Callable[..., Case]) -> None:
    one = silent(case())
    one.listed(None, asked_at=SUBMITTED - 1)
    assert one.look() == ([], None)


def test_one_old_answer_does_not_become_true_by_waiting(case: Callable[..., Case]) -> None:
    """The element was not listed once, and then squeue did not answer for an hour."""
    one = silent(case())
    one.element.since = ASKED - 1
    one.listed(None)
    assert [one.look() for _ in range(3)] == [([], None)] * 3


def test_an_element_that_is_listed_again_goes_on(case: Callable[..., Case]) -> None:
    one = silent(case())
    one.element.since = ASKED - 1
    one.listed(None)
    one.look()
    one.listed("RUNNING", asked_at=ASKED + 30)
    one.look()
    one.listed(None, asked_at=ASKED + 70)
    assert one.look() == ([], None), "the grace period begins anew"


def test_a_number_that_slurm_gave_to_another_job_is_not_ours(case: Callable[..., Case]) -> None:
    one = silent(case())
    one.listed("RUNNING", name="another")
    assert one.settled()[0] == ("r1-t1", "lost", "lost")


def test_a_job_of_unknown_number_is_found_by_its_name(case: Callable[..., Case]) -> None:
    one = case()
    one.element.job_id = None
    one.listed("PENDING", job_id=77)
    one.look()
    submitted = one.folder.submitted()
    assert submitted is not None and submitted.job_id == one.element.job_id == 77


def test_a_controller_may_be_silent_for_weeks(fake: Fake) -> None:
    fake("squeue", "exit 1")
    queue = Queue(site=Site(), silent=5000)
    queue.ask()
    assert queue.silent == 5001 and 200 < queue.next_at - time.time() < 400


def test_records_and_marks_need_no_queue(case: Callable[..., Case]) -> None:
    one = case()
    for job in (one.begun, one.waiting):
        job.run_dir.mkdir(parents=True, exist_ok=True)
        write_record(job.run_dir, record_of(job))
    one.folder.mark(0, 0, Mark.DONE)
    ended, end = one.look()
    assert ended == ["r1-t1", "r2-t1"] and end is not None and not one.element.left


def test_the_mark_of_a_second_start_does_not_end_a_run_whose_heart_beats(case: Callable[..., Case]) -> None:
    one = case()  # both starts have the same number, and the second one finds nothing to claim
    one.folder.mark(0, 0, Mark.DONE)
    one.listed("RUNNING")
    claims.beat(one.begun.run_dir)
    assert one.look() == ([], None)
    for path in one.begun.run_dir.iterdir():
        os.utime(path, (1, 1))
    assert one.look()[1] == watched.word("COMPLETED")


def test_the_mark_of_a_cut_off_start_does_not_end_the_later_start(case: Callable[..., Case]) -> None:
    one = case()
    one.folder.mark(0, 1, Mark.STARTED)
    one.folder.mark(0, 0, Mark.DONE)
    one.listed("RUNNING")
    assert one.look() == ([], None)


def test_a_run_of_another_element_is_left_alone(case: Callable[..., Case]) -> None:
    one = silent(case())
    assert claims.claim(one.waiting, executor="slurm", details={"slurm": {"batch": "tb-other.0001", "element": 0}})
    one.listed("CANCELLED")
    assert one.settled()[1] == ("r2-t1", JobState.RUNNING, None)
    assert not one.waiting.folder.record.exists()


def test_a_lost_run_may_go_on_in_a_later_start(case: Callable[..., Case]) -> None:
    one = case()
    write_record(one.begun.run_dir, record_of(one.begun, Status.LOST))
    one.listed("RUNNING")
    assert one.look()[0] == ["r1-t1"]
    assert {job.name: optional for job, optional in one.element.left.items()} == {"r2-t1": False, "r1-t2": True}
    one.listed("COMPLETED")
    assert [name for name, _, _ in one.settled()] == ["r2-t1"], "the caller decides on the next attempt"


@pytest.mark.parametrize("state, goes_on", [("PREEMPTED", True), ("NODE_FAIL", True), ("CANCELLED", False)])
def test_a_run_that_stopped_because_slurm_took_its_allocation_has_a_next_attempt(
    case: Callable[..., Case], state: str, goes_on: bool
) -> None:
    one = case()
    write_record(one.begun.run_dir, record_of(one.begun, Status.CANCELLED))
    one.folder.mark(0, 0, Mark.STOPPED)
    one.listed(state)
    ended, end = one.look()
    assert ended == ["r1-t1"] and end is not None
    pending = [job.name for job, state in settle(one.element, end) if state is JobState.PENDING]
    assert pending == (["r2-t1", "r1-t2"] if goes_on else [])


# Reasons


@pytest.mark.parametrize(
    "reason",
    [
        *("None", "Priority", "Resources", "BeginTime", "JobArrayTaskLimit", "QOSMaxJobsPerUserLimit", "AssocGrpGRES"),
        *("QOSGrpNodeLimit", "Licenses", "Reservation", "Prolog", "Dependency", "AssocGrpCPURunMinutesLimit"),
    ],
)
def test_reasons_that_go_away(reason: str) -> None:
    assert is_normal(reason)


@pytest.mark.parametrize(
    "reason",
    [
        *("PartitionDown", "PartitionTimeLimit", "PartitionNodeLimit", "JobHeldUser", "JobHeldAdmin", "BadConstraints"),
        *("ReqNodeNotAvail, UnavailableNodes:n1", "InvalidAccount", "InvalidQOS", "launch failed requeued held"),
        *("QOSMaxCpuPerJobLimit", "QOSMaxWallDurationPerJobLimit", "AssocMaxNodePerJobLimit", "Something new"),
        *("AssocGrpCPUMinutesLimit", "AssocGrpBillingMinutes", "QOSGrpWallLimit", "DependencyNeverSatisfied"),
    ],
)
def test_reasons_that_stay(reason: str) -> None:
    assert not is_normal(reason)


@pytest.mark.parametrize(
    "state, reason", [("PENDING", "PartitionDown"), ("REQUEUE_HOLD", "launch failed requeued held")]
)
def test_max_pending(case: Callable[..., Case], fake: Fake, state: str, reason: str) -> None:
    one = case(claimed=False, max_pending_s=0.2)
    fake("scancel", 'echo "$@" >> "$(dirname "$0")/cancelled"')
    one.listed(state, reason)
    assert one.look() == ([], None)
    time.sleep(0.3)
    _, end = one.look()
    assert end is not None and (end.status, end.kind) == (Status.FAILED, "launcher")
    assert reason in end.cause and "max_pending" in end.cause
    assert [
        (name, status) for name, status, _ in [(job.name, state, 0) for job, state in settle(one.element, end)]
    ] == [
        ("r1-t1", JobState.ENDED),
        ("r2-t1", JobState.ENDED),
    ]


def test_without_max_pending_a_wait_that_may_not_end_is_said_once(case: Callable[..., Case]) -> None:
    one, said = case(claimed=False), list[str]()
    one.queue.say = said.append

    def answered(reason: str) -> None:
        one.listed("PENDING", reason, asked_at=time.time())
        assert one.look() == ([], None)
        one.queue.tell_held([one.element])

    for reason in ("PartitionDown", "Priority", "PartitionDown"):
        answered(reason)
    assert said == [], "a reason that only one answer has"
    for reason in ("PartitionDown", "PartitionDown", "JobHeldUser"):
        answered(reason)
    results = one.folder.results
    assert said == [
        f"Slurm holds 2 runs for a reason that may not go away by itself, {reason}: {BASE.id}/r1-t1, {BASE.id}/r2-t1; remove the "
        "reason in Slurm, limit the wait with `max_pending:` in the site file, or end the runs: tunebench cancel "
        f"{results}"
        for reason in ("PartitionDown", "JobHeldUser")
    ]


def test_a_cancel_that_fails_is_tried_again(case: Callable[..., Case], fake: Fake) -> None:
    one = case(claimed=False, max_pending_s=0.0)
    fake("scancel", "exit 1")
    one.listed("PENDING", "PartitionDown")
    one.look()
    time.sleep(0.05)
    assert one.look() == ([], None)


def test_waiting_for_the_turn_is_no_problem(case: Callable[..., Case]) -> None:
    one = case(claimed=False, max_pending_s=0.0)
    one.listed("PENDING", "Priority")
    one.look()
    time.sleep(0.05)
    assert one.look() == ([], None)

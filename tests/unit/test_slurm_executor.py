"""The executor finds the elements that have a run, with programs in place of Slurm's clients."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from factories.claimed_runs import changed
from factories.results import BASE, record_of

from orchestrator.campaign.cancel import End, cancel
from orchestrator.campaign.status.cluster_queue import ClusterQueue
from orchestrator.errors import LaunchError, NoAnswer
from orchestrator.executors.slurm import executor
from orchestrator.executors.slurm.batches import FOLDER, BatchFolder, Mark, batch_folders, new_batch
from orchestrator.executors.slurm.cluster.refusals import refusal
from orchestrator.executors.slurm.executor import SlurmExecutor
from orchestrator.executors.slurm.in_queue import in_queue
from orchestrator.executors.slurm.shapes import shape_of
from orchestrator.executors.slurm.site import Site
from orchestrator.records import Job, JobState, Status
from orchestrator.results import claims
from orchestrator.results.store import Store, write_record

Fake = Callable[[str, str], None]
SITE = Site(poll_s=0.05, grace_s=0.2)


@pytest.fixture
def store(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A results folder with an experiment, an empty queue, and an sbatch that notes each call."""
    store = Store.create(tmp_path / "r", {})
    store.add([BASE])
    monkeypatch.setattr(executor, "_LOOK_AGAIN_S", 0.02)
    fake("squeue", "true")
    fake("scontrol", "true")
    fake("sbatch", f'echo "$@" >> {tmp_path}/sbatch; echo 9')
    fake("scancel", f'echo "$@" >> {tmp_path}/scancel')
    return store


def calls(store: Store, name: str) -> list[str]:
    file = store.root.parent / name
    return file.read_text().splitlines() if file.exists() else []


def run(store: Store, repeat: int = 1) -> Job:
    return store.job(BASE.id, repeat=repeat, attempt=1)


def batch(store: Store, jobs: Sequence[Job], job_id: int, *marks: Mark) -> BatchFolder:
    """Make a submitted batch with these runs in one element."""
    folder = new_batch(store.root, shape_of(BASE), [jobs], time_s=None)
    folder.note_submitted(job_id)
    for mark in marks:
        folder.mark(0, 0, mark)
    return folder


def claim(folder: BatchFolder, job: Job, job_id: int) -> None:
    one = folder.batch()
    assert one is not None
    details = {"slurm": {"batch": one.name, "element": 0, "job_id": job_id, "restart": 0}}
    assert claims.claim(job, executor="slurm", details=details)


def ends_soon(job: Job) -> None:
    def end() -> None:
        time.sleep(0.5)
        write_record(job.run_dir, record_of(job))

    threading.Thread(target=end).start()


def test_a_run_belongs_to_the_element_that_claimed_it(store: Store, fake: Fake) -> None:
    """Slurm forgot the first array for a while, so the run was submitted again; but the first array has the run."""
    first = batch(store, [run(store)], 5, Mark.STARTED)
    claim(first, run(store), 5)
    batch(store, [run(store)], 6, Mark.STARTED, Mark.DONE)
    ends_soon(run(store))
    assert list(SlurmExecutor(SITE).run([run(store)])) == [(run(store), JobState.ENDED)]
    assert calls(store, "sbatch") == []


def test_a_run_whose_batch_was_removed_is_waited_for(store: Store) -> None:
    folder = batch(store, [run(store)], 5)
    claim(folder, run(store), 5)
    (store.root / FOLDER).rename(store.root / "aside")
    ends_soon(run(store))
    assert list(SlurmExecutor(SITE).run([run(store)])) == [(run(store), JobState.ENDED)]
    assert calls(store, "sbatch") == []


def test_a_claimed_run_whose_element_is_done_gets_its_record(store: Store) -> None:
    folder = batch(store, [run(store)], 5, Mark.STARTED, Mark.DONE)
    claim(folder, run(store), 5)
    changed(run(store).folder.claim, start_time=1.0)  # its process is gone
    assert list(SlurmExecutor(SITE).run([run(store)])) == [(run(store), JobState.ENDED)]
    record = store.run(run(store)).record
    assert record is not None and record.status == "lost" and calls(store, "sbatch") == []


def test_runs_that_tunebench_cancelled_before_they_began_are_only_due_again(store: Store) -> None:
    jobs = [run(store, 1), run(store, 2)]
    folder = batch(store, jobs, 5, Mark.STARTED)
    claim(folder, jobs[0], 5)
    write_record(jobs[0].run_dir, record_of(jobs[0]))
    SlurmExecutor(SITE).end([jobs[1]])
    (name,) = [one.name for one in [folder.batch()] if one]
    assert any(f"--jobname={name}" in call for call in calls(store, "scancel"))
    assert SlurmExecutor(SITE).submit([jobs[1]]) == (1, 0) and len(calls(store, "sbatch")) == 1
    assert not jobs[1].run_dir.exists(), "the run has no cancelled record"


def test_the_limit_of_submissions_a_minute_holds_for_all_calls(store: Store) -> None:
    slurm = SlurmExecutor(replace(SITE, max_queued=1))
    submitted = [slurm.submit([store.job(BASE.id, repeat=repeat, attempt=1)]) for repeat in range(1, 13)]
    assert submitted == [(1, 0)] * 10 + [(0, 1)] * 2
    assert len(calls(store, "sbatch")) == 10


def test_submit_only_tries_smaller_arrays_if_slurm_takes_no_large_one(store: Store, fake: Fake) -> None:
    """A limit of jobs of a user is below `max_queued`: two elements are accepted, and no third."""
    limit = "sbatch: error: Batch job submission failed: Job violates policy (job submit limit)"
    fake("squeue", "echo 77")
    fake(
        "sbatch", f'grep -qE "^#SBATCH --array=0(-1)?(%|$)" "${{@: -1}}" && echo 9 || {{ echo "{limit}" >&2; exit 1; }}'
    )
    jobs = [run(store, repeat) for repeat in range(1, 6)]
    assert SlurmExecutor(SITE).submit(jobs)[0] == 2


def test_runs_that_wait_are_planned_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign may have thousands of runs, and a look comes every two seconds."""
    read = []
    monkeypatch.setattr(
        Store, "experiment", lambda self, name, known=Store.experiment: read.append(name) or known(self, name)
    )
    campaign = executor._Campaign(
        [run(store, repeat) for repeat in range(1, 7)], SlurmExecutor(replace(SITE, max_queued=4))
    )
    assert campaign.feed() and not campaign.feed()
    before = len(read)
    assert not campaign.feed() and len(read) == before


def test_an_experiment_is_read_once_for_all_submissions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 experiments, 200 submissions would read ten millions."""
    read = []
    monkeypatch.setattr(
        Store, "experiment", lambda self, name, known=Store.experiment: read.append(name) or known(self, name)
    )
    campaign = executor._Campaign([run(store, repeat) for repeat in range(1, 7)], SlurmExecutor(SITE))
    campaign.max_array = 2
    assert [campaign.feed() for _ in range(4)] == [True, True, True, False] and read == [BASE.id]


def test_an_array_that_is_too_large_is_halved(store: Store, fake: Fake) -> None:
    refusal = "echo 'sbatch: error: Batch job submission failed: Job violates policy (job submit limit)' >&2; exit 1"
    fake("sbatch", f'grep -q -- "--array=0-[01]$" "${{@: -1}}" && echo 9 && exit; {refusal}')
    jobs = [run(store, repeat) for repeat in range(1, 9)]
    campaign = executor._Campaign(jobs, SlurmExecutor(SITE))
    assert [campaign.feed() for _ in range(3)] == [False, False, True]
    assert len(campaign.waiting) == 6 and campaign.capacity == 2
    assert len([*batch_folders(store.root)]) == 1, "refused arrays leave nothing behind"


def test_a_machine_without_slurm_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        LaunchError, match=r"^sbatch: this machine does not have this program of Slurm; start the campaign on"
    ):
        SlurmExecutor(SITE).submit([run(store)])
    assert [*batch_folders(store.root)] == []


def test_a_submission_that_no_queue_would_take_is_an_error(store: Store, fake: Fake) -> None:
    fake(
        "sbatch",
        "echo 'sbatch: error: Batch job submission failed: Job violates policy (job submit limit)' >&2; exit 1",
    )
    with pytest.raises(
        LaunchError, match=r"^site.yaml: Slurm refused the job: Job violates policy \(job submit limit\); "
    ):
        SlurmExecutor(replace(SITE, file="site.yaml")).submit([run(store)])
    fake("squeue", "echo 77")  # other jobs of this user fill the queue
    assert SlurmExecutor(SITE).submit([run(store)]) == (0, 1)


@pytest.mark.parametrize(
    ("message", "place", "cure"),
    [
        ("Invalid partition name specified", ":2:1", "change `partition:`"),
        ("Requested partition configuration not available now", ":2:1", "change `partition:`"),
        (
            "Invalid account or account/partition combination specified",
            ":3:1",
            "change `account:` or `partition:` (line 2)",
        ),
        ("Invalid qos specification", ":4:1", "change `qos:`"),
        ("Invalid feature specification", "", None),
        (
            "Requested time limit is invalid (missing or exceeds some limit)",
            "",
            "write `time:` into the site file, or a ",
        ),
        ("Requested node configuration is not available", ":7:1", "change `mem_per_gpu:` or `lines:` (line 9)"),
        ("Zero kittens", "", None),
    ],
)
def test_a_refusal_names_the_keys_that_it_may_mean(message: str, place: str, cure: str | None) -> None:
    lines = {"partition": 2, "account": 3, "qos": 4, "mem_per_gpu": 7, "lines": 9}
    site = replace(SITE, file="site.yaml", places={key: f"site.yaml:{line}:1" for key, line in lines.items()})
    said = str(refusal(LaunchError(message), site))
    assert said.startswith(f"site.yaml{place}: Slurm refused the job: {message}; {cure or '`tunebench site check`'}"), (
        said
    )
    assert said.endswith("; `tunebench site check` shows what the cluster has")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prologue", "module load cuda\nexport HF_TOKEN=hunter5Secret9x\n"),
        ("lines", ("--exclusive", "--comment=password:hunter5Secret9x")),
    ],
)
def test_a_secret_that_the_script_would_contain_is_refused(store: Store, key: str, value: str) -> None:
    """The script lies in the results folder. A prologue may read the secret from elsewhere."""
    site = replace(SITE, places={key: "site.yaml:4:1"}, **{key: value})
    with pytest.raises(LaunchError, match=rf"^site\.yaml:4:1: `{key}:` contains the value of \w+, which .* export it"):
        SlurmExecutor(site).submit([run(store)])
    assert not calls(store, "sbatch") and not list(store.root.rglob("job.sh"))
    read = 'export HF_TOKEN=$(cat ~/token) API_KEY="$(cat ~/key)"\nsource ~/secrets.sh\n'
    SlurmExecutor(replace(SITE, prologue=read)).submit([run(store)])
    assert calls(store, "sbatch") and read in next(store.root.rglob("job.sh")).read_text()


def test_what_was_submitted_and_what_goes_on_is_said_truly(store: Store, fake: Fake) -> None:
    said: list[str] = []
    on_slurm = SlurmExecutor(SITE, say=said.append)
    assert on_slurm.goes_on(store.root) == "No job of this campaign is in Slurm's queue."
    on_slurm.submit([run(store)])
    assert said == [f"submitted job 9: 1 allocation ({store.root}/slurm/0001)"]
    assert on_slurm.goes_on(store.root).startswith("Submitted jobs go on. To wait for them, repeat the command; ")
    next(batch_folders(store.root)).mark(0, 0, Mark.DONE)
    assert on_slurm.goes_on(store.root) == "No job of this campaign is in Slurm's queue."


def test_a_submission_that_slurm_did_not_confirm_is_said(store: Store, fake: Fake) -> None:
    said: list[str] = []
    fake(
        "sbatch",
        'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1',
    )
    on_slurm = SlurmExecutor(SITE, say=said.append)
    with pytest.raises(NoAnswer, match="Slurm has not confirmed 1 submission, so some runs may not be in its queue; "):
        on_slurm.submit([run(store)])
    assert len(said) == 1 and said[0].startswith("Slurm did not say whether it took 1 allocation (")
    assert on_slurm.goes_on(store.root).startswith("Slurm has not confirmed 1 submission. ")


def test_silence_of_slurm_is_said_once(store: Store, fake: Fake) -> None:
    said: list[str] = []
    fake("squeue", "echo down >&2; exit 1")
    job = run(store)
    folder = batch(store, [job], 5)
    claim(folder, job, 5)
    ends_soon(job)
    assert [job for job, _ in SlurmExecutor(SITE, say=said.append).run([job])] == [job]
    assert len(said) == 1 and said[0].startswith("Slurm does not answer, so what it does is unknown (")


def test_cancel_ends_a_run_that_waits_and_leaves_the_others_of_its_allocation(store: Store, fake: Fake) -> None:
    other = replace(BASE, id="other-000000000000")
    store.add([other])
    waiting, stays = run(store), store.job(other.id, repeat=1, attempt=1)
    batch(store, [waiting, stays], 5)
    batch(store, [run(store, 2)], 6)
    answers = {answer.job: str(answer) for answer in cancel(store, [BASE.id])}
    assert answers == {job: f"{BASE.id} {job.name}: cancelled before it began" for job in (waiting, run(store, 2))}
    assert [record.status for job in answers if (record := store.run(job).record)] == [Status.CANCELLED] * 2
    assert claims.state(stays.run_dir) is JobState.PENDING
    (line,) = calls(store, "scancel")  # the other allocation still has a run
    assert line.endswith(".0002")


def test_cancel_asks_slurm_to_end_the_element_of_a_running_run(store: Store, fake: Fake) -> None:
    job = run(store)
    folder = batch(store, [job], 5, Mark.STARTED)
    claim(folder, job, 5)
    ends_soon(job)
    (answer,) = cancel(store, [])
    assert answer.end is End.ENDED and "after" in answer.text
    fake("scancel", "echo unreachable >&2; exit 1")
    again = run(store, 2)
    claim(batch(store, [again], 6, Mark.STARTED), again, 6)
    (answer,) = cancel(store, [])
    assert answer.end is End.REFUSED and "unreachable" in answer.text


def test_the_jobs_in_the_queue_are_counted_by_state_and_reason(store: Store, fake: Fake) -> None:
    name = batch(store, [run(store)], 5).batch()
    assert name is not None
    rows = [f"5|0|RUNNING|None|2026-11-25T10:00:00|{name.name}"]
    rows += [f"5|{n}|PENDING|Priority|2026-11-25T1{n}:00:00|{name.name}" for n in (2, 1)]
    rows += [f"5|3|COMPLETED|None|N/A|{name.name}", "7|0|PENDING|Resources|N/A|of-another-campaign"]
    fake("squeue", "printf '%s\\n' " + " ".join(f"'{row}'" for row in rows))
    assert [*map(str, in_queue(store.root))] == [
        "1 running",
        "2 pending (Priority), the first is expected to start at 2026-11-25T11:00:00",
    ]
    fake("squeue", f"echo '5|0|PENDING|JobHeldUser|N/A|{name.name}'")
    state, held = ClusterQueue(store.root)()
    assert state == "1 pending (JobHeldUser)"
    assert held.startswith(
        f"Slurm holds 1 run for a reason that may not go away by itself, JobHeldUser: {BASE.id}/r1-t1; "
    )
    fake("squeue", "echo down >&2; exit 1")
    assert "unknown: squeue" in ClusterQueue(store.root)()[0]


def copied(store: Store) -> Store:
    return Store.resume(shutil.copytree(store.root, store.root.parent / "copy"))


def test_a_copy_of_a_results_folder_touches_no_job_of_the_original(store: Store, fake: Fake) -> None:
    jobs = [run(store, 1), run(store, 2)]
    folder = batch(store, jobs, 5, Mark.STARTED)
    claim(folder, jobs[0], 5)
    name = folder.batch()
    assert name is not None
    fake("squeue", f"echo '5|0|RUNNING|None|N/A|{name.name}'")
    copy = copied(store)
    answers = [*cancel(copy, (), wait_s=0.1)]
    assert [str(answer) for answer in answers] == [
        f"{BASE.id} r1-t1 runs in Slurm and could not be ended: this folder is a copy, so cancel the run in the original folder"
    ]
    assert in_queue(copy.root) == () and [one.state for one in in_queue(store.root)] == ["RUNNING"]
    campaign = executor._Campaign([run(copy, 1)], SlurmExecutor(replace(SITE, throttle=3)))
    campaign.queue.next_at = 0.0
    assert [*campaign.look()] == [] and campaign.watched
    assert calls(store, "scancel") == [] == calls(store, "scontrol")


def test_a_folder_that_was_moved_or_restored_keeps_its_batches(store: Store) -> None:
    folder = batch(store, [run(store)], 5)
    before = folder.batch()
    moved = store.root.rename(store.root.parent / "moved")
    assert before is not None and [one.batch() for one in batch_folders(moved)] == [before]
    shutil.copytree(moved, store.root)
    assert folder.batch() == before, "the same path, as after a restored backup"
    assert not folder.is_copy()


def test_a_snapshot_of_a_file_system_is_a_copy_although_it_has_the_inode(store: Store) -> None:
    folder = batch(store, [run(store)], 5)
    copy = BatchFolder(copied(store).root / FOLDER / folder.path.name)
    for one in (copy, folder):
        changed(one.path / "batch.json", inode=copy.path.stat().st_ino)
    assert folder.batch() is not None and copy.is_copy() and copy.batch() is None


@pytest.mark.parametrize("name", ["train", "", "tb-0a1b2c3d.0002", "tb-*.0001"])
def test_a_batch_has_the_name_that_tunebench_gives(store: Store, name: str) -> None:
    """Else a results folder from somebody else could end other jobs of this user."""
    folder = batch(store, [run(store)], 5)
    changed(folder.path / "batch.json", name=name)
    assert folder.batch() is None and [*cancel(store, ())] == [] == calls(store, "scancel")


@pytest.mark.parametrize("begun", [True, False])
def test_one_run_of_an_array_is_cancelled_although_sbatch_did_not_answer(store: Store, fake: Fake, begun: bool) -> None:
    store.add([replace(BASE, id="other-0123456789ab")])
    other = store.job("other-0123456789ab", repeat=1, attempt=1)
    folder = new_batch(store.root, shape_of(BASE), [[run(store)], [other]], time_s=None)
    name = folder.batch()
    assert name is not None
    if begun:
        folder.mark(0, 0, Mark.STARTED)
        claim(folder, run(store), 5)
    fake("squeue", f"echo '5|[0-1]|PENDING|Priority|N/A|{name.name}'")
    answers = [*cancel(store, [BASE.id], wait_s=0.1)]
    assert len(answers) == 1
    assert [call.split()[-2:] for call in calls(store, "scancel")] == [[f"--jobname={name.name}", "5_0"]]


def test_a_held_element_that_the_batch_does_not_have_has_no_runs(store: Store, fake: Fake) -> None:
    name = batch(store, [run(store)], 5).batch()
    assert name is not None
    fake("squeue", f"echo '5|7|PENDING|JobHeldUser|N/A|{name.name}'")
    (found,) = in_queue(store.root)
    assert (found.count, found.held) == (1, ())


@pytest.mark.parametrize("at", [4e9, 1e300])
def test_a_submission_in_the_future_is_one_of_now(store: Store, at: float) -> None:
    """Such as one from a host whose clock is ahead: Slurm does not list its job, so the run is submitted again."""
    folder = batch(store, [run(store)], 5)
    changed(folder.path / "submitted.json", at=at)
    campaign = executor._Campaign([run(store)], SlurmExecutor(replace(SITE, grace_s=0.0)))
    assert campaign.watched[0].since <= time.time()


def test_a_run_whose_job_is_forgotten_again_and_again_fails(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as on nodes that do not see the results folder, of a Slurm that lists ended jobs only for seconds."""
    monkeypatch.setattr(executor, "_MOST_FORGOTTEN", 4)
    assert list(SlurmExecutor(SITE).run([run(store)])) == [(run(store), JobState.ENDED)]
    record = store.run(run(store)).record
    assert record is not None and (record.status, record.kind) == (Status.FAILED, "launcher")
    assert record.cause == (
        "its job ended 4 times before the run began; the last time, Slurm does not list its job any more; "
        "`tunebench doctor --executor slurm` says whether the nodes see this folder"
    )
    assert len(calls(store, "sbatch")) == 4

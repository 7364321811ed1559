"""A campaign looked at and ended from outside, while `tunebench run` goes on in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from campaigns import begun
from factories.cases import text
from factories.results import of_command
from trees import lives, pids, tree_program, wait_for, wait_until

from orchestrator.campaign import cancel
from orchestrator.campaign.cancel import End
from orchestrator.campaign.status.activity import Phase
from orchestrator.campaign.status.campaign import Reader, looks
from orchestrator.campaign.status.experiment import RepeatState
from orchestrator.errors import ResultsError
from orchestrator.records import Experiment, JobState, RunFolder, Status
from orchestrator.results import claims
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]

TRAINER = """\
import json, os, subprocess, sys, time
folder, kind = os.path.dirname(os.path.abspath(__file__)), sys.argv[1]
if kind == "long" and not os.path.exists(f"{folder}/pid-0"):
    subprocess.Popen([sys.executable, f"{folder}/tree.py", folder, "2"])
    time.sleep(600)
print(json.dumps({"train_runtime": 2.0}))
"""

SCENARIOS = text("scenarios/status-and-cancel.yaml")


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tunebench run` of one experiment that never ends by itself the first time, and two that do."""
    tree_program(tmp_path)
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / "scenarios.yaml").write_text(SCENARIOS)
    with begun(tmp_path, "run", "scenarios.yaml", "--yes") as child:
        yield child
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=60)


def test_a_campaign_is_looked_at_and_one_run_of_it_ended(tmp_path: Path, campaign: subprocess.Popen[bytes]) -> None:
    wait_for(*(tmp_path / f"pid-{depth}" for depth in range(3)))  # each writes its own behind the start of the next
    store = Store.resume(tmp_path / "results")
    reader = Reader(store)
    seen = reader.look()
    (at_work,) = seen.of(RepeatState.RUNNING)
    long = at_work.experiment_id
    assert sum(seen.counts().values()) == 3 and not seen.is_over() and not seen.warnings
    assert at_work.owner is not None and at_work.owner.is_here() and at_work.owner.lives()
    assert at_work.owner.pid != campaign.pid, "the process that carries the run out, not the one that started it"
    assert at_work.activity is not None and at_work.activity.phase is Phase.RUNNING

    living = pids(tmp_path)
    (answer,) = cancel.cancel(store, [long[-12:]])
    assert (answer.end, answer.job.name) == (End.ENDED, "r1-t1") and f"{long} r1-t1: cancelled" in answer.text
    record = store.run(answer.job).record
    assert record is not None and (record.status, record.kind) == (Status.CANCELLED, "cancelled")
    claim = claims.read_claim(answer.job.run_dir)
    wait_until(lambda: not any(map(lives, living)) and not _carriers(claim))

    *_, last = looks(reader, pause=lambda seconds: campaign.poll() is not None or bool(time.sleep(0.1)))
    said, _ = campaign.communicate(timeout=60)
    assert not list(cancel.cancel(store, [])) and long in cancel.nothing_runs(store, [long])
    ended = {one.experiment.id: [record.status for record in one.records] for one in store.contents().experiments}
    assert ended.pop(long)[0] is Status.CANCELLED
    assert list(ended.values()) == [[Status.OK], [Status.OK]], said
    assert {one.experiment_id for one in last.of(RepeatState.DONE)} >= set(ended)


def _carriers(claim: claims.Claim | None) -> list[psutil.Process]:
    """The processes that carry the run's marker."""
    assert claim is not None
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and claim.marker in process.environ().values():
                found.append(process)
        except psutil.Error:
            continue
    return found


# --- runs of no campaign: each in a `run-one` of its own -------------------------------------------------------------

SLEEPS = "import time; print('on', flush=True); time.sleep(600)"


def experiment(name: str, code: str = SLEEPS) -> Experiment:
    return of_command("{python}", "-c", "{code}", name=name, arguments={"code": code})


A, B = experiment("a"), experiment("b")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.create(tmp_path / "results", {})
    store.add([A, B])
    return store


@pytest.fixture
def start(store: Store) -> Iterator[Callable[[Experiment], Path]]:
    """Starts the first run of an experiment, and says its folder once the training is on."""
    children = []

    def started(one: Experiment) -> Path:
        job = store.job(one.id, repeat=1, attempt=1)
        assert claims.claim(job, executor="test")
        command = [sys.executable, "-m", "orchestrator", "run-one", str(job.run_dir)]
        children.append(subprocess.Popen(command, cwd=ROOT, start_new_session=True))
        wait_for(job.run_dir / "stdout.log", timeout_s=60)
        return job.run_dir

    yield started
    for child in children:
        child.terminate()
        child.wait(timeout=60)


def owner_of(run_dir: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads(RunFolder(run_dir).owner.read_text())
    return content


def test_without_a_word_everything_that_runs_is_ended(store: Store, start: Callable[[Experiment], Path]) -> None:
    folders = [start(A), start(B)]
    RunFolder(folders[1]).owner.write_text(json.dumps({**owner_of(folders[1]), "host": "an-earlier-name"}))
    answers = list(cancel.cancel(store, []))
    assert [(one.end, one.job.experiment_id) for one in answers] == [(End.ENDED, A.id), (End.ENDED, B.id)]
    for folder in folders:
        assert json.loads((folder / "record.json").read_text())["status"] == "cancelled"


def test_a_number_that_is_another_process_by_now_is_left_alone(store: Store, tmp_path: Path) -> None:
    """The owner's number lives, and was started at another time: the bystander goes on."""
    with subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE) as bystander:
        job = store.job(A.id, repeat=1, attempt=1)
        assert claims.claim(job, executor="test")
        claims.take_over(job.run_dir)
        mine = claims.this_process()
        content = {**owner_of(job.run_dir), "pid": bystander.pid}
        job.folder.owner.write_text(json.dumps(content))
        assert claims.state(job.run_dir) is JobState.LOST
        assert list(cancel.cancel(store, [])) == []
        # Even where the run counts as running until the very moment of asking.
        cancel.end_process(claims.Owner(**{**content, "start_time": mine.start_time}))  # type: ignore[arg-type]
        time.sleep(0.2)
        assert bystander.poll() is None
        bystander.kill()


def test_a_run_on_another_host_is_refused_with_what_to_type_there(
    store: Store, start: Callable[[Experiment], Path]
) -> None:
    run_dir = start(A)
    content = owner_of(run_dir)
    RunFolder(run_dir).owner.write_text(json.dumps({**content, "host": "node7", "boot_id": "another"}))
    (answer,) = cancel.cancel(store, [A.id])
    assert answer.end is End.REFUSED
    assert answer.text == (
        f"{A.id} r1-t1 runs on node7 (process {content['pid']}) and can be ended only from there; type there: "
        f"tunebench cancel {store.root} {A.id}"
    )
    assert lives(int(str(content["pid"]))) and not (run_dir / "record.json").exists()


def test_a_run_in_another_container_of_this_host_is_told_from_one_on_another_host(
    store: Store, start: Callable[[Experiment], Path]
) -> None:
    """Containers may have the name of their host."""
    run_dir = start(A)
    content = owner_of(run_dir)
    RunFolder(run_dir).owner.write_text(json.dumps({**content, "pid_namespace": "4026530000"}))
    (answer,) = cancel.cancel(store, [A.id])
    assert answer.text == (
        f"{A.id} r1-t1 runs in another container of this host (process {content['pid']}) and can be ended only from there; "
        f"type there: tunebench cancel {store.root} {A.id}"
    )


def test_a_run_on_another_machine_of_this_name_is_refused_at_once(store: Store) -> None:
    """It was said to have been asked to end, after a minute, and no process had got a signal."""
    job = store.job(A.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    claims.take_over(job.run_dir)
    owner = {**owner_of(job.run_dir), "boot_id": "another", "pid": 4711}
    job.folder.owner.write_text(json.dumps(owner))
    (answer,) = cancel.cancel(store, [], wait_s=0.5)
    text = f"{A.id} r1-t1 runs on another machine that is named {owner['host']}, too (process 4711); cancel it there"
    assert (answer.end, answer.text) == (End.REFUSED, text)


def test_the_benchmark_that_claimed_a_run_is_never_signalled(store: Store) -> None:
    """Claimed by this very process, and not taken over yet: were it asked to end, so would this test."""
    job = store.job(A.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    began = time.monotonic()
    (answer,) = cancel.cancel(store, [], wait_s=0.5)
    assert answer.end is End.REFUSED and "owner.json" in answer.text
    assert time.monotonic() - began < 30
    job.folder.owner.write_text("{half")
    (answer,) = cancel.cancel(store, [], wait_s=0.5)
    assert answer.end is End.REFUSED and "owner.json" in answer.text


def test_a_run_that_takes_longer_to_end_is_said_to_be_ending(store: Store, start: Callable[[Experiment], Path]) -> None:
    stubborn = experiment(
        "stubborn",
        "import signal\nfor n in (2, 15):\n    signal.signal(n, signal.SIG_IGN)\n" + SLEEPS.replace("; ", "\n"),
    )
    store.add([stubborn])
    run_dir = start(stubborn)
    wait_until(lambda: (run_dir / "stdout.log").read_text() == "on\n")
    (answer,) = cancel.cancel(store, [], wait_s=0.3)
    assert answer.end is End.ENDING and "cancel again" in answer.text
    (answer,) = cancel.cancel(store, [])
    assert answer.end is End.ENDED and "cancelled" in answer.text


def test_a_run_that_ends_without_a_record_is_said_to_be_gone(
    store: Store, start: Callable[[Experiment], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel, "_GONE_S", 0.5)
    hears = "signal.signal(2, lambda *_: print('asked', flush=True))"
    slow = experiment("slow", f"import signal, time\n{hears}\nprint('on', flush=True)\nwhile True:\n    time.sleep(1)")
    store.add([slow])
    run_dir = start(slow)
    wait_until(lambda: (run_dir / "stdout.log").read_text() == "on\n")
    pid = int(str(owner_of(run_dir)["pid"]))
    training = psutil.Process(pid).children()

    def kill_once_asked() -> None:
        wait_until(lambda: "asked" in (run_dir / "stdout.log").read_text())
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_once_asked)
    killer.start()
    (answer,) = cancel.cancel(store, [])
    killer.join()
    assert answer.end is End.ENDED and "gone without a record" in answer.text
    for process in training:
        process.kill()


def test_a_word_that_names_nothing_is_a_mistake(store: Store) -> None:
    with pytest.raises(ResultsError, match="there is no experiment 'nonsense'"):
        list(cancel.cancel(store, ["nonsense"]))
    assert cancel.nothing_runs(store, []) == f"Nothing runs in {store.root}."

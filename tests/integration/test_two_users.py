"""Two users work on one results folder and one machine, also where `/proc` hides from a user the processes of the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns import ROOT

US, THEM = 4001, 4002
HIDING = 'mount -t proc -o "hidepid=$1" proc /proc && shift && exec "$@"'
# One benchmark first imports everything, because another user may not read the files of this Python.
PRELUDE = f"""\
import os, sys, time, traceback
from pathlib import Path
import psutil
sys.path.insert(0, {str(ROOT / "tests")!r})
from factories.claimed_runs import BASE, claimed
from orchestrator.campaign import cancel
from orchestrator.campaign.status import campaign
from orchestrator.campaign.loop import run_benchmark
from orchestrator.executors.fake import FakeExecutor
from orchestrator.machine import process, process_identity, process_tree
from orchestrator.records import Command, RunFolder
from orchestrator.results import claims
from orchestrator.results.store import Store
folder = Path(os.environ["FOLDER"])
os.umask(0)

warm = Store.create(folder / "warm", dict())
run_benchmark([BASE], store=warm, executor=FakeExecutor(lambda job: None))
warm.contents(), list(cancel.cancel(warm, [])), process_tree.members("0" * 32)

def wait_for(file):
    deadline = time.monotonic() + 20
    while not file.exists() or not file.stat().st_size:
        if time.monotonic() > deadline:
            sys.exit("not there: " + str(file))
        time.sleep(0.02)

def as_user(number, work):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            os.setgroups([])
            os.setresgid(number, number, number)
            os.setresuid(number, number, number)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child
"""


def as_root(folder: Path, program: str, *, hidepid: int = 0) -> list[str]:
    """Run the program in a mount namespace of its own, and return the lines that it printed."""
    words = ["unshare", "--mount", "sh", "-c", HIDING, "sh", str(hidepid), sys.executable, "-c", PRELUDE + program]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FOLDER": str(folder)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def folder() -> Iterator[Path]:
    probe = subprocess.run(
        ["unshare", "--mount", "sh", "-c", HIDING, "sh", "2", "true"], check=False, capture_output=True
    )
    if os.geteuid() or probe.returncode:
        pytest.skip("only root may be two users, with a /proc of its own")
    path = Path(tempfile.mkdtemp())  # the folder of the test is closed to other users
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("hidepid", [1, 2])
def test_a_run_ends_with_all_its_processes_where_proc_hides_those_of_other_users(folder: Path, hidepid: int) -> None:
    program = """
def run():
    process_tree.adopt_orphans()
    shell = "sleep 600 & echo $! > daemon; exec setsid --wait sh -c 'sleep 600 & echo $! > other'"
    outcome = process.run(Command(argv=("/bin/sh", "-c", shell), env={}, cwd=folder), stdout=folder / "o", stderr=folder / "e")
    living = [name for name in ("daemon", "other") if process_identity.start_time(int((folder / name).read_text()))]
    print(outcome.exit_code, outcome.survivors, living)
_, code = os.waitpid(as_user(US, run), 0)
sys.exit(os.waitstatus_to_exitcode(code))
""".replace("US", str(US))
    assert as_root(folder, program, hidepid=hidepid) == ["0 () []"]


@pytest.mark.parametrize("hidepid", [0, 1, 2])
def test_the_run_of_another_user_is_never_taken_for_lost(folder: Path, hidepid: int) -> None:
    program = """
def run():
    store = Store.create(folder / "results", {})
    store.add([BASE])
    claimed(store, BASE, 1)
    (folder / "begun").write_text("x")
    time.sleep(600)

def look():
    store = Store.resume(folder / "results")
    job = store.job(BASE.id, repeat=1, attempt=1)
    print(claims.state(job.run_dir), [state.state for state in store.runs(BASE.id)])
    (answer,) = cancel.cancel(store, [])
    print(answer)
    long_ago = time.time() - 900
    for file in (job.folder.claim, job.folder.owner):
        os.utime(file, (long_ago, long_ago))
    print(claims.state(job.run_dir))

owner = as_user(THEM, run)
wait_for(folder / "begun")
for path in (folder / "results").rglob("*"):  # both users may write here
    os.chown(path, US, US)
    os.chmod(path, 0o777)
_, code = os.waitpid(as_user(US, look), 0)
os.kill(owner, 9)
os.waitpid(owner, 0)
as_user(US, lambda: print(claims.state(Store.resume(folder / "results").job(BASE.id, repeat=1, attempt=1).run_dir)))
os.wait()
sys.exit(os.waitstatus_to_exitcode(code))
""".replace("US", str(US)).replace("THEM", str(THEM))
    state, answer, after_silence, at_the_end = as_root(folder, program, hidepid=hidepid)
    assert state == "running [<JobState.RUNNING: 'running'>]"
    assert "belongs to another user; only that user or root can end it" in answer
    assert after_silence == ("silent" if hidepid else "running")
    assert at_the_end == "lost"


def test_what_a_user_may_not_end_is_named_at_once(folder: Path) -> None:
    """The leftovers of another user's lost run: no signal reaches them, so nobody waits for them."""
    program = """
def run():
    store = Store.create(folder / "results", {})
    store.add([BASE])
    job = claimed(store, BASE, 1)
    if os.fork():
        os._exit(0)  # the run's process is gone, what it started lives
    process_identity.note(job.folder.processes, marker=claims.read_claim(job.run_dir).marker, group=None, pids=[os.getpid()])
    (folder / "left").write_text(str(os.getpid()))
    time.sleep(600)

def go_on():
    store = Store.resume(folder / "results")
    began = time.monotonic()
    tell = lambda event: print(event.kind, event.text)
    run_benchmark([BASE], store=store, executor=FakeExecutor(lambda job: None), on_event=tell)
    print(time.monotonic() - began < 15)

os.waitpid(as_user(THEM, run), 0)
wait_for(folder / "left")
for path in (folder / "results").rglob("*"):
    os.chown(path, US, US)
    os.chmod(path, 0o777)
_, code = os.waitpid(as_user(US, go_on), 0)
left = int((folder / "left").read_text())
print(left, process_identity.start_time(left) is not None)
os.kill(left, 9)
sys.exit(os.waitstatus_to_exitcode(code))
""".replace("US", str(US)).replace("THEM", str(THEM))
    first, *_, quick, left = as_root(folder, program)
    pid, lives = left.split()
    assert first.startswith("left_behind process python") and first.endswith("and may disturb runs"), first
    assert f"({pid}, of the user {THEM}) that full-tiny-000000000000 r1-t1 had left behind" in first
    assert quick == "True" and lives == "True"

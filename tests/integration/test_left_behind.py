"""A run's daemons that lost parent, session and variables end before the next attempt, though `run-one` was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from campaigns import ROOT, begun, tunebench
from trees import lives, wait_for, wait_until

from orchestrator.machine import cgroup, process_identity, process_tree
from orchestrator.records import RunFolder, Status
from orchestrator.results.store import Store

WITHOUT_GROUPS = """\
import sys
if "orchestrator" in sys.orig_argv:
    from orchestrator.machine import cgroup
    cgroup.create = lambda marker: None
"""
# The first run leaves a daemon and goes on; the next one says whether the daemon lives.
TRAINER = """\
import json, os, sys, time
folder, keeps_the_log = sys.argv[1], sys.argv[2] == "keeps-the-log"
daemon = os.path.join(folder, "daemon")
if os.path.exists(daemon):
    try:
        met = open(f"/proc/{open(daemon).read()}/stat").read().split()[2] != "Z"
    except OSError:
        met = False
    print(json.dumps({"train_runtime": 1.0, "met": int(met)}))
elif os.fork():
    time.sleep(600)
else:
    os.setsid()
    if os.fork():
        os._exit(0)
    if not keeps_the_log:
        os.closerange(0, 100)
    os.chdir("/")
    with open(daemon, "w") as file:
        file.write(str(os.getpid()))
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "trainer.py").write_text(TRAINER)
    yield tmp_path
    if (tmp_path / "daemon").exists() and lives(pid := int((tmp_path / "daemon").read_text())):
        os.kill(pid, signal.SIGKILL)


def scenario(folder: Path, kind: str) -> None:
    custom = {
        "command": ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", kind],
        "launcher": "none",
        "metrics": {name: {"key": name} for name in ("train_runtime", "met")},
    }
    one = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom}
    (folder / "scenarios.yaml").write_text(json.dumps({"scenarios": [one]}))


def kill_all_but_the_training(campaign: subprocess.Popen[bytes], folder: Path) -> RunFolder:
    """Kill the orchestrator and `run-one` once the daemon is there, and return the run's folder."""
    wait_for(folder / "daemon")
    (run_dir,) = folder.glob("results/experiments/*/runs/r1-t1")
    (run_one,) = psutil.Process(campaign.pid).children()
    campaign.kill()
    campaign.communicate()
    run_one.kill()
    wait_until(lambda: not lives(run_one.pid))
    return RunFolder(run_dir)


def check_ended(folder: Path) -> None:
    (stored,) = Store.resume(folder / "results").contents().experiments
    assert [record.status for record in stored.records] == [Status.LOST, Status.OK]
    assert {one.name: one.value for one in stored.records[-1].measurements}["met"] == 0, (
        "the next attempt met the daemon"
    )
    assert not lives(int((folder / "daemon").read_text()))


@pytest.mark.parametrize("kind", ["keeps-the-log", "was-seen"])
def test_without_control_groups_daemons_that_were_seen_are_ended(folder: Path, kind: str) -> None:
    (folder / "sitecustomize.py").write_text(WITHOUT_GROUPS)
    scenario(folder, kind)
    env = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    with begun(folder, "run", "scenarios.yaml", "--yes", **env) as campaign:
        if kind == "was-seen":
            wait_for(folder / "daemon")
            (notes,) = folder.glob("results/experiments/*/runs/r1-t1/processes.json")
            pid = (folder / "daemon").read_text()
            wait_until(lambda: f"[{pid}, " in notes.read_text())
        files = kill_all_but_the_training(campaign, folder)
        if kind == "keeps-the-log":
            files.processes.unlink()
    with subprocess.Popen(["tail", "-f", str(files.stdout)], stdout=subprocess.DEVNULL) as reader:
        again = tunebench(folder, "run", "scenarios.yaml", "--yes", **env)
        assert reader.poll() is None, "a reader of the log is not of the run"
        reader.kill()
    assert again.code == 0, again.said
    check_ended(folder)


@pytest.mark.parametrize("claim", ["", '{"marker": null}'])
def test_a_damaged_claim_leaves_no_process_behind(folder: Path, claim: str) -> None:
    scenario(folder, "was-not-seen")
    with begun(folder, "run", "scenarios.yaml", "--yes") as campaign:
        files = kill_all_but_the_training(campaign, folder)
    files.claim.write_text(claim)
    again = tunebench(folder, "run", "scenarios.yaml", "--yes")
    assert again.code == 0 and "had left behind" in again.err, again.said
    words = [word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ()]
    assert not [word for word in words if str(folder) in word], "the training goes on"
    check_ended(folder)


def test_another_login_finds_the_control_group_of_a_killed_run(folder: Path) -> None:
    other = cgroup.create(uuid.uuid4().hex)
    if other is None:
        pytest.skip("nobody may make a control group here")
    scenario(folder, "was-not-seen")
    with begun(folder, "run", "scenarios.yaml", "--yes") as campaign:
        files = kill_all_but_the_training(campaign, folder)
    notes = json.loads(files.processes.read_text())
    assert "tunebench-" in notes["group"]
    files.processes.write_text(json.dumps({**notes, "processes": []}))
    with other.entered():
        again = begun(folder, "run", "scenarios.yaml", "--yes")
    said = again.communicate(timeout=60)[1].decode()
    other.remove()
    assert again.returncode == 0, said
    check_ended(folder)
    assert not Path(notes["group"]).exists()


def test_notes_that_cannot_be_of_this_run_end_nobody(tmp_path: Path) -> None:
    """The notes of another boot, numbers that belong to other processes by now, and any other control group."""
    files, marker = RunFolder(tmp_path), "1" * 32  # not the zeros that warm starters of other tests have
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as bystander:
        group = Path("/sys/fs/cgroup")
        process_identity.note(files.processes, marker=marker, group=group, pids=[bystander.pid])
        right = json.loads(files.processes.read_text())
        assert process_identity.noted(files.processes).living == {bystander.pid}
        for wrong in ({"boot_id": "before"}, {"processes": [[bystander.pid, 1.0]]}, {"processes": [[bystander.pid]]}):
            files.processes.write_text(json.dumps({**right, **wrong}))
            assert process_tree.members(marker, folder=files) == []
        for wrong in ({"boot_id": "before"}, {"pid_namespace": "pid:[1]"}, {"marker": None}, {"marker": "../x"}):
            files.processes.write_text(json.dumps({**right, **wrong}))
            assert process_identity.noted(files.processes).marker is None
        for group in (
            "/sys/fs/cgroup",
            f"{tmp_path}/tunebench-{marker}",
            f"/sys/fs/cgroup/x/../tunebench-{marker}",
        ):
            assert cgroup.find(marker, noted=Path(group)) is None
        bystander.kill()

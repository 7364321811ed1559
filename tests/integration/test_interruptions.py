"""A campaign that is interrupted: before its runs, by Ctrl-\\, while its processes are stopped, or while its report is written.

Nothing goes on, the exit code is 130, and the record says why.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from campaigns import ROOT, begun, ended, tunebench
from trees import lives, wait_for, wait_until

from orchestrator.records import RunFolder, Status
from orchestrator.results.store import Store

TRAINER = 'import os, sys, time; open(sys.argv[1], "w").write(str(os.getpid())); time.sleep(600)'


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tunebench run` of a training that writes its number into `trainer` and never ends by itself."""
    command = ["{python}", "-c", TRAINER, str(tmp_path / "trainer")]
    custom = {"command": command, "launcher": "none", "metrics": {"train_runtime": {"key": "train_runtime"}}}
    scenario = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom}
    (tmp_path / "scenarios.yaml").write_text(json.dumps({"scenarios": [scenario]}))
    with begun(tmp_path, "run", "scenarios.yaml", "--yes") as child:
        wait_for(tmp_path / "trainer")
        yield child
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=60)


def run_folder(folder: Path) -> RunFolder:
    (found,) = folder.glob("results/experiments/*/runs/r1-t1")
    return RunFolder(found)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def check_cancelled(folder: Path) -> None:
    ((record,),) = [one.records for one in Store.resume(folder / "results").contents().experiments]
    assert (record.status, record.kind) == (Status.CANCELLED, "cancelled") and record.provenance, record
    assert "begun" not in (record.cause or "")
    assert not lives(int((folder / "trainer").read_text()))


def test_ctrl_backslash_ends_the_training(tmp_path: Path, campaign: subprocess.Popen[bytes]) -> None:
    campaign.send_signal(signal.SIGQUIT)
    campaign.communicate(timeout=60)
    check_cancelled(tmp_path)
    assert campaign.returncode == 130


def test_a_stopped_run_that_is_interrupted_writes_its_own_record(
    tmp_path: Path, campaign: subprocess.Popen[bytes]
) -> None:
    stop(int((tmp_path / "trainer").read_text()))
    stop(json.loads(run_folder(tmp_path).owner.read_text())["pid"])
    campaign.send_signal(signal.SIGINT)
    campaign.communicate(timeout=30)  # its goodbye takes longer if nobody wakes the run
    check_cancelled(tmp_path)


def test_a_stopped_run_can_be_cancelled(tmp_path: Path, campaign: subprocess.Popen[bytes]) -> None:
    stop(json.loads(run_folder(tmp_path).owner.read_text())["pid"])
    done = tunebench(tmp_path, "cancel", "results")
    assert done.code == 0 and "cancelled after" in done.out, done.said
    campaign.communicate(timeout=60)
    check_cancelled(tmp_path)


def test_the_advice_to_resume_is_right_for_the_script_too(tmp_path: Path) -> None:
    """The script adds --move-aside, so a user who repeated his command had his finished runs moved aside."""
    command = ["{python}", "-c", TRAINER, str(tmp_path / "trainer")]
    custom = {"command": command, "launcher": "none", "metrics": {"train_runtime": {"key": "train_runtime"}}}
    scenario = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom}
    (tmp_path / "scenarios.yaml").write_text(json.dumps({"scenarios": [scenario]}))
    words = ("bash", str(ROOT / "scripts" / "run_benchmarks.sh"), "", "results", "scenarios.yaml")
    own = {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "TUNEBENCH_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, **own}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        wait_for(tmp_path / "trainer")
        child.send_signal(signal.SIGINT)
        done = ended(tmp_path, child)
    advice = "repeat the command without --move-aside (scripts/run_benchmarks.sh: with NO_OVERWRITE=true)."
    assert done.code == 130 and done.err.endswith(f"To resume, {advice}\n"), done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_each_signal_that_asks_to_stop_is_a_ctrl_c_for_other_commands_too(tmp_path: Path, number: int) -> None:
    """TERM ended `bundle` at once, and its unfinished file stayed."""
    os.mkfifo(tmp_path / "scenarios.yaml")
    with (
        begun(tmp_path, "plan", "scenarios.yaml") as child,
        open(tmp_path / "scenarios.yaml", "w"),
    ):  # it reads the file
        child.send_signal(number)
        done = ended(tmp_path, child)
    assert (done.code, done.said) == (130, "Interrupted.\n")


# A moment of the command, and the module of another package that it imports or runs at this moment.
MODULES = {"import": "typer.py", "plan": "yaml.py", "folder": "pip/__main__.py", "report": "jinja2.py"}


def hanging(folder: Path, moment: str) -> subprocess.Popen[bytes]:
    """Start a campaign that hangs at this moment, and wait for it."""
    command = ["{python}", "-c", "print('{\"train_runtime\": 0.01}')"]
    custom = {"command": command, "launcher": "none", "metrics": {"train_runtime": {"key": "train_runtime"}}}
    scenario = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom}
    (folder / "scenarios.yaml").write_text(json.dumps({"scenarios": [scenario]}))
    module = folder / "site" / MODULES[moment]
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").touch()
    module.write_text(f"open({str(folder / 'there')!r}, 'w').write('x'); import time; time.sleep(60)")
    child = begun(folder, "run", "scenarios.yaml", "--yes", PYTHONPATH=f"{folder / 'site'}:{ROOT}")
    wait_for(folder / "there")
    return child


@pytest.mark.parametrize("moment", MODULES)
def test_a_signal_before_or_after_the_runs_is_an_interruption(tmp_path: Path, moment: str) -> None:
    with hanging(tmp_path, moment) as child:
        child.send_signal(signal.SIGHUP if moment == "plan" else signal.SIGTERM)
        done = ended(tmp_path, child)
    assert done.code == 130 and "Traceback" not in done.said, done.said
    assert ("To resume, repeat the command" in done.err) == (moment != "import")
    assert not [one for one in psutil.process_iter(["cwd"]) if one.info["cwd"] == str(tmp_path)], "a program goes on"
    assert tunebench(tmp_path, "run", "scenarios.yaml", "--yes").code == 0
    assert len(list(tmp_path.glob("results/experiments/*/runs/*/record.json"))) == 1
    assert not [path for path in tmp_path.glob("results/**/.*") if path.is_file()], "a half-written file"


def test_doctor_ends_the_interpreter_that_it_asks(tmp_path: Path) -> None:
    (python := tmp_path / "python").write_text(f"#!/bin/sh\necho $$ > {tmp_path / 'there'}\nexec sleep 60\n")
    python.chmod(0o755)
    with begun(tmp_path, "doctor", "--python", str(python)) as child:
        wait_for(tmp_path / "there")
        child.send_signal(signal.SIGTERM)
        done = ended(tmp_path, child)
    assert (done.code, done.err) == (130, "Interrupted.\n")
    assert not lives(int((tmp_path / "there").read_text()))

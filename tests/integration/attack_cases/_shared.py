"""What cases of several areas share: resuming a campaign, signals, damaged claims."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_cases.register import Skipped
from attack_cases.scene import Said, Scene

SIGNALS = {name: getattr(signal, f"SIG{name}") for name in ("INT", "TERM", "HUP", "QUIT", "KILL")}


def resumed(scene: Scene, experiments: int, *words: str, **options: Any) -> Said:
    """Run the campaign again. Check that it ends well, and that each experiment has one good record, its last."""
    said = scene.run(*words, **options)
    assert said.code == 0, f"resuming ends with exit code {said.code}"
    check_complete(scene, experiments)
    return said


def check_complete(scene: Scene, experiments: int) -> None:
    """Check that each experiment has exactly one good record, which is its last."""
    by_id = defaultdict(list)
    for record in sorted(scene.records(), key=lambda one: one.attempt):
        by_id[record.experiment_id].append(record.status.value)
    assert len(by_id) == experiments, f"{len(by_id)} experiments have records: {dict(by_id)}"
    for name, statuses in by_id.items():
        assert statuses.count("ok") == 1 and statuses[-1] == "ok", f"{name}: {statuses}"


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal, unless the process has gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def reach(scene: Scene, child: subprocess.Popen[bytes], moment: str) -> None:
    """Wait until a campaign that was just started has reached this moment."""
    looks: dict[str, Callable[[], object]] = {
        "folder": lambda: list(scene.folder.glob("results/suite.json")),
        "claim": lambda: list(scene.results.glob("experiments/*/runs/r*/job.json")),
        "owner": lambda: list(scene.results.glob("experiments/*/runs/r*/owner.json")),
        "training": lambda: list(scene.folder.glob("begun-*")),
        "ended": lambda: list(scene.folder.glob("ended-*")),
        "between": lambda: list(scene.results.glob("experiments/*/runs/r*/record.json")),
        "report": lambda: list(scene.results.glob("benchmarks.csv")),
    }
    if moment in looks:
        scene.await_true(looks[moment], moment, child)
    else:
        time.sleep(float(moment))


def run_one_of(scene: Scene) -> int:
    """Return the number of a `run-one` that has begun."""

    def look() -> int | None:
        for run in scene.runs():
            try:
                pid = json.loads((run / "owner.json").read_text())["pid"]
            except (OSError, ValueError, KeyError):
                continue
            if not (run / "record.json").exists() and pid in scene.alive():
                return int(pid)
        return None

    return int(scene.await_true(look, "run-one"))


def changed(file: Path, **fields: object) -> None:
    """Change the owner in `job.json` or `owner.json`."""
    content = json.loads(file.read_text())
    content.get("owner", content).update(fields)
    file.write_text(json.dumps(content))


def held(scene: Scene, *, numbers: int = 1, **changes: Any) -> subprocess.Popen[bytes]:
    """Start a campaign whose trainers wait for `scene.go()`, and return once the first of them runs."""
    scene.scenario("hold()", numbers=numbers, **changes)
    child = scene.started(begun=None)
    reach(scene, child, "training")
    return child


def killed_in_the_middle(scene: Scene) -> Path:
    """Leave behind a run whose processes were all killed, and return its folder."""
    child = held(scene)
    run = scene.runs()[0]
    child.kill()
    scene.codes.add(-9)
    scene.kill_all()
    scene.ended(child)
    scene.go()
    return run


def as_root(scene: Scene, *command: str) -> str:
    """Run a command of the system, and return its output. Skip the case if it cannot be run here."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"{' '.join(command)}: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def check_complete_or_ok(scene: Scene, experiments: int) -> None:
    """Check that the last record of each experiment is good."""
    last = {
        record.experiment_id: record.status.value for record in sorted(scene.records(), key=lambda one: one.attempt)
    }
    assert list(last.values()) == ["ok"] * experiments, last


def spoil(results: Path, how: str) -> None:
    """Remove a results folder, or a part of it, or put something else in its place."""
    away = results.with_name("away")
    if how == "suite":
        return (results / "suite.json").unlink()
    if how == "experiments":
        return shutil.rmtree(results / "experiments")
    if how == "rmtree":
        return shutil.rmtree(results)
    results.rename(away)
    if how == "file":
        results.write_text("x")
    elif how == "empty":
        results.mkdir()
    elif how == "dangling":
        results.symlink_to("nowhere")
    elif how == "fifo":
        os.mkfifo(results)


def shell(scene: Scene, text: str, **options: object) -> subprocess.Popen[bytes]:
    """Start a line of bash in which `tunebench` is the command."""
    define = f'tunebench() {{ "{sys.executable}" -m orchestrator "$@"; }}; '
    return scene.start_any("bash", "-c", define + text, **options)  # type: ignore[arg-type]

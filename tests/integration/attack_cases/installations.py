"""The files of Tunebench are changed, removed or replaced while a campaign uses them, as by an upgrade or by `git pull`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from attack_cases.register import case
from attack_cases.scene import ROOT, Scene

_PARTS = ("orchestrator", "tunebench", "frameworks", "defaults.yaml", "accelerate.yaml", "scenarios.yaml")


def _rewrite(part: Path, content: str) -> None:
    for path in part.rglob("*.py"):
        path.write_text(content)


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "renamed": lambda package: os.rename(package, package.with_name("old")),
    "half-written": lambda package: (package / "orchestrator/run/run_one.py").write_text("def run_one(:\n"),
    "part-emptied": lambda package: _rewrite(package / "orchestrator/report", ""),
    "part-removed": lambda package: shutil.rmtree(package / "orchestrator/report"),
    "part-raises": lambda package: _rewrite(package / "orchestrator/report", "raise RuntimeError('unfinished')\n"),
}


@case(change=CHANGES)
def changed_in_a_campaign(scene: Scene, change: Callable[[Path], object]) -> None:
    package = scene.folder / "package"
    for name in _PARTS:
        is_folder, ignored = (ROOT / name).is_dir(), shutil.ignore_patterns("__pycache__")
        package.mkdir(exist_ok=True)
        shutil.copytree(ROOT / name, package / name, ignore=ignored) if is_folder else shutil.copy(ROOT / name, package)
    whole = scene.env["PYTHONPATH"]
    scene.env["PYTHONPATH"] = whole.replace(str(ROOT), str(package))
    scene.scenario("hold()", numbers=2)
    campaign = scene.started(begun=None)
    scene.await_file("begun-*", campaign)
    change(package)
    scene.go()
    said = scene.ended(campaign)
    scene.logs_may_trace = True  # the other run ends with the interpreter's own words
    assert said.code in (1, 2), said
    lost = [record.cause or "" for record in scene.records() if record.status.value == "lost"]
    assert not any("killed, or the machine went down" in cause for cause in lost), lost
    scene.env["PYTHONPATH"] = whole
    assert scene.run().code == 0, "the repeated command does not end well"

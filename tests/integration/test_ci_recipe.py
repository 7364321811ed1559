"""docs/ci.md's recipe as it stands there, run by bash: it stores a base, passes, and fails where the trainer has become slower."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from factories.cases import text

ROOT = Path(__file__).resolve().parents[2]

SCENARIOS = text("scenarios/ci-recipe.yaml")

TRAINER = """\
import json, pathlib, sys
speed = float(pathlib.Path(__file__).with_name("speed.txt").read_text())
run = int(pathlib.Path.cwd().name[1])
print(json.dumps({"tokens_per_s": speed * (1 + run / 1000), "train_runtime": 1.0, "train_loss": 1.5}))
"""


def recipe() -> str:
    text = (ROOT / "docs" / "ci.md").read_text("utf-8")
    found = re.search(r"^```sh\n(#!.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a benchmark, and `tunebench` on the path of commands."""
    for name, content in (("ci.yaml", SCENARIOS), ("trainer.py", TRAINER), ("speed.txt", "1000")):
        (tmp_path / "bench").mkdir(exist_ok=True)
        (tmp_path / "bench" / name).write_text(content)
    command = tmp_path / "bin" / "tunebench"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m orchestrator "$@"\n')
    command.chmod(0o755)
    return tmp_path


def carried_out(project: Path) -> subprocess.CompletedProcess[str]:
    (project / "recipe.sh").write_text(recipe())
    environ = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}", "STORE": str(project / "store")}
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run([bash, "recipe.sh"], cwd=project, env=environ, capture_output=True, text=True, check=False)


def test_the_recipe_stores_passes_and_fails(project: Path) -> None:
    said = []
    for speed, code in (("1000", 0), ("1000", 0), ("900", 1)):
        (project / "bench" / "speed.txt").write_text(speed)
        if (project / "new").exists():
            (project / "new").rename(project / f"new.{len(said)}")
        done = carried_out(project)
        assert done.returncode == code, done.stdout + done.stderr
        said.append(done.stdout.splitlines()[-1])
    assert said == ["stored as the base", "nothing is worse", "worse: see comparison.md"]
    assert "regressed" in (project / "comparison.md").read_text()
    assert sorted(path.name for path in (project / "store").iterdir()) == ["results"]

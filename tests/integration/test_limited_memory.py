"""The command with a limit of memory (ulimit -v, ulimit -d). Without care, OpenBLAS waits for more memory for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns import ROOT

SCENARIO = """\
scenarios:
- name: a
  trainer: custom
  device: cpu
  steps: stdout
  custom: {command: ['{python}', '{scenario_dir}/train.py'], launcher: none}
"""
TRAIN = """
import os
for step in range(30):
    print('{"step": %d, "seconds": 0.1, "tokens": 10}' % step)
print(os.environ["OPENBLAS_NUM_THREADS"], os.environ.get("ARROW_DEFAULT_MEMORY_POOL"))
"""


def limited(folder: Path, limit: str, kib: int, *words: str) -> tuple[int, str]:
    """Return the exit code and stderr of the command with this limit."""
    shell = ["bash", "-c", f'ulimit {limit} {kib}; exec "$@"', "bash", sys.executable, "-m", "orchestrator"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "1000", "OPENBLAS_NUM_THREADS": "3"}
    done = subprocess.run(
        [*shell, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("limit", "command"),
    [*(("-v", command) for command in ("run", "rerun", "report", "compare", "history", "run-one")), ("-d", "report")],
)
def test_too_little_memory_is_a_sentence(tmp_path: Path, limit: str, command: str) -> None:
    said = f"error: ulimit {limit}: 400000 KiB are too little for this command; set 614400 or more\n"
    assert limited(tmp_path, limit, 400_000, command, "a") == (2, said)


def test_a_command_without_these_libraries_needs_little(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "train.py").write_text(TRAIN)
    for words in (["plan", "s.yaml"], ["run", "--help"]):
        code, said = limited(tmp_path, "-v", 150_000, *words)
        assert code == 0, said


def test_the_least_memory_is_enough_and_a_trainers_environment_stays(tmp_path: Path) -> None:
    """With its usual settings, pyarrow would take 1 GiB of the second limit and leave too little."""
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "train.py").write_text(TRAIN)
    for kib, words in ((614_400, ["run", "s.yaml", "--yes"]), (1_500_000, ["report", "results"])):
        code, said = limited(tmp_path, "-v", kib, *words)
        assert code == 0 and said.endswith("report.html\n"), said
    (log,) = tmp_path.glob("results/experiments/*/runs/r1-t1/stdout.log")
    assert log.read_text().splitlines()[-1] == "3 None"

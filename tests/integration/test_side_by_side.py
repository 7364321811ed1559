"""Several runs at once: never more than asked for, each on cores of its own, each named beside the other, all ended together.

What it costs is measured in test_probes.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.records import Status
from orchestrator.store import Store

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--yes")
TRAINER = """\
import json, os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM) if os.environ.get("STUBBORN") else ():
    signal.signal(number, signal.SIG_IGN)
folder, begun = sys.argv[1], time.monotonic()
open(os.path.join(folder, sys.argv[2] + ".begun"), "w").close()
count = lambda: sum(name.endswith(".begun") for name in os.listdir(folder))
pairs = (count() + 1) // 2
while count() < 2 * pairs and time.monotonic() < begun + 60:  # however slow the other one is to start
    time.sleep(0.02)
time.sleep(float(sys.argv[3]))
seen = {"begun": begun, "ended": time.monotonic(), "cores": sorted(os.sched_getaffinity(0))}
open(os.path.join(folder, sys.argv[2] + ".json"), "w").write(json.dumps(seen))
print(json.dumps({"train_runtime": 1.0, "train_loss": 1.0}))
"""


def campaign(folder: Path, names: list[str], sleep_s: float, **variables: str) -> subprocess.Popen[str]:
    (folder / "trainer.py").write_text(TRAINER)
    custom = {
        "command": ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", "{which}", str(sleep_s)],
        "launcher": "none",
        "metrics": {"train_runtime": {"key": "train_runtime"}},
    }
    scenarios = [
        {"name": name, "trainer": "custom", "device": "cpu", "custom": custom, "arguments": {"which": name}}
        for name in names
    ]
    (folder / "scenarios.yaml").write_text(json.dumps({"scenarios": scenarios}))
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    words = (*RUN, "--parallel", "2")
    return subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_two_at_once_on_cores_of_their_own(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    running = campaign(tmp_path, names, 0.3)
    _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said
    seen = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in names}
    pairs = [
        (one, other)
        for one in seen.values()
        for other in seen.values()
        if one is not other and one["begun"] < other["ended"] and other["begun"] < one["ended"]
    ]
    assert pairs, "some went on at once"
    moments = [one["begun"] for one in seen.values()]
    assert max(sum(one["begun"] <= at < one["ended"] for one in seen.values()) for at in moments) == 2
    if len(os.sched_getaffinity(0)) >= 2:
        for one, other in pairs:
            assert not set(one["cores"]) & set(other["cores"])
    stored = Store.resume(tmp_path / "results").contents().experiments
    assert all(record.beside for one in stored for record in one.records)


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_ends_all_that_go_on(tmp_path: Path, times: int) -> None:
    """The second one comes while the first is obeyed, which takes what heeds no signal some seconds."""
    running = campaign(tmp_path, ["a", "b", "c"], 600.0, **({"STUBBORN": "1"} if times > 1 else {}))
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("*.begun"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        for _ in range(times):
            running.send_signal(signal.SIGINT)
            time.sleep(0.3)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130 and "the same command resumes" in said, said
    records = [record for one in Store.resume(tmp_path / "results").contents().experiments for record in one.records]
    assert [record.status for record in records] == [Status.CANCELLED] * 2


@pytest.mark.parametrize("words", ["0", "-1", "two", "1.5"])
def test_what_is_no_number_of_runs_is_a_sentence(tmp_path: Path, words: str) -> None:
    (tmp_path / "scenarios.yaml").write_text(
        "scenarios: [{name: s, device: cpu, trainer: custom, custom: {command: [x]}}]"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*RUN, f"--parallel={words}"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and f"--parallel {words}: a whole number from 1, or auto" in done.stderr, done.stderr

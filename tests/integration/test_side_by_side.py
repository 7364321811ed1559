"""Several runs at once: never more than asked for, each on cores of its own, each named beside the other, all ended together.

What it costs is measured in test_probes.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from campaigns import begun, ended

from orchestrator.records import Status
from orchestrator.results.store import Store

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


def campaign(folder: Path, names: list[str], sleep_s: float, **variables: str) -> subprocess.Popen[bytes]:
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
    return begun(folder, "run", "scenarios.yaml", "--yes", "--parallel", "2", **variables)


def test_two_at_once_on_cores_of_their_own(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    running = campaign(tmp_path, names, 0.3)
    done = ended(tmp_path, running)
    assert done.code == 0, done.err
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
        done = ended(tmp_path, running)
    finally:
        running.kill()
    assert done.code == 130 and "To resume, repeat the command" in done.err, done.err
    records = [record for one in Store.resume(tmp_path / "results").contents().experiments for record in one.records]
    assert [record.status for record in records] == [Status.CANCELLED] * 2

"""Two hosts work on one results folder: nobody runs a cell twice, and what a host had that went silent is told, not taken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from trees import wait_for

from orchestrator.records import JobState, Status
from orchestrator.results import claims
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
AS_HOST = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
# One kernel has one boot, so the namespace of processes is what makes another host of it.
UNSHARE = ("unshare", "--uts", "--pid", "--fork", "--mount-proc")
TRAINER = """\
import json, os, sys, time
ledger, began = os.path.join(sys.argv[1], "ledger"), time.monotonic()
with open(ledger, "a") as file:
    file.write(f"{os.uname().nodename} {sys.argv[2]}\\n")
while os.path.exists(os.path.join(sys.argv[1], f"hold-{sys.argv[2]}")):
    time.sleep(0.05)
while len({line.split()[0] for line in open(ledger)}) < 2 and time.monotonic() < began + 60:  # until both are at it
    time.sleep(0.05)
print(json.dumps({"train_runtime": 1.0}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("nobody may have a host name and process numbers of his own here")
    (tmp_path / "trainer.py").write_text(TRAINER)
    custom = {
        "command": ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", "{number}"],
        "launcher": "none",
        "metrics": {"train_runtime": {"key": "train_runtime"}},
    }
    matrix = {"number": list(range(4))}
    scenario = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom, "matrix": matrix}
    (tmp_path / "scenarios.yaml").write_text(json.dumps({"scenarios": [scenario]}))
    return tmp_path


def run_as(host: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--yes", *words)
    return subprocess.Popen(
        [*UNSHARE, sys.executable, "-c", AS_HOST, host, *command],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def ledger(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "ledger").read_text().splitlines()]


def test_two_hosts_share_a_campaign_and_run_nothing_twice(folder: Path) -> None:
    hosts = [run_as(name, folder) for name in ("alpha", "beta")]
    said = [host.communicate(timeout=120)[1] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], said
    done = ledger(folder)
    assert sorted(number for _, number in done) == [str(number) for number in range(4)]
    assert {host for host, _ in done} == {"alpha", "beta"}
    stored = Store.resume(folder / "results").contents().experiments
    assert [[record.status for record in one.records] for one in stored] == [[Status.OK]] * 4


def test_a_host_whose_name_is_not_utf8_keeps_its_runs(folder: Path) -> None:
    """Each run was lost at once, because its claim could not be written."""
    (folder / "trainer.py").write_text('print("{\\"train_runtime\\": 1.0}")')
    host = run_as(os.fsdecode(b"h\xe9te"), folder)
    said = host.communicate(timeout=120)[1]
    assert host.returncode == 0, said
    (first, *_) = Store.resume(folder / "results").contents().experiments
    assert first.records[0].provenance["host"]["name"] == "h\ufffdte"


@pytest.mark.parametrize("heard_s", [-claims.SILENT_AFTER_S - 60, 86400.0])
def test_a_host_that_went_silent_is_told_and_taken_over_when_asked(folder: Path, heard_s: float) -> None:
    """Silent is also who was last heard of tomorrow."""
    (folder / "hold-0").touch()
    (folder / "scenarios.yaml").write_text((folder / "scenarios.yaml").read_text().replace("[0, 1, 2, 3]", "[0]"))
    alpha = run_as("alpha", folder)
    wait_for(folder / "ledger")  # with a line in it
    # The machine went down: from above, so that nobody is left to see another's end and write it down.
    above = psutil.Process(alpha.pid)
    for process in [above, *above.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # all processes of a namespace end with its first
            process.send_signal(signal.SIGKILL)
    alpha.communicate()
    store = Store.resume(folder / "results")
    (run,) = (run for one in store.contents().experiments for run in one.runs)
    assert run.state is JobState.RUNNING, "its last sign of life is seconds old"
    heard = time.time() + heard_s
    for path in run.job.run_dir.iterdir():
        os.utime(path, (heard, heard))
    os.remove(folder / "hold-0")
    beta = run_as("beta", folder)
    said = beta.communicate(timeout=60)[1]
    assert beta.returncode == 1 and "alpha, which has been silent" in said and "--take-over" in said, said
    assert len(ledger(folder)) == 1
    beta = run_as("beta", folder, "--take-over")
    said = beta.communicate(timeout=60)[1]
    assert beta.returncode == 0, said
    (stored,) = store.contents().experiments
    assert [record.status for record in stored.records] == [Status.LOST, Status.OK]

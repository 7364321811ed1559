"""The executor of `examples/ssh_executor`, with a program named ssh that runs each command on this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import tomllib
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign, begun, ended, tunebench
from trees import lives, wait_until

from orchestrator.records import Status
from orchestrator.results import claims

EXAMPLE = ROOT / "examples" / "ssh_executor"
# As with the real ssh, the command has a terminal, and the end of this program hangs that terminal up.
SSH = f"""#!{sys.executable}
import os, pty, sys
host, command = (word for word in sys.argv[1:] if not word.startswith("-"))
if host == "nowhere":
    print("ssh: Could not resolve hostname nowhere", file=sys.stderr)
    sys.exit(255)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(["sh", "-c", command])))
"""
# `together`: a run waits for a second run, and fails if there is a third. `endless`: it never ends. `alone`: it ends at once.
TRAINER = """\
import os, sys, time
ledger, how = sys.argv[1], sys.argv[2]
def note(word):
    with open(ledger, "a") as file:
        file.write(f"{word} {os.getpid()}\\n")
def count(word):
    return open(ledger).read().count(word)
note("begins")
begun = count("begins")
assert how == "alone" or begun - count("ends") <= 2
while how == "endless" or how == "together" and count("begins") < begun + begun % 2:
    time.sleep(0.02)
print({"train_runtime": 2.0})
note("ends")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Install the example, and write a campaign of four runs."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["tunebench.executors"]
    info = tmp_path / "tunebench_ssh-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tunebench-ssh\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[tunebench.executors]", *lines, ""]))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(SSH)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    (tmp_path / "trainer.py").write_text(TRAINER)
    return tmp_path


def write_scenarios(folder: Path, how: str, *, runs: int = 4) -> None:
    command = ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}/ledger", how, "{number}"]
    metrics = {"train_runtime": {"pattern": "'train_runtime': (.*)}"}}
    custom = {"command": command, "launcher": "none", "results": "log", "metrics": metrics}
    scenario = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom}
    scenario["matrix"] = {"number": list(range(runs))}
    (folder / "scenarios.yaml").write_text(json.dumps({"executor": "ssh", "scenarios": [scenario]}))


def trainers(folder: Path) -> list[int]:
    """Return the numbers of the processes that began to train."""
    ledger = folder / "ledger"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith("begins")]


def environment(folder: Path, hosts: str) -> dict[str, str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PYTHONPATH": f"{EXAMPLE}:{folder}:{ROOT}", "PATH": path, "TUNEBENCH_SSH_HOSTS": hosts}


def run(folder: Path, hosts: str) -> Campaign:
    return tunebench(folder, "run", "scenarios.yaml", "--yes", **environment(folder, hosts))


def hosts_of_runs(campaign: Campaign) -> dict[str, list[str]]:
    """Return experiment id → the host of each of its attempts."""
    folders = sorted(campaign.results.glob("experiments/*/runs/*"))
    found: dict[str, list[str]] = {}
    for claim in filter(None, map(claims.read_claim, folders)):
        assert claim.executor == "ssh"
        found.setdefault(claim.experiment_id, []).append(claim.details["host"])
    return found


def test_two_hosts_run_two_jobs_at_a_time(folder: Path) -> None:
    write_scenarios(folder, "together")
    campaign = run(folder, "node1, node2")
    assert campaign.code == 0 and [row["status"] for row in campaign.rows()] == ["ok"] * 4, campaign.said
    used = [host for (host,) in hosts_of_runs(campaign).values()]
    assert len(used) == 4 and {*used} == {"node1", "node2"}


def test_an_interruption_ends_the_remote_runs(folder: Path) -> None:
    write_scenarios(folder, "endless")
    with begun(folder, "run", "scenarios.yaml", "--yes", **environment(folder, "node1,node2")) as child:
        wait_until(lambda: len(trainers(folder)) == 2)
        child.send_signal(signal.SIGINT)
        campaign = ended(folder, child)
    assert campaign.code == 130, campaign.said
    records = [record for stored in campaign.records().values() for record in stored]
    assert [(record.status, record.cause) for record in records] == [(Status.CANCELLED, "the run was interrupted")] * 2
    assert not any(map(lives, trainers(folder)))


def test_a_run_on_an_unknown_host_is_lost_and_tried_on_another(folder: Path) -> None:
    write_scenarios(folder, "alone", runs=2)
    campaign = run(folder, "nowhere,node1")
    assert campaign.code == 0, campaign.said
    assert sorted(hosts_of_runs(campaign).values()) == [["node1"], ["nowhere", "node1"]]
    records = [record for stored in campaign.records().values() for record in stored]
    (lost,) = [record for record in records if record.status is Status.LOST]
    assert "Could not resolve hostname nowhere" in (lost.tail or "")


@pytest.mark.parametrize("hosts", ["", "nowhere"])
def test_without_a_host_the_call_ends_with_a_sentence(folder: Path, hosts: str) -> None:
    write_scenarios(folder, "alone", runs=2)
    campaign = run(folder, hosts)
    assert campaign.code == 2 and "error: TUNEBENCH_SSH_HOSTS: ssh reaches none of its hosts; set it" in campaign.err
    statuses = [record.status for stored in campaign.records().values() for record in stored]
    assert statuses == [Status.LOST] * bool(hosts)

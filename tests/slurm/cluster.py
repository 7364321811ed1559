"""A real Slurm on this machine, campaigns on it by the command, and what the tests do to both."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.records import RunRecord
from orchestrator.results.store import Store

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The names of the programs that a test may put in front of Slurm's own.
CLIENTS = ("sbatch", "squeue", "scancel", "scontrol", "sacct")
PARTITIONS = """\
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=spot Nodes=n[1-3] PreemptMode=CANCEL MaxTime=INFINITE DefMemPerCPU=100 State=UP
PartitionName=urgent Nodes=n[1-3] PriorityTier=10 PreemptMode=off MaxTime=INFINITE DefMemPerCPU=100 State=UP
PartitionName=cancelling Nodes=n[1-3] PreemptMode=CANCEL MaxTime=INFINITE DefMemPerCPU=100 State=UP
PartitionName=closed Nodes=n[1-3] MaxTime=INFINITE DefMemPerCPU=100 State=DOWN"""
# An element asks squeue once for the end of its allocation, if Slurm is older than 23.02 and does not say it.
NOTE = """\
[[ $PWD == */slurm/* ]] && where=-on-a-node
echo "$(date +%s.%N) {client}$where" >> "$HERE/calls"
exec "$REAL" "$@"
"""
# Tests wait for less than users do.
HASTE = {"poll": "1s", "grace": "3s"}
LOOK_FOR_HELD_S = 30.0


def waited(condition: Callable[[], Any], *, seconds: float = 90.0, why: str = "") -> Any:
    """Wait until the condition is true, and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {why or condition}"
        time.sleep(0.1)
    return value


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Slurm cluster of 3 nodes with 4 fake GPUs each, whose files are in `folder`."""

    folder: Path
    port: int

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    @classmethod
    def started(cls, folder: Path, **options: str) -> Cluster:
        cluster = cls(folder=folder, port=_free_ports())
        cluster.script("slurm-up.sh", **options)
        return cluster

    def script(self, name: str, **options: str) -> None:
        own = {"SLURM_DIR": str(self.folder), "SLURM_PORT": str(self.port), "SLURM_EXTRA": PARTITIONS, **options}
        subprocess.run(["bash", HERE / name], env={**os.environ, **own}, check=True, stdout=subprocess.DEVNULL)

    def call(self, *words: str) -> str:
        """Call a client of Slurm, and return its output."""
        env = {**os.environ, **self.env}
        return subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=60).stdout

    def listed(self, states: str = "pending,running,completing,configuring") -> list[list[str]]:
        """Return number, element, state and reason of each listed element."""
        words = ("squeue", "--noheader", "--array", f"--states={states}", "--format=%F|%K|%T|%r")
        return [line.split("|") for line in self.call(*words).splitlines()]

    def processes(self, element: str) -> list[int]:
        """Return the processes of an element, also those that a killed daemon left."""
        job, _, task = element.partition("_")
        marks = {f"SLURM_ARRAY_JOB_ID={job}".encode(), f"SLURM_ARRAY_TASK_ID={task}".encode(), self._mark}
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if marks <= {*(process / "environ").read_bytes().split(b"\0")}:
                    found.append(int(process.name))
        return found

    def release(self) -> None:
        """Release jobs that Slurm holds because their launch failed, which happens on a busy machine, as their owner would."""
        for job, element, _, reason in self.listed("pending"):
            if reason == "launch failed requeued held":
                self.call("scontrol", "release", f"{job}_{element}")

    @property
    def _mark(self) -> bytes:
        return f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()

    def elements(self, state: str) -> list[str]:
        """Return the elements in this state as Slurm names them: `<job>_<element>`."""
        return [f"{row[0]}_{row[1]}" for row in self.listed(state.lower())]

    def pid(self, daemon: str) -> int:
        return int((self.folder / "pid" / f"{daemon}.pid").read_text())

    def kill(self, daemon: str) -> None:
        """Kill a daemon, as a power cut does: its children live on."""
        pid = self.pid(daemon)
        os.kill(pid, signal.SIGKILL)
        waited(lambda: not Path(f"/proc/{pid}/exe").exists())

    def empty(self) -> None:
        """Cancel every job, and wait until all have ended and all nodes are ready."""
        self.call("scancel", f"--user={os.getuid()}")
        waited(lambda: not self.listed(), why="the queue is empty")


def _free_ports() -> int:
    """Return a port for the controller; the daemons and srun use up to 299 above it, of which a few are tried."""
    for port in range(17000 + os.getpid() % 50 * 300, 60000, 300):
        with suppress(OSError):
            for used in (*range(port, port + 4), port + 99, port + 100):
                with socket.socket() as probe:
                    probe.bind(("", used))
            return port
    raise RuntimeError("there are no free ports for a cluster")


@dataclass(kw_only=True)
class Campaign:
    """A scenario file in a folder, and calls of the command that run it on a cluster."""

    folder: Path
    cluster: Cluster
    site: Mapping[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    submitters: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def results(self) -> Path:
        return self.folder / "r"

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start `tunebench run` with the executor `slurm`."""
        argv = ["run", "scenarios.yaml", "--executor", "slurm", "--results", "r", "--yes", *words]
        return self.command(*argv)

    def command(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of Tunebench in the campaign's folder, with the site file."""
        own = {**self.cluster.env, "TUNEBENCH_CACHE": str(self.folder / "cache"), "COLUMNS": "200", **self.env}
        (self.folder / "site.yaml").write_text(json.dumps({**HASTE, **self.site}))  # JSON is YAML
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, "-P", ROOT / "orchestrator" / "__main__.py", *words],
            cwd=self.folder,
            env={**os.environ, **own},
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        self.submitters.append(process)
        return process

    def run(self, *words: str, seconds: float = 300.0) -> tuple[int, str]:
        """Run the campaign to its end, and return the exit code and all output."""
        return self.end(self.begin(*words), seconds=seconds)

    def end(self, process: subprocess.Popen[str], *, seconds: float = 300.0) -> tuple[int, str]:
        deadline = time.monotonic() + seconds
        while True:
            try:
                out, err = process.communicate(timeout=min(LOOK_FOR_HELD_S, max(0.0, deadline - time.monotonic())))
                return process.returncode, out + err
            except subprocess.TimeoutExpired:
                if time.monotonic() >= deadline:
                    raise
                self.cluster.release()

    def records(self) -> dict[str, RunRecord]:
        """Return all records by their name `<experiment id>/<run>`."""
        if not (self.results / "suite.json").exists():
            return {}
        stored = Store.resume(self.results).contents().experiments
        return {f"{one.experiment.id}/{run.job.name}": run.record for one in stored for run in one.runs if run.record}

    def statuses(self) -> list[str]:
        """Return `<run> <status>` of every record."""
        return sorted(f"{name.rpartition('/')[2]} {record.status}" for name, record in self.records().items())

    def starts(self) -> dict[str, int]:
        """Return how often the trainer of each run `<experiment id>/<run>` began, as the trainer itself noted."""
        notes = [file.read_text() for file in self.folder.glob("started-*")]
        return {name: notes.count(name) for name in notes}

    def batches(self) -> list[Path]:
        return sorted((self.results / "slurm").glob("[0-9]*"))

    def note_calls(self) -> None:
        """Let the submitter note each call of a client of Slurm in the file `calls`."""
        for client in CLIENTS:
            if shutil.which(client):
                self.fake(client, NOTE.format(client=client))

    def calls(self) -> list[list[str]]:
        """Return time and client of each noted call."""
        file = self.folder / "calls"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def fake(self, client: str, script: str) -> Path:
        """Put a bash script in front of one of Slurm's clients, for the submitter only. `$REAL` is the real client."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / client
        program.write_text(f"#!/bin/bash\nREAL={shutil.which(client)}\nHERE={self.folder}\n{script}\n")
        program.chmod(0o755)
        if not self.env.get("PATH", "").startswith(f"{folder}:"):
            self.env["PATH"] = f"{folder}:{os.environ['PATH']}"
        return program

    def real(self, client: str) -> None:
        (self.folder / "bin" / client).unlink()

r"""Kills Tunebench's own processes at random moments of a campaign, until all of it is done, and then looks at what is there.

    python tests/integration/crashes.py [--experiments 100] [--kills 200] [--orchestrators 2] [--signals KILL INT] \
        [--seed 0] [--pause 1.5]
    python tests/integration/crashes.py --mounts /mnt/one /mnt/other
    python tests/integration/crashes.py --warm --experiments 25 --kills 100

Orchestrators, `run-one`s and trainers get SIGKILL, or one of `--signals`; orchestrators are started again. In the end every
experiment must have one record that counts, no run that had ended well may have been run again, and nobody may be left alive.

`--mounts` names folders where one network file system is mounted, each time by a client of its own: each orchestrator works as a
host of its own name and process numbers, and sees the results by its own mount, at the same path as the others (needs root).

`--warm` runs real trainings, which start warm: the starter, the keepers, the launchers and the trainings get the signals, too, and
no variable may leak from one run into another. A table says which warm processes lived at the kills (`warm_kills.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import warm_kills

from orchestrator.machine import cgroup
from orchestrator.records import Status
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--yes")
TRAINER = """\
import json, os, sys, time
folder = sys.argv[1]  # not the files: a file that a command names is part of the experiment
ledger = os.open(folder + "/ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(ledger, f"begun {sys.argv[2]}\\n".encode())
while not os.path.exists(folder + "/go"):
    time.sleep(0.02)
time.sleep(float(sys.argv[3]))
os.write(ledger, f"ended {sys.argv[2]}\\n".encode())
print(json.dumps({"train_runtime": 1.0, "train_loss": 1.0}))
"""
KINDS = (
    "run-one",
    "orchestrator run",
    "trainer.py",
    "warm.py",
    "accelerate.commands.launch",
    "tunebench-instrument.py",
)
FIRST_KILLS = 3  # no trainer ends before so many, however fast the machine is
LONGEST_S = 3000.0
# A variable of all processes of a campaign. A starter and its forks do not name the campaign's folder in their words.
OF_CAMPAIGN = "CRASHES_FOLDER"
AS_HOST = """\
import os, signal, socket, subprocess, sys
host, mounted, place = sys.argv[1:]
socket.sethostname(host)
subprocess.run(["mount", "--bind", mounted, place], check=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # it collects the orphans of its host
print("up", flush=True)
while True:
    signal.pause()
"""


@dataclass(kw_only=True)
class Outcome:
    """What a campaign of crashes came to."""

    killed: Counter[str] = field(default_factory=Counter)
    aim: warm_kills.Aim | None = None
    starts: int = 0
    records: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0

    def kill(self, victim: int, kind: str, number: signal.Signals) -> None:
        living = self.aim.living(victim, kind) if self.aim else set()
        with suppress(ProcessLookupError):
            os.kill(victim, number)
            self.killed[f"{kind} ({number.name})"] += 1
            if self.aim:
                self.aim.count(kind, living)


def prepare(folder: Path, experiments: int) -> None:
    (folder / "trainer.py").write_text(TRAINER)
    custom = {
        "command": ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", "{number}", "{sleep_s}"],
        "launcher": "none",
        "metrics": {name: {"key": name} for name in ("train_runtime", "train_loss")},
    }  # fmt: skip
    scenario = {
        "name": "quick", "trainer": "custom", "device": "cpu", "custom": custom, "arguments": {"sleep_s": 0.1},
        "matrix": {"number": list(range(experiments))},
    }  # fmt: skip
    (folder / "scenarios.yaml").write_text(json.dumps({"scenarios": [scenario]}))


@contextmanager
def as_host(mounted: Path, place: Path) -> Iterator[int]:
    """A host of its own, which has the results from `mounted`: the number of its first process."""
    name = f"host{mounted}".replace("/", "-")[:60]
    own = ("unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    words = [*own, sys.executable, "-c", AS_HOST, name, str(mounted), str(place)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None and host.stdout.readline() == b"up\n"
        yield psutil.Process(host.pid).children()[0].pid
        host.kill()


def start(folder: Path, *words: str, host: int | None = None) -> subprocess.Popen[bytes]:
    """An orchestrator, on the host with this first process."""
    command = [*RUN, *words]
    if host is not None:
        enter = ["nsenter", f"--target={host}", "--uts", "--mount", "--pid"]
        command = [*enter, "sh", "-c", 'cd "$0" && exec "$@"', str(folder), *command]
    path = os.pathsep.join([str(folder / warm_kills.WATCH), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, OF_CAMPAIGN: str(folder)}
    with (folder / "said.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)


def ours(folder: Path) -> dict[int, str]:
    """Number → kind of every living process of this campaign."""
    found = {}
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if process.status() == psutil.STATUS_ZOMBIE or (
                process.cwd() != str(folder)
                and not any(str(folder) in word for word in words)
                and process.environ().get(OF_CAMPAIGN) != str(folder)
            ):
                continue
        except psutil.Error:
            continue
        line = "" if words[:1] == ["nsenter"] else " ".join(words)
        kind = next((kind for kind in KINDS if kind in line), None)
        with suppress(psutil.Error, OSError):
            if kind is not None:
                found[process.pid] = warm_kills.role(process) if kind == "warm.py" else kind
    return found


def crash(
    folder: Path,
    *,
    experiments: int,
    kills: int,
    hosts: Sequence[int | None],
    seed: int,
    pause_s: float = 1.5,
    signals: Sequence[signal.Signals] = (signal.SIGKILL,),
    warm: bool = False,
) -> Outcome:
    """Kills until it has killed so often or all is done, `pause_s` at most in between, then lets the rest run to its end.

    There is one orchestrator for each of `hosts`: the first process of one (`as_host`), or None.
    """
    (warm_kills.prepare if warm else prepare)(folder, experiments)
    words = ["--warm", "--retry-failed", "all"] if warm else []
    rng, began = random.Random(seed), time.monotonic()
    aim = warm_kills.Aim(look=lambda: ours(folder), rng=rng, pause_s=pause_s) if warm else None
    outcome = Outcome(aim=aim)
    running: list[subprocess.Popen[bytes] | None] = [None] * len(hosts)
    while outcome.killed.total() < kills:
        if outcome.killed.total() >= FIRST_KILLS:
            (folder / "go").touch()
        assert time.monotonic() < began + LONGEST_S, "it never ends"
        for place, (host, one) in enumerate(zip(hosts, running, strict=True)):
            if one is None or one.poll() is not None:
                if all_done(folder, experiments):
                    return finish(folder, hosts, outcome, began, *words)
                running[place] = start(folder, *words, host=host)
                outcome.starts += 1
        chosen = aim.victim() if aim else any_victim(folder, rng, pause_s)
        if chosen is not None:
            outcome.kill(*chosen, rng.choice(signals))
    (folder / "go").touch()
    for one in running:
        if one is not None:
            one.wait(timeout=LONGEST_S)
    return finish(folder, hosts, outcome, began, *words)


def any_victim(folder: Path, rng: random.Random, pause_s: float) -> tuple[int, str] | None:
    """Wait for a random moment, and choose a process, by its kind first: a trainer lives for moments, an orchestrator always."""
    time.sleep(rng.uniform(0.0, pause_s))
    there = ours(folder)
    kind = rng.choice(sorted(set(there.values()))) if there else None
    return (rng.choice(sorted(pid for pid, one in there.items() if one == kind)), kind) if kind else None


def finish(folder: Path, hosts: Sequence[int | None], outcome: Outcome, began: float, *words: str) -> Outcome:
    """A last call, for what a killed trainer failed; one from each host, for what that one had."""
    for host in dict.fromkeys(hosts):
        start(folder, "--retry-failed", "all", *words, host=host).wait(timeout=LONGEST_S)
        outcome.starts += 1
    for stored in Store.resume(folder / "results").contents().experiments:
        outcome.records.update(record.status.value for record in stored.records)
        outcome.ways.update(str(record.provenance.get("start")) for record in stored.records)
    outcome.took_s = time.monotonic() - began
    return outcome


def all_done(folder: Path, experiments: int) -> bool:
    if not (folder / "results" / "suite.json").exists():
        return False
    contents = Store.resume(folder / "results").contents()
    done = [one for one in contents.experiments if any(record.status is Status.OK for record in one.records)]
    return len(done) == experiments


def check(folder: Path, experiments: int) -> None:
    """Raises AssertionError for whatever was lost, counted twice, or left behind."""
    contents = Store.resume(folder / "results").contents()
    assert contents.warnings == (), contents.warnings
    assert len(contents.experiments) == experiments
    for stored in contents.experiments:
        statuses = [record.status for record in stored.records]
        assert len(statuses) == len(stored.runs), f"{stored.experiment.id}: a run without a record: {stored.runs}"
        assert statuses[-1] is Status.OK, f"{stored.experiment.id}: {statuses}"
        assert statuses.count(Status.OK) == 1, (
            f"{stored.experiment.id} was run again after it had ended well: {statuses}"
        )
    left = ours(folder)
    assert not left, left
    strays = list((folder / "results").glob("experiments/*/runs/.*"))
    assert not [path for path in strays if (path / "job.json").exists()], strays
    jobs = (folder / "results").glob("experiments/*/runs/*/job.json")
    groups = [job for job in jobs if cgroup.find(json.loads(job.read_text())["marker"])]
    assert not groups, f"the control groups of {groups} are left"
    leaked = warm_kills.leaked(folder)
    assert not leaked, leaked
    if not (folder / "ledger").exists():  # real trainings
        return
    ended = Counter(
        line.split()[1] for line in (folder / "ledger").read_text().splitlines() if line.startswith("ended")
    )
    assert len(ended) == experiments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=100)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--orchestrators", type=int, default=2)
    parser.add_argument("--signals", nargs="+", choices=("KILL", "INT", "TERM", "QUIT", "HUP"), default=["KILL"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--pause", type=float, default=1.5, help="most seconds between two kills; more on a busy machine"
    )
    parser.add_argument("--mounts", type=Path, nargs="+")
    parser.add_argument("--warm", action="store_true", help="real trainings, which start warm")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="crashes-"))
    hosts: list[int | None] = [None] * given.orchestrators
    signals = [signal.Signals[f"SIG{name}"] for name in given.signals]
    with ExitStack() as stack:
        if given.mounts:
            places = [mount / folder.name for mount in given.mounts]
            places[0].mkdir()
            (folder / "results").mkdir()
            subprocess.run(["mount", "--bind", places[0], folder / "results"], check=True)
            hosts = [stack.enter_context(as_host(place, folder / "results")) for place in places]
        outcome = crash(
            folder,
            experiments=given.experiments,
            kills=given.kills,
            hosts=hosts,
            seed=given.seed,
            pause_s=given.pause,
            signals=signals,
            warm=given.warm,
        )
    killed = ", ".join(f"{number} {kind}" for kind, number in outcome.killed.items())
    print(f"{outcome.killed.total()} killed ({killed}), {outcome.starts} starts, {outcome.took_s:.0f} s")
    print(f"records: {dict(outcome.records)}, started {dict(outcome.ways)}", flush=True)
    if outcome.aim is not None:
        print(warm_kills.table(outcome.killed, outcome.aim), flush=True)
    check(folder, given.experiments)
    print("every experiment has one record that counts, none was run again behind it, and nobody is left alive")


if __name__ == "__main__":
    main()

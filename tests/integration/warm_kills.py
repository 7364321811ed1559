"""The aim of `crashes.py --warm`: which of a campaign's processes to kill next, so that kills meet warm runs, and what they met.

All processes of a warm run have the starter's command line. Their roles are told by the marker in their memory, by their sessions
and by the signals that they ignore.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from orchestrator.machine.child_environment import MARKER

STARTER, KEEPER, LAUNCHER, TRAINING = "warm starter", "warm keeper", "warm launcher", "warm training"
WARM = (STARTER, KEEPER, LAUNCHER, TRAINING)
ORCHESTRATOR = "orchestrator run"
# How often each kind is chosen. Without its starter, an orchestrator starts its runs cold, so it is killed soon after it.
WEIGHTS = {TRAINING: 4, LAUNCHER: 3, KEEPER: 3, "run-one": 3, STARTER: 1, ORCHESTRATOR: 1}
PATIENCE_S = 40.0
_UNMARKED = "0" * 32

WATCH = "watch"
# Python runs this at the start of each process: a training writes its variables when it opens its file of steps.
_NOTES_VARIABLES = """\
import json, os, sys, time
def note(event, args):
    if event != "open" or not isinstance(args[0], str) or "TUNEBENCH_RUN_DIR" not in os.environ:
        return
    if os.path.basename(args[0]).startswith("steps-rank"):
        with open(f"{FOLDER}/{os.getpid()}-{time.time_ns()}.json", "w") as file:
            json.dump({"path": args[0], "env": dict(os.environ)}, file)
sys.addaudithook(note)
"""
# Two runs never have the same ones.
_OF_ONE_RUN = (MARKER, "TUNEBENCH_RUN_DIR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID")


def role(process: psutil.Process) -> str:
    """Return the role of a process that has the command line of a starter. Raise psutil.Error if it has gone."""
    if _is_keeper(process):
        return KEEPER
    if process.environ().get(MARKER, _UNMARKED) == _UNMARKED:
        return STARTER
    parent = process.parent()
    of_run = parent is not None and parent.environ().get(MARKER, _UNMARKED) == process.environ().get(MARKER)
    below_launcher = parent is not None and of_run and not _is_keeper(parent)
    return TRAINING if below_launcher or not _leads(process.pid) else LAUNCHER


def _is_keeper(process: psutil.Process) -> bool:
    """A keeper ignores the signals that end the other processes of a run: it ends after them."""
    return signal.SIGTERM in _ignored(process.pid)


def _leads(pid: int) -> bool:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return int(fields[3]) == pid


def _ignored(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    mask = int(status.split("SigIgn:")[1].split()[0], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@dataclass(kw_only=True)
class Aim:
    """Chooses victims. `look` returns number → kind of every living process of the campaign."""

    look: Callable[[], dict[int, str]]
    rng: random.Random
    pause_s: float
    # (kind of the victim, kind of a warm process that lived then) → kills
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Kills while the launcher or a training of a warm run lived. A keeper lives a little longer.
    in_runs: int = 0
    _without_starter: list[int] = field(default_factory=list)

    def victim(self) -> tuple[int, str] | None:
        """Wait for a process of a random kind, and then for a random moment. Return the process and its kind, or None."""
        if self._without_starter:
            time.sleep(self.rng.uniform(0.0, 2 * self.pause_s))
            orchestrator = self._without_starter.pop()
            return (orchestrator, ORCHESTRATOR) if self.look().get(orchestrator) == ORCHESTRATOR else None
        (wanted,) = self.rng.choices([*WEIGHTS], [*WEIGHTS.values()])
        deadline = time.monotonic() + PATIENCE_S
        # An orchestrator and a starter are killed only when a run is under way, too: then it has a keeper.
        while not {wanted, KEEPER} <= (kinds := set(self.look().values())):
            if ORCHESTRATOR not in kinds or time.monotonic() > deadline:
                return None
            time.sleep(0.05)
        time.sleep(self.rng.uniform(0.0, self.pause_s))
        there = self.look()
        living = sorted(pid for pid, kind in there.items() if kind == wanted)
        living = living or sorted(pid for pid, kind in there.items() if kind in WARM[1:])
        if not living:
            return None
        victim = self.rng.choice(living)
        return victim, there[victim]

    def living(self, victim: int, kind: str) -> set[str]:
        """Return the kinds of warm processes that live just before a kill. Remember the orchestrator of a starter."""
        if kind == STARTER:
            with suppress(psutil.Error):
                self._without_starter.append(psutil.Process(victim).ppid())
        return set(self.look().values()) & {*WARM}

    def count(self, kind: str, living: set[str]) -> None:
        """Count a kill of a process of this kind, with what lived then."""
        self.met.update((kind, other) for other in living)
        self.in_runs += bool(living & {LAUNCHER, TRAINING})


def table(killed: Counter[str], aim: Aim) -> str:
    """Return a table of the signals, and of the warm processes that lived when they were sent."""
    kinds = Counter[str]()
    for name, count in killed.items():
        kinds[name.partition(" (")[0]] += count
    heads = ("signals to", "all", *(f"{kind} lives" for kind in WARM))
    rows = [heads, *((kind, count, *(aim.met[kind, other] for other in WARM)) for kind, count in kinds.most_common())]
    lines = [
        "  ".join([f"{row[0]:16}", *(f"{cell:>{len(head)}}" for cell, head in zip(row[1:], heads[1:], strict=True))])
        for row in rows
    ]
    return "\n".join(
        [*lines, f"{aim.in_runs} of {killed.total()} signals were sent while a warm launcher or a warm training lived"]
    )


def prepare(folder: Path, experiments: int) -> None:
    """Write a scenario file of an even number of tiny trainings, with one and two processes, which note their variables."""
    arguments = {
        "model_name_or_path": "config:tiny-llama", "max_seq_len": 64, "max_steps": 30, "per_device_train_batch_size": 2,
    }  # fmt: skip
    scenario = {
        "name": "quick", "device": "cpu", "arguments": arguments, "matrix": {"seed": list(range(experiments // 2))},
        "num_gpus": [1, 2],
    }  # fmt: skip
    data = {"dataset_name": "builtin:stdlib-docs", "dataset_split": "train[:60]"}
    (folder / "scenarios.yaml").write_text(json.dumps({"data_processing": data, "scenarios": [scenario]}))
    (folder / WATCH).mkdir()
    text = _NOTES_VARIABLES.replace("{FOLDER}", str(folder / WATCH))
    (folder / WATCH / "sitecustomize.py").write_text(text)


def leaked(folder: Path) -> list[str]:
    """Return a sentence for each variable that a training process has from another run, or that only some of them have."""
    said, markers = [], defaultdict[str, set[str]](set)
    alike = defaultdict[str, list[dict[str, Any]]](list)
    for file in sorted((folder / WATCH).glob("*.json")):
        try:
            seen = json.loads(file.read_text())
        except ValueError:  # it was killed while it wrote
            continue
        env, run_dir = seen["env"], str(Path(seen["path"]).parent)
        if env.get("TUNEBENCH_RUN_DIR") != run_dir:
            said.append(f"{run_dir}: its variable says {env.get('TUNEBENCH_RUN_DIR')}")
        markers[str(env.get(MARKER))].add(run_dir)
        alike[f"{env.get('WORLD_SIZE')}, {env.get('RANK')}"].append(env)
    said += [f"the marker {marker} is in {sorted(runs)}" for marker, runs in markers.items() if len(runs) > 1]
    return said + [sentence for group in alike.values() for sentence in _differing(group)]


def _differing(group: Iterable[dict[str, Any]]) -> list[str]:
    first, *others = group
    names = {name for env in others for name in {*env, *first} if env.get(name) != first.get(name)}
    return [f"{name} differs between runs" for name in sorted(names - {*_OF_ONE_RUN})]

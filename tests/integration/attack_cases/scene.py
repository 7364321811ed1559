"""A scene for a case: a folder with a scenario file and a fake trainer, commands as real processes, and the checks at the end."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from orchestrator.records import RunRecord, load

ROOT = Path(__file__).resolve().parents[3]
MARK = "TUNEBENCH_ATTACK"
SECRET = "hf_" + "Qz7Lk2Vx9Rt4Wn8Bm3Pc6Yd1Sf5Gh0JaTe"
LONGEST_S = 120.0
TRAINER = """\
import json, os, pathlib, signal, subprocess, sys, time
here, number = pathlib.Path(sys.argv[1]), sys.argv[2]
run_dir = pathlib.Path.cwd().parent
def hold(name="go"):
    while not (here / name).exists():
        time.sleep(0.02)
(here / f"begun-{number}").touch()
%s
print(json.dumps({"train_runtime": 0.1, "train_loss": 1.0}), flush=True)
"""
CODES: Mapping[str, tuple[int, ...]] = {"compare": (0, 1, 2, 3, 4, 130)}
USUAL_CODES = (0, 1, 2, 130)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command came to."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(kw_only=True)
class Scene:
    """A folder, and what happened in it."""

    folder: Path
    results: Path
    mark: str
    env: dict[str, str]
    said: list[Said] = field(default_factory=list)
    seen: dict[Path, bytes] = field(default_factory=dict)
    cleanups: list[Callable[[], object]] = field(default_factory=list)
    # What a case may allow: codes besides the documented ones, losses and tracebacks that it causes itself.
    codes: set[int] = field(default_factory=set)
    records_may_go: bool = False
    logs_may_trace: bool = False

    def scenario(self, body: str = "time.sleep(0.1)", *, numbers: int = 1, **changes: Any) -> None:
        """Write the scenario file and its trainer, whose work is `body`. `changes` are keys of the scenario."""
        (self.folder / "trainer.py").write_text(TRAINER % body)
        custom: dict[str, Any] = {
            "command": ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", "{number}"],
            "launcher": "none",
            "metrics": {name: {"key": name} for name in ("train_runtime", "train_loss")},
        }
        custom.update(changes.pop("custom", {}))
        scenario = {
            **{"name": "quick", "trainer": "custom", "device": "cpu", "custom": custom},
            "matrix": {"number": list(range(numbers))},
            **changes,
        }
        (self.folder / "scenarios.yaml").write_text(json.dumps({"scenarios": [scenario]}))

    def start(self, *words: str, prefix: Sequence[str] = (), **options: Any) -> subprocess.Popen[bytes]:
        """Start `tunebench` with these words, or after `prefix`, in a session of its own. `options` go to Popen."""
        command = [*prefix, sys.executable, "-m", "orchestrator", *words]
        return self.start_any(*command, **options)

    def start_any(self, *command: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command in the scene's environment, with its outputs in files."""
        self.look()
        place = self.folder / f"said-{uuid.uuid4().hex[:8]}"
        with place.with_suffix(".out").open("wb") as out, place.with_suffix(".err").open("wb") as err:
            given = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "cwd": self.folder, **options}
            own = {"start_new_session": True, **given}
            child = subprocess.Popen(command, env={**self.env, **(env or {})}, **own)
        child.place = place  # type: ignore[attr-defined]
        return child

    def ended(self, child: subprocess.Popen[bytes], *, timeout_s: float = LONGEST_S) -> Said:
        """Wait for the end of a command. Raise AssertionError if it hangs."""
        try:
            code = child.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            shown = f"hangs: no end after {timeout_s:g} s: {child.args!r:.300}; processes: {self.stacks()}"
            self.kill_all()
            child.wait(timeout=20)
            raise AssertionError(shown) from None
        place: Path = child.place  # type: ignore[attr-defined]
        out, err = (place.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
        words = [*map(str, child.args)] if isinstance(child.args, tuple) else [str(child.args)]
        here = words.index("orchestrator") + 1 if "orchestrator" in words else 0
        said = Said(words=tuple(words[here:]), code=code, out=out, err=err)
        self.said.append(said)
        self.look()
        return said

    def call(self, *words: str, timeout_s: float = LONGEST_S, **options: Any) -> Said:
        """Run `tunebench` with these words to its end."""
        return self.ended(self.start(*words, **options), timeout_s=timeout_s)

    def run(self, *words: str, **options: Any) -> Said:
        """Run the campaign of the scenario file to its end."""
        return self.call("run", "scenarios.yaml", "--yes", *words, **options)

    def started(self, *words: str, begun: int | None = 0, **options: Any) -> subprocess.Popen[bytes]:
        """Start the campaign and return once the trainer of the experiment `begun` runs."""
        child = self.start("run", "scenarios.yaml", "--yes", *words, **options)
        if begun is not None:
            self.await_file(f"begun-{begun}", child)
        return child

    def await_file(self, pattern: str, child: subprocess.Popen[bytes] | None = None) -> Path:
        """Return the first file of this pattern in the folder, once there is one."""
        found: Path = self.await_true(lambda: next(iter(self.folder.glob(pattern)), None), pattern, child)
        return found

    def await_true(self, look: Callable[[], Any], what: str, child: subprocess.Popen[bytes] | None = None) -> Any:
        """Return what `look` returns, once it is true. Raise AssertionError after a while, or if the command ends first."""
        deadline = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline:
            if found := look():
                return found
            if child is not None and child.poll() is not None and not look():
                raise AssertionError(f"the command ended before: {what}: {self.ended(child)}")
            time.sleep(0.02)
        raise AssertionError(f"never came: {what}")

    def go(self) -> None:
        """Let the trainers that hold go on."""
        (self.folder / "go").touch()

    def runs(self) -> list[Path]:
        """Return the folders of all runs, by name."""
        return sorted(self.results.glob("experiments/*/runs/r*"))

    def records(self) -> list[RunRecord]:
        """Return all records that can be read."""
        return [load(RunRecord, (run / "record.json").read_bytes()) for run in self.runs() if _has_record(run)]

    def statuses(self) -> list[str]:
        """Return the statuses of all records, sorted."""
        return sorted(record.status.value for record in self.records())

    def alive(self) -> dict[int, str]:
        """Return number and words of every living process of this scene, found by environment, words and folder."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                words = process.cmdline()
                by_folder = any(str(self.folder) in word for word in words) or str(self.folder) in process.cwd()
                if by_folder or process.environ().get(MARK) == self.mark:
                    found[process.pid] = " ".join(words)[:200]
        return found

    def find(self, part: str) -> int:
        """Return the number of a living process whose words contain this part."""
        return int(
            self.await_true(lambda: next((pid for pid, line in self.alive().items() if part in line), None), part)
        )

    def stacks(self) -> str:
        """Return the processes that are alive, with their stacks if py-spy is installed."""
        if shutil.which("py-spy") is None:
            return str(self.alive())
        dumps = [
            subprocess.run(["py-spy", "dump", "-p", str(pid)], capture_output=True, check=False) for pid in self.alive()
        ]
        return "\n".join(dump.stdout.decode(errors="replace")[:2500] for dump in dumps)

    def kill_all(self) -> None:
        """Kill what is left of this scene."""
        for pid in self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def look(self) -> None:
        """Remember each record, and check that none that was there has changed or gone."""
        for path, content in self.seen.items():
            if self.records_may_go:
                break
            now = path.read_bytes() if path.is_file() else b""
            kept = now == content or any(one.read_bytes() == content for one in self.folder.rglob("record.json*"))
            assert kept, f"a record is lost or changed: {path}"
        for path in self.results.glob("experiments/*/runs/r*/record.json"):
            if path.is_file() and not path.is_symlink():
                self.seen[path] = path.read_bytes()

    def check(self) -> None:
        """Check every promise that holds for each case."""
        for said in self.said:
            allowed = {*CODES.get(said.words[0] if said.words else "", USUAL_CODES), *self.codes}
            assert said.code in allowed, f"exit code {said.code} of {said.words}"
            assert "Traceback" not in said.text, f"a traceback of {said.words}"
        deadline = time.monotonic() + 5
        while (left := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, f"left alive: {left}"
        self.look()
        self.check_files()

    def check_files(self) -> None:
        """Check that tables can be read, that no file has the secret, and that no log of a run has a traceback of Tunebench."""
        for name in ("benchmarks.csv", "raw_summary.csv"):
            if (path := self.results / name).is_file():
                rows = list(csv.reader(path.open(newline="")))
                assert rows and all(len(row) == len(rows[0]) for row in rows), f"{name} has rows of different lengths"
        for path in self.folder.rglob("*"):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > 2**24:
                continue
            content = path.read_bytes()
            if path.name not in ("stdout.log", "stderr.log", "trainer.py", "scenarios.yaml"):
                assert SECRET.encode() not in content, f"the secret is in {path}"
            if path.name == "run-one.log" and not self.logs_may_trace:
                assert b"Traceback" not in content, f"a traceback in {path}: {content.decode(errors='replace')[-800:]}"

    def story(self) -> str:
        """Return what the commands said, for the report of a broken promise."""
        shown = [f"  $ {' '.join(one.words)} → {one.code}\n{one.out[-300:]}{one.err[-1500:]}" for one in self.said]
        return "\n".join(shown[-4:])


def _has_record(run: Path) -> bool:
    try:
        load(RunRecord, (run / "record.json").read_bytes())
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def new_scene(*, keep: bool = False) -> Iterator[Scene]:
    """Make a scene; afterwards end its processes, undo its mounts and remove its folder."""
    folder = Path(tempfile.mkdtemp(prefix="attack-")).resolve()
    mark = uuid.uuid4().hex
    site = folder / "site"
    (site / "pip").mkdir(parents=True)
    (site / "pip" / "__init__.py").touch()
    (site / "pip" / "__main__.py").write_text("print('planted==1.0')")  # `pip freeze` takes longer than all else
    own = {"PYTHONPATH": f"{ROOT}:{site}", "TUNEBENCH_CACHE": str(folder / "cache"), "COLUMNS": "200", MARK: mark}
    env = {**os.environ, **own, "ATTACK_API_TOKEN": SECRET}
    scene = Scene(folder=folder, results=folder / "results", mark=mark, env=env)
    scene.scenario()
    try:
        yield scene
    finally:
        scene.kill_all()
        for undo in reversed(scene.cleanups):
            with suppress(Exception):
                undo()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)

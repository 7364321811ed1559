"""Whole campaigns by the command, as users run them: what tests of them share."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.records import RunRecord
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
Call = Callable[..., tuple[int, str, str]]
"""`call(folder, "plan", …, NAME=value)`: exit code, stdout and stderr of the command, run in this process (the fixture `call`)."""


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A folder with a scenario file, the results of running it, and what the command said."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def records(self) -> dict[str, list[RunRecord]]:
        """Experiment id → records, by repeat and attempt."""
        return {one.experiment.id: list(one.records) for one in Store.resume(self.results).contents().experiments}

    def record(self, part: str) -> RunRecord:
        """The only record of the only experiment whose id holds this."""
        ((record,),) = [records for name, records in self.records().items() if part in name]
        return record

    def run_dir(self, part: str) -> Path:
        (found,) = self.results.glob(f"experiments/*{part}*/runs/r1-t1")
        return found

    def rows(self) -> list[dict[str, str]]:
        with (self.results / "benchmarks.csv").open(newline="") as file:
            return list(csv.DictReader(file))


def started(folder: Path, *argv: str, **env: str) -> subprocess.Popen[bytes]:
    """Start Python with these words in the folder, on this source tree and with a cache of its own."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"PYTHONPATH": path, "TUNEBENCH_CACHE": str(folder / "cache"), "COLUMNS": "200", **env}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *argv], cwd=folder, env={**os.environ, **own}, stdout=pipe, stderr=pipe)


def begun(folder: Path, *words: str, **env: str) -> subprocess.Popen[bytes]:
    """Start the command with these words."""
    return started(folder, "-m", "orchestrator", *words, **env)


def ended(folder: Path, process: subprocess.Popen[bytes]) -> Campaign:
    """Return what a command came to; of bytes, since text mode makes newlines of carriage returns."""
    out, err = process.communicate(timeout=900)
    return Campaign(folder=folder, code=process.returncode, out=out.decode(), err=err.decode())


def tunebench(folder: Path, *words: str, **env: str) -> Campaign:
    return ended(folder, begun(folder, *words, **env))

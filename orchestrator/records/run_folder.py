"""The folder of one run. Only this module defines the names of the files in it.

There are two exceptions. A monitor names the files that it writes itself. The programs in `workers/` cannot import this module, so
they repeat the names that they use.

    RESULTS/experiments/<id>/experiment.json
    RESULTS/experiments/<id>/runs/r<repeat>-t<attempt>/ job.json, owner.json, … record.json
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# MODULES is the folder of the modules that a program imports from Tunebench. A training starts in the folder WORK.
EXPERIMENT_FILE, OUTPUT, MODULES, WORK = "experiment.json", "output", "modules", "work"


@lru_cache(maxsize=64)
def path_text(folder: Path, name: str) -> str:
    """Return the path of a file in a folder, as text. Paths are cached: a plan needs a few of them for every cell."""
    return str(folder / name)


class _File:
    """An attribute whose value is the path of a file in the run's folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: RunFolder, owner: type) -> Path:
        return folder.path / self.name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run's files. Most of the files are optional."""

    path: Path

    # Written by the process that claims the run.
    claim = _File("job.json")
    neighbours = _File("neighbours.txt")
    run_one_log = _File("run-one.log")
    # Written by `run-one`.
    owner = _File("owner.json")
    heartbeat = _File("heartbeat")
    processes = _File("processes.json")
    reserve = _File(".reserve")
    kept_record = _File(".record.json")
    script = _File("command.sh")
    container = _File("container.id")
    stacks = _File("stacks.txt")
    record = _File("record.json")
    # Written by the training processes.
    stdout = _File("stdout.log")
    stderr = _File("stderr.log")
    pids = _File("pids.txt")
    output = _File(OUTPUT)
    work = _File(WORK)
    # Written by the watchers of a run on several nodes: a folder for each node.
    nodes = _File("nodes")

    def steps(self, rank: int) -> Path:
        return self.path / f"steps-rank{rank}.jsonl"

    def worker(self, rank: int) -> Path:
        return self.path / f"worker-rank{rank}.json"

    def all_steps(self) -> dict[int, Path]:
        """Return rank → step file, for each rank that has such a file."""
        return self._by_rank("steps-rank", ".jsonl")

    def all_workers(self) -> dict[int, Path]:
        """Return rank → worker file, for each rank that has such a file."""
        return self._by_rank("worker-rank", ".json")

    def _by_rank(self, start: str, end: str) -> dict[int, Path]:
        files = {path.name.removeprefix(start).removesuffix(end): path for path in self.path.glob(f"{start}*{end}")}
        return dict(sorted((int(rank), path) for rank, path in files.items() if rank.isdecimal()))

    @property
    def experiment(self) -> Path:
        """The file of the run's experiment."""
        return self.path.parents[1] / EXPERIMENT_FILE

    @property
    def results(self) -> Path:
        """The results folder that contains the run."""
        return self.path.parents[3]

"""The executors, one dict: name -> instance. Every executor starts `python -m orchestrator run-one RUN_DIR`.

Third parties add theirs by the entry-point group `tunebench.executors`; an executor that fails to load is reported by its name.
`FakeExecutor` is for tests, ours and others', and is not in the registry.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator import plugs
from orchestrator.errors import SelectionError
from orchestrator.executors.executor import Executor
from orchestrator.executors.fake import FakeExecutor
from orchestrator.executors.local import LocalExecutor

__all__ = ["ENTRY_POINTS", "EXECUTORS", "LOCAL", "Executor", "FakeExecutor", "LocalExecutor", "get"]

ENTRY_POINTS = "tunebench.executors"
LOCAL = "local"

EXECUTORS: Mapping[str, Executor] = {
    LOCAL: LocalExecutor(),
}


def get(name: str, parallel: int = 1) -> Executor:
    """Return the executor of that name; `local` then starts up to `parallel` runs at once.

    Raises SelectionError, which lists the executors and says what failed to load.
    """
    if name == LOCAL and parallel > 1:
        return LocalExecutor(parallel=parallel)
    if name in EXECUTORS:
        return EXECUTORS[name]
    others, problems = _third_parties()
    if name in others:
        return others[name]
    there = ", ".join([*EXECUTORS, *sorted(others)])
    raise SelectionError(" ".join([f"There is no executor '{name}'; there are: {there}.", *problems]))


def _third_parties() -> tuple[Mapping[str, Executor], tuple[str, ...]]:
    return plugs.installed(ENTRY_POINTS, Executor, ours=EXECUTORS)

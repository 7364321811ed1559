"""The executors: a dict from name to instance. Every executor starts `python -m orchestrator run-one RUN_DIR`.

Other packages add executors under the entry-point group `tunebench.executors`. `FakeExecutor` is for tests; it is not registered.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.entry_points import Registry
from orchestrator.executors.executor import Executor
from orchestrator.executors.fake import FakeExecutor
from orchestrator.executors.local import LocalExecutor

__all__ = ["EXECUTORS", "LOCAL", "Executor", "FakeExecutor", "LocalExecutor", "get"]

LOCAL = "local"

EXECUTORS: Mapping[str, Executor] = {LOCAL: LocalExecutor()}

_REGISTRY = Registry(kind=Executor, group="tunebench.executors", ours=EXECUTORS)


def get(name: str, parallel: int = 1) -> Executor:
    """Return the executor with this name. `local` runs up to `parallel` jobs at once. Raise SelectionError for an unknown name."""
    return LocalExecutor(parallel=parallel) if name == LOCAL and parallel > 1 else _REGISTRY.get(name)

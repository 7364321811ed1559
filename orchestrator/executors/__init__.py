"""The executors, one dict: name -> instance. Every executor starts `python -m orchestrator run-one RUN_DIR`.

Third parties add theirs by the entry-point group `tunebench.executors`; one that fails to load is reported by its name.
`FakeExecutor` is for tests, ours and others', and stands in no registry.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.errors import SelectionError
from orchestrator.executors.executor import Executor
from orchestrator.executors.fake import FakeExecutor
from orchestrator.executors.local import LocalExecutor

__all__ = ["ENTRY_POINTS", "EXECUTORS", "Executor", "FakeExecutor", "LocalExecutor", "get"]

ENTRY_POINTS = "tunebench.executors"

EXECUTORS: Mapping[str, Executor] = {
    "local": LocalExecutor(),
}


def get(name: str) -> Executor:
    """The executor of that name. Raises SelectionError, which says what there is or why it could not be loaded."""
    if name in EXECUTORS:
        return EXECUTORS[name]
    from importlib.metadata import entry_points  # costs 20 ms, paid only when an executor that is not ours is named

    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        raise SelectionError(f"There is no executor '{name}'; there are: {', '.join([*EXECUTORS, *sorted(points)])}.")
    try:
        loaded = points[name].load()
        executor = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:  # anything may be wrong in a third party's code
        raise SelectionError(f"The executor '{name}' could not be loaded: {error!r}.") from error
    if not isinstance(executor, Executor):
        raise SelectionError(f"The executor '{name}' is no Executor: see docs/add-a-plug.md.")
    return executor

"""The software of a cell: its environment, and the interpreter that trains."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.machine import environments
from orchestrator.plan.cells import Cell
from orchestrator.records import Environment, EnvironmentRequest, Framework, Reason


def environment_of(cell: Cell, framework: Framework | None) -> str | None:
    """Return the name of the environment that a cell trains in: the cell's own, else the one that its framework needs."""
    return cell.environment or (framework.environment if framework else None)


def other_environment(cell: Cell, framework: Framework | None) -> Reason | None:
    """Return a reason if a framework configuration needs another environment than the cell has, else None."""
    needed = framework.environment if framework else None
    if needed is None or cell.environment in (None, needed):
        return None
    name = framework.name if framework else ""
    text = f"framework configuration {name!r} needs the environment {needed}, and the cell has {cell.environment}"
    return Reason(kind="framework_needs_environment", text=text)


def software(
    requests: Mapping[str, EnvironmentRequest], own: str | None, name: str | None
) -> tuple[str | None, Environment | None]:
    """Return two values: the interpreter of an environment, and the environment. Without one, return the interpreter `own`."""
    if name is None:
        return own, None
    request = requests[name]
    locked = environments.lock_digest(request)
    asked, image = environments.digest(request), environments.image(request)
    environment = Environment(name=name, request=asked, lock=locked, container=request.container, image=image)
    return str(environments.interpreter(request)), environment

"""Holds the software environment of a run while the run uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import BuildError
from orchestrator.machine.environments import contents, locks
from orchestrator.machine.environments.places import place_with
from orchestrator.records import EnvironmentRequest, Experiment


@contextmanager
def in_use(experiment: Experiment) -> Iterator[None]:
    """Keep the experiment's environment from being removed.

    Raise BuildError if the environment is gone, or if its packages are not those of the experiment's id.
    """
    software, python = experiment.environment, experiment.python
    if software is None or python is None:
        yield
        return
    with locks.using(Path(python)):
        place = place_with(Path(python))
        built = place.built() if place else None
        lock = built.lock if built else contents.lock_digest(EnvironmentRequest(name=software.name, existing=python))
        if lock != software.lock:
            raise BuildError(f"environment {software.name!r} has other packages than when this run was planned")
        yield

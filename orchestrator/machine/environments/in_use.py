"""Holds the software environment of a run while the run uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.errors import BuildError, LaunchError
from orchestrator.machine.environments import contents, locks
from orchestrator.machine.environments.containers import place_of_environment, pull
from orchestrator.machine.environments.places import Built, Place, place_with
from orchestrator.records import Container, Environment, EnvironmentRequest, Experiment

_MOST_NAMED = 5


class ChangedPackages(BuildError):
    """Somebody changed the packages of an environment after it was built. `cure` is what to do."""

    def __init__(self, message: str, cure: str) -> None:
        super().__init__(message)
        self.cure = cure


@contextmanager
def in_use(experiment: Experiment) -> Iterator[None]:
    """Keep the experiment's environment from being removed.

    Raise BuildError if the environment is gone, or if its packages are not those of the experiment's id. Raise ChangedPackages if
    somebody installed or removed packages in it.
    """
    software, python = experiment.environment, experiment.python
    if software is None or python is None:
        yield
        return
    if software.container is not None:
        with locks.using_place(place_of_environment(software)):
            _check_image(software, software.container)
            yield
        return
    with locks.using(Path(python)):
        place = place_with(Path(python))
        built = place.built() if place else None
        lock = built.lock if built else contents.lock_digest(EnvironmentRequest(name=software.name, existing=python))
        if lock != software.lock:
            raise BuildError(f"environment {software.name!r} has other packages than when this run was planned")
        if place and built:
            _check_packages(software.name, place, built)
        yield


def _check_packages(name: str, place: Place, built: Built) -> None:
    """Raise ChangedPackages if the names and versions of the installed packages are not those of the build."""
    now = contents.installed(place)
    if now == built.packages:
        return
    changes = [
        f"{package} {now.get(package) or 'is missing'} (built: {built.packages.get(package) or 'without it'})"
        for package in sorted({*now, *built.packages})
        if now.get(package) != built.packages.get(package)
    ]
    more = f" and {len(changes) - _MOST_NAMED} more" if len(changes) > _MOST_NAMED else ""
    raise ChangedPackages(
        f"environment {name!r} was changed after it was built: {', '.join(changes[:_MOST_NAMED])}{more}",
        f"remove it with `tunebench env rm {place.digest}`, and repeat the same `tunebench run` with --retry-failed",
    )


def _check_image(software: Environment, container: Container) -> None:
    built = place_of_environment(software).built()
    if built is None or built.lock != software.lock:
        raise BuildError(f"environment {software.name!r} has another image than when this run was planned")
    try:
        is_there = built.image is not None and pull.is_in_store(container, built.image.digest)
    except LaunchError as error:
        raise BuildError(
            f"environment {software.name!r}: {error}; run `podman image inspect {container.image}`"
        ) from error
    if not is_there:
        cure = "remove the environment with `tunebench env rm`, and build it again"
        raise BuildError(f"environment {software.name!r}: its image is not on this machine any more; {cure}")


def facts_of_container(experiment: Experiment) -> dict[str, Any]:
    """Return the facts of a record about the container of a run: its image, and the packages in the image."""
    software = experiment.environment
    if software is None or software.container is None:
        return {}
    container, built = software.container, place_of_environment(software).built()
    pinned = built.image.pinned if built and built.image else None
    version, packages = (built.python or None, dict(built.packages)) if built else (None, {})
    return {
        "python": {"executable": container.interpreter, "version": version},
        "packages": packages,
        "container": {
            **asdict(container),
            "mounts": list(container.mounts),
            "digest": software.image,
            "pinned": pinned,
        },
    }

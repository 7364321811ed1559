"""Software environments: virtual environments in the user's cache, made for the requests of scenario files and shared by them."""

from pathlib import Path

from orchestrator.machine.environments.build import build
from orchestrator.machine.environments.contents import lock_digest
from orchestrator.machine.environments.locks import using
from orchestrator.machine.environments.places import environments_folder, place_of
from orchestrator.machine.environments.request_digest import digest
from orchestrator.records.environment import EnvironmentRequest

__all__ = ["build", "digest", "environments_folder", "image", "interpreter", "lock_digest", "place", "using"]


def place(request: EnvironmentRequest) -> Path:
    """Return the folder of the environment that a request asks for. It need not exist yet."""
    return place_of(request).folder


def image(request: EnvironmentRequest) -> str | None:
    """Return the SHA-256 of a container's image, or None if it is not known yet."""
    built = place_of(request).built() if request.container else None
    return built.image.digest if built and built.image else None


def interpreter(request: EnvironmentRequest) -> Path:
    """Return the absolute path of the environment's interpreter. It need not exist yet. In a container, it is one of the image."""
    if request.container is not None:
        return Path(request.container.interpreter)
    if request.existing is not None:
        return Path(request.existing).expanduser().absolute()
    return place_of(request).interpreter

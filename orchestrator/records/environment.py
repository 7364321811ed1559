"""A software environment: the request that a YAML file writes, and what an experiment needs to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """A container image, and how a command is started in it.

    `program` is `podman`, `apptainer` or `pyxis`. `image` is a reference in a registry, or the absolute path of an image file.
    `interpreter` is the Python interpreter in the image. Each of the `mounts` is `HOST:PATH`.
    """

    program: str
    image: str
    interpreter: str = "python"
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRequest:
    """The content of a software environment, as it was asked for. `machine.environments` builds it.

    `requirements` and `constraints` are lines as in pip's files. `overrides` are lines, too; each replaces every requirement of its
    package, also those of other packages. `lock` is the text of a lock file, instead of requirements.
    `folders` maps the absolute path of each local package to a digest of its content. `python` is the absolute path of the
    interpreter that the environment is made with. `indexes` are addresses of package indexes; the first replaces the default
    index. `existing` is an interpreter of the user that is used as it is; then the other fields are empty. So they are for a
    `container`.
    """

    name: str
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    lock: str | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    find_links: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    existing: str | None = None
    container: Container | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The software environment of an experiment.

    `request` is the digest of what was asked for. `lock` is the digest of the packages that were installed for it (None: it is
    not built yet). The experiment's `python` is the interpreter of the environment. For a `container`, this is an interpreter in
    the image, and `image` is the SHA-256 of the image (None: it is not known yet).
    """

    name: str
    request: str
    lock: str | None = None
    container: Container | None = None
    image: str | None = None

"""The software environments that a scenario file names: `environments:` in the file, or the file environments.yaml next to it.

`requests` returns what each environment is asked to have. `machine.environments` builds it. Paths are relative to the file that
names them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import ConfigError, Problem
from orchestrator.files import content, reading
from orchestrator.machine.environments.containers.command import APPTAINER, PODMAN, PYXIS
from orchestrator.plan.config.check import check
from orchestrator.plan.config.keys.environment_keys import ContainerEntry, EnvironmentEntry, EnvironmentsFile
from orchestrator.plan.config.yaml_file import Document, YamlPath, read_or_report
from orchestrator.records import Container, EnvironmentRequest

FILE, KEY = "environments.yaml", "environments"

_VERSION = re.compile(r"3\.\d{1,2}(\.\d{1,2})?", re.ASCII)
_FOLDER = re.compile(r"(?P<name>[\w.-]+\s*(\[[^]]*\])?\s*@\s*)?(file://)?(?P<path>(~|\.{0,2})/\S*|\.{1,2})")
# The digest at the end of an image's name, after the only "@" that a name without a user has. A cut digest is one, too.
_DIGEST = re.compile(r"@(sha\d+:\w*|[a-z0-9+._-]+:[0-9a-fA-F]{32,})$")
# The user without a password that enroot takes before the registry. It looks up the password in its own file.
_ENROOT_USER = re.compile(r"^(docker://)?[^@:/]+@")
_LOGINS = {
    PODMAN: "it has a user or a password; log in with `podman login`, and write the image without them",
    APPTAINER: "it has a user or a password; log in with `apptainer registry login`, and write the image without them",
    PYXIS: "it has a password; write it into enroot's file .credentials, and the image like USER@REGISTRY#IMAGE",
}
# A path. The name of an image in a registry never begins like this.
_IMAGE_PATH = re.compile(r"~|\.{0,2}/")
# Image files of containers, and the only program that starts them.
_IMAGE_FILES = {".sif": APPTAINER, ".sqsh": PYXIS}
# Folders that say nothing about a local package's content: anywhere, and at its top.
_CACHES, _BUILDS = frozenset({"__pycache__", "node_modules"}), frozenset({"build", "dist"})


@dataclass(frozen=True, kw_only=True)
class NamedEnvironments:
    """The environments of a scenario file: what each is asked to have, and the variables of its runs."""

    requests: Mapping[str, EnvironmentRequest] = field(default_factory=dict)
    variables: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)


def load_environments(
    document: Document, written: Mapping[str, EnvironmentEntry], problems: list[Problem]
) -> NamedEnvironments:
    """Return the environments of a scenario file (`written`), and of the file environments.yaml next to it."""
    entries = {name: (document, entry) for name, entry in written.items()}
    in_folder = document.file.with_name(FILE)
    if in_folder.exists() and (other := read_or_report(in_folder, problems)):
        parsed = check(EnvironmentsFile, other, problems)
        for name, entry in parsed.environments.items() if parsed else ():
            if name in entries:
                message = f"the environment {name!r} is also in {in_folder}; keep one of them"
                problems.append(document.problem((KEY, name), message))
            entries.setdefault(name, (other, entry))
    requests = {}
    for name, (of, entry) in entries.items():
        try:
            requests[name] = _request(name, entry, of)
        except ConfigError as error:
            problems.extend(error.problems)
    return NamedEnvironments(requests=requests, variables={name: entry.env for name, (_, entry) in entries.items()})


def _request(name: str, entry: EnvironmentEntry, document: Document) -> EnvironmentRequest:
    """Return what an environment is asked to have. Raise ConfigError for a mistake that needs the files that it names."""
    base, root = document.file.parent, (KEY, name)
    given = [key for key in ("interpreter", "container", "lock", "requirements") if getattr(entry, key)]
    if len(given) != 1:
        both = f"{given[0]} and {given[1]} are given; keep one of them" if given else "it has no packages"
        cure = "" if given else "; write requirements:, lock:, interpreter: or container:"
        raise ConfigError([document.problem(root, f"environment {name!r}: {both}{cure}")])
    if given[0] in ("interpreter", "container"):
        for key in ("constraints", "overrides", "python", "index", "find_links"):
            if getattr(entry, key):
                message = f"environment {name!r}: nothing is built with {given[0]}:, so {key}: has no effect; remove it"
                raise ConfigError([document.problem((*root, key), message)])
    if entry.interpreter:
        existing = _absolute(entry.interpreter, base)
        if not os.path.isfile(existing):
            message = f"environment {name!r}: there is no interpreter {existing}; correct the path"
            raise ConfigError([document.problem((*root, "interpreter"), message)])
        return EnvironmentRequest(name=name, existing=existing)
    if entry.container:
        return EnvironmentRequest(name=name, container=_container(name, entry.container, document))
    lines = _Lines(document, base)
    requirements = lines.of(entry.requirements, (*root, "requirements"))
    return EnvironmentRequest(
        name=name,
        requirements=requirements,
        constraints=lines.of(entry.constraints, (*root, "constraints")),
        overrides=lines.of(entry.overrides, (*root, "overrides")),
        lock=lines.text(entry.lock, (*root, "lock")) if entry.lock else None,
        folders=lines.folders,
        python=_interpreter(entry.python, document, (*root, "python")),
        find_links=tuple(link if "://" in link else _absolute(link, base) for link in entry.find_links),
        indexes=entry.index,
    )


def _container(name: str, entry: ContainerEntry, document: Document) -> Container:
    """Return the container of the environment `name`. Raise ConfigError for a mistake that needs the files that it names."""
    base, root = document.file.parent, (KEY, name, "container")
    suffix = Path(entry.image).suffix if "://" not in entry.image else ""
    needed = _IMAGE_FILES.get(suffix)
    program = entry.program or needed or next(filter(shutil.which, (PODMAN, APPTAINER)), PODMAN)
    image = entry.image.removeprefix("docker://") if program == PODMAN else entry.image

    def refuse(key: str, message: str) -> ConfigError:
        return ConfigError([document.problem((*root, key), f"environment {name!r}: {message}")])

    is_path = needed is not None or bool(_IMAGE_PATH.match(image))
    named = _ENROOT_USER.sub("", image) if program == PYXIS else image
    if not is_path and "@" in _DIGEST.sub("", named):
        raise refuse("image", _LOGINS[program])
    if not image.strip() or image.startswith("-") or len(image.split()) != 1:
        raise refuse("image", f"{entry.image!r} is not an image; write it like docker.io/pytorch/pytorch:2.6.0")
    if needed is not None and program != needed:
        raise refuse("program", f"{program} cannot start a {suffix} file; write program: {needed}, or leave it out")
    if is_path and program != PODMAN:
        image = _absolute(image, base)
        if not os.path.isfile(image):
            found = "is not a file" if os.path.exists(image) else "does not exist"
            raise refuse("image", f"{image} {found}; correct the path")
    mounts = []
    for mount in entry.mounts:
        source, _, target = mount.partition(":")
        folder = _absolute(source, base)
        if not os.path.exists(folder):
            raise refuse("mounts", f"there is no {folder}; correct the path")
        if (target and not os.path.isabs(target)) or ":" in target or "," in mount:
            raise refuse("mounts", f"{mount!r} is not a mount; write FOLDER or FOLDER:/PATH, without commas")
        mounts.append(f"{folder}:{target or folder}")
    return Container(program=program, image=image, interpreter=entry.interpreter, mounts=tuple(mounts))


class _Lines:
    """Reads requirements. `folders` gets the local packages that they name, with digests of their content."""

    def __init__(self, document: Document, base: Path) -> None:
        self.document, self.base = document, base
        self.folders: dict[str, str] = {}

    def of(self, words: tuple[str, ...], path: YamlPath) -> tuple[str, ...]:
        """Return the lines of requirements. A word that is the name of a text file is replaced by the file's lines."""
        lines: list[str] = []
        for word in words:
            if word.endswith((".txt", ".in")):
                lines += self._cleaned(self.text(word, path), Path(_absolute(word, self.base)))
            else:
                lines.append(self._line(word, self.base, path))
        return tuple(lines)

    def text(self, name: str, path: YamlPath) -> str:
        """Return the text of a file. Raise ConfigError at `path` if the file cannot be read."""
        file = Path(_absolute(name, self.base))
        try:
            return reading.read_text(Path(os.path.realpath(file)), limit=reading.RECORD_BYTES)
        except (OSError, ValueError) as error:
            why = "there is no such file" if isinstance(error, FileNotFoundError) else reading.reason(error)
            raise ConfigError([self.document.problem(path, f"{file}: {why}; correct the path")]) from None

    def _cleaned(self, text: str, file: Path) -> list[str]:
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            stripped = re.sub(r"(^|\s)#.*", "", line).strip()
            if stripped.startswith("-") or stripped.endswith("\\"):
                cure = (
                    "write it as find_links:, index: or constraints: of the environment; a file with hashes is a lock:"
                )
                raise ConfigError(
                    [Problem(file=file, line=number, message=f"{stripped!r} is an option of pip; {cure}")]
                )
            if stripped:
                lines.append(self._line(stripped, file.parent, (), Problem(file=file, line=number, message="")))
        return lines

    def _line(self, line: str, base: Path, path: YamlPath, place: Problem | None = None) -> str:
        """Return a requirement with an absolute path, if it names a local package."""
        from packaging.requirements import InvalidRequirement, Requirement

        if found := _FOLDER.fullmatch(line.strip()):
            folder = _absolute(found["path"], base)
            if not os.path.isdir(folder) and not os.path.isfile(folder):
                self._refuse(f"{line!r}: there is no {folder}; correct the path", path, place)
            try:
                self.folders[folder] = package_digest(Path(folder))
            except OSError as error:
                self._refuse(f"{error.filename or folder}: {reading.reason(error)}; make it readable", path, place)
            return f"{found['name']}file://{folder}" if found["name"] else folder
        try:
            Requirement(line)
        except InvalidRequirement:
            cure = "write it like torch==2.13.0, ./my-package, or name @ git+https://HOST/REPOSITORY@COMMIT"
            self._refuse(f"{line!r} is not a requirement; {cure}", path, place)
        return line.strip()

    def _refuse(self, message: str, path: YamlPath, place: Problem | None) -> None:
        found = Problem(file=place.file, line=place.line, message=message) if place else None
        raise ConfigError([found or self.document.problem(path, message)])


def _absolute(path: str, base: Path) -> str:
    return os.path.normpath(os.path.join(base.absolute(), os.path.expanduser(path)))


def _interpreter(python: str | None, document: Document, path: YamlPath) -> str | None:
    """Return the absolute path of the interpreter for a version such as 3.11, or for a path."""
    if python is None:
        return None
    found = shutil.which(f"python{python}") if _VERSION.fullmatch(python) else _absolute(python, document.file.parent)
    if found and os.path.isfile(found):
        return found
    message = (
        f"there is no interpreter {python!r} on this machine; install it, or write the path of another interpreter"
    )
    raise ConfigError([document.problem(path, message)])


def package_digest(place: Path) -> str:
    """Return twelve digits of the content of a local package: a wheel, or a folder without caches, builds and hidden files."""
    total = hashlib.sha256()
    if place.is_file():
        return content.digest(place)
    for folder, names, files in os.walk(place):
        left_out = _CACHES | _BUILDS if Path(folder) == place else _CACHES
        names[:] = sorted(name for name in names if not (name in left_out or name.startswith(".")))
        names[:] = [name for name in names if not name.endswith(".egg-info")]
        for name in sorted(files):
            file = Path(folder, name)
            if name.startswith(".") or name.endswith(".pyc") or not file.is_file():
                continue
            total.update(os.fsencode(f"{file.relative_to(place)}\0{content.digest(file)}\0"))
    return total.hexdigest()[:12]

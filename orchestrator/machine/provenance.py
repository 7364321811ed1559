"""The provenance of a run's numbers: git, host, packages, GPUs, driver, clocks.

It is collected once for each run, and the collection never raises an error. Unknown facts are None or left out, since every run
must get its record. Importing this module is cheap: NVML and psutil are loaded only where they are needed, and torch is never
loaded.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.errors import LaunchError
from orchestrator.files import reading
from orchestrator.files.redaction import redact
from orchestrator.machine import process_identity
from orchestrator.machine.gpus import driver_versions, gpu_state, visible_gpus
from orchestrator.records import Gpu

__all__ = ["Machine", "collect", "installed", "pip_freeze", "python_version", "this_machine", "visible_gpus"]

_INTERPRETER_S, _FREEZE_S, _GIT_S = 60.0, 180.0, 10.0
_FOLDER_NAME = re.compile(r"(?P<name>.+?)(-(?P<version>[^-]+)(-py[\d.]+.*)?)?\.(dist-info|egg-info|egg)")
_VERSION = re.compile(r"^Version: (?P<version>\S+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine for which a plan is made. Its GPUs and cores show which experiments cannot run there.

    `assumed`: the machine is not this one, so its packages and files are unknown. `site` is the file that describes a node of a
    cluster. Then the machine is this node, which has the packages and files of this machine.
    """

    gpus: tuple[Gpu, ...] = ()
    cpu_count: int = 1
    assumed: bool = False
    site: str | None = None
    gpus_known: bool = True

    def packages(self, python: str | None, env: Mapping[str, str | None] | None = None) -> Mapping[str, str]:
        """Return a dict from normalised package name to version, as a run with these variables sees the packages.

        It is empty if the interpreter `python` does not start.
        """
        return _interpreter(python, python_path(env or {}))[1]


def this_machine() -> Machine:
    """Return the GPUs and cores of this machine that this process may use."""
    return Machine(gpus=visible_gpus(), cpu_count=_cpu_count())


def python_version(python: str | None) -> str | None:
    """Return the version of an interpreter. Return None if it does not start, or is another program than Python."""
    return _interpreter(python, python_path({}))[0]


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _capture(argv: Sequence[str], timeout_s: float, env: Mapping[str, str | None] | None = None) -> str:
    from orchestrator.machine import process

    return process.capture(argv, timeout_s, env)


def python_path(env: Mapping[str, str | None]) -> str | None:
    """Return PYTHONPATH as a run with these variables sees it: a run works in its own folder, without relative folders."""
    given = env.get("PYTHONPATH", os.environ.get("PYTHONPATH")) or ""
    return os.pathsep.join(filter(os.path.isabs, given.split(os.pathsep))) or None


def asked(python: str | None, value: str, before: str, *, timeout_s: float = _INTERPRETER_S) -> Any:
    """Return the value of an expression in an interpreter that sees the folders of a run (see `process.question`).

    Raise LaunchError if the interpreter does not start, or fails. Raise ValueError if it gives no answer.
    """
    return _answer(python, python_path({}), value, before, timeout_s)


def _answer(python: str | None, path: str | None, value: str, before: str, timeout_s: float) -> Any:
    from orchestrator.machine import process

    argv = [os.path.expanduser(python or sys.executable), "-c", process.question(value, before)]
    return process.answer(process.capture(argv, timeout_s, {"PYTHONPATH": path}))


def _interpreter(python: str | None, path: str | None) -> tuple[str | None, Mapping[str, str]]:
    """Return two values: an interpreter's version, and a dict of the packages that it finds with this PYTHONPATH.

    An interpreter that does not exist may be built later by this process, so its absence is not cached.
    """
    if python is not None and os.sep in python and not os.path.exists(os.path.expanduser(python)):
        return None, {}
    return _asked(python, path)


@cache
def _asked(python: str | None, path: str | None) -> tuple[str | None, Mapping[str, str]]:
    """Ask an interpreter for its version and its packages.

    The answer is cached, because a plan needs it for every cell. The versions are read from the names of the packages' folders.
    Reading the metadata takes ten times as long.
    """
    # Paths are compared, not files: the interpreters of two virtual environments link to the same file.
    is_own = python is None or os.path.abspath(os.path.expanduser(python)) == os.path.abspath(sys.executable)
    if is_own and (os.environ.get("PYTHONPATH") or None) == path:
        return platform.python_version(), installed(sys.path)
    # Another program than Python may answer anything.
    with suppress(LaunchError, ValueError):
        match _answer(python, path, "[platform.python_version(), sys.path]", "import platform", _INTERPRETER_S):
            case [str(version), [*folders]] if all(isinstance(folder, str) for folder in folders):
                return version, installed(folders)
    return None, {}


def installed(path: Sequence[str]) -> dict[str, str]:
    """Return a dict from normalised package name to version, read from the names of the folders in these folders.

    A process that imported setuptools also searches `_vendor`, its folder of copies. These copies are not installed packages.
    Nor is a package in the current folder if this folder is searched only as the current one: a run works in another folder.
    """
    versions: dict[str, str] = {}
    for folder in path:
        # `python -c` searches the current folder first, as "".
        if not folder or os.path.basename(folder) == "_vendor":
            continue
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            match = _FOLDER_NAME.fullmatch(name)
            if match is None:
                continue
            if version := match["version"] or _version_in(os.path.join(folder, name)):
                versions.setdefault(re.sub(r"[-_.]+", "-", match["name"]).lower(), version)
    return versions


def _version_in(egg_info: str) -> str | None:
    """Return the version in the metadata of a package that was installed from its sources by `setup.py develop`."""
    with suppress(OSError, ValueError):
        found = _VERSION.search(reading.read_head(Path(egg_info, "PKG-INFO"), limit=reading.CLAIM_BYTES))
        return found["version"] if found else None
    return None


def pip_freeze(python: str | None) -> str:
    """Return the packages of an interpreter in the form of `requirements.txt`.

    The list comes from pip, because pip knows editable installs. Without pip, the list has only names and versions.
    """
    # Without `-P`, Python would import modules of the working folder first. Before version 3.11 it has no such option.
    interpreter = [os.path.expanduser(python)] if python else [sys.executable, "-P"]
    env = {"PYTHONPATH": python_path({})}
    try:
        text = _capture([*interpreter, "-m", "pip", "--disable-pip-version-check", "freeze"], _FREEZE_S, env)
    except LaunchError:
        text = "".join(f"{name}=={version}\n" for name, version in sorted(Machine().packages(python).items()))
    return redact(text)


def collect(python: str | None, gpus: Sequence[Gpu], env: Mapping[str, str | None]) -> dict[str, Any]:
    """Return facts about this host, the interpreter that trains, and the run's GPUs, as JSON values.

    `env` has the run's own variables, since PYTHONPATH may be one of them.
    """
    version, packages = _interpreter(python, python_path(env))
    return {
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "git": _git(),
        "host": {
            "name": process_identity.host_name(),
            "system": platform.platform(),
            "cpu": cpu_name(),
            "cpu_count": _cpu_count(),
            "memory_bytes": _memory_bytes(),
        },
        "python": {"executable": python or sys.executable, "version": version},
        "packages": dict(sorted(packages.items())),
        "gpus": [gpu_state(gpu) for gpu in gpus],
        "driver": driver_versions() if gpus else {"driver": None, "cuda": None},
    }


@cache
def _git() -> dict[str, Any]:
    """Return the commit of the current folder, and whether its tracked files have changes."""
    try:
        commit = _capture(["git", "rev-parse", "HEAD"], _GIT_S).strip()
        changed = _capture(["git", "--no-optional-locks", "status", "--porcelain", "-uno"], _GIT_S)
    except LaunchError:
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": bool(changed.strip())}


def cpu_name() -> str | None:
    """Return the name of this machine's CPU, or None if it is unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next(names, platform.machine() or None)


def _memory_bytes() -> int | None:
    """Return the memory of the host, or the container's limit if this limit is lower. Return None if both are unknown."""
    import psutil

    limits: list[int] = []
    # In some containers another program makes /proc/meminfo. It is empty or unreadable if that program has ended.
    with suppress(OSError, ValueError, LookupError, psutil.Error):
        limits.append(psutil.virtual_memory().total)
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return min(limits, default=None)

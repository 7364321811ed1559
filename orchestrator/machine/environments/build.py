"""Builds a software environment: lock, virtual environment, packages, check, and `environment.json` as the commit point.

One process builds, others wait for it. What a killed or failed build left is removed before the next build begins. The log stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import BuildError, LaunchError
from orchestrator.files import reading, writing
from orchestrator.files.printable_text import counted, one_line
from orchestrator.files.redaction import Secret, by_value, kind_of_secret, named_secrets, redact, redact_file
from orchestrator.machine import process, provenance
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.environments import contents, installers, locks, sources, steps
from orchestrator.machine.environments.containers import pull
from orchestrator.machine.environments.places import Built, Place, discard, place_of
from orchestrator.machine.environments.request_digest import entries, starts
from orchestrator.records import dump
from orchestrator.records.environment import EnvironmentRequest

OnEvent = Callable[[str], None]
_SHORT_S = 60.0
# Variables that would lead uv, pip or the new interpreter to other packages, or to other places, than the request names.
_UNSET = (
    *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_SYSTEM_PYTHON", "UV_PROJECT", "UV_WORKING_DIR"),
)


def build(request: EnvironmentRequest, on_event: OnEvent) -> None:
    """Lock and build the environment, unless it is built. `on_event` gets sentences about what happens.

    Raise BuildError if this fails, and KeyboardInterrupt if a signal asked this process to stop.
    """
    if request.existing is not None:
        if not starts(Path(os.path.expanduser(request.existing))):
            raise BuildError(f"environment {request.name!r}: the interpreter {request.existing} does not start")
        return
    place = place_of(request)
    if place.built() is None:
        _refuse_secrets(request)
        with locks.building(place, on_event) as marker:
            if marker is not None and request.container is not None:
                pull.build(request, request.container, place, marker, on_event)
            elif marker is not None:
                _Build(request, place, marker, on_event).carry_out()
    place.add_name(request.name)
    locks.touch(place)


def _refuse_secrets(request: EnvironmentRequest) -> None:
    for entry in entries((*request.requirements, *request.constraints, *request.overrides, request.lock or "")):
        if kind := kind_of_secret(sources.without_variables(entry)):
            shown = one_line(redact(entry), longest=100)
            raise BuildError(
                f"environment {request.name!r}: {shown} contains {kind}; "
                "write ${NAME} in its place, in capitals, or let a credential helper or ~/.netrc answer"
            )


class _Build:
    """One build, by the process that holds the lock."""

    def __init__(self, request: EnvironmentRequest, place: Place, marker: str, on_event: OnEvent) -> None:
        self.request, self.place, self.on_event = request, place, on_event
        pip = sources.pip_settings()
        self.tool = installers.find(sources.uv_options(request, pip))
        of_pip = isinstance(self.tool, installers.Pip)
        if of_pip and request.overrides:
            raise BuildError(f"environment {request.name!r}: overrides: needs uv, and there is none; install uv")
        where = sources.for_pip(request, pip, place.constraints) if of_pip else sources.for_uv(request, pip)
        quiet = {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "PIP_NO_COLOR": "1"}
        fixed = {"UV_PYTHON_DOWNLOADS": "never", MARKER: marker}
        self.variables = sources.named_variables(request)
        parts = sources.secret_parts(request, pip)
        self.secrets = named_secrets(
            [*self.variables.values(), *parts], "token"
        )  # not the value of ${CUDA}, such as cu128
        self.env: dict[str, str | None] = {**dict.fromkeys(_UNSET), **quiet, **fixed, **where}

    def carry_out(self) -> None:
        name, began = self.request.name, time.monotonic()
        slow = "; without uv, this takes minutes" if isinstance(self.tool, installers.Pip) else ""
        self.on_event(f"building environment {name!r} with {self.tool.name}{slow} (log: {self.place.log})")
        try:
            discard(self.place)
            self._write_inputs()
            self.env |= self._cache()
            for step in self.tool.steps(self.request, self.place):
                self._run(step)
            packages = contents.installed(self.place)
            for step in installers.import_check(packages, self.place):
                self._run(step)
            self._freeze()
            self._commit(packages, seconds=time.monotonic() - began)
        except BaseException:
            with suppress(BuildError):
                discard(self.place)
            raise
        finally:
            redact_file(self.place.log, limit=reading.LOG_BYTES, also=self._secrets_in)
        self.on_event(
            f"built environment {name!r} in {time.monotonic() - began:.0f} s: {counted(len(packages), 'package')}"
        )

    def _write_inputs(self) -> None:
        self.place.folder.mkdir(parents=True)
        self.place.begin_log(self.request)
        writing.replace(self.place.requirements, "".join(f"{line}\n" for line in self.request.requirements))
        writing.replace(self.place.constraints, "".join(f"{line}\n" for line in self.request.constraints))
        writing.replace(self.place.overrides, "".join(f"{line}\n" for line in self.request.overrides))
        if self.request.lock is not None:
            writing.replace(self.place.locked, self.request.lock)

    def _cache(self) -> dict[str, str | None]:
        """Return the variable for uv's cache. uv links files of its cache, which works only inside a file system."""
        if not isinstance(self.tool, installers.Uv) or "UV_CACHE_DIR" in os.environ:
            return {}
        cache = Path(self._capture((*self.tool.argv, "cache", "dir")).strip())
        parent = next(path for path in (cache, *cache.parents) if path.exists())
        if parent.stat().st_dev == self.place.folder.stat().st_dev:
            return {}
        return {"UV_CACHE_DIR": str(self.place.folder.parent / "uv-cache")}

    def _capture(self, argv: tuple[str, ...]) -> str:
        try:
            return process.capture(argv, _SHORT_S, self.env)
        except LaunchError as error:
            raise BuildError(f"environment {self.request.name!r}: {error}; install uv, or repair it") from error

    def _run(self, step: installers.Step) -> None:
        steps.run(step, self.request, self.place, self.env, secrets=self._secrets_in)

    def _secrets_in(self, text: str) -> Iterator[Secret]:
        return by_value(text, self.secrets)

    def _freeze(self) -> None:
        """Write the lock after the build, if the tool could not make one before. Then mask what the tool noted of addresses."""
        if isinstance(self.tool, installers.Pip) and self.request.lock is None:
            lock = self._capture(self.tool.freeze(self.place))
            for name, value in self.variables.items():
                lock = lock.replace(value, f"${{{name}}}") if value in self.secrets.values() else lock
            writing.replace(self.place.locked, redact(lock, also=self._secrets_in))
        for file in contents.direct_urls(self.place):
            redact_file(file, limit=reading.CLAIM_BYTES, also=self._secrets_in)

    def _commit(self, packages: dict[str, str], *, seconds: float) -> None:
        """Write `environment.json`, which makes the build a finished one."""
        try:
            lock = reading.read_text(self.place.locked, limit=reading.LOG_BYTES)
        except (OSError, reading.Unreadable) as error:
            raise BuildError(
                f"environment {self.request.name!r}: the lock that {self.tool.name} wrote cannot be read: {reading.reason(error)}"
            ) from error
        version = self._capture(self.tool.version(self.place)).split()
        origins = contents.origins(self.place, self.request.folders)
        built = Built(
            request=self.request,
            lock=contents.digest_of(packages, contents.hashes_in(lock), origins),
            packages=dict(sorted(packages.items())),
            python=provenance.python_version(str(self.place.interpreter)) or "",
            tool=self.tool.name,
            tool_version=next(iter(version[1:] or version), ""),
            seconds=round(seconds, 2),
            bytes=contents.size(self.place.folder)[0],
            built_at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        )
        writing.replace(self.place.record, redact(dump(built), also=self._secrets_in))

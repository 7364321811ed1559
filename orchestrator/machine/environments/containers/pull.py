"""Gets the image of a container, and notes what it is: its digest, its size and its packages.

podman keeps images in its own store. An image of apptainer or pyxis is a file: the user's, or one next to `environment.json`.
Only here an image is fetched. A run uses the image that was noted, whatever its tag names by then.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import BuildError, LaunchError
from orchestrator.files import reading, writing
from orchestrator.files.printable_text import counted
from orchestrator.files.redaction import redact, redact_file
from orchestrator.machine import process
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.environments import containers, steps
from orchestrator.machine.environments.containers.command import APPTAINER, PODMAN, PYXIS, Settings, wrapped
from orchestrator.machine.environments.installers import Step
from orchestrator.machine.environments.places import Built, Image, Place, discard
from orchestrator.machine.environments.request_digest import short_digest
from orchestrator.records import Command, Container, dump
from orchestrator.records.environment import EnvironmentRequest

_SHORT_S, _START_S = 60.0, 600.0
# The interpreter unless the user names another, and the words of podman and apptainer if the image does not have it.
_PYTHON, _MISSING = "python", re.compile("not found|no such file", re.IGNORECASE)
_PACKAGES = (
    "[platform.python_version(), {d.metadata['Name']: d.version for d in distributions() if d.metadata['Name']}]"
)
_DISTRIBUTIONS = (
    "import platform\n"
    "try:\n from importlib.metadata import distributions\n"
    "except ImportError:\n def distributions(): return ()"
)


def build(
    request: EnvironmentRequest, container: Container, place: Place, marker: str, on_event: Callable[[str], None]
) -> None:
    """Get the image unless it is there, start a container once, and write `environment.json`. Raise BuildError if this fails."""
    began = time.monotonic()
    on_event(f"getting container {request.name!r} with {container.program}: {container.image} (log: {place.log})")
    try:
        discard(place)
        place.home.mkdir(parents=True)
        place.begin_log(request)
        image = _image(request, container, place, marker)
        python, packages = _content(request, container, place, image)
        writing.replace(place.locked, f"{image.pinned}\n")
        built = Built(
            request=request,
            lock=lock_of(container, image),
            packages=dict(sorted(packages.items())),
            python=python,
            tool=container.program,
            tool_version=_version(container),
            seconds=round(time.monotonic() - began, 2),
            bytes=image.bytes,
            built_at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            image=image,
        )
        writing.replace(place.record, redact(dump(built)))
    except BaseException:
        with suppress(BuildError):
            discard(place)
        raise
    finally:
        redact_file(place.log, limit=reading.LOG_BYTES)
    on_event(f"container {request.name!r} is {image.digest[:19]}: {counted(len(packages), 'package')}")


# The words of several versions of podman.
_UNKNOWN_IMAGE = re.compile(r"not known|no such image|not found|unable to find", re.IGNORECASE)


def lock_of(container: Container, image: Image) -> str:
    """Return the digest of what runs in a container: the image, and which of its interpreters."""
    return short_digest(json.dumps([image.digest, container.interpreter]))


def is_in_store(container: Container, digest: str) -> bool:
    """Return whether the image is still where it was. Only podman must be asked."""
    return container.program != PODMAN or _inspected(digest) is not None


def _image(request: EnvironmentRequest, container: Container, place: Place, marker: str) -> Image:
    file, reference = containers.word_for(container, place, None), container.image
    if container.program == PODMAN:
        if _inspected(reference) is None:
            step = Step(what="pulling the image", argv=("podman", "pull", "--quiet", reference))
            steps.run(step, request, place, {MARKER: marker})
        return _in_store(reference)
    argv = {
        APPTAINER: ("apptainer", "pull", "--force", file, reference if "://" in reference else f"docker://{reference}"),
        PYXIS: ("enroot", "import", "--output", file, _for_enroot(reference)),
    }[container.program]
    if not os.path.isabs(reference):
        steps.run(Step(what="pulling the image", argv=argv), request, place, {MARKER: marker})
    try:
        status = os.stat(file)
        digest = _digest(Path(file))
    except (OSError, reading.Unreadable) as error:
        raise BuildError(f"environment {request.name!r}: {file}: {reading.reason(error)}; correct the path") from None
    return Image(
        digest=f"sha256:{digest}", pinned=file, bytes=status.st_size, path=file, modified_ns=status.st_mtime_ns
    )


def _inspected(image: str) -> Mapping[str, object] | None:
    """Return podman's description of an image, or None if the image is not in its store. Raise LaunchError if podman fails."""
    try:
        match json.loads(process.capture(("podman", "image", "inspect", image), _SHORT_S)):
            case [dict() as described]:
                return described
    except LaunchError as error:
        if not _UNKNOWN_IMAGE.search(str(error)):
            raise
    except ValueError:
        pass
    return None


def _in_store(reference: str) -> Image:
    match _inspected(reference):
        case {"Id": str(digest), "Size": int(size), **rest}:
            named = rest.get("RepoDigests")
            own = [word for word in named if isinstance(word, str)] if isinstance(named, list) else []
            full = digest if digest.startswith("sha256:") else f"sha256:{digest}"
            return Image(digest=full, pinned=own[0] if own else full, bytes=size)
    raise BuildError(f"{reference}: podman does not describe this image; run `podman image inspect {reference}`")


def _for_enroot(reference: str) -> str:
    """Return an image's reference as enroot reads it: a `#` ends the registry's host."""
    scheme, _, rest = reference.rpartition("://")
    host, slash, path = rest.partition("/")
    has_host = slash and ("." in host or ":" in host or host == "localhost")
    return f"{scheme or 'docker'}://{f'{host}#{path}' if has_host and '#' not in rest else rest}"


def _digest(file: Path) -> str:
    with reading.opened(file.resolve()) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _content(
    request: EnvironmentRequest, container: Container, place: Place, image: Image
) -> tuple[str, dict[str, str]]:
    """Return the version of the image's interpreter and its packages. An image without Python has neither.

    pyxis needs an allocation of Slurm, so the content of its images is unknown. Raise BuildError if no container starts.
    """
    if container.program == PYXIS:
        return "", {}
    settings = containers.settings_of(container, place, [], image=image.digest)
    step = Step(what="starting its interpreter", argv=())
    try:
        argv = (container.interpreter, "-c", process.question(_PACKAGES, _DISTRIBUTIONS))
        match process.answer(_asked(container, settings, place, argv)):
            case [str(version), dict() as packages]:
                return version, {str(name).lower().replace("_", "-"): str(of) for name, of in packages.items()}
    except LaunchError as error:
        if container.interpreter != _PYTHON or not _MISSING.search(str(error)):
            raise steps.failed(step, request, place, str(error)) from error
        return "", {}
    except ValueError:
        pass
    raise steps.failed(step, request, place, f"{container.interpreter} in the image is another program than Python")


def _asked(container: Container, settings: Settings, place: Place, argv: tuple[str, ...]) -> str:
    command = wrapped(Command(argv=argv, env={}, cwd=place.home), container.program, settings)
    return process.capture(command.argv, _START_S, command.env)


def _version(container: Container) -> str:
    program = "enroot" if container.program == PYXIS else container.program
    words = ("version",) if container.program == PYXIS else ("--version",)
    try:
        text = process.capture((program, *words), _SHORT_S).split()
    except LaunchError:
        return ""
    return text[-1] if text else ""

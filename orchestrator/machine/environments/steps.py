"""One step of a build: a program that must succeed. Its output goes into the log of the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import BuildError, LaunchError
from orchestrator.files import reading
from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import Finder, redact
from orchestrator.machine import process
from orchestrator.machine.environments.installers import Step
from orchestrator.machine.environments.places import Place
from orchestrator.records import Command
from orchestrator.records.environment import EnvironmentRequest

_LONGEST_CAUSE = 400
_ERROR = re.compile(r"^\s*(error:|ERROR:|Error:|FATAL:|×|\w*(Error|Exception):)")


def run(
    step: Step,
    request: EnvironmentRequest,
    place: Place,
    env: Mapping[str, str | None],
    *,
    secrets: Finder | None = None,
) -> None:
    """Run a step of a build. Raise BuildError if it fails, and KeyboardInterrupt if a signal asked this process to stop.

    `secrets` finds the secrets of the request in the text of an error.
    """
    log = place.log
    before = log.stat().st_size
    try:
        command = Command(argv=step.argv, env=env, cwd=place.folder)
        outcome = process.run(command, stdout=log, stderr=log, timeout_s=None)
    except LaunchError as error:
        raise failed(step, request, place, str(error), secrets) from error
    if outcome.cancelled:
        raise KeyboardInterrupt
    if outcome.signal is not None:
        raise failed(step, request, place, f"it was ended by signal {outcome.signal}", secrets)
    if outcome.exit_code != 0:
        raise failed(step, request, place, _last_words(log, log.stat().st_size - before), secrets)


def failed(
    step: Step, request: EnvironmentRequest, place: Place, cause: str, secrets: Finder | None = None
) -> BuildError:
    """Return the error of a step that failed."""
    wrong = "container" if request.container else "environment or its indexes"
    cause = one_line(redact(cause, also=secrets), longest=_LONGEST_CAUSE)
    cure = f"correct the {wrong}, and repeat the command"
    return BuildError(f"environment {request.name!r}: {step.what} failed: {cause}; {cure} (log: {place.log})")


def _last_words(log: Path, size: int) -> str:
    """Return the error at the end of a step's output: from its first line on, or the last line if no line is an error."""
    lines = reading.read_tail(log, limit=max(0, size)).splitlines()
    first = next((at for at, line in enumerate(lines) if _ERROR.match(line)), max(0, len(lines) - 1))
    text = " ".join(line.strip(" ×│╰─▶├╭") for line in lines[first:])
    return text.removeprefix("error: ").replace(" cause: ", ": ").rstrip(".") or "it ended without any output"

"""Builds the software environments that a campaign needs, before anything of it is written.

The lock of a built environment is part of the ids of its experiments. So the plan is made again after the builds.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import BuildError
from orchestrator.files import reading
from orchestrator.files.printable_text import counted
from orchestrator.files.redaction import redact
from orchestrator.machine import environments
from orchestrator.machine.environments import locks
from orchestrator.machine.environments.containers import packages
from orchestrator.machine.environments.places import place_of, place_with
from orchestrator.machine.provenance import pip_freeze
from orchestrator.plan.config import Suite
from orchestrator.plan.expand import Plan, has_id
from orchestrator.records import EnvironmentRequest

_TRIES = 3
Hold = Callable[[AbstractContextManager[object]], object]


def with_environments(
    plan: Plan, suite: Suite, *, again: Callable[[], Plan], say: Callable[[str], None], hold: Hold
) -> tuple[Plan, int]:
    """Build what is missing. Return two values: the plan with the ids of all its experiments, and how many builds failed.

    `again` makes the plan again. `say` gets a sentence for each build, and for each failure. `hold` enters a context that keeps an
    environment from being removed, until the campaign ends. Experiments whose environment could not be built are left out of the
    plan, because they have no ids. Raise BuildError if none of the rest can run, or if a built environment is gone again.
    """
    wanted = [one for one in plan.experiments if one.environment and not (one.skip or one.cannot_run_here)]
    names = dict.fromkeys(one.environment.name for one in wanted if one.environment)
    failed: dict[str, BuildError] = {}
    is_new = not all(map(has_id, wanted))
    for name in names:
        try:
            is_new |= _build_and_hold(suite.environments.requests[name], say, hold)
        except BuildError as error:
            failed[name] = error
            say(f"note: {error}")
    planned = again() if is_new else plan
    _refuse_lost(planned, failed)
    kept = tuple(one for one in planned.experiments if has_id(one))
    if failed and not any(one.skip is None and one.cannot_run_here is None for one in kept):
        raise BuildError("no experiment is left: none of the environments could be built")
    return replace(planned, experiments=kept), len(failed)


def _refuse_lost(plan: Plan, failed: Container[str]) -> None:
    """Raise BuildError if an environment was built and is gone: its experiments would be left out without a word."""
    to_run = (one for one in plan.experiments if not (has_id(one) or one.skip or one.cannot_run_here))
    names = dict.fromkeys(one.environment.name for one in to_run if one.environment)
    if lost := [name for name in names if name not in failed]:
        verb = "it was" if len(lost) == 1 else "they were"
        raise BuildError(
            f"{counted(len(lost), 'environment')}, {', '.join(lost)}: {verb} removed after the build; repeat the command"
        )


def _build_and_hold(request: EnvironmentRequest, say: Callable[[str], None], hold: Hold) -> bool:
    """Build the environment unless it is built, and keep it. Return whether it is another one than before.

    If it is removed between the two, build it again.
    """
    if request.existing is not None:
        environments.build(request, say)
        return False
    place = place_of(request)
    before = place.built()
    for left in reversed(range(_TRIES)):
        environments.build(request, say)
        try:
            hold(locks.using_place(place))
            break
        except BuildError:
            if not left:
                raise
    return place.built() != before


def requirements(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield a file name and the packages of each software environment, in the form of pip's files, with hashes where known."""
    used = {
        (one.environment, one.python) for one in plan.experiments if one.environment and one.cannot_run_here is None
    }
    for environment, python in sorted(used, key=str):
        if environment.container is not None:
            found = packages(environment)
            lines = [f"# {environment.container.image} {environment.image}", *map("==".join, sorted(found.items()))]
            yield f"{environment.name}-{environment.lock}.requirements.txt", redact("\n".join(lines) + "\n")
            continue
        place = place_with(Path(python or ""))
        locked = reading.read_text(place.locked, limit=reading.LOG_BYTES) if place else pip_freeze(python)
        yield f"{environment.name}-{environment.lock}.requirements.txt", redact(locked)

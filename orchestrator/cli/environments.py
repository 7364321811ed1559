"""The commands of `tunebench env`: build, lock, show and remove the software environments that scenario files ask for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import options
from orchestrator.cli.help import Actions, Command, examples
from orchestrator.cli.schema_init_list import print_rows
from orchestrator.cli.terminal.console import print_raw, say, tell
from orchestrator.errors import BuildError, OrchestratorError, SelectionError, suggestion
from orchestrator.files.redaction import masker
from orchestrator.records.environment import EnvironmentRequest

if TYPE_CHECKING:
    from orchestrator.machine.environments.inventory import Entry
    from orchestrator.machine.environments.places import Image, Place

# The packages whose versions `list` shows.
_SHOWN = ("torch", "transformers", "accelerate", "peft")
_UNITS_S = {"d": 86_400.0, "h": 3_600.0}
Scenarios = Annotated[Path, typer.Argument(help="Scenario file.")]
env = typer.Typer(cls=Actions, no_args_is_help=True, epilog=examples("env"), rich_markup_mode=None)


@env.callback()
def _env() -> None:
    """Build, lock, list and remove the software environments that scenario files ask for."""


@env.command(cls=Command)
def build(
    scenarios: Scenarios,
    names: Annotated[list[str] | None, typer.Argument(help="Environments to build. [default: all]")] = None,
) -> None:
    """Build the environments of a scenario file, unless they are built already."""
    from orchestrator.machine import environments

    failed = []
    for name, request in _requests(scenarios, names).items():
        try:
            environments.build(request, tell)
            say(f"{name}: {environments.image(request) or environments.interpreter(request)}")
        except BuildError as error:
            failed.append(str(error))
    if failed:
        raise BuildError("\n".join(failed))


@env.command("list", cls=Command)
def list_environments(as_json: options.AsJson = False) -> None:
    """List the environments on this machine: digest, state, size, last use, and the versions of some packages."""
    from orchestrator.machine.environments import environments_folder, inventory

    found = inventory.entries()
    if as_json:
        import json

        print_raw([json.dumps(masker()([_as_json(entry) for entry in found]), indent=2) + "\n"])
    elif found:
        print_rows([_as_row(entry) for entry in found])
    else:
        tell(f"there are no environments in {environments_folder()}")


@env.command(cls=Command)
def show(
    subject: Annotated[
        str, typer.Argument(metavar="SCENARIOS|DIGEST", help="Scenario file, or an environment's digest.")
    ],
    name: Annotated[str | None, typer.Argument(help="Environment in the scenario file.")] = None,
) -> None:
    """Show an environment: its packages, its interpreter, its size, and what was asked for."""
    from orchestrator.machine.environments import inventory
    from orchestrator.machine.environments.places import place_of

    if name is None:
        entries = [inventory.entry(place) for place in inventory.find(subject)]
    else:
        (request,) = _requests(Path(subject), [name]).values()
        if request.existing is not None:
            return _print_facts(_existing(request))
        entries = [inventory.entry(place_of(request))]
    for entry in entries:
        _print_facts(_facts(entry))


@env.command(cls=Command)
def lock(
    scenarios: Scenarios,
    name: Annotated[str, typer.Argument(help="Environment in the scenario file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; it must not exist. [default: stdout]")
    ] = None,
) -> None:
    """Print the exact packages of an environment, with hashes, as a file for its key `lock:`. Build it first if needed."""
    from orchestrator.files import reading, writing
    from orchestrator.machine import environments
    from orchestrator.machine.environments.places import place_of

    (request,) = _requests(scenarios, [name]).values()
    if request.existing is not None:
        raise SelectionError(f"environment {name!r} is an interpreter that Tunebench did not build; it has no lock")
    environments.build(request, tell)
    text = reading.read_text(place_of(request).locked, limit=reading.LOG_BYTES)
    if output is None:
        print_raw([text])
    elif writing.place_new(output, text):
        use = f"`lock: {output}` in the environment {name!r}, in place of its requirements"
        use = f"its text as `image:` of the container {name!r}" if request.container else use
        say(f"Wrote {output}. To use it, write {use}.")
    else:
        raise OrchestratorError(f"{output}: the file exists; name a new file with --output, or remove this one")


@env.command(cls=Command)
def rm(
    words: Annotated[list[str], typer.Argument(metavar="DIGEST|NAME...", help="Environments: digests or names.")],
) -> None:
    """Remove environments. What a process builds or uses stays."""
    from orchestrator.machine.environments import inventory

    places = {place.digest: place for word in words for place in _only(word)}
    kept = []
    for place in places.values():
        names, built = ", ".join(place.names()), place.built()
        try:
            freed = inventory.remove(place)
        except BuildError as error:
            kept.append(str(error))
            continue
        if freed is None:
            kept.append(f"{place.digest}: a process builds or uses it; repeat the command when it has ended")
        else:
            say(f"removed {place.digest}{f' ({names})' if names else ''}: {_size(freed)} freed")
            if built and built.image and (left := _left_image(place, built.image)):
                tell(f"note: {left}")
    if kept:
        raise BuildError("\n".join(kept))


def _only(word: str) -> list[Place]:
    """Return the environment that a word names. Raise SelectionError if it names several."""
    from orchestrator.machine.environments import inventory

    found = inventory.find(word)
    if len(found) > 1:
        listed = ", ".join(f"{place.digest} ({place.asked()[1]})" for place in found)
        raise SelectionError(
            f"{word!r} names several environments: {listed}; write the digest of each that you want to remove"
        )
    return found


@env.command(cls=Command)
def gc(
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="TIME", help="Remove what was not used for this time, such as 30d or 12h."
        ),
    ] = "30d",
) -> None:
    """Remove what killed builds left, and environments that were not used for a long time. What is in use stays."""
    from orchestrator.machine.environments import inventory

    total = 0
    for collected in inventory.collect(_seconds(older_than)):
        total += collected.freed_bytes
        say(f"removed {collected.place.digest} ({collected.why}): {_size(collected.freed_bytes)} freed")
    say(f"{_size(total)} freed")


def _left_image(place: Place, image: Image) -> str | None:
    """Return a sentence about an image that stays, because others may use it, or None if it was removed."""
    if image.path is None:
        return (
            f"the image stays in podman's store; if no other program uses it, remove it with: podman rmi {image.digest}"
        )
    return None if Path(image.path).is_relative_to(place.folder) else f"the file {image.path} stays"


def _seconds(text: str) -> float:
    if match := re.fullmatch(r"(\d{1,6})([dh])", text, re.ASCII):
        return int(match[1]) * _UNITS_S[match[2]]
    raise SelectionError(f"--older-than {text!r} is invalid; write days or hours, such as 30d or 12h")


def _requests(scenarios: Path, names: Iterable[str] | None) -> Mapping[str, EnvironmentRequest]:
    """Return the environments of a scenario file with these names, or all of them."""
    from orchestrator.plan.config import load_suite

    known = load_suite(scenarios).environments.requests
    for name in names or ():
        if name not in known:
            raise SelectionError(f"{scenarios}: there is no environment {name!r}{suggestion(name, known)}")
    if not known:
        tell(f"{scenarios}: the file has no environments")
    return {name: known[name] for name in names or known}


def _size(number: int) -> str:
    from orchestrator.measure.metrics import Show, shown

    return shown.text(number, Show.BYTES)


def _versions(entry: Entry) -> list[str]:
    packages = entry.built.packages if entry.built else {}
    return [f"{name} {packages[name]}" for name in _SHOWN if name in packages]


def _as_row(entry: Entry) -> dict[str, Any]:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used)) if entry.last_used else ""
    return {
        "digest": entry.place.digest,
        "names": list(entry.names),
        "state": entry.state.value,
        "size": _size(entry.bytes),
        "freed if removed": _size(entry.freed_bytes),
        "last used": used,
        "packages": _versions(entry),
    }


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "digest": entry.place.digest,
        "names": list(entry.names),
        "state": entry.state.value,
        "bytes": entry.bytes,
        "freed_bytes": entry.freed_bytes,
        "last_used_at": entry.last_used,
        "lock": entry.built.lock if entry.built else None,
        **_source(entry),
        "packages": dict(entry.built.packages) if entry.built else {},
    }


def _source(entry: Entry) -> dict[str, Any]:
    """Return the interpreter of an environment, or the program, the name and the digest of its container's image."""
    built = entry.built
    if built is None or built.request.container is None:
        return {"interpreter": str(entry.place.interpreter)}
    container = built.request.container
    digest = built.image.digest if built.image else None
    return {"interpreter": container.interpreter, "container": {**asdict(container), "digest": digest}}


def _facts(entry: Entry) -> dict[str, str]:
    """Return what `show` prints of an environment in the cache."""
    place, row = entry.place, _as_row(entry)
    facts = {
        "names": ", ".join(entry.names),
        "digest": place.digest,
        "state": entry.state.value,
        "folder": str(place.folder) if place.folder.exists() else "",
        "log": str(place.log) if place.log.exists() else "",
        "last used": row["last used"],
    }
    if (built := entry.built) is None:
        return facts | {"asked for": place.asked()[1], "last line of log": place.last_line()}
    if (container := built.request.container) is not None and built.image is not None:
        python = f" (Python {built.python})" if built.python else ""
        return facts | {
            "image": f"{container.image} ({_size(built.image.bytes)})",
            "digest of image": built.image.digest,
            "pinned": built.image.pinned,
            "interpreter": f"{container.interpreter}{python}",
            "built": f"{built.built_at}, in {built.seconds:.0f} s, by {built.tool} {built.tool_version}",
            "lock": built.lock,
            "mounts": "\n".join(container.mounts),
            "packages": "\n".join(f"{name}=={version}" for name, version in built.packages.items()),
        }
    request = built.request
    limits = (f"constraint {line}" for line in request.constraints)
    asked = (*request.requirements, *limits, *(f"override {line}" for line in request.overrides))
    return facts | {
        "size": f"{_size(entry.bytes)}; its removal frees {_size(entry.freed_bytes)}",
        "interpreter": f"{place.interpreter} (Python {built.python})",
        "built": f"{built.built_at}, in {built.seconds:.0f} s, by {built.tool} {built.tool_version}",
        "lock": f"{built.lock} ({place.locked})",
        "asked for": "\n".join(asked) or "the packages of a lock",
        "packages": "\n".join(f"{name}=={version}" for name, version in built.packages.items()),
    }


def _existing(request: EnvironmentRequest) -> dict[str, str]:
    from orchestrator.machine import environments, provenance

    version = provenance.python_version(request.existing)
    if version is None:
        raise BuildError(f"environment {request.name!r}: the interpreter {request.existing} does not start")
    packages = provenance.Machine().packages(request.existing)
    return {
        "names": request.name,
        "interpreter": f"{environments.interpreter(request)} (Python {version})",
        "lock": environments.lock_digest(request) or "",
        "packages": "\n".join(f"{name}=={version}" for name, version in sorted(packages.items())),
    }


def _print_facts(facts: Mapping[str, str]) -> None:
    width = max(map(len, facts)) + 2
    for name, text in facts.items():
        if text:
            say(f"{name:<{width}}" + text.replace("\n", "\n" + " " * width))

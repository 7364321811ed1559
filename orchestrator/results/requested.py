"""The experiments that users currently request: the latest request of each call of `tunebench run` for a results folder.

A call is identified by its scenario file and its choices (`--num-gpus`, `--set`…). So `--num-gpus 2` after `--num-gpus 1` adds
experiments to the folder. The same call after a change of the file replaces its earlier request, also if it spells the file's path,
or a path in its choices, in another way. The folder keeps experiments that no call requests any more; reports leave them out. Each
call has its own file, so that two calls at once do not conflict.

    RESULTS/asked/<12 hex>.json   {"file", "choices", "scenarios": {name: [ids]}}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.files import reading, writing
from orchestrator.files.redaction import redact
from orchestrator.records import Experiment

FOLDER = "asked"


def note(
    root: Path,
    *,
    file: Path,
    choices: Mapping[str, Any],
    names: Sequence[str],
    experiments: Iterable[Experiment],
    not_chosen: Collection[str] = (),
) -> None:
    """Write the request of a call. Remove requests for scenarios that the scenario file no longer has.

    `names` are all scenarios of the file. Scenarios that `--scenario` left out keep their earlier request. `not_chosen` are the
    experiments that `--framework`, `--model` or `--cell` left out; they also keep their earlier request.
    """
    choice = redact(json.dumps(choices, sort_keys=True, default=str))
    place = str(file.absolute())
    wanted: dict[str, list[str]] = {}
    for experiment in experiments:
        wanted.setdefault(experiment.scenario, []).append(experiment.id)
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(f"{place}\n{choice}".encode()).hexdigest()
    own_path = folder / f"{digest[:12]}.json"
    kept: dict[str, list[str]] = {}
    replaced = []
    # This call's own earlier request decides, so it comes last.
    for path, entry in sorted(_entries(folder), key=lambda pair: pair[0] == own_path):
        if not _is_of(entry, place):
            continue
        scenarios = {name: ids for name, ids in entry["scenarios"].items() if name in names}
        if _is_same_choice(entry["choices"], choice, file.absolute().parent):
            kept |= scenarios
            replaced.append(path)
        elif scenarios != entry["scenarios"]:
            _write(path, {**entry, "scenarios": scenarios})
    for name, ids in kept.items():
        if name in wanted:
            wanted[name] += [id for id in ids if id in not_chosen]
    _write(own_path, {"file": place, "choices": choice, "scenarios": {**kept, **wanted}})
    for path in replaced:
        if path != own_path:
            path.unlink(missing_ok=True)


def _is_of(entry: Mapping[str, Any], place: str) -> bool:
    """Return whether a request is for this scenario file. The same path is the same file, also if a link in it was changed."""
    other = str(entry["file"])
    try:
        return other == place or os.path.realpath(other) == os.path.realpath(place)
    except ValueError:  # in a folder of someone else, the path may have a NUL character
        return False


def _is_same_choice(one: str, other: str, base: Path) -> bool:
    try:
        return one == other or _with_real_paths(json.loads(one), base) == _with_real_paths(json.loads(other), base)
    except (ValueError, RecursionError):  # in a folder of someone else, the choices may be any text
        return False


def _with_real_paths(value: Any, base: Path) -> Any:
    """Return a choice. A path of a file is written as its real path. As in a plan, it may be relative to the folder `base`."""
    if isinstance(value, dict):
        return {name: _with_real_paths(inner, base) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_real_paths(inner, base) for inner in value]
    if not isinstance(value, str) or os.sep not in value:  # a word is a name, also if there is a file of this name
        return value
    paths = (os.path.join(folder, os.path.expanduser(value)) for folder in (base, ""))
    return next((os.path.realpath(path) for path in paths if os.path.exists(path)), value)


def current(root: Path) -> frozenset[str] | None:
    """Return the ids that at least one call requests; None if the folder has no requests, as in older versions."""
    entries = list(_entries(root / FOLDER))
    if not entries:
        return None
    return frozenset(name for _, entry in entries for ids in entry["scenarios"].values() for name in ids)


def of(root: Path, experiment_id: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return the scenario file and the choices of a call that requests an experiment. Return None if the folder has none."""
    for _, entry in _entries(root / FOLDER):
        if any(experiment_id in ids for ids in entry["scenarios"].values()):
            try:
                choices = json.loads(entry["choices"])
            except (ValueError, RecursionError):  # as above
                continue
            if isinstance(choices, dict):
                return entry["file"], choices
    return None


def _write(path: Path, entry: Mapping[str, Any]) -> None:
    text = json.dumps(entry, indent=2) + "\n"
    try:
        known = reading.read_text(path, limit=reading.SUITE_BYTES)
    except (OSError, ValueError):
        known = None
    if known != text:
        writing.replace(path, text)


def _entries(folder: Path) -> Iterable[tuple[Path, dict[str, Any]]]:
    """Yield each file of a request with its content. Skip unreadable files: a call with the same choices replaces its file."""
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            entry = reading.read_json(path, limit=reading.SUITE_BYTES)
            scenarios = {str(name): list(map(str, ids)) for name, ids in entry["scenarios"].items()}
            yield path, {"file": str(entry["file"]), "choices": str(entry["choices"]), "scenarios": scenarios}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue

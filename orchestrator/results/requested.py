"""What is asked of a results folder now: the experiments that each call of `tunebench run` last wanted.

A call is known by its files and its choices (`--num-gpus`, `--set`…), so that `--num-gpus 2` behind `--num-gpus 1` adds to the
folder, while the same call on a file that was changed replaces what it wanted before. What nobody wants any more stays in the store
and leaves the report. Each call has a file of its own: two at once take nothing from each other.

    RESULTS/asked/<12 hex>.json   {"file", "choices", "scenarios": {name: [ids]}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.files import reading, writing
from orchestrator.files.redaction import redact
from orchestrator.records import Experiment

FOLDER = "asked"


def note(
    root: Path, *, file: Path, choices: Mapping[str, Any], names: Sequence[str], experiments: Iterable[Experiment]
) -> None:
    """Notes what a call wants. `names` are all scenarios of its file: what others wanted of a scenario that is gone is forgotten.

    Scenarios that the call left out by `--scenario` keep what they had.
    """
    choice = redact(json.dumps(choices, sort_keys=True, default=str))
    place = str(file.absolute())
    wanted: dict[str, list[str]] = {}
    for experiment in experiments:
        wanted.setdefault(experiment.scenario, []).append(experiment.id)
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    for path, known in _entries(folder):
        if known["file"] == place and not known["scenarios"].keys() <= {*names}:
            _write(
                path, {**known, "scenarios": {name: ids for name, ids in known["scenarios"].items() if name in names}}
            )
    digest = hashlib.sha256(f"{place}\n{choice}".encode()).hexdigest()
    path = folder / f"{digest[:12]}.json"
    before = dict(_entries(folder)).get(path, {"scenarios": {}})
    kept = {name: ids for name, ids in before["scenarios"].items() if name in names}
    _write(path, {"file": place, "choices": choice, "scenarios": {**kept, **wanted}})


def current(root: Path) -> frozenset[str] | None:
    """The ids that some call still wants; None where nothing was ever noted, as in folders that older versions made."""
    entries = list(_entries(root / FOLDER))
    if not entries:
        return None
    return frozenset(one for _, entry in entries for ids in entry["scenarios"].values() for one in ids)


def _write(path: Path, entry: Mapping[str, Any]) -> None:
    text = json.dumps(entry, indent=2) + "\n"
    try:
        known = reading.read_text(path, limit=reading.SUITE_BYTES)
    except (OSError, ValueError):
        known = None
    if known != text:
        writing.replace(path, text)


def _entries(folder: Path) -> Iterable[tuple[Path, dict[str, Any]]]:
    """The files that can be read; one that can't be wants nothing, and is written anew by its call."""
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            entry = reading.read_json(path, limit=reading.SUITE_BYTES)
            scenarios = {str(name): [str(one) for one in ids] for name, ids in entry["scenarios"].items()}
            yield path, {"file": str(entry["file"]), "choices": str(entry["choices"]), "scenarios": scenarios}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue

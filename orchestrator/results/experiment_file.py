"""The file `experiment.json`: its content, and whether two such files describe the same measurement.

`store` writes the file once for all runs of an experiment, and each run reads its arguments from the file. The file must be UTF-8.
It must not contain secrets: runs inherit secrets from the shell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator.errors import ResultsError
from orchestrator.files import reading
from orchestrator.files.redaction import is_secret_name, kind_of_secret, redact, secret_words
from orchestrator.records import Experiment, RunFolder, dump, load

# A scenario may ask for a million runs, and a slow first run is made once more.
_MOST_REPEATS = 1_000_001
_PLACEHOLDER = re.compile(r"\{\w+\}")
# Fields that are not part of an experiment's id: limits, tags, places and others.
_MAY_CHANGE = (
    *("repeats", "adaptive", "busy_gpus", "timeout_s", "startup_timeout_s", "stall_timeout_s", "keep", "tags"),
    *("baseline", "skip", "cannot_run_here", "data", "data_path", "monitors"),
)
# Fields of a script or a command that say where the user's files are.
_PLACES = ("folder", "files")


def read(path: Path) -> Experiment:
    """Return the experiment of the file. Raise OSError, or ValueError if the content is not an experiment."""
    experiment = load(Experiment, reading.read_bytes(path, limit=reading.RECORD_BYTES))
    if experiment.most_repeats > _MOST_REPEATS:  # a page or a status has an entry for each
        raise ValueError(f"repeats: {experiment.most_repeats:,}; at most {_MOST_REPEATS:,} are allowed")
    return experiment


@lru_cache(maxsize=1)
def of_run(run_dir: Path) -> Experiment:
    """Return the experiment of a run like `read`. It is remembered: the file may be gone when the run ends."""
    return read(RunFolder(run_dir).experiment)


def text_of(experiment: Experiment) -> str:
    """Return the content of the file. Raise ResultsError if it has a secret, or a text (such as a path) that is not UTF-8."""
    try:
        text = dump(experiment)
    except ValueError as error:
        raise ResultsError(
            f"scenario {experiment.scenario!r} cannot be written ({str(error).splitlines()[0]}); "
            "all its names and paths must be UTF-8"
        ) from error
    for unused in (
        '\n  "num_nodes": 1,',
        '\n  "target": null,',
        '\n  "environment": null,',
        '\n    "environment": null,',
    ):
        text = text.replace(unused, "", 1)  # the file is the same as before these fields were added
    secret = _secret_in(experiment)
    if secret is not None:
        raise ResultsError(
            f"scenario {redact(experiment.scenario)!r} sets {secret}, which would be written into the results folder; "
            "remove it from the scenario and export it in the shell, so that runs inherit it"
        )
    return text


def _secret_in(experiment: Experiment) -> str | None:
    """Return the name of the variable, argument or option that has a secret, else the kind of a secret in a text, else None."""
    settings = [*experiment.env.items(), *experiment.arguments.items()]
    secrets = [name for name, value in settings if value and is_secret_name(name)]
    words = experiment.custom.command if experiment.custom else experiment.script.words if experiment.script else ()
    secrets += [name for place, begin, name in secret_words(words) if not _PLACEHOLDER.fullmatch(words[place][begin:])]
    if secrets:
        return secrets[0]
    # Tunebench computes the digests of `sources`. After the name of a file such as `credentials.py`, one looks like a secret.
    text = dump(replace(experiment, sources=dict.fromkeys(experiment.sources, "")))
    return kind_of_secret(text) or next(filter(None, map(_kind_by_look, _texts(json.loads(text)))), None)


@lru_cache(maxsize=4096)
def _kind_by_look(text: str) -> str | None:
    """Return the kind of a secret in one text. The values of variables were found in the whole file, so they are not needed."""
    return kind_of_secret(text, {})


def _texts(value: Any) -> Iterator[str]:
    """Yield each name and each text of a nested value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def measure_alike(old: Experiment, new: Experiment) -> bool:
    """Return whether two experiments with the same id are the same measurement. Limits, tags and paths of folders may differ."""
    return _measured(old) == _measured(new)


def _measured(experiment: Experiment) -> dict[str, Any]:
    """Return the fields of the experiment that its id depends on."""
    fields: dict[str, Any] = json.loads(dump(experiment))
    if experiment.environment is not None:  # its folder may move, and it may be asked for in other words
        fields["python"], fields["environment"]["request"] = None, ""
    fields["framework"] = experiment.framework.digest if experiment.framework else None
    for part in ("custom", "script"):
        fields[part] = {name: value for name, value in (fields[part] or {}).items() if name not in _PLACES}
    return {name: value for name, value in fields.items() if name not in _MAY_CHANGE}

"""`experiment.json`: what may stand in it, and when two of them are of the same measurement.

It is written once for all runs of an experiment, and what they are given is read from it: so it holds no secret, which the runs
inherit from the shell instead, and no byte that is no UTF-8. Where it lies, and who writes it, is `store`'s.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from orchestrator.errors import ResultsError
from orchestrator.files import reading
from orchestrator.files.redaction import holds_secret, in_words, is_secret_name, redact
from orchestrator.records import Experiment, dump, load

_PLACEHOLDER = re.compile(r"\{\w+\}")
_MAY_CHANGE = (
    *("repeats", "adaptive", "busy_gpus", "timeout_s", "startup_timeout_s", "stall_timeout_s", "keep", "tags"),
    *("skip", "cannot_run_here", "data", "data_path", "monitors"),
)
"""What an experiment's id is not made of: limits, tags, places."""


def read(path: Path) -> Experiment:
    """The experiment that the file holds. Raises OSError, or ValueError where it holds none."""
    return load(Experiment, reading.read_bytes(path, limit=reading.RECORD_BYTES))


def text_of(experiment: Experiment) -> str:
    """As the file holds it. Raises ResultsError for a secret, and for bytes that are no UTF-8: a link may lead to such a path."""
    try:
        text = dump(experiment)
    except ValueError as error:
        said = (
            f"cannot be written down ({str(error).splitlines()[0]}); is everything that it names, and each path, UTF-8?"
        )
        raise ResultsError(f"scenario {experiment.scenario!r} {said}") from error
    named = _secret_in(experiment, text)
    if named is not None:
        raise ResultsError(
            f"scenario {redact(experiment.scenario)!r} sets {named}, which would be written into the results folder; take "
            "it out and export it in the shell instead: the runs inherit it"
        )
    return text


def _secret_in(experiment: Experiment, text: str) -> str | None:
    """What holds a secret, by its name or in words."""
    named = [name for name, value in experiment.env.items() if value and is_secret_name(name)]
    named += [name for name, value in experiment.arguments.items() if value and is_secret_name(name)]
    words = experiment.custom.command if experiment.custom else ()
    named += [name for place, begin, name in in_words(words) if not _PLACEHOLDER.fullmatch(words[place][begin:])]
    return named[0] if named else holds_secret(text)


def measure_alike(one: Experiment, other: Experiment) -> bool:
    """Whether two experiments of one id are of the same measurement, whatever their limits, tags and places are."""
    return _measured(one) == _measured(other)


def _measured(experiment: Experiment) -> dict[str, Any]:
    """The experiment as its file holds it, less what may change under one id."""
    fields: dict[str, Any] = json.loads(dump(experiment))
    framework = {"framework": experiment.framework.digest if experiment.framework else None}
    return {name: value for name, value in fields.items() if name not in _MAY_CHANGE} | framework

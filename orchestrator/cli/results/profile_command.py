"""The command that profiles one experiment of a results folder: `tunebench run` with the monitor, and the id that it gives the run.

The monitor is a part of an experiment's id. So the scenario is planned with the monitor, and the experiment with the same values is
looked for in this plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import OrchestratorError
from orchestrator.files.printable_text import shell_word
from orchestrator.files.redaction import MASK
from orchestrator.machine.provenance import this_machine
from orchestrator.plan.config import load_suite, parse_scalar
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import parse_selection, whole_numbers
from orchestrator.records import Experiment
from orchestrator.results import requested
from orchestrator.results.store import Store
from orchestrator.trainers import TRAINERS

# Keys of a scenario that the command gives other values.
_OTHERS = ("monitors", "num_gpus", "repeats")
# Fields that may differ between the experiment and its profiled twin.
_NOT_COMPARED = (
    "id",
    "monitors",
    "repeats",
    "adaptive",
    "timeout_s",
    "tags",
    "skip",
    "cannot_run_here",
    "data_path",
    "baseline",
)


def command_of(store: Store, experiment_id: str, monitor: str, results: str) -> str | None:
    """Return the command that profiles an experiment with `monitor` in the folder `results`.

    Return None if the folder does not know the scenario file, if this file has no longer such an experiment, or if a value is a
    secret. Return None, too, if the experiment has the monitor, or if runs of its trainer have no trace.
    """
    one = store.experiment(experiment_id)
    request, trainer = requested.of(store.root, one.id), TRAINERS.get(one.trainer)
    if request is None or monitor in one.monitors or not (trainer and trainer.instrumented) or one.num_nodes > 1:
        return None
    file, choices = request
    settings, axes = [*_settings(choices), f"monitors=[{monitor}]"], [*_axes(choices)]
    counts = str(one.num_gpus) if "num_gpus" in _mapping(choices.get("settings")) else None
    try:
        twin = _twin(one, file, settings=settings, axes=axes, num_gpus=counts)
    except OrchestratorError:
        return None
    if twin is None:
        return None
    words = ["tunebench", "run", file, "--scenario", one.scenario]
    words += [
        word for option, texts in (("--axis", axes), ("--set", settings)) for text in texts for word in (option, text)
    ]
    words += [*(("--num-gpus", counts) if counts else ()), "--cell", twin, "--repeats", "1", "--results", results]
    text = " ".join(map(shell_word, words))
    return None if MASK in text else text


def _twin(one: Experiment, file: str, *, settings: list[str], axes: list[str], num_gpus: str | None) -> str | None:
    """Return the id of the only experiment in the plan that has the values of `one`."""
    suite = load_suite(Path(file), chosen=(one.scenario,))
    counts = whole_numbers(num_gpus, option="--num-gpus") if num_gpus else None
    selection = parse_selection(scenarios=[one.scenario], axes=axes, settings=settings, num_gpus=counts, repeats="1")
    alike = [
        other.id for other in expand(suite, selection, this_machine()).experiments if _compared(other) == _compared(one)
    ]
    return alike[0] if len(alike) == 1 else None


def _compared(one: Experiment) -> Experiment:
    blank = {name: None for name in _NOT_COMPARED}
    return replace(one, **blank)  # type: ignore[arg-type]


def _settings(choices: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of `--set` of the call that requested an experiment."""
    for name, value in _mapping(choices.get("overrides")).items():
        yield f"arguments.{name}={_as_yaml(value)}"
    for name, value in _mapping(choices.get("settings")).items():
        parts = {f"{name}.{part}": inner for part, inner in value.items()} if isinstance(value, dict) else {name: value}
        yield from (f"{path}={_as_yaml(inner)}" for path, inner in parts.items() if name not in _OTHERS)


def _axes(choices: Mapping[str, Any]) -> Iterator[str]:
    for name, values in _mapping(choices.get("axes")).items():
        yield f"{name}={','.join(map(_as_yaml, values))}"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_yaml(value: object) -> str:
    """Return a value as `--set` and `--axis` read it."""
    plain = isinstance(value, str) and value and parse_scalar(value) == value and not set(value) & set(",[]{}\"'")
    return value if plain and isinstance(value, str) else json.dumps(value)

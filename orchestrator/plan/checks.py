"""Checks of one scenario. These checks need the registries, the scenario's axes or its merged arguments.

For each mistake, a check yields the position inside the scenario (or the name of the argument), and a sentence. A check that makes
notes yields only sentences. `config` has the checks that need only the file. `cells`, `command` and `placement` check single cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import monitors, trainers
from orchestrator.errors import suggestion
from orchestrator.files.redaction import is_secret_name
from orchestrator.monitors.nvml import PERIOD_VARIABLE
from orchestrator.plan.cells import (
    EFFECTIVE,
    ENVIRONMENT,
    FRAMEWORK,
    GPUS,
    MODEL,
    NODES,
    PER_NODE,
    number_of_cells,
)
from orchestrator.plan.config import Scenario, argument_text, own_script
from orchestrator.plan.config.argument_text import as_yaml
from orchestrator.plan.config.check import COUNTS
from orchestrator.plan.config.frameworks import members
from orchestrator.plan.config.keys.value_types import comparison, number
from orchestrator.plan.config.yaml_file import YamlPath
from orchestrator.plan.data import note_on_model, published_models
from orchestrator.records import AT_LEAST_STEPS, Measure, Script, Text, whole_number
from orchestrator.trainers import Trainer
from orchestrator.trainers.argument_values import Doubt, doubt, known, unlikely, wrong

Found = Iterator[tuple[YamlPath, str]]

MAX_CELLS = 500_000  # the limit of a scenario, and of a plan; a plan of so many cells takes half a minute
# The most comparisons of cells with the entries of include: and exclude:. So many comparisons take half a minute, too.
MAX_COMPARED = 50_000_000

# Monitors that ask the Trainer for its memory metrics.
TRACKERS = frozenset({"hf_memory", "hf_memory_native"})


def unknown_trainer(name: str) -> str | None:
    """Return a sentence if there is no trainer of this name."""
    if name in trainers.TRAINERS or name in trainers.known():
        return None
    return ". ".join([f"unknown trainer {name!r}{suggestion(name, trainers.known())}", *trainers.load_problems()])


def watching(scenario: Scenario, trainer: Trainer) -> Found:
    """Check the scenario's monitors, its `measure:`, its `target:` and its `steps:`.

    Refuse the environment variable that sets the period of the GPU sampler.
    """
    for index, name in enumerate(scenario.monitors):
        if name not in monitors.MONITORS and name not in monitors.names():
            message = f"unknown monitor {name!r}{suggestion(name, monitors.names())}"
            yield ("monitors", index), " ".join([message, *monitors.load_problems()])
    if TRACKERS.issubset(scenario.monitors):
        yield ("monitors",), "hf_memory and hf_memory_native measure the same number; keep one of them"
    measures = trainer.instrumented or trainer.steps is not None
    if scenario.measure is not None and not measures and scenario.steps is None:
        yield (
            ("measure",),
            f"trainer {trainer.name!r} reports no steps, so 'measure:' has no effect; write 'steps: stdout' if the command "
            "prints its steps, or remove 'measure:'",
        )
    if scenario.target is not None and not trainer.instrumented:
        yield ("target",), f"trainer {trainer.name!r} logs no losses that Tunebench reads; remove 'target:'"
    if scenario.steps is not None and measures and trainer.name != "script":
        yield ("steps",), f"trainer {trainer.name!r} measures its steps itself; remove 'steps:'"
    if scenario.env.get(PERIOD_VARIABLE) is not None:
        message = f"{PERIOD_VARIABLE} configures the sampler, not the training; set it in the shell that runs tunebench"
        yield ("env", PERIOD_VARIABLE), message


def secrets(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each variable that contains a secret. A plan masks the value. A run refuses the variable."""
    for name, value in scenario.env.items():
        if value and is_secret_name(name):
            yield (
                f"scenario {scenario.name!r} sets the secret {name}, and no run accepts secrets from a file; "
                "export it in the shell, and runs inherit it"
            )


def notes_on(
    arguments: Mapping[str, Text], scenario: Scenario, trainer: Trainer, script: Script | None, folder: Path
) -> Iterator[str]:
    """Yield a sentence for each argument that is allowed, but may be a mistake of the user."""
    yield from (doubtful.sentence for _, doubtful in _doubts(arguments, trainer) if not doubtful.certain)
    for name in known(arguments):
        expected = unlikely(name, arguments[name], trainer.name)
        if expected:
            message = f"{name}: the Trainer does not accept {arguments[name]!r}; write {expected}"
            yield f"{message}, unless your script reads {name} itself"
    if script is not None:
        yield from own_script.notes(script, arguments, scenario.name)
    model = note_on_model(str(arguments[MODEL]), folder) if MODEL in arguments and trainer.takes_defaults else None
    if model is not None:
        yield model
    yield from _too_few_steps(scenario, arguments, trainer)


def _too_few_steps(scenario: Scenario, arguments: Mapping[str, Text], trainer: Trainer) -> Iterator[str]:
    """Yield a sentence if the training has too few steps to measure a speed."""
    measure, max_steps = scenario.measure or Measure(), whole_number(arguments.get("max_steps"))
    if not trainer.instrumented or not max_steps:
        return
    warm_up = 1 if measure.discard_steps is None else measure.discard_steps
    least = measure.at_least_steps or AT_LEAST_STEPS
    steps = min(max_steps, measure.at_most_steps or max_steps)
    if steps < warm_up + least:
        yield (
            f"scenario {scenario.name!r}: {steps} step(s) are too few for a speed; "
            f"make it at least {warm_up + least} ({warm_up} of warm-up and {least} steady)"
        )


def mistakes(
    arguments: Mapping[str, Text], trainer: Trainer, written: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the name of each argument that the trainer does not accept, with a sentence that says why.

    `written` are the names that the scenario file has for this scenario.
    """
    yield from trainer.mistakes(arguments, written)
    yield from ((name, doubtful.sentence) for name, doubtful in _doubts(arguments, trainer) if doubtful.certain)
    for name in known(arguments):
        value = arguments[name]
        expected = wrong(name, value, trainer.name)
        if expected and isinstance(value, str):
            yield name, f"{name}: {value!r} is invalid; write {expected}"
        elif expected:
            items = f"the list {', '.join(map(repr, value))}" if value else "an empty list"
            hint = " (to try several values, list them under 'matrix:')" if value else ""
            yield name, f"{name}: {items} is invalid; write {expected}{hint}"


def _doubts(arguments: Mapping[str, Text], trainer: Trainer) -> Iterator[tuple[str, Doubt]]:
    """Yield each argument whose name may be unknown to the trainer, with the reason for this doubt."""
    for name in arguments:
        doubtful = doubt(name, trainer.name) if name != EFFECTIVE else None
        if doubtful:
            yield name, doubtful


def models(names: Sequence[str], trainer: Trainer) -> Found:
    """Check names of the form `config:NAME`."""
    configs = [name for name in names if name.startswith("config:")] if trainer.builds_models else []
    published = [f"config:{name}" for name in published_models()] if configs else []
    for name in configs:
        if name not in published:
            yield ("arguments", MODEL), f"there is no model {name!r}{suggestion(name, published)}"


def axes_without_effect(scenario: Scenario, axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a sentence for each `--axis` that an argument of the scenario overrides."""
    return [
        f"--axis {name} has no effect in scenario {scenario.name!r}: 'arguments:' sets {name}; remove {name} there"
        for name in axes
        if scenario.arguments.get(name) is not None
    ]


def environments(names: Iterable[str | None], scenario: Scenario, known: Collection[str]) -> Found:
    """Check the software environments that a scenario names."""
    named = [name for name in names if name is not None]
    for name in named:
        if name not in known:
            yield (ENVIRONMENT,), f"unknown environment {name!r}{suggestion(name, known)}"
    if named and scenario.python is not None:
        yield ("python",), "'python:' and 'environment:' both name an interpreter; keep one of them"


def zipped_counts(scenario: Scenario) -> Found:
    """Check the numbers of GPUs and nodes under `zip:`."""
    for name, values in ((name, group.get(name, ())) for group in scenario.zip for name in COUNTS):
        for message in filter(None, (_wrong_type(name, value) for value in values)):
            yield ("zip", name), f"zip: {message}"


def size(scenario: Scenario, axes: Mapping[str, Sequence[Any]], zipped: Sequence[Collection[str]]) -> Found:
    """Check that a plan of these cells takes at most half a minute. `scenario` is the scenario as written in its file."""
    count, entries = number_of_cells(axes, zipped), len(scenario.include) + len(scenario.exclude)
    if count > MAX_CELLS:
        sizes = " × ".join(f"{name} {len(values)}" for name, values in axes.items() if len(values) > 1)
        yield ("matrix",), f"the axes give more than {MAX_CELLS:,} experiments ({sizes}); remove some values"
    elif count * entries > MAX_COMPARED:
        text = f"{count:,} experiments with {entries:,} entries of include: and exclude: take too long"
        yield ("matrix",), f"{text}; remove some values or entries"


def entries(scenario: Scenario, axes: Mapping[str, Sequence[Any]], frameworks: Collection[str]) -> Found:
    """Check `include:` and `exclude:` against the axes. `scenario` is the scenario as written in its file, before `--set`."""
    for kind, cells in (("exclude", scenario.exclude), ("include", scenario.include)):
        for index, entry in enumerate(cells):
            if not entry:
                yield (kind, index), f"{kind}: the entry is empty and would match every cell; name at least one key"
            for key, value in entry.items():
                message = (
                    _includes(key, value, axes, frameworks)
                    if kind == "include"
                    else _excludes(key, value, scenario, axes)
                )
                if message:
                    yield (kind, index, key), f"{kind}: {message}"


def _wrong_type(key: str, value: Any) -> str | None:
    if key in COUNTS and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        return f"{key}: {value!r} is invalid; write a whole number from 1"
    if key == MODEL and (not isinstance(value, str) or not value):
        return f"{MODEL}: {value!r} is invalid; write the name of one model"
    if key == ENVIRONMENT and not (value is None or isinstance(value, str)):
        return f"environment: {value!r} is invalid; write the name of an environment, or null for Tunebench's own"
    if key == FRAMEWORK and not (value is None or isinstance(value, str)):
        return f"framework_config: {value!r} is invalid; write a short name, a list of short names to combine, or null for none"
    return None


def _includes(key: str, value: Any, axes: Collection[str], frameworks: Collection[str]) -> str | None:
    """Return a sentence if an `include:` entry can't have this value."""
    if key in axes and comparison(value):
        return f"{key}: {value!r} is a comparison, and only 'exclude:' takes comparisons; write a value"
    if key in (GPUS, PER_NODE) and key not in axes:
        return f"{key}: this scenario counts its processes by {GPUS if key == PER_NODE else PER_NODE}; write that key"
    return _wrong_type(key, value) or _unknown_framework(key, value, frameworks)


def _excludes(key: str, value: Any, scenario: Scenario, axes: Mapping[str, Sequence[Any]]) -> str | None:
    """Return a sentence if an `exclude:` entry can't have this value."""
    if not comparison(value) or key not in axes:
        return _wrong_type(key, value) or _matches_nothing(key, value, scenario, axes)
    others = [as_yaml(item) for item in axes[key] if number(item) is None]
    if not others:
        return None
    return f"{key}: {value!r} compares numbers, but the axis has the value {others[0]}; write single values"


def _unknown_framework(key: str, value: Any, frameworks: Collection[str]) -> str | None:
    if key != FRAMEWORK or value is None:
        return None
    unknown = (name for name in members(value, frameworks) if name not in frameworks)
    return next((f"unknown framework configuration {name!r}{suggestion(name, frameworks)}" for name in unknown), None)


def _own_keys(scenario: Scenario) -> dict[str, tuple[Any, ...]]:
    """Return the axes that are keys of a scenario, without its counts."""
    named = scenario.environment or (None,)
    return {FRAMEWORK: scenario.framework_config, ENVIRONMENT: named, GPUS: (1,), NODES: (1,)}


def _matches_nothing(key: str, value: Any, scenario: Scenario, axes: Mapping[str, Sequence[Any]]) -> str | None:
    """Return a sentence if an `exclude:` entry matches no cell.

    A value in the scenario file counts as a match, even if the command line replaced it.
    """
    if key not in axes and key not in scenario.own_axes:
        return f"{key!r} is not an axis of this scenario{suggestion(key, axes)}"
    own: Any = scenario.own_axes.get(key, ())
    own = {**_own_keys(scenario), **scenario.counts}.get(key, own)
    if key == MODEL or argument_text(value) in [argument_text(item) for item in (*axes.get(key, ()), *own)]:
        return None
    allowed = ("null" if item is None else item for item in axes[key])
    return f"the axis {key} has no value {value!r}{suggestion(value, allowed)}"


def baseline(scenario: Scenario, written: Scenario, axes: Mapping[str, Sequence[Any]]) -> Found:
    """Check the names and values of `baseline:`.

    The names and values must be in the axes, in `include:`, or in `written`, which is the scenario as its file has it.
    """
    own = {**_own_keys(written), **written.counts, **written.own_axes}
    if PER_NODE in axes:  # results have the number on all nodes
        axes = {**axes, GPUS: [count * nodes for count in axes[PER_NODE] for nodes in axes[NODES]]}
    if isinstance(written.arguments.get(MODEL), (list, tuple)):
        own[MODEL] = written.arguments[MODEL]
    values: dict[str, list[Any]] = {}
    for part in (own, axes, *({name: [value] for name, value in entry.items()} for entry in scenario.include)):
        for name, some in part.items():
            values.setdefault(name, []).extend(some)
    values.pop(PER_NODE, None)
    for name, value in scenario.baseline.items():
        if name not in values:
            yield ("baseline", name), f"baseline: {name!r} is not an axis of this scenario{suggestion(name, values)}"
        elif argument_text(value) not in map(argument_text, values[name]):
            allowed = {"null" if item is None else str(item) for item in values[name]}
            near = next((f"{axis}: {value}" for axis, some in values.items() if axis != name and value in some), "")
            hint = f"; did you mean {{{near}}}?" if near else suggestion(value, allowed)
            yield ("baseline", name), f"baseline: the axis {name} has no value {value!r}{hint}"

"""What is wrong with a scenario that only the registries, its axes and its merged arguments can show.

Each check yields a place inside the scenario (or the argument's name) and a sentence; what is only worth a note yields
the sentence. What a file shows by itself is found in `config`, what depends on a single cell in `matrix`, `launcher` and
`placement`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from orchestrator import monitors
from orchestrator.errors import suggestion
from orchestrator.files.redaction import is_secret_name
from orchestrator.measure.steady_state import AT_LEAST_STEPS
from orchestrator.monitors.nvml import PERIOD_VARIABLE
from orchestrator.plan.cells import FRAMEWORK, GPUS, MODEL
from orchestrator.plan.config import Scenario, argument_text
from orchestrator.plan.data import published_models
from orchestrator.records import Measure, Text
from orchestrator.trainers import Trainer
from orchestrator.trainers.argument_values import known, meant, wrong
from orchestrator.trainers.custom import PROVIDED, UNITS, placeholders

Found = Iterator[tuple[tuple[str | int, ...], str]]

TRACKERS = frozenset({"hf_memory", "hf_memory_native"})
"""Monitors that ask the Trainer for its memory metrics."""


def watching(scenario: Scenario, trainer: Trainer) -> Found:
    """How a scenario's runs are to be watched and measured."""
    yield from _monitors(scenario)
    yield from _measure(scenario, trainer)
    yield from _environment(scenario)


def _monitors(scenario: Scenario) -> Found:
    for index, name in enumerate(scenario.monitors):
        if name not in monitors.MONITORS and name not in monitors.names():
            message = f"unknown monitor {name!r}{suggestion(name, monitors.names())}"
            yield ("monitors", index), " ".join([message, *monitors.load_problems()])
    if TRACKERS.issubset(scenario.monitors):
        yield ("monitors",), "hf_memory and hf_memory_native are two ways to one number; keep one of them"


def _measure(scenario: Scenario, trainer: Trainer) -> Found:
    if scenario.measure is not None and not trainer.instrumented:
        yield (
            ("measure",),
            f"trainer {trainer.name!r} is not seen step by step, so there is nothing to measure by; leave it out",
        )


def _environment(scenario: Scenario) -> Found:
    if scenario.env.get(PERIOD_VARIABLE) is not None:
        said = f"{PERIOD_VARIABLE} is for the sampler, not for the training; set it where tunebench runs"
        yield ("env", PERIOD_VARIABLE), said


def secrets(scenario: Scenario) -> Iterator[str]:
    """A sentence for each variable that holds a secret: a plan shows it masked, a run refuses it."""
    for name, value in scenario.env.items():
        if value and is_secret_name(name):
            yield f"scenario {scenario.name!r} sets {name}, which no run takes from a file: export it in the shell, runs inherit it"


def too_few_steps(scenario: Scenario, arguments: Mapping[str, Text], trainer: Trainer) -> Iterator[str]:
    """A sentence on a training that is too short for any speed, by its arguments."""
    asked, steps = scenario.measure or Measure(), arguments.get("max_steps")
    if not trainer.instrumented or not isinstance(steps, str) or not steps.isdecimal() or not int(steps):
        return
    warm_up = 1 if asked.discard_steps is None else asked.discard_steps
    least = asked.at_least_steps or AT_LEAST_STEPS
    made = min(int(steps), asked.at_most_steps or int(steps))
    if made < warm_up + least:
        yield (
            f"scenario {scenario.name!r}: {made} step(s) are too few for a speed: at least {least} are needed "
            f"behind {warm_up} of warm-up"
        )


def values(arguments: Mapping[str, Text], trainer: Trainer) -> Iterator[tuple[str, str]]:
    """Each argument whose value its trainer cannot take, and a sentence."""
    for name in known(arguments):
        value = arguments[name]
        expected = wrong(name, value, trainer.name)
        if expected and isinstance(value, str):
            yield name, f"{name}: {value!r} is not right; {expected} is expected"
        elif expected:
            found = f"the list {', '.join(map(repr, value))}" if value else "an empty list"
            hint = " (to try several, put them under matrix:)" if value else ""
            yield name, f"{name}: {found} is not right; {expected} is expected{hint}"


def near_names(arguments: Mapping[str, Text], trainer: Trainer) -> Iterator[str]:
    """A sentence for each argument whose name comes near to one of the trainer's: it may be the model's own, or a slip."""
    for name in arguments if trainer.name == "huggingface" else ():
        near = meant(name)
        if near:
            yield f"{name} is no argument of the trainer; is {near} meant? It is handed to the model's configuration"


def models(names: Sequence[str], trainer: Trainer) -> Found:
    """Names of configurations that we have the sizes of."""
    asked = [name for name in names if name.startswith("config:")] if trainer.builds_models else []
    known = [f"config:{name}" for name in published_models()] if asked else []
    for name in asked:
        if name not in known:
            yield ("arguments", MODEL), f"there is no model {name!r}{suggestion(name, known)}"


def axes_without_effect(scenario: Scenario, axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Of the command line's axes those that the scenario's arguments stand above, a sentence each."""
    return [
        f"--axis {name} changes nothing in scenario {scenario.name!r}, whose arguments: say what it is"
        for name in axes
        if scenario.arguments.get(name) is not None
    ]


def entries(scenario: Scenario, axes: Mapping[str, Sequence[Any]], frameworks: Collection[str]) -> Found:
    """`include:` and `exclude:` against the axes that they speak of; `scenario` as its file has it, before `--set`."""
    for kind, listed in (("exclude", scenario.exclude), ("include", scenario.include)):
        for index, entry in enumerate(listed):
            if not entry:
                yield (kind, index), f"{kind}: the entry is empty, which would match every cell"
            for key, value in entry.items():
                message = _wrong_type(key, value) or (
                    _unknown_framework(key, value, frameworks)
                    if kind == "include"
                    else _matches_nothing(key, value, scenario, axes)
                )
                if message:
                    yield (kind, index, key), f"{kind}: {message}"


def _wrong_type(key: str, value: Any) -> str | None:
    if key == GPUS and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        return f"num_gpus: {value!r} is not right; a whole number from 1 is expected"
    if key == MODEL and (not isinstance(value, str) or not value):
        return f"{MODEL}: {value!r} is no model; one name is expected"
    if key == FRAMEWORK and not (value is None or isinstance(value, str)):
        return f"framework_config: {value!r} is not right; one short name, or null for 'without', is expected"
    return None


def _unknown_framework(key: str, value: Any, frameworks: Collection[str]) -> str | None:
    if key != FRAMEWORK or value is None or value in frameworks:
        return None
    return f"unknown framework configuration {value!r}{suggestion(value, frameworks)}"


def _matches_nothing(key: str, value: Any, scenario: Scenario, axes: Mapping[str, Sequence[Any]]) -> str | None:
    """An exclude that can't match is a slip of the pen; what the command line took away for this once is none."""
    if key not in axes and key not in scenario.matrix:
        return f"{key!r} is no axis of this scenario{suggestion(key, axes)}"
    own: Any = scenario.matrix.get(key, ())
    own = {FRAMEWORK: scenario.framework_config, GPUS: scenario.num_gpus or (1,)}.get(key, own)
    known = [argument_text(one) for one in (*axes.get(key, ()), *own)]
    if key == MODEL or argument_text(value) in known:
        return None
    return f"{key} is never {value!r} here{suggestion(value, ('null' if one is None else one for one in axes[key]))}"


def custom(scenario: Scenario, given: Collection[str]) -> Found:
    """The command's placeholders against all arguments that any cell may have, and the metrics' sources."""
    if scenario.custom is None:
        return
    known = {*PROVIDED, *given}
    for index, word in enumerate(scenario.custom.command):
        for name in sorted(placeholders([word]) - known):
            said = f"the command asks for {{{name}}}, which no argument gives{suggestion(name, known)}"
            yield ("custom", "command", index), said
    for name, source in scenario.custom.metrics.items():
        path = ("custom", "metrics", name)
        if source.unit is not None and source.unit not in UNITS:
            yield (*path, "unit"), f"metric {name}: unknown unit {source.unit!r}{suggestion(source.unit, UNITS)}"
        if scenario.custom.results == "log" and source.pattern is None:
            yield (
                path,
                f"metric {name}: with 'results: log' a 'pattern:' is needed, a regular expression with one group",
            )
        if source.pattern is not None:
            try:
                re.compile(source.pattern)
            except (re.error, OverflowError, RecursionError) as error:
                yield (*path, "pattern"), f"metric {name}: {source.pattern!r} is not a regular expression: {error}"

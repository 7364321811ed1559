"""Checks of a file's scenarios that need several values: names, axes, a key in two places.

A scenario with mistakes is left out if the command line has not chosen it. A note says so. The remaining scenarios can then be
planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import Problem, similar, suggestion
from orchestrator.plan.config.argument_text import shown
from orchestrator.plan.config.check import COUNTS, SCENARIO_ONLY, check, misplaced
from orchestrator.plan.config.frameworks import members
from orchestrator.plan.config.keys.file_keys import SuiteFile
from orchestrator.plan.config.keys.scenario_keys import Scenario
from orchestrator.plan.config.keys.value_types import TAG_WORDS, tag_arguments
from orchestrator.plan.config.own_script import contradictions
from orchestrator.plan.config.yaml_file import Document, YamlPath

# Keys of a scenario that `include:` and `exclude:` may name, because these keys are axes.
AXIS_KEYS = frozenset({"environment", "framework_config", *COUNTS})
NEEDS_CUSTOM = "'trainer: custom' needs a command; add a 'custom:' section with a 'command:'"
# The folder of framework configurations in the reference system.
SAMPLES = "sample-configurations"
SCENARIOS, MODEL = "scenarios", "model_name_or_path"
Found = Iterator[tuple[YamlPath, str]]


@dataclass(frozen=True, kw_only=True)
class _Part(Document):
    """Some of the scenarios of a file. `numbers` are their positions in the file.

    A problem names the position in the whole file, not in this part.
    """

    numbers: tuple[int, ...]

    def place(self, path: YamlPath) -> tuple[int, int]:
        if path[:1] == (SCENARIOS,) and len(path) > 1:
            path = (SCENARIOS, self.numbers[int(path[1])], *path[2:])
        return super().place(path)


def without_broken(
    document: Document, chosen: Collection[str], frameworks: Collection[str], *, whole: bool
) -> tuple[Document, Mapping[str, list[str]]]:
    """Return two values: the document without its broken scenarios, and their mistakes (name → sentences).

    A scenario is broken if it has mistakes and is not chosen.
    """
    entries = document.value.get(SCENARIOS) if isinstance(document.value, dict) else None
    if not chosen or not isinstance(entries, list):
        return document, {}
    kept: list[int] = []
    left_out: dict[str, list[str]] = {}
    for number, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        alone = _Part(file=document.file, value={SCENARIOS: [entry]}, marks=document.marks, numbers=(number,))
        problems = () if name in chosen else _problems(alone, frameworks, whole=whole)
        if problems:
            sentences = [f"{problem} (this scenario is not chosen)" for problem in problems]
            left_out.setdefault(str(name), []).extend(sentences)
        else:
            kept.append(number)
    if not kept or not left_out:
        return document, {}
    value = {**document.value, SCENARIOS: [entries[number] for number in kept]}
    return _Part(file=document.file, value=value, marks=document.marks, numbers=tuple(kept)), left_out


def _problems(document: Document, frameworks: Collection[str], *, whole: bool) -> list[Problem]:
    problems: list[Problem] = []
    parsed = check(SuiteFile, document, problems)
    return [*problems, *(across(document, parsed, frameworks, whole=whole) if parsed else ())]


def across(document: Document, suite: SuiteFile, frameworks: Collection[str], *, whole: bool) -> list[Problem]:
    """Return the problems that need several values: names used twice, unknown names, a key in two places.

    `whole` says whether all framework configurations could be read. If so, an unknown name is a mistake in the scenario.
    """
    problems = [*_unknown_in_tag(document, suite)]
    seen: dict[str, int] = {}
    for index, scenario in enumerate(suite.scenarios):
        root: YamlPath = ("scenarios", index)
        if scenario.name in seen:
            first = seen[scenario.name] + 1
            message = f"scenario {first} of the file has the same name {scenario.name!r}; rename one"
            problems.append(document.problem((*root, "name"), message))
        seen.setdefault(scenario.name, index)
        problems.extend(misplaced(document, scenario.arguments, (*root, "arguments")))
        problems.extend(misplaced(document, scenario.matrix, (*root, "matrix")))
        for group in scenario.zip:
            arguments = {name: values for name, values in group.items() if name not in COUNTS}
            problems.extend(misplaced(document, arguments, (*root, "zip")))
        for place, row in enumerate(scenario.include):
            empty = {name: value for name, value in row.items() if not name.strip()}
            problems.extend(misplaced(document, empty, (*root, "include", place)))
        unknown = unknown_frameworks(scenario, frameworks) if whole else iter(())
        for path, message in (*unknown, *_contradictions(scenario), *_models(scenario)):
            problems.append(document.problem((*root, *path), f"scenario {scenario.name!r}: {message}"))
    return problems


def _unknown_in_tag(document: Document, suite: SuiteFile) -> Iterator[Problem]:
    """Yield a problem for each name in the tag that is neither an allowed word nor an argument of any scenario in the file."""
    written = {name: None for scenario in suite.scenarios for name in _arguments(scenario)}
    for name in sorted(tag_arguments(suite.experiment_tag) - written.keys()):
        message = f"experiment_tag: unknown name {{{name}}}{suggestion(name, (*TAG_WORDS, *written))}"
        yield document.problem(("experiment_tag",), message)


def _arguments(scenario: Scenario) -> Iterator[str]:
    """Yield the names of the arguments that a scenario writes."""
    for written in (scenario.arguments, scenario.matrix, *scenario.zip, *scenario.include):
        yield from (name for name in written if name not in AXIS_KEYS and name != MODEL)


def unknown_frameworks(scenario: Scenario, frameworks: Collection[str]) -> Found:
    for position, name in enumerate(scenario.framework_config):
        for place, member in enumerate(members(name, frameworks) if name is not None else ()):
            if member not in frameworks:
                hint = (
                    "; write null for none"
                    if name == member and name.lower() == "none"
                    else suggestion(member, frameworks)
                )
                yield ("framework_config", position, place), f"unknown framework configuration {member!r}{hint}"


def folder_not_found(suite: SuiteFile, known: Collection[str], scenarios: Path) -> Iterator[Problem]:
    """Yield a problem if a name is unlike all names of the shipped folder, and no other folder was found."""
    wrong = [(one, path) for one in suite.scenarios for path, _ in unknown_frameworks(one, known)]
    names = [members(one.framework_config[int(path[1])] or "", known)[int(path[2])] for one, path in wrong]
    if names and (scenarios.parent / "frameworks").is_dir():
        message = (
            "frameworks/ next to it has no CONTENTS.yaml, which lists its files; write one, as docs/scenarios.md shows"
        )
        yield Problem(file=scenarios, message=message)
    elif not all(similar(name, known) for name in names):
        looked = f"no frameworks/ or CONTENTS.yaml is next to it, and no {SAMPLES}/ next to it or above it"
        message = (
            f"its framework configurations are Tunebench's own, because {looked}; for others, add --frameworks FOLDER"
        )
        yield Problem(file=scenarios, message=message)


def _contradictions(scenario: Scenario) -> Found:
    """Yield a problem for each argument in two places of a scenario, and for a trainer that does not match `custom:`."""
    for key in scenario.matrix.keys() & scenario.arguments.keys():
        yield ("matrix", key), f"{key!r} is in 'matrix:' and in 'arguments:'; keep one of them"
    yield from _zipped_twice(scenario)
    yield from _counted_twice(scenario)
    for kind in ("include", "exclude"):
        for index, entry in enumerate(getattr(scenario, kind)):
            for key in entry.keys() & (SCENARIO_ONLY - AXIS_KEYS):
                message = f"{kind}: {key!r} has one value for all cells of the scenario; remove it from the entry"
                yield (kind, index, key), message
            for key in (entry.keys() & scenario.arguments.keys()) - {MODEL}:
                yield (kind, index, key), f"{kind}: {key!r} is also in 'arguments:', for every cell; keep one of them"
    if scenario.custom is not None and scenario.trainer != "custom":
        trainer = f"the trainer is {scenario.trainer!r}" if scenario.trainer else "the key 'trainer' is missing"
        yield ("custom",), f"{trainer}, but 'custom:' needs 'trainer: custom'; write it or remove 'custom:'"
    if scenario.custom is None and scenario.trainer == "custom":
        yield ("trainer",), NEEDS_CUSTOM
    yield from contradictions(scenario)


def _zipped_twice(scenario: Scenario) -> Found:
    """Yield a problem for each axis that is not allowed in `zip:`, or that the scenario also has in another place."""
    places: dict[str, str] = {
        **dict.fromkeys(scenario.arguments, "'arguments:'"),
        **{name: f"'{name}:'" for name in scenario.counts},
    }
    places |= dict.fromkeys(scenario.matrix, "'matrix:'")
    for group in scenario.zip:
        for name in group:
            if name == MODEL:
                yield ("zip", name), f"zip: {name!r} cannot change together with others; write it under 'arguments:'"
            elif name in places:
                yield ("zip", name), f"{name!r} is in 'zip:' and in {places[name]}; keep one of them"
        places |= dict.fromkeys(group, "another group of 'zip:'")


def _counted_twice(scenario: Scenario) -> Found:
    """Yield a problem if the scenario counts its processes on all nodes and on each node."""
    places: dict[str, YamlPath] = {name: ("zip", name) for group in scenario.zip for name in group}
    places |= {name: (name,) for name in scenario.counts}
    if {"num_gpus", "num_gpus_per_node"} <= places.keys():
        message = (
            "'num_gpus' counts the processes on all nodes, and 'num_gpus_per_node' those on each; keep one of them"
        )
        yield places["num_gpus_per_node"], message


def _models(scenario: Scenario) -> Found:
    for section, named in (("arguments", scenario.arguments), ("matrix", scenario.matrix)):
        for message in wrong_models(named.get(MODEL)):
            yield (section, MODEL), message


def wrong_models(models: Any) -> Iterator[str]:
    """Yield a sentence for each value that cannot be the name of a model. `models` is one value or a list, or None for no model."""
    for model in models if isinstance(models, (list, tuple)) else [models] if models is not None else []:
        if not isinstance(model, (str, int, float)) or isinstance(model, bool) or model == "":
            yield f"{MODEL}: {shown(model)} is invalid; write a hub name, a folder or config:NAME"


def wrong_argument(name: str, value: Any) -> Iterator[str]:
    """Yield a sentence if the command line gives an argument a name or a value that a scenario file may not give it either."""
    if name in SCENARIO_ONLY:
        yield f"{name}: this is a key of a scenario, not an argument of the trainer; write it in the scenario, or use --set"
    yield from wrong_models(value) if name == MODEL else ()

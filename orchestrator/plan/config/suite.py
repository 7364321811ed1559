"""`load_suite`: the YAML files of a campaign as one value, or every mistake in them at once.

Where the files lie: `defaults.yaml`, `accelerate.yaml` and `frameworks/` are looked for beside the scenario file, else the
shipped ones are taken, and a note says so. Does not multiply or choose: that is `matrix`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator.errors import ConfigError, Problem, suggestion
from orchestrator.files.printable_text import is_utf8, with_bytes
from orchestrator.plan.config.argument_text import argument_texts, shown
from orchestrator.plan.config.check import SCENARIO_ONLY, check, misplaced
from orchestrator.plan.config.file_keys import DataProcessing, Scenario, SuiteFile
from orchestrator.plan.config.frameworks import load_frameworks
from orchestrator.plan.config.yaml_file import Document, YamlPath, read_document
from orchestrator.records import Framework, Text

AXES_OF_OURS = frozenset({"framework_config", "num_gpus"})


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What the YAML files of a campaign say, checked. `notes` are sentences on where the files were found."""

    document: Document
    scenarios: tuple[Scenario, ...]
    defaults: Mapping[str, Text | None]
    accelerate: Mapping[str, Any]
    frameworks: Mapping[str, Framework]
    data_processing: DataProcessing = field(default_factory=DataProcessing)
    experiment_tag: str = "{model}.{framework}.gpus{num_gpus}"
    executor: str = "local"
    files: Mapping[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def problem(self, scenario: Scenario, path: YamlPath, message: str) -> Problem:
        """A problem at `path` inside `scenario`, as it stands in the scenario file."""
        index = next(index for index, one in enumerate(self.scenarios) if one.name == scenario.name)
        return self.document.problem(("scenarios", index, *path), f"scenario {scenario.name!r}: {message}")


def shipped_folder() -> Path:
    """The folder with the YAML files that come with Tunebench: the repository's root, or the installed copy."""
    package = Path(orchestrator.__file__).resolve().parent
    installed = package / "shipped"
    return installed if installed.is_dir() else package.parent


def load_suite(
    scenarios: Path, *, defaults: Path | None = None, accelerate: Path | None = None, frameworks: Path | None = None
) -> Suite:
    """Read the four kinds of file. Raises ConfigError with every problem found in any of them."""
    problems: list[Problem] = []
    document = _document(scenarios, problems)
    parsed = check(SuiteFile, document, problems) if document else None
    shipped: list[str] = []
    files = {
        "scenarios": scenarios,
        "defaults": _find(defaults, scenarios, "defaults.yaml", shipped),
        "accelerate": _find(accelerate, scenarios, "accelerate.yaml", shipped),
        "frameworks": _find(frameworks, scenarios, "frameworks", shipped),
    }
    notes = [f"{', '.join(shipped)}: not beside {scenarios}, so what is shipped is taken"] if shipped else []
    problems.extend(_unnameable(files.values()))
    default_arguments = _arguments(files["defaults"], problems)
    launch = _accelerate(files["accelerate"], problems)
    before = len(problems)
    known = load_frameworks(files["frameworks"], problems)
    if document and parsed:
        problems.extend(_across(document, parsed, known, whole=len(problems) == before))
    if problems or document is None or parsed is None:
        raise ConfigError(_in_order(problems))
    return Suite(
        document=document,
        scenarios=parsed.scenarios,
        defaults=default_arguments,
        accelerate=launch,
        frameworks=known,
        data_processing=parsed.data_processing or DataProcessing(),
        experiment_tag=parsed.experiment_tag,
        executor=parsed.executor,
        files=files,
        notes=tuple(notes),
    )


def _in_order(problems: list[Problem]) -> list[Problem]:
    """As a reader meets them: file after file, from top to bottom, none twice."""
    files = list(dict.fromkeys(str(problem.file) for problem in problems))
    return sorted(dict.fromkeys(problems), key=lambda one: (files.index(str(one.file)), one.line, one.column))


def _document(file: Path, problems: list[Problem]) -> Document | None:
    try:
        return read_document(file)
    except ConfigError as error:
        problems.extend(error.problems)
        return None


def _find(given: Path | None, scenarios: Path, name: str, shipped: list[str]) -> Path:
    if given is not None:
        return given
    beside = scenarios.parent / name
    if (beside / "CONTENTS.yaml" if name == "frameworks" else beside).exists():
        return beside
    if scenarios.parent.resolve() != shipped_folder():
        shipped.append(name)
    return shipped_folder() / name


def _unnameable(files: Iterable[Path]) -> Iterator[Problem]:
    """Paths go into the records, as `{scenario_dir}` of a command and as what was asked."""
    for file in files:
        place = str(file.absolute())
        if not is_utf8(place):
            said = f"its path holds bytes that are no UTF-8 ({with_bytes(place)}); rename the folder or the file"
            yield Problem(file=file, message=said)


def _mapping(file: Path, meaning: str, problems: list[Problem]) -> Document | None:
    document = _document(file, problems)
    if document is not None and not isinstance(document.value, dict):
        problems.append(document.problem((), f"a mapping of {meaning} is expected"))
        return None
    return document


def _arguments(file: Path, problems: list[Problem]) -> dict[str, Text | None]:
    document = _mapping(file, "argument names to values", problems)
    if document is None:
        return {}
    problems.extend(misplaced(document, document.value, ()))
    return argument_texts({str(key): value for key, value in document.value.items()})


def _accelerate(file: Path, problems: list[Problem]) -> dict[str, Any]:
    from orchestrator.plan.config.accelerate_file import check as check_accelerate

    document = _mapping(file, "accelerate's settings", problems)
    if document is None:
        return {}
    problems.extend(document.problem(path, message) for path, message in check_accelerate(document.value))
    return dict(document.value)


def _across(document: Document, suite: SuiteFile, frameworks: Mapping[str, Framework], *, whole: bool) -> list[Problem]:
    """What no single value shows: names used twice or unknown, one key as an axis and an argument at once.

    `whole`: all framework configurations could be read, so that one that is not among them is the scenario's mistake.
    """
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for index, scenario in enumerate(suite.scenarios):
        root: YamlPath = ("scenarios", index)
        if scenario.name in seen:
            message = (
                f"the name {scenario.name!r} is taken by scenario {seen[scenario.name] + 1} of the file; rename one"
            )
            problems.append(document.problem((*root, "name"), message))
        seen.setdefault(scenario.name, index)
        problems.extend(misplaced(document, scenario.arguments, (*root, "arguments")))
        problems.extend(misplaced(document, scenario.matrix, (*root, "matrix")))
        unknown = _unknown_frameworks(scenario, frameworks) if whole else iter(())
        for path, message in (*unknown, *_twice_said(scenario), *_models(scenario)):
            problems.append(document.problem((*root, *path), f"scenario {scenario.name!r}: {message}"))
    return problems


Found = Iterator[tuple[YamlPath, str]]


def _unknown_frameworks(scenario: Scenario, frameworks: Mapping[str, Framework]) -> Found:
    for position, name in enumerate(scenario.framework_config):
        if name is not None and name not in frameworks:
            hint = "; write null for 'without one'." if name.lower() == "none" else suggestion(name, frameworks)
            yield ("framework_config", position), f"unknown framework configuration {name!r}{hint}"


def _twice_said(scenario: Scenario) -> Found:
    """One argument in two places of a scenario, of which only one can hold; a command and a trainer that take none."""
    for key in scenario.matrix.keys() & scenario.arguments.keys():
        yield ("matrix", key), f"{key!r} stands in matrix: and in arguments:; keep one of them"
    for kind in ("include", "exclude"):
        for index, entry in enumerate(getattr(scenario, kind)):
            for key in entry.keys() & (SCENARIO_ONLY - AXES_OF_OURS):
                yield (kind, index, key), f"{kind}: {key!r} is a key of the scenario, which has one value for all cells"
            for key in (entry.keys() & scenario.arguments.keys()) - {"model_name_or_path"}:
                yield (
                    (kind, index, key),
                    f"{kind}: {key!r} stands in arguments: too, which holds for every cell; keep one",
                )
    if scenario.custom is not None and scenario.trainer != "custom":
        yield (
            ("custom",),
            f"a 'custom:' section needs 'trainer: custom', and trainer is {scenario.trainer or 'left out'}",
        )
    if scenario.custom is None and scenario.trainer == "custom":
        yield ("trainer",), "'trainer: custom' needs a 'custom:' section with the command"


def _models(scenario: Scenario) -> Found:
    for section, named in (("arguments", scenario.arguments), ("matrix", scenario.matrix)):
        models = named.get("model_name_or_path")
        for model in models if isinstance(models, (list, tuple)) else [models] if models is not None else []:
            if not isinstance(model, (str, int, float)) or isinstance(model, bool) or model == "":
                message = (
                    f"model_name_or_path: {shown(model)} is no model; a hub name, a folder or config:NAME is expected"
                )
                yield (section, "model_name_or_path"), message

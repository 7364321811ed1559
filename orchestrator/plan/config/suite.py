"""`load_suite` reads the YAML files of a campaign as one value. If the files have mistakes, one error names all mistakes.

`defaults.yaml`, `accelerate.yaml` and `frameworks/` are read from the folder of the scenario file. If one of them is missing there,
the shipped file is read, and a note says so. But for a missing `frameworks/`, two other places are tried first. The first is the
scenario file's own folder, if it has a `CONTENTS.yaml`. The second is the reference system's `sample-configurations/`, next to the
scenario file or in a folder above. `expand` makes experiments from the suite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.errors import ConfigError, Problem, SelectionError, suggestion
from orchestrator.files.package import PACKAGE
from orchestrator.files.printable_text import is_utf8, shell_word, with_bytes
from orchestrator.files.reading import resolved
from orchestrator.plan.config.accelerate_file import check as check_accelerate
from orchestrator.plan.config.argument_text import argument_texts
from orchestrator.plan.config.check import check, misplaced
from orchestrator.plan.config.environments import NamedEnvironments, load_environments
from orchestrator.plan.config.frameworks import (
    FrameworkSource,
    are_plugin_files,
    canonical_name,
    load_frameworks,
    members,
)
from orchestrator.plan.config.keys.file_keys import DataProcessing, SuiteFile
from orchestrator.plan.config.keys.scenario_keys import Scenario
from orchestrator.plan.config.scenario_checks import (
    MODEL,
    SAMPLES,
    across,
    folder_not_found,
    unknown_frameworks,
    without_broken,
    wrong_models,
)
from orchestrator.plan.config.yaml_file import Document, YamlPath, read_or_report
from orchestrator.records import Framework, Text
from orchestrator.trainers import Trainer


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The checked content of a campaign's YAML files.

    `defaults_given` says whether `--defaults` named the file with the defaults. `shipped` has the names of the files that were not
    found near the scenario file. `left_out` has the scenarios that have mistakes and were not chosen: name → sentences about the
    mistakes.
    """

    document: Document
    scenarios: tuple[Scenario, ...]
    defaults: Mapping[str, Text | None]
    defaults_given: bool = False
    accelerate: Mapping[str, Any]
    frameworks: Mapping[str, FrameworkSource]
    data_processing: DataProcessing = field(default_factory=DataProcessing)
    experiment_tag: str = "{model}.{framework}.gpus{num_gpus}"
    executor: str = "local"
    notify: tuple[str, ...] = ()
    environments: NamedEnvironments = field(default_factory=NamedEnvironments)
    files: Mapping[str, Path] = field(default_factory=dict)
    shipped: tuple[str, ...] = ()
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def written(self) -> Mapping[str, Scenario]:
        """Return name → scenario, as written in the file."""
        return {scenario.name: scenario for scenario in self.scenarios}

    def defaults_for(self, trainer: Trainer) -> Mapping[str, Text | None]:
        """Return the default arguments for a trainer.

        Some trainers do not share the built-in trainer's defaults. Such a trainer gets the file's defaults only if `--defaults`
        named the file.
        """
        return self.defaults if self.defaults_given or trainer.takes_defaults else {}

    def sources(self, name: str) -> list[FrameworkSource]:
        """Return the framework configurations that a name combines.

        Raises SelectionError for an unknown name from the command line.
        """
        for unknown in (member for member in members(name, self.frameworks) if member not in self.frameworks):
            message = f"unknown framework configuration {unknown!r}{suggestion(unknown, self.frameworks)}"
            raise SelectionError(f"--set framework_config: {message}")
        return [self.frameworks[member] for member in members(name, self.frameworks)]

    def file_notes(self, *, defaults_used: bool) -> tuple[str, ...]:
        """Return notes: one if files from Tunebench's own folder are used, and one if the reference system's folder is used."""
        names = [name for name in self.shipped if defaults_used or name != "defaults.yaml"]
        place, folder = self.document.file, self.files.get("frameworks")
        own = (f"{', '.join(names)}: not in the folder of {place}; Tunebench's own is used",) if names else ()
        of_reference = folder and (folder.name == SAMPLES or folder == place.parent)
        found = (f"framework configurations are those of {folder}",) if of_reference else ()
        return (*own, *found)

    def problem(self, scenario: Scenario, path: YamlPath, message: str) -> Problem:
        """Return a problem at `path` inside `scenario`, with its position in the scenario file."""
        index = [known.name for known in self.scenarios].index(scenario.name)
        return self.document.problem(("scenarios", index, *path), f"scenario {scenario.name!r}: {message}")


def shipped_folder() -> Path:
    """Return the folder of Tunebench's own YAML files: the installed copy, or the repository's root."""
    installed = PACKAGE / "shipped"
    return installed if installed.is_dir() else PACKAGE.parent


def frameworks_folder(scenarios: Path) -> Path:
    """Return the folder of framework configurations for a scenario file, if no option names a folder."""
    return _find(None, scenarios, "frameworks", [])


def load_suite(
    scenarios: Path,
    *,
    defaults: Path | None = None,
    accelerate: Path | None = None,
    frameworks: Path | None = None,
    chosen: Collection[str] = (),
) -> Suite:
    """Return the suite of a scenario file. Raises ConfigError with the problems of all its files.

    If scenarios are `chosen` by name, other scenarios with mistakes are left out.
    """
    problems: list[Problem] = []
    document = None if _is_missing(scenarios, problems) else read_or_report(scenarios, problems)
    shipped: list[str] = []
    files = {
        "scenarios": scenarios,
        "defaults": _find(defaults, scenarios, "defaults.yaml", shipped),
        "accelerate": _find(accelerate, scenarios, "accelerate.yaml", shipped),
        "frameworks": _find(frameworks, scenarios, "frameworks", shipped),
    }
    in_frameworks: list[Problem] = []
    known = load_frameworks(files["frameworks"], in_frameworks)
    may_be_stale, whole = are_plugin_files(known), not in_frameworks
    left_out: Mapping[str, Sequence[str]] = {}
    if document:
        document, left_out = without_broken(document, chosen, known, whole=whole and not may_be_stale)
    parsed = check(SuiteFile, document, problems) if document else None
    problems.extend(_unnameable(files.values()))
    default_arguments = _arguments(files["defaults"], problems)
    launch = _accelerate(files["accelerate"], problems)
    problems.extend(in_frameworks)
    named = load_environments(document, parsed.environments, problems) if document and parsed else NamedEnvironments()
    if document and parsed:
        if may_be_stale and whole:
            known |= _stale(document, parsed, known)
        problems.extend(across(document, parsed, known, whole=whole))
        if "frameworks" in shipped:
            problems.extend(folder_not_found(parsed, known, scenarios))
    if problems or document is None or parsed is None:
        raise ConfigError(_in_order(problems))
    return Suite(
        document=document,
        scenarios=tuple(canonical_frameworks(scenario, known) for scenario in parsed.scenarios),
        defaults=default_arguments,
        defaults_given=defaults is not None,
        accelerate=launch,
        frameworks=known,
        data_processing=parsed.data_processing or DataProcessing(),
        experiment_tag=parsed.experiment_tag,
        executor=parsed.executor,
        notify=parsed.notify.command if parsed.notify else (),
        environments=named,
        files=files,
        shipped=tuple(shipped),
        left_out=left_out,
    )


def _is_missing(scenarios: Path, problems: list[Problem]) -> bool:
    """Return whether the scenario file is missing. If so, append a problem.

    The problem says where Tunebench's own file is, or how to write a file.
    """
    try:
        scenarios.stat()
    except FileNotFoundError:
        own = shipped_folder() / scenarios
        written = f"write one with `tunebench init {shell_word(str(scenarios))}`"
        if scenarios.name == "scenarios.yaml":
            cure = f"check the path, {written}, or leave the name out to run the shipped quickstart"
        else:
            cure = f"Tunebench has it as {own}" if own.is_file() else f"check the path, or {written}"
        problems.append(Problem(file=scenarios, message=f"there is no such file; {cure}"))
        return True
    except OSError:
        return False  # the attempt to read the file gives the reason
    return False


def _in_order(problems: list[Problem]) -> list[Problem]:
    """Return the problems without duplicates, sorted by file, line and column."""
    files = list(dict.fromkeys(str(problem.file) for problem in problems))
    return sorted(
        dict.fromkeys(problems), key=lambda problem: (files.index(str(problem.file)), problem.line, problem.column)
    )


def _find(given: Path | None, scenarios: Path, name: str, shipped: list[str]) -> Path:
    if given is not None:
        return given
    own = scenarios.parent / name
    file = own / "CONTENTS.yaml" if name == "frameworks" else own
    if file.exists():
        if not (file.is_file() or file.is_dir()):  # the user did not name this file, and reading a pipe may never end
            raise ConfigError([Problem(file=file, message="it is neither a file nor a folder; remove it")])
        return own
    others = (scenarios.parent, *(folder / SAMPLES for folder in scenarios.absolute().parents))
    found = (folder for folder in others if name == "frameworks" and (folder / "CONTENTS.yaml").exists())
    if folder := next(found, None):
        return folder
    if resolved(scenarios.parent) != shipped_folder():
        shipped.append(name)
    return shipped_folder() / name


def _unnameable(files: Iterable[Path]) -> Iterator[Problem]:
    """Yield a problem for each path that is not UTF-8, because records contain the paths."""
    for file in files:
        path = str(file.absolute())
        if not is_utf8(path):
            message = f"its path is not UTF-8 ({with_bytes(path)}); rename the folder or the file"
            yield Problem(file=file, message=message)


def _mapping(file: Path, meaning: str, problems: list[Problem]) -> Document | None:
    document = read_or_report(file, problems)
    if document is not None and not isinstance(document.value, dict):
        problems.append(document.problem((), f"the file contains no mapping; write a mapping of {meaning}"))
        return None
    return document


def _arguments(file: Path, problems: list[Problem]) -> dict[str, Text | None]:
    document = _mapping(file, "argument names to values", problems)
    if document is None:
        return {}
    problems.extend(misplaced(document, document.value, ()))
    problems.extend(document.problem((MODEL,), message) for message in wrong_models(document.value.get(MODEL)))
    return argument_texts({str(key): value for key, value in document.value.items()})


def _accelerate(file: Path, problems: list[Problem]) -> dict[str, Any]:
    document = _mapping(file, "accelerate's settings", problems)
    if document is None:
        return {}
    problems.extend(document.problem(path, message) for path, message in check_accelerate(document.value))
    return dict(document.value)


def _stale(document: Document, suite: SuiteFile, known: Mapping[str, FrameworkSource]) -> dict[str, FrameworkSource]:
    """Return short name → configuration, for the scenarios' names that the reference's list never had or no longer has.

    The cells with these names are skipped; all remaining cells run.
    """
    stale: dict[str, FrameworkSource] = {}
    for index, scenario in enumerate(suite.scenarios):
        for path, message in unknown_frameworks(scenario, known):
            names = scenario.framework_config[int(path[1])]
            name = members(names or "", known)[int(path[2])]
            sentence = str(document.problem(("scenarios", index, *path), message))
            framework = Framework(name=name, digest="")
            stale[name] = FrameworkSource(framework=framework, document=document, stale=sentence)
    return stale


def canonical_frameworks(scenario: Scenario, known: Collection[str]) -> Scenario:
    """Return the scenario with canonical names for all framework configurations that it mentions."""

    def named(entry: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: canonical_name(value, known) if name == "framework_config" else value for name, value in entry.items()
        }

    changed = {
        "framework_config": tuple(canonical_name(name, known) for name in scenario.framework_config),
        "include": tuple(map(named, scenario.include)),
        "exclude": tuple(map(named, scenario.exclude)),
        "baseline": named(scenario.baseline),
    }
    same = all(getattr(scenario, name) == value for name, value in changed.items())
    return scenario if same else scenario.model_copy(update=changed)

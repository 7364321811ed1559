"""The framework configurations of a folder: CONTENTS.yaml and the files that it lists; and combinations of configurations.

`fsdp+gradient-checkpointing` has the settings of both members. In a scenario a list inside `framework_config:` is a combination.
Its name has each short name once, in the order of CONTENTS.yaml. So the order of the list does not matter. Configurations that
contradict each other cannot be combined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any

from orchestrator.errors import Problem, suggestion
from orchestrator.plan.config.accelerate_file import check as check_accelerate
from orchestrator.plan.config.accelerate_file import merged
from orchestrator.plan.config.argument_text import argument_texts, as_yaml, canonical
from orchestrator.plan.config.check import check, misplaced
from orchestrator.plan.config.keys.file_keys import FrameworkContents, FrameworkEntry, FrameworkFile
from orchestrator.plan.config.keys.value_types import JOIN
from orchestrator.plan.config.yaml_file import Document, YamlPath, read_or_report
from orchestrator.records import Device, Framework, Text
from orchestrator.trainers import TRAINERS, Trainer, load_problems
from orchestrator.trainers import known as known_trainers

_NOT_MEANING = frozenset({"description", "trainers"})


@dataclass(frozen=True, kw_only=True)
class FrameworkSource:
    """A framework configuration. Its arguments are written for `trainers` (None: for all).

    `document` is the file of the configuration, or CONTENTS.yaml if a plugin file does not exist. Some short names in the
    reference's scenario files no longer have a configuration. For such a name, `stale` says why.
    """

    framework: Framework
    document: Document
    trainers: tuple[str, ...] | None = None
    stale: str | None = None

    @property
    def description(self) -> str:
        """The description in the file, or an empty text. For a plugin file, it is a fixed sentence."""
        content = self.document.value if isinstance(self.document.value, dict) else {}
        if self.framework.plugin_file:
            return "A plugin file of the acceleration framework, for trainer fms_hf_tuning."
        return str(content.get("description") or "")

    def speaks_to(self, trainer: str) -> bool:
        """Return whether the arguments are written for this trainer. A configuration without arguments is for every trainer."""
        return self.trainers is None or trainer in self.trainers or not self.framework.arguments

    def place(self, path: YamlPath) -> str:
        """Return the file and the line of a setting."""
        return f"{self.document.file}:{self.document.place(path)[0]}"


def load_frameworks(folder: Path, problems: list[Problem]) -> dict[str, FrameworkSource]:
    """Return short name → configuration, in the order of CONTENTS.yaml. Mistakes are appended to `problems`."""
    document = read_or_report(folder / "CONTENTS.yaml", problems)
    contents = check(FrameworkContents, document, problems) if document else None
    if document is None or contents is None:
        return {}
    names = {entry.shortname for entry in contents.framework_configs}
    frameworks: dict[str, FrameworkSource] = {}
    for index, entry in enumerate(contents.framework_configs):
        place = ("framework_configs", index, "shortname")
        if entry.shortname in frameworks:
            message = f"the short name {entry.shortname!r} is used twice; rename one"
            problems.append(document.problem(place, message))
        elif entry.shortname == "none":
            message = "'none' means 'without a framework configuration'; choose another name"
            problems.append(document.problem(place, message))
        elif JOIN in entry.shortname and names.issuperset(entry.shortname.split(JOIN)):
            message = f"{entry.shortname!r} is the name of a combination of other configurations; choose another name"
            problems.append(document.problem(place, message))
        else:
            source = _load_entry(entry, document, index, problems)
            if source:
                frameworks[entry.shortname] = source
    return frameworks


def are_plugin_files(known: Mapping[str, FrameworkSource]) -> bool:
    """Return whether all configurations are plugin files. Such a folder is from the reference system, or similar."""
    return bool(known) and all(source.framework.plugin_file for source in known.values())


def _load_entry(
    entry: FrameworkEntry, contents: Document, index: int, problems: list[Problem]
) -> FrameworkSource | None:
    file = contents.file.parent / entry.filename
    if entry.plugins is not None and not file.exists():
        # The reference system's lists name files of another package. A plan does not need such a file, but a run does.
        return _plugin_file(entry.shortname, file, contents, digest="")
    if not file.is_file():
        place = ("framework_configs", index, "filename")
        names = [path.name for path in contents.file.parent.glob("*.yaml") if path.name != contents.file.name]
        message = f"there is no file {entry.filename!r} in {contents.file.parent}{suggestion(entry.filename, names)}"
        if entry.filename in names:  # such as a link to a file that was removed
            message = f"{file} is not a file that can be read; put a YAML file in its place"
        problems.append(contents.problem(place, message))
        return None
    document = read_or_report(file, problems)
    if document is None:
        return None
    if entry.plugins is not None or (isinstance(document.value, dict) and "plugins" in document.value):
        return _plugin_file(entry.shortname, file, document, digest=_digest(document.value))
    return _from_file(entry.shortname, document, problems)


def _plugin_file(name: str, file: Path, document: Document, *, digest: str) -> FrameworkSource:
    framework = Framework(name=name, digest=digest, plugin_file=str(file.absolute()))
    return FrameworkSource(framework=framework, document=document)


def _from_file(name: str, document: Document, problems: list[Problem]) -> FrameworkSource | None:
    content = check(FrameworkFile, document, problems)
    if content is None:
        return None
    problems.extend(
        document.problem(("accelerate", *path), message) for path, message in check_accelerate(content.accelerate)
    )
    problems.extend(misplaced(document, content.arguments, ("arguments",)))
    problems.extend(_unknown_trainers(document, content.trainers or ()))
    meaning = {key: value for key, value in document.value.items() if key not in _NOT_MEANING}
    framework = Framework(
        name=name,
        digest=_digest(meaning),
        arguments=argument_texts(content.arguments),
        accelerate=content.accelerate,
        env=content.env,
        requires=content.requires,
        device=Device(content.device) if content.device else None,
        min_gpus=content.min_gpus,
        environment=content.environment,
    )
    return FrameworkSource(framework=framework, document=document, trainers=content.trainers)


def _unknown_trainers(document: Document, names: tuple[str, ...]) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name not in TRAINERS and name not in known_trainers():  # only the second look-up loads other packages
            message = f"trainers: unknown trainer {name!r}{suggestion(name, known_trainers())}"
            yield document.problem(("trainers", index), ". ".join([message, *load_problems()]))


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:12]


def members(name: str, known: Collection[str]) -> list[str]:
    """Return the short names in the name of a combination.

    A name in `known` is a single short name, even if it contains `+`.
    """
    return [name] if name in known else name.split(JOIN)


def canonical_name(value: Any, known: Collection[str]) -> Any:
    """Return the canonical name of the configuration or combination that `value` names. Return any other value unchanged.

    `value` may also be a list of short names.

    `known` are the short names, in the order of CONTENTS.yaml.
    """
    names = members(value, known) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        return value
    order = {name: place for place, name in enumerate(known)}
    return JOIN.join(sorted(dict.fromkeys(names), key=lambda name: order.get(name, len(order))))


def for_trainer(
    sources: Iterable[FrameworkSource],
    trainer: Trainer,
    translated: Callable[[Mapping[str, Text | None]], Mapping[str, Text | None]],
) -> list[FrameworkSource]:
    """Return the configurations, with the arguments under the trainer's names.

    If a configuration is for other trainers, its arguments are left out.
    """
    changed = []
    for source in sources:
        given = source.framework.arguments if source.speaks_to(trainer.name) else {}
        changed.append(replace(source, framework=replace(source.framework, arguments=translated(given))))
    return changed


def contradictions(sources: Sequence[FrameworkSource]) -> Iterator[str]:
    """Yield a sentence for each setting that has different values in two configurations."""
    for first, second in combinations(sources, 2):
        for path, one, other in _differences(_settings(first.framework), _settings(second.framework), ()):
            name = ".".join(path[1:] if path[0] in ("arguments", "accelerate") else path)
            yield (
                f"{name} is {as_yaml(one)} in {first.place(path)} and "
                f"{as_yaml(other)} in {second.place(path)}, so {first.framework.name!r} and {second.framework.name!r} "
                "cannot be combined; leave one of them out"
            )


def combined(frameworks: Sequence[Framework]) -> Framework:
    """Return one configuration with the settings of all `frameworks`.

    The `frameworks` are in the order of CONTENTS.yaml and do not contradict each other.
    """
    if len(frameworks) == 1:
        return frameworks[0]
    return Framework(
        name=JOIN.join(framework.name for framework in frameworks),
        digest=_common_digest([framework.digest for framework in frameworks]),
        arguments=reduce(merged, (framework.arguments for framework in frameworks)),
        accelerate=reduce(merged, (framework.accelerate for framework in frameworks)),
        env=reduce(merged, (framework.env for framework in frameworks)),
        requires=tuple(dict.fromkeys(text for framework in frameworks for text in framework.requires)),
        device=next((framework.device for framework in frameworks if framework.device), None),
        min_gpus=max(framework.min_gpus for framework in frameworks),
        environment=next((framework.environment for framework in frameworks if framework.environment), None),
        plugin_file=next((framework.plugin_file for framework in frameworks if framework.plugin_file), None),
    )


def _common_digest(digests: Sequence[str]) -> str:
    """Return a digest over the members' digests.

    If a member has an empty digest (its plugin file does not exist), return an empty text.
    """
    return _digest(sorted(digests)) if all(digests) else ""


def _settings(framework: Framework) -> dict[str, Any]:
    """Return the settings in which combined configurations must agree. The settings have the names of the file's keys."""
    single = {"device": framework.device, "plugins": framework.plugin_file, "environment": framework.environment}
    return {
        "arguments": framework.arguments,
        "accelerate": framework.accelerate,
        "env": framework.env,
        **{name: value for name, value in single.items() if value is not None},
    }


def _differences(
    first: Mapping[str, Any], second: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the path and both values of each setting that has different values in the two mappings."""
    prefix = (
        path[1].removesuffix("config") if len(path) > 1 else ""
    )  # accelerate knows `fsdp_version` as `version`, too
    same = {name.removeprefix(prefix): name for name in first}
    for name, other in second.items():
        if name.removeprefix(prefix) not in same:
            continue
        one = first[same[name.removeprefix(prefix)]]
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differences(one, other, (*path, name))
        elif as_yaml(one) != as_yaml(other):
            yield (*path, name), one, other

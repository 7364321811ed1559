"""Combinations of framework configurations: `fsdp+gradient-checkpointing` has the settings of both members.

In a scenario a list inside `framework_config:` is a combination. Its name has each short name once, in the order of CONTENTS.yaml.
So the order of the list does not matter. Configurations that contradict each other cannot be combined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import Any

from orchestrator.plan.config.accelerate_file import merged
from orchestrator.plan.config.argument_text import as_yaml, canonical
from orchestrator.plan.config.frameworks import FrameworkSource
from orchestrator.plan.config.value_types import JOIN
from orchestrator.records import Framework, Text
from orchestrator.trainers import Trainer


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
        digest=_digest([framework.digest for framework in frameworks]),
        arguments=reduce(merged, (framework.arguments for framework in frameworks)),
        accelerate=reduce(merged, (framework.accelerate for framework in frameworks)),
        env=reduce(merged, (framework.env for framework in frameworks)),
        requires=tuple(dict.fromkeys(text for framework in frameworks for text in framework.requires)),
        device=next((framework.device for framework in frameworks if framework.device), None),
        min_gpus=max(framework.min_gpus for framework in frameworks),
        plugin_file=next((framework.plugin_file for framework in frameworks if framework.plugin_file), None),
    )


def _digest(digests: Sequence[str]) -> str:
    """Return a digest over the members' digests.

    If a member has an empty digest (its plugin file does not exist), return an empty text.
    """
    return hashlib.sha256(canonical(sorted(digests)).encode()).hexdigest()[:12] if all(digests) else ""


def _settings(framework: Framework) -> dict[str, Any]:
    """Return the settings in which combined configurations must agree. The settings have the names of the file's keys."""
    single = {"device": framework.device, "plugins": framework.plugin_file}
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

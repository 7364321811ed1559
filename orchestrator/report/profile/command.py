"""The command that profiles one experiment of a results folder: `tunebench run` with the monitor and the experiment's values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.files.printable_text import shell_word
from orchestrator.files.redaction import MASK
from orchestrator.records import Experiment, Text
from orchestrator.results import requested
from orchestrator.results.store import Store
from orchestrator.trainers import TRAINERS

# Keys of a scenario that the command gives other values.
_OTHERS = ("monitors", "num_gpus", "repeats")


def command(store: Store, experiment_id: str, *, monitor: str, results: str) -> str | None:
    """Return the command that profiles an experiment with `monitor` in the folder `results`.

    Return None if the folder does not know the scenario file, or if a value is a secret. Return None, too, if the experiment has
    the monitor, or if runs of its trainer have no trace.
    """
    one = store.experiment(experiment_id)
    request, trainer = requested.of(store.root, one.id), TRAINERS.get(one.trainer)
    if request is None or monitor in one.monitors or not (trainer and trainer.instrumented) or one.num_nodes > 1:
        return None
    file, choices = request
    alike = [other for other in map(store.experiment, store.ids()) if other.scenario == one.scenario]
    words = ["tunebench", "run", file, "--scenario", one.scenario, *_chosen(one, alike, choices)]
    words += ["--set", f"monitors=[{monitor}]", "--repeats", "1", "--results", results]
    text = " ".join(map(shell_word, words))
    return None if MASK in text else text


def _chosen(one: Experiment, alike: Sequence[Experiment], choices: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that choose an experiment among those of its scenario, and those of the call that requested it."""
    settings, *given = (_mapping(choices.get(name)) for name in ("settings", "overrides", "axes"))
    names = {name for some in given for name in some}
    names |= {name for other in alike for name in one.arguments if other.arguments.get(name) != one.arguments[name]}
    for name in sorted(names & one.arguments.keys()):
        yield from ("--set", f"arguments.{name}={_text(one.arguments[name])}")
    for name, value in settings.items():
        parts = {f"{name}.{part}": inner for part, inner in value.items()} if isinstance(value, dict) else {name: value}
        for path, inner in parts.items() if name not in _OTHERS else ():
            yield from ("--set", f"{path}={inner if isinstance(inner, str) else json.dumps(inner)}")
    if any(other.framework != one.framework for other in alike):
        yield from ("--framework", one.framework.name if one.framework else "none")
    if "num_gpus" in settings or any(other.num_gpus != one.num_gpus for other in alike):
        yield from ("--num-gpus", str(one.num_gpus))


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Text | None) -> str:
    """Return the value of an argument as YAML."""
    if value is None:
        return "null"
    return value if isinstance(value, str) else f"[{', '.join(value)}]"

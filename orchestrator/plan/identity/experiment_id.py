"""An experiment's id: a readable tag, and twelve digits of a hash of everything that can change the measurement.

These parts are hashed:

- the arguments as the trainer gets them, the model, the trainer, the command of `custom:`, the name of a script;
- GPU count, node count, device, interpreter or the lock of a software environment, variables, the launcher's configuration;
- the contents of the framework configuration, of the data, and of the files that a user's own command runs (`sources`);
- `measure`, `target`, `steps`, and the monitors that can change the measurement.

These parts are not hashed: repeats, limits, tags, Tunebench's own paths, ports, GPU ids, and the versions of packages. So new or
reordered scenarios do not change the ids in other scenarios. In a results folder, experiments with the same content are resumed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from operator import attrgetter
from string import Formatter
from typing import Any

from orchestrator.plan.config import canonical
from orchestrator.plan.config.accelerate_file import OVERRIDDEN, merged
from orchestrator.plan.data import data_identity
from orchestrator.records import Experiment, Framework, Text, as_items

MAX_PART = 80

# The fields that an experiment's digest covers, apart from its arguments. Many experiments share the objects in these fields.
_shared = attrgetter(
    *("accelerate", "custom", "data", "device", "env", "environment", "framework", "measure", "model"),
    *("monitors", "num_gpus", "num_nodes", "python", "script", "sources", "steps", "target", "trainer"),
)

# Windows reserves these names for devices, even if a suffix follows after a dot.
_RESERVED = frozenset(
    ("CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10)))
)


def accelerate_settings(base: Mapping[str, Any], framework: Framework | None) -> dict[str, Any]:
    """Return accelerate.yaml with the changes of the framework configuration. A section keeps the keys that are not changed."""
    settings = {name: value for name, value in base.items() if name not in OVERRIDDEN}
    return merged(settings, framework.accelerate) if framework else settings


class _Pairs(dict[tuple[str, Text], str]):
    """The canonical texts of arguments. Each text is made when it is first needed."""

    def __missing__(self, pair: tuple[str, Text]) -> str:
        text = self[pair] = canonical(dict([pair]))[1:-1]
        return text


class Digester:
    """Makes the digests of experiments. `perturbing` names the monitors that can change the measurement.

    Many experiments share the same objects, such as the launcher's configuration, variables and data. The texts of these objects
    are cached.
    """

    def __init__(self, perturbing: frozenset[str]) -> None:
        self.perturbing = perturbing
        self._frames: dict[tuple[int, ...], tuple[str, str, tuple[object, ...]]] = {}
        self._pairs = _Pairs()

    def digest(self, experiment: Experiment) -> str:
        """Return the first twelve hexadecimal digits of a hash of everything that can change the measurement."""
        shared = _shared(experiment)
        key = tuple(map(id, shared))
        frame = self._frames.get(key)
        if frame is None:  # the entry keeps the objects alive, so that no new object gets the id of an old one
            frame = self._frames[key] = (*self._frame(experiment), shared)
        before, after, _ = frame
        pairs, values = self._pairs, experiment.arguments
        arguments = ", ".join([pairs[name, values[name]] for name in sorted(values)])
        return hashlib.sha256(f"{before}{{{arguments}}}{after}".encode()).hexdigest()[:12]

    def _frame(self, experiment: Experiment) -> tuple[str, str]:
        """Return the parts of the canonical text before and after the arguments."""
        framework = experiment.framework
        content = {
            "custom": asdict(replace(experiment.custom, folder=None)) if experiment.custom else None,
            "data": data_identity(experiment.data) if experiment.data else None,
            "device": experiment.device,
            "env": experiment.env,
            "framework": framework.digest or f"missing {framework.name}" if framework else None,
            "model": experiment.model,
            "monitors": sorted(self.perturbing.intersection(experiment.monitors)),
            "num_gpus": experiment.num_gpus,
            "python": None if experiment.environment else experiment.python,
            "trainer": experiment.trainer,
        }
        if experiment.measure is not None:  # ids of experiments without `measure` must not change
            content["measure"] = experiment.measure.fields()
        if experiment.target is not None:  # it changes what a run records, and the seeds of repeats
            content["target"] = {"loss": experiment.target.loss}
        if (software := experiment.environment) is not None:  # before it is built, only what was asked for is known
            content["environment"] = [software.name, software.lock or f"asked for {software.request}"]
        if experiment.num_nodes > 1:
            content["num_nodes"] = experiment.num_nodes
        if experiment.script is not None:
            content["script"] = asdict(replace(experiment.script, folder="", files=()))
        if experiment.steps is not None:
            content["steps"] = experiment.steps
        if experiment.sources:
            content["sources"] = experiment.sources
        return f'{{"accelerate": {canonical(experiment.accelerate)}, "arguments": ', f", {canonical(content)[1:]}"


def readable_part(experiment: Experiment, form: str, arguments: Mapping[str, Text | None]) -> str:
    """Return an id without its digest: `<scenario>-<tag>`. A folder's name can begin with this text.

    `form` is the template of the tag, such as `{model}-{framework}-{learning_rate}`. `arguments` has the values of the arguments in
    the template. The number of nodes is added if there are several and the template does not name it. So is the name of a software
    environment.
    """
    if experiment.num_nodes > 1 and "{num_nodes}" not in form:
        form += ".nodes{num_nodes}"
    if experiment.environment is not None and "{environment}" not in form:
        form += ".{environment}"
    values = {
        **{name: "none" if value is None else "-".join(as_items(value)) for name, value in arguments.items()},
        "model": experiment.model.rstrip("/").rsplit("/", 1)[-1].removeprefix("config:"),
        "framework": experiment.framework.name if experiment.framework else "none",
        "num_gpus": str(experiment.num_gpus),
        "num_nodes": str(experiment.num_nodes),
        "environment": experiment.environment.name if experiment.environment else "none",
        "trainer": experiment.trainer,
        "device": str(experiment.device),
    }
    parts = Formatter().parse(form)  # `str.format` would take a name with dots for an attribute
    tag = "".join(literal + (_plain(values[name]) if name is not None else "") for literal, name, _, _ in parts)
    name = f"{_plain(experiment.scenario)}-{_plain(tag)}"
    return f"_{name}" if name.partition(".")[0].upper() in _RESERVED else name


def _plain(text: str) -> str:
    """Return the text reduced to letters, digits and `._=-`.

    So an id is one word in a shell, and a valid folder name on any disk.
    """
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.=")[:MAX_PART] or "x"

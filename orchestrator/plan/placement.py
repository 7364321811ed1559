"""Whether and where an experiment can run: wrong anywhere (`skip`), or merely not on this machine.

Told apart so that a plan made on a laptop holds for the cluster. Pure: the machine is a value, looked at by `provenance`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from orchestrator.machine.provenance import Machine
from orchestrator.plan.data import missing_data, missing_model
from orchestrator.records import Device, Experiment, Framework, Reason, Text
from orchestrator.trainers import Trainer


def placed_on(asked: Device, num_gpus: int, machine: Machine) -> Device:
    """`auto` settled: GPUs where there are enough of them, else CPU processes."""
    if asked is not Device.AUTO:
        return asked
    return Device.CUDA if machine.gpus and len(machine.gpus) >= num_gpus else Device.CPU


def wrong_anywhere(experiment: Experiment, trainer: Trainer, asked: Device) -> Reason | None:
    """Why the experiment means nothing on any machine, or None."""
    steps = experiment.arguments.get("max_steps")
    if (
        trainer.instrumented
        and isinstance(steps, str)
        and re.fullmatch(r"-?\d+", steps)
        and int(steps) != -1
        and int(steps) < 1
    ):
        text = f"max_steps {steps} is no number of steps; give 1 or more, or -1 for whole epochs"
        return Reason(kind="max_steps", text=text)
    framework = experiment.framework
    if framework is None:
        return None
    if framework.plugin_file and trainer.name != "fms_hf_tuning":
        text = f"{framework.name!r} is an acceleration-framework plugin file, which only trainer fms_hf_tuning takes"
        return Reason(kind="framework_of_other_trainer", text=text)
    if framework.device and asked is not Device.AUTO and framework.device is not experiment.device:
        text = f"framework configuration {framework.name!r} works on {framework.device} only, and device is {experiment.device}"
        return Reason(kind="framework_needs_device", text=text)
    if experiment.num_gpus < framework.min_gpus:
        text = f"framework configuration {framework.name!r} means nothing under {framework.min_gpus} processes"
        return Reason(kind="framework_needs_gpus", text=text)
    return None


def undone(framework: Framework, merged: Mapping[str, Text | None]) -> Reason | None:
    """An argument that undoes its framework configuration would be measured under the wrong name."""
    for name, meant in framework.arguments.items():
        found = merged.get(name)
        if found != meant:
            text = f"{name} is {found!r} here, and framework configuration {framework.name!r} means {meant!r}"
            return Reason(kind="undoes_framework_config", text=text)
    return None


def cannot_run_here(experiment: Experiment, trainer: Trainer, machine: Machine) -> Reason | None:
    """Why this machine cannot run the experiment, or None."""
    return (
        _no_interpreter(experiment.python)
        or _no_plugin_file(experiment.framework)
        or _no_files(experiment, trainer)
        or _no_gpu(experiment, machine)
        or _no_package(experiment, trainer, machine)
    )


def _no_interpreter(python: str | None) -> Reason | None:
    if python is None or os.path.exists(os.path.expanduser(python)):
        return None
    return Reason(kind="no_interpreter", text=f"there is no interpreter {python} on this machine")


def _no_plugin_file(framework: Framework | None) -> Reason | None:
    if framework is None or framework.plugin_file is None or framework.digest:
        return None
    text = f"framework configuration {framework.name!r} needs {framework.plugin_file}, which is not there"
    return Reason(kind="no_plugin_file", text=text)


def _no_files(experiment: Experiment, trainer: Trainer) -> Reason | None:
    model = None if trainer.name == "custom" else missing_model(experiment.model)
    data = missing_data(experiment.data.source) if experiment.data else None
    text = model or data
    return Reason(kind="no_model" if model else "no_data", text=text) if text else None


def _no_gpu(experiment: Experiment, machine: Machine) -> Reason | None:
    framework, have = experiment.framework, len(machine.gpus)
    if experiment.device is Device.CUDA and have < experiment.num_gpus:
        if not have:
            return Reason(kind="no_gpu", text="no NVIDIA GPU is visible (device: cpu or auto would use CPU processes)")
        return Reason(kind="too_few_gpus", text=f"{experiment.num_gpus} GPUs are asked for, {have} are visible")
    if framework and framework.device and framework.device is not experiment.device:
        return Reason(
            kind="no_gpu", text=f"framework configuration {framework.name!r} works on {framework.device} only"
        )
    return None


def _no_package(experiment: Experiment, trainer: Trainer, machine: Machine) -> Reason | None:
    wanted = (
        *trainer.requires_for(experiment.arguments),
        *(experiment.framework.requires if experiment.framework else ()),
    )
    if not wanted:
        return None
    installed = machine.packages(experiment.python)
    missing = [text for text in dict.fromkeys(wanted) if not _satisfied(text, installed.get(_name(text)))]
    if not missing:
        return None
    where = f"in {experiment.python}" if experiment.python else "in this environment"
    missing = [
        text for text in missing if text != _name(text) or sum(_name(text) == _name(other) for other in missing) == 1
    ]
    found = [f"{text} (here: {installed[_name(text)]})" if _name(text) in installed else text for text in missing]
    return Reason(kind="package_missing", text=f"not installed {where}: {', '.join(found)}")


@lru_cache(maxsize=1024)
def _requirement(text: str) -> Any:
    from packaging.requirements import Requirement

    return Requirement(text)


@lru_cache(maxsize=1024)
def _plain(text: str) -> bool:
    """A name alone, for which packaging need not be imported."""
    return re.fullmatch(r"[\w.-]+", text) is not None


@lru_cache(maxsize=1024)
def _name(text: str) -> str:
    """The distribution's name as `Machine.packages` has it."""
    return re.sub(r"[-_.]+", "-", text if _plain(text) else str(_requirement(text).name)).lower()


@lru_cache(maxsize=1024)
def _satisfied(text: str, version: str | None) -> bool:
    if version is None or _plain(text):
        return version is not None
    try:
        return bool(_requirement(text).specifier.contains(version, prereleases=True))
    except ValueError:  # an installed version that is none, as some vendors' builds have
        return False

"""Reasons why an experiment can't run. `skip`: no machine can run it. `cannot_run_here`: this machine can't run it.

The two reasons are separate fields, so that a plan made on a laptop is valid for the cluster. `machine.provenance` provides the
facts about the machine.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator.entry_points import WrongAnswer
from orchestrator.files.printable_text import quoted
from orchestrator.machine.environments import containers
from orchestrator.machine.provenance import Machine, python_version
from orchestrator.plan.config.argument_text import as_yaml
from orchestrator.plan.config.frameworks import FrameworkSource
from orchestrator.plan.data import missing_data, missing_model
from orchestrator.plan.identity.sources import missing_module
from orchestrator.records import Device, Experiment, Framework, Reason, Text
from orchestrator.trainers import Trainer
from orchestrator.trainers.argument_names import is_true
from orchestrator.trainers.argument_values import ON_TRAINING_ARGUMENTS

# The executor that starts every run on this machine.
_LOCAL = "local"
_NO_GPU = Reason(kind="no_gpu", text="no NVIDIA GPU is visible; `device: cpu` or `auto` uses CPU processes")


def placed_on(requested: Device, num_gpus: int, machine: Machine) -> Device:
    """Return the device of `num_gpus` processes on a node. `auto` means GPUs if the machine has enough GPUs, else CPU processes.

    On a cluster whose nodes have GPUs, `auto` means GPUs: a campaign on GPUs must not silently get an allocation for CPU processes.
    """
    if requested is not Device.AUTO:
        return requested
    if machine.site and machine.gpus:
        return Device.CUDA
    return Device.CUDA if machine.gpus and len(machine.gpus) >= num_gpus else Device.CPU


def wrong_anywhere(experiment: Experiment, trainer: Trainer, requested: Device) -> Reason | None:
    """Return the reason why the experiment cannot run on any machine, or None."""
    if experiment.num_gpus % experiment.num_nodes:
        text = f"num_gpus {experiment.num_gpus} is not divisible by num_nodes {experiment.num_nodes}"
        return Reason(kind="gpus_do_not_divide", text=text)
    if trainer.instrumented and trainer.takes_defaults and "max_steps" in experiment.arguments:
        reason = _no_steps(str(experiment.arguments["max_steps"]))
        if reason is not None:
            return reason
    if trainer.device and requested is not Device.AUTO and trainer.device is not experiment.device:
        text = f"trainer {trainer.name} works only on {trainer.device}, and device is {experiment.device}"
        return Reason(kind="trainer_needs_device", text=text)
    return trainer.problem(experiment) or _unfit_framework(experiment, trainer, requested)


def _unfit_framework(experiment: Experiment, trainer: Trainer, requested: Device) -> Reason | None:
    """Return the reason why the experiment's framework configuration cannot run on any machine, or None."""
    framework = experiment.framework
    if framework is None:
        return None
    label = f"framework configuration {framework.name!r}"
    if framework.plugin_file and trainer.name != "fms_hf_tuning":
        text = f"{label} is an acceleration-framework plugin file; use it with trainer fms_hf_tuning"
        return Reason(kind="framework_of_other_trainer", text=text)
    if framework.device and requested is not Device.AUTO and framework.device is not experiment.device:
        text = f"{label} works only on {framework.device}, and device is {experiment.device}"
        return Reason(kind="framework_needs_device", text=text)
    if experiment.num_gpus < framework.min_gpus:
        return Reason(kind="framework_needs_gpus", text=f"{label} needs at least {framework.min_gpus} processes")
    return None


def written_for_others(sources: Iterable[FrameworkSource], trainer: Trainer) -> Reason | None:
    """Return the reason why a trainer does not get all arguments of a framework configuration, else None."""
    for source in sources:
        if source.stale:
            return Reason(kind="stale_framework", text=source.stale)
        if not source.speaks_to(trainer.name):
            name, meant = source.framework.name, ", ".join(source.trainers or ())
            arguments = ", ".join(f"{one}: [{as_yaml(value)}]" for one, value in source.framework.arguments.items())
            text = (
                f"framework configuration {name!r} is written for other trainers ({meant}); "
                f"for trainer {trainer.name} write its arguments under 'matrix:' ({arguments})"
            )
            return Reason(kind="framework_of_other_trainer", text=text)
    return None


@lru_cache(maxsize=1024)
def _no_steps(steps: str) -> Reason | None:
    try:
        number = float(steps)  # a trainer also reads 1e3 and 20.0
    except ValueError:
        return None
    if not number.is_integer() or number >= 1 or number == -1:
        return None
    text = f"max_steps {steps} is invalid; write a whole number from 1, or -1 for whole epochs"
    return Reason(kind="max_steps", text=text)


def undone(framework: Framework, merged: Mapping[str, Text | None]) -> Reason | None:
    """Return a reason if an argument replaces a value of the framework configuration, else None.

    Such results would have the name of a configuration that was not used.
    """
    for name, expected in framework.arguments.items():
        value = merged.get(name)
        if value != expected:
            text = f"{name} is {value!r}, but framework configuration {framework.name!r} sets it to {expected!r}"
            return Reason(kind="undoes_framework_config", text=text)
    return None


def uses_lora(arguments: Mapping[str, Text | None], trainer: Trainer) -> bool:
    """Return whether the trainer's arguments ask for LoRA."""
    return all(
        is_true(arguments.get(name)) if is_true(on) else arguments.get(name) == on
        for name, on in lora_method(trainer).items()
    )


def lora_method(trainer: Trainer) -> Mapping[str, Text | None]:
    """Return the arguments with which the trainer uses LoRA."""
    return trainer.translate({"peft_method": "lora"})[0]


def lora_arguments(trainer: Trainer) -> tuple[str, ...]:
    """Return the trainer's names of the arguments that have an effect only with LoRA. The names of other programs are unknown."""
    names = dict.fromkeys(("r", "lora_alpha", "lora_dropout", "target_modules"), "")
    return tuple(trainer.translate(names)[0]) if trainer.name in ON_TRAINING_ARGUMENTS else ()


def without_lora(name: str, value: Text) -> Reason:
    """Return the reason for an experiment with an argument of LoRA, but without LoRA.

    Its numbers would be those of full fine-tuning, under the name of this value.
    """
    text = f"{name} is {as_yaml(value)}, which has no effect without LoRA; write peft_method: lora, or remove {name}"
    return Reason(kind="without_lora", text=text)


def cannot_run_here(
    experiment: Experiment, trainer: Trainer, machine: Machine, *, executor: str = _LOCAL
) -> Reason | None:
    """Return the reason why this machine can't run the experiment, or None.

    If the machine is assumed, only its GPUs are checked. If an experiment has several nodes, the machine is one of them.
    """
    if machine.assumed:
        return _no_gpu(experiment, machine)
    return (
        _single_machine(experiment, executor)
        or containers.problem(experiment, local=executor == _LOCAL)
        or _no_interpreter(experiment)
        or _no_plugin_file(experiment.framework)
        or _no_files(experiment, trainer)
        or _no_module(experiment)
        or _no_gpu(experiment, machine)
        or _no_device(experiment, trainer)
        or _no_package(experiment, trainer, machine)
    )


def _single_machine(experiment: Experiment, executor: str) -> Reason | None:
    if experiment.num_nodes == 1 or executor != _LOCAL:
        return None
    text = f"{experiment.num_nodes} nodes are needed, and the executor {_LOCAL} has this machine only; use --executor slurm"
    return Reason(kind="too_few_nodes", text=text)


def interpreter(python: str | None, base: Path) -> str | None:
    """Return the absolute path of the interpreter that a scenario in the folder `base` names.

    A relative path is searched in `base`, then in the working folder; a single word also on PATH. If there is no such file, return
    the name unchanged. Links are kept, because the interpreter of a virtual environment is a link.
    """
    if python is None or os.path.isabs(os.path.expanduser(python)):
        return python
    beside = (os.path.abspath(folder / python) for folder in (base, Path()))
    on_path = None if os.sep in python else shutil.which(python)
    return next(filter(os.path.isfile, beside), on_path) or python


def _not_built(experiment: Experiment) -> bool:
    """Return whether the experiment's environment is still to be built, so that its content is unknown."""
    return experiment.environment is not None and experiment.environment.lock is None


def _no_interpreter(experiment: Experiment) -> Reason | None:
    software, python = experiment.environment, experiment.python
    if python is None or _not_built(experiment) or (software is not None and software.container):
        return None
    path = os.path.expanduser(python)
    if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK):
        return None
    found = "is not an executable file" if os.path.isabs(path) and os.path.exists(path) else "does not exist"
    return Reason(kind="no_interpreter", text=f"the interpreter {python} {found} on this machine")


def _no_plugin_file(framework: Framework | None) -> Reason | None:
    if framework is None or framework.plugin_file is None or framework.digest:
        return None
    text = f"framework configuration {framework.name!r} needs the file {framework.plugin_file}, which does not exist"
    return Reason(kind="no_plugin_file", text=text)


def _no_files(experiment: Experiment, trainer: Trainer) -> Reason | None:
    model = missing_model(experiment.model) if trainer.takes_defaults else None
    data = missing_data(experiment.data.source) if experiment.data else None
    text = model or data
    return Reason(kind="no_model" if model else "no_data", text=text) if text else None


def _no_module(experiment: Experiment) -> Reason | None:
    text = missing_module(experiment)
    return Reason(kind="no_module", text=text) if text else None


def _no_gpu(experiment: Experiment, machine: Machine) -> Reason | None:
    framework, have, needed = experiment.framework, len(machine.gpus), experiment.num_gpus // experiment.num_nodes
    if experiment.device is Device.CUDA and have < needed and machine.gpus_known:
        if not have:
            return _NO_GPU
        state = (
            "assumed" if machine.assumed else f"in a node (`node:` in {machine.site})" if machine.site else "visible"
        )
        where = " on each node" if experiment.num_nodes > 1 else ""
        return Reason(kind="too_few_gpus", text=f"{needed} GPUs are needed{where}, but only {have} are {state}")
    if framework and framework.device and framework.device is not experiment.device:
        text = f"framework configuration {framework.name!r} works only on {framework.device}"
        return Reason(kind="no_gpu", text=text)
    return None


def _no_device(experiment: Experiment, trainer: Trainer) -> Reason | None:
    """Return a reason if the trainer works only on GPUs, and `device: auto` found too few."""
    if trainer.device is None or trainer.device is experiment.device:
        return None
    text = f"trainer {trainer.name} works only on {trainer.device}, and too few NVIDIA GPUs are visible"
    return Reason(kind="no_gpu", text=text)


def _no_package(experiment: Experiment, trainer: Trainer, machine: Machine) -> Reason | None:
    of_framework = experiment.framework.requires if experiment.framework else ()
    required = dict.fromkeys((*trainer.requires_for(experiment.arguments), *of_framework))
    if wrong := next((text for text in required if not _is_requirement(text)), None):
        raise WrongAnswer(
            f"trainer {trainer.name}: {quoted(wrong)} in its `requires` is not a package with versions; correct it there, such as "
            "torchtune>=0.6"
        )
    software = experiment.environment
    if not required or _not_built(experiment):
        return None
    installed = (
        containers.packages(software)
        if software and software.container
        else machine.packages(experiment.python, experiment.env)
    )
    if software and software.container and not installed:  # what is in the image is unknown
        return None
    missing = [text for text in required if not _satisfied(text, installed.get(_name(text)))]
    if not missing:
        return None
    if experiment.python and not installed and python_version(experiment.python) is None:
        text = f"the interpreter {experiment.python} gave no answer; it must be Python, or a program that starts Python"
        return Reason(kind="no_interpreter", text=text)
    where = f"in {experiment.python}" if experiment.python else "in this environment"
    cure = "install with pip"
    if software:
        where = f"in the environment {software.name}"
        cure = "choose an image that has it" if software.container else "add to its requirements"
    names = Counter(map(_name, missing))
    shown = [
        f"{text} (installed: {installed[_name(text)]})" if _name(text) in installed else text
        for text in missing
        if text != _name(text) or names[text] == 1  # if a name is shown with a version, omit the bare name
    ]
    return Reason(kind="package_missing", text=f"missing {where}: {', '.join(shown)}; {cure}")


@lru_cache(maxsize=1024)
def _requirement(text: str) -> Any:
    from packaging.requirements import Requirement

    return Requirement(text)


def _is_requirement(text: str) -> bool:
    try:
        return _plain(text) or bool(_requirement(text))
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def _plain(text: str) -> bool:
    """Return whether the text is only a name. Then `packaging` is not imported."""
    return re.fullmatch(r"[\w.-]+", text) is not None


@lru_cache(maxsize=1024)
def _name(text: str) -> str:
    """Return the distribution's name in the form that `Machine.packages` uses."""
    return re.sub(r"[-_.]+", "-", text if _plain(text) else str(_requirement(text).name)).lower()


@lru_cache(maxsize=1024)
def _satisfied(text: str, version: str | None) -> bool:
    if version is None or _plain(text):
        return version is not None
    from packaging.version import Version

    try:
        # A vendor's build of a release may have a version before it, such as NVIDIA's 2.6.0a0+…: it is at least that release.
        before = Version(version).is_prerelease and Version(version).base_version
        return all(
            one.contains(version, prereleases=True)
            or (bool(before) and one.operator in (">=", "~=") and one.contains(before))
            for one in _requirement(text).specifier
        )
    except ValueError:  # some vendors' builds have an invalid version
        return False

"""The command that runs an experiment: argv, environment, and the generated accelerate configuration.

This module starts no process, and it reads nothing from the machine. A plan shows the command with `{gpus}`, `{port}` and
`{run_dir}` for the values that are known only at launch. On several nodes, `srun` starts the launcher once on each node; its rank
is `$SLURM_NODEID`, which only the node knows. One process and several processes use the same launcher with the same
settings. So in a comparison of 1 and n GPUs, only the number of GPUs differs. `machine.child_environment` removes variables such as
`ACCELERATE_*` and `RANK` from the parent's environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Any

from orchestrator import trainers
from orchestrator.machine.child_environment import RUN_DIR
from orchestrator.plan.command import parallelism
from orchestrator.plan.command.parallelism import DEEPSPEED, FSDP, MESH, distributed_type
from orchestrator.records import Command, Device, Experiment, Reason
from orchestrator.records.run_folder import OUTPUT, WORK, path_text
from orchestrator.trainers import argument_names, instrumented
from orchestrator.trainers.external import custom

CONFIG_NAME = "accelerate.yaml"

# OMP_NUM_THREADS. torchrun's default is 1 for several processes, and all cores for one process. On 2 cores, competing threads made
# a training 40 times slower.
THREADS: Mapping[Device, str] = {Device.CUDA: "4", Device.CPU: "1"}

# The launcher on one of several nodes: the interpreter is $0, and the launcher's other words follow.
_LAUNCH_ON_NODE = 'exec "$0" -m accelerate.commands.launch --machine_rank "$SLURM_NODEID" "$@"'

_FLASH = ("flash_attention_2", "flash_attention_3")
# Section of accelerate's configuration → the distributed type that reads it.
_READ_BY = {"fsdp_config": FSDP, MESH: FSDP, "deepspeed_config": DEEPSPEED}

# Tunebench decides these settings. The port is an option of the command. An environment variable lists the GPUs;
# `gpu_ids` would override it.
_OURS = frozenset({"gpu_ids", "main_process_ip", "main_process_port", "distributed_type"})


def build_command(
    experiment: Experiment,
    *,
    python: str,
    gpus: Sequence[str] | str,
    run_dir: Path,
    port: int | str,
    host: str = "127.0.0.1",
    files: bool = True,
) -> Command:
    """Return the command of one run, in its folder `run_dir`, on `gpus` (their ids, or a placeholder for them).

    The processes meet at `port` of `host`, the first node. For one node the host has no effect.

    A plan passes `files=False` to leave out the files that the command reads, because a plan shows only the command line and
    variables. A plan also shows the command of a skipped experiment. There, a placeholder without a value stays as it is.
    """
    visible = gpus if isinstance(gpus, str) else ",".join(gpus)
    if experiment.custom is not None:
        at_launch = {"gpus": visible, "port": str(port), "host": host, "python": python}
        words = custom.filled(experiment, run_dir=run_dir, at_launch=at_launch)
    else:
        words = trainers.get(experiment.trainer).command(experiment, run_dir)
        if experiment.num_gpus > 1 and "$" in "".join(words):
            words = [_literal(word) for word in words]
    env, cwd = environment(experiment, visible=visible, run_dir=run_dir), _working_folder(experiment, run_dir)
    if not trainers.get(experiment.trainer).launched:
        own = trainers.get(experiment.trainer).files(experiment, run_dir) if files else {}
        return Command(argv=(python, *words), env=env, cwd=cwd, files=own)
    if experiment.custom is not None and experiment.custom.launcher == "none":
        return Command(argv=(*step_on_each_node(experiment), *words), env=env, cwd=cwd)
    launch: tuple[str, ...] = (python, "-m", "accelerate.commands.launch")
    options = ["--config_file", path_text(run_dir, CONFIG_NAME), "--main_process_port", str(port)]
    if experiment.num_nodes > 1:
        launch = (*step_on_each_node(experiment), "sh", "-c", _LAUNCH_ON_NODE, python)
        options += ["--main_process_ip", host]
    return Command(
        argv=(*launch, *options, *words),
        env=env,
        cwd=cwd,
        files=_files(experiment, words, run_dir) if files else {},
    )


def step_on_each_node(experiment: Experiment) -> tuple[str, ...]:
    """Return the beginning of a command that Slurm starts once on each node; nothing for a single node.

    If a task fails on one node, the tasks on the other nodes are ended. The task may use all cores of its node.
    """
    nodes = experiment.num_nodes
    if nodes == 1:
        return ()
    gpus = f"gpu:{experiment.processes_per_node}" if experiment.device is Device.CUDA else "none"
    tasks = ("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--gres={gpus}")
    return (*tasks, "--kill-on-bad-exit=1", "--export=ALL", "--mpi=none", "--cpu-bind=none")


def _working_folder(experiment: Experiment, run_dir: Path) -> Path:
    """Return the folder in which the command starts: `work/` in the run's folder, except for a script.

    By default, a script starts in `output/`, which is removed after the run.
    """
    if experiment.script is None:
        return run_dir / WORK
    return run_dir / OUTPUT if experiment.script.cwd is None else Path(experiment.script.folder)


def _literal(word: str) -> str:
    """Return the word with `$` written as `$$` for torchrun. torchrun replaces `$$` by `$`, and `$local_rank` by a number."""
    if "$" not in word:
        return word
    return word.replace("$", "$$") if Template(word).safe_substitute(local_rank="") != word else word


def _files(experiment: Experiment, words: Sequence[str], run_dir: Path) -> dict[str, str]:
    """Return the files that the command reads from the run's folder, as name → text."""
    files = {CONFIG_NAME: accelerate_config(experiment), **trainers.get(experiment.trainer).files(experiment, run_dir)}
    if any(os.path.basename(word) == instrumented.FILE_NAME for word in words):
        files[instrumented.FILE_NAME] = instrumented.single_file()
    return files


def environment(experiment: Experiment, *, visible: str, run_dir: Path) -> dict[str, str | None]:
    """Return the variables that a run sets or unsets.

    A variable of the experiment replaces Tunebench's variable of the same name, except the one with the run's folder.
    """
    env: dict[str, str | None] = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": _visible(experiment, visible),
        "OMP_NUM_THREADS": THREADS[experiment.device],
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        RUN_DIR: str(run_dir),
    }
    if experiment.measure is not None:
        env["TUNEBENCH_MEASURE"] = json.dumps(experiment.measure.fields(), sort_keys=True)
    if experiment.steps is not None:
        env["TUNEBENCH_INSTRUMENT"] = "off"  # a script that reports its steps itself is not measured twice
    if experiment.device is Device.CPU:
        env["ACCELERATE_USE_CPU"] = "true"
    if experiment.framework is not None and experiment.framework.plugin_file is not None:
        env["ACCELERATION_FRAMEWORK_CONFIG_FILE"] = experiment.framework.plugin_file
    # Another folder may have files of the user, and the numbers of the run would be missing.
    return {**env, **trainers.get(experiment.trainer).variables, **experiment.env, RUN_DIR: str(run_dir)}


def _visible(experiment: Experiment, visible: str) -> str | None:
    """Return the GPUs that the processes see, or None if Slurm sets them on each node."""
    if experiment.device is Device.CPU:
        return ""
    return visible if experiment.num_nodes == 1 else None


def accelerate_config(experiment: Experiment) -> str:
    """Return the text of the run's accelerate configuration: the user's settings, overridden by the values of this run."""
    settings = {key: value for key, value in experiment.accelerate.items() if key not in _OURS and value is not None}
    kind = settings["distributed_type"] = distributed_type(experiment)
    settings = {key: value for key, value in settings.items() if _READ_BY.get(key, kind) == kind}
    if sizes := parallelism.mesh(experiment):
        settings[MESH] = {**settings[MESH], **sizes}
    else:
        settings.pop(MESH, None)
    if kind == DEEPSPEED:
        settings["deepspeed_config"] = _zero(settings.get("deepspeed_config", {}))
    settings |= {
        "compute_environment": "LOCAL_MACHINE",
        "machine_rank": 0,
        "num_machines": experiment.num_nodes,
        "num_processes": experiment.num_gpus,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": experiment.device is Device.CPU,
    }
    settings.setdefault("main_training_function", "main")
    settings["mixed_precision"] = _word(settings.get("mixed_precision", "no"))
    return _yaml(json.dumps(settings, sort_keys=True))


def _zero(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of DeepSpeed for a run.

    Without settings for accumulation and clipping, the trainer's arguments decide them. The standard launcher starts on each node.
    """
    kept = {name: value for name, value in settings.items() if not name.startswith("gradient_") and value is not None}
    return {**kept, "deepspeed_multinode_launcher": "standard"}


def plan_problems(experiment: Experiment) -> Reason | None:
    """Return the reason why this combination of settings can't work on any machine, or None."""
    return _model_problem(experiment) or parallelism.problem(experiment) or _cpu_problem(experiment)


def _model_problem(experiment: Experiment) -> Reason | None:
    if not experiment.model.startswith("config:") or trainers.get(experiment.trainer).builds_models:
        return None
    text = f"trainer {experiment.trainer} can't build {experiment.model}; name a local folder or a hub model"
    return Reason(kind="model_of_other_trainer", text=text)


def _cpu_problem(experiment: Experiment) -> Reason | None:
    """Return the reason why a setting of an experiment on CPUs is refused, or None.

    With such a setting, the run would fail late, or silently use a different setting.
    """
    if experiment.device is not Device.CPU:
        return None
    arguments = experiment.arguments
    if experiment.num_gpus > 1 and argument_names.is_true(arguments.get("fsdp")):
        return parallelism.FSDP_ON_CPU
    attention = arguments.get("attn_implementation")
    if attention in _FLASH:
        return Reason(kind="flash_attention_on_cpu", text=f"{attention} needs a GPU; use sdpa or eager on a CPU")
    if argument_names.is_true(arguments.get("use_liger_kernel")):
        return Reason(kind="liger_on_cpu", text="Liger kernels need a GPU; remove use_liger_kernel on a CPU")
    precision = _word(experiment.accelerate.get("mixed_precision", "no"))
    if argument_names.is_true(arguments.get("fp16")) or precision in ("fp16", "fp8"):
        word = "fp16" if precision == "no" else precision
        return Reason(kind="precision_on_cpu", text=f"mixed precision {word} needs a GPU; use bf16 on a CPU")
    return None


def _word(value: object) -> str:
    """Return a value of a configuration as a word. False and None become `no`, because YAML reads a bare `no` as False."""
    return "no" if value is None or value is False else str(value)


@lru_cache(maxsize=512)
def _yaml(settings: str) -> str:
    """Return a JSON object as YAML. The results are cached: dumping YAML is slow, and many cells have the same configuration."""
    import yaml

    content: Any = json.loads(settings)
    return "# Written by tunebench for this run.\n" + yaml.safe_dump(content, sort_keys=True, allow_unicode=True)

"""An experiment and its GPUs -> the command that runs it: argv, environment, the generated accelerate configuration.

Pure: it starts nothing and looks at no machine, so a plan can show what a run will do, with `{gpus}`, `{port}` and
`{run_dir}` in place of what is known only then. The launcher is the same for one process and for many, and so are its
settings: a comparison of 1 and n GPUs compares nothing else. What would leak in from the parent's environment
(`ACCELERATE_*`, `RANK`…) is taken out by whoever starts the command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Any

from orchestrator import trainers
from orchestrator.errors import LaunchError
from orchestrator.records import Command, Device, Experiment, Reason
from orchestrator.trainers import argument_names, custom, instrumented

CONFIG_NAME = "accelerate.yaml"

# torchrun takes 1 for many processes and the machine's all for one; contended threads cost a factor of 40 on 2 cores.
THREADS: Mapping[Device, str] = {Device.CUDA: "4", Device.CPU: "1"}

_FSDP_ON_CPU = Reason(
    kind="fsdp_on_cpu", text="FSDP needs GPUs: on CPU processes accelerate would run plain DDP under its name"
)
_FLASH = ("flash_attention_2", "flash_attention_3")
_PLAIN = ("MULTI_GPU", "NO", "MULTI_CPU")
_FSDP = "FSDP"


def build_command(
    experiment: Experiment,
    *,
    python: str,
    gpus: Sequence[str] | str,
    run_dir: Path,
    port: int | str,
    files: bool = True,
) -> Command:
    """Return the command of one run, in its folder `run_dir`, on `gpus` (ids, or text in their place).

    Without `files`, the command's files are left out: a plan shows only its words and variables.
    Raises LaunchError where the plan should have refused the experiment.
    """
    visible = gpus if isinstance(gpus, str) else ",".join(gpus)
    if experiment.custom is not None:
        missing = custom.unknown_placeholders(experiment)
        if missing:
            raise LaunchError(_placeholder_sentence(experiment, missing))
        at_launch = {"gpus": visible, "port": str(port), "python": python}
        words = custom.filled(experiment, run_dir=run_dir, at_launch=at_launch)
    else:
        words = trainers.get(experiment.trainer).command(experiment, run_dir)
        words = [_literal(word) for word in words] if experiment.num_gpus > 1 else words
    env = environment(experiment, visible=visible, run_dir=run_dir)
    if experiment.custom is not None and experiment.custom.launcher == "none":
        return Command(argv=tuple(words), env=env, cwd=run_dir)
    prefix = (python, "-m", "accelerate.commands.launch", "--config_file", str(run_dir / CONFIG_NAME))
    return Command(
        argv=(*prefix, "--main_process_port", str(port), *words),
        env=env,
        cwd=run_dir,
        files=_files(experiment, words) if files else {},
    )


def _literal(word: str) -> str:
    """Return the word in the form that torchrun needs, which reads `$$` as `$` and `$local_rank` as a number.

    A user's own command may mean just that, and is left as it is.
    """
    if "$" not in word:
        return word
    return word.replace("$", "$$") if Template(word).safe_substitute(local_rank="") != word else word


def _files(experiment: Experiment, words: Sequence[str]) -> dict[str, str]:
    """What the command reads from the run's folder, by name."""
    files = {CONFIG_NAME: accelerate_config(experiment)}
    if any(os.path.basename(word) == instrumented.FILE_NAME for word in words):
        files[instrumented.FILE_NAME] = instrumented.single_file()
    return files


def environment(experiment: Experiment, *, visible: str, run_dir: Path) -> dict[str, str | None]:
    """What the run's environment differs by from its parent's. The experiment's own variables come last."""
    env: dict[str, str | None] = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "" if experiment.device is Device.CPU else visible,
        "OMP_NUM_THREADS": THREADS[experiment.device],
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TUNEBENCH_RUN_DIR": str(run_dir),
    }
    if experiment.measure is not None:
        env["TUNEBENCH_MEASURE"] = json.dumps(asdict(experiment.measure), sort_keys=True)
    if experiment.device is Device.CPU:
        env["ACCELERATE_USE_CPU"] = "true"
    if experiment.framework is not None and experiment.framework.plugin_file is not None:
        env["ACCELERATION_FRAMEWORK_CONFIG_FILE"] = experiment.framework.plugin_file
    return {**env, **experiment.env}


def accelerate_config(experiment: Experiment) -> str:
    """The text of the run's accelerate configuration: the user's settings, and over them what we know better."""
    settings = {key: value for key, value in experiment.accelerate.items() if key not in _OURS and value is not None}
    settings["distributed_type"] = distributed_type(experiment)
    if settings["distributed_type"] != _FSDP:
        settings = {key: value for key, value in settings.items() if key not in _FOR_SHARDING}
    settings |= {
        "compute_environment": "LOCAL_MACHINE",
        "machine_rank": 0,
        "num_machines": 1,
        "num_processes": experiment.num_gpus,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": experiment.device is Device.CPU,
    }
    settings.setdefault("main_training_function", "main")
    settings["mixed_precision"] = _word(settings.get("mixed_precision", "no"))
    return _yaml(json.dumps(settings, sort_keys=True))


_FOR_SHARDING = frozenset({"fsdp_config", "parallelism_config"})

# The port goes on the command line and the GPUs into the environment: gpu_ids here would override the latter.
_OURS = frozenset({"gpu_ids", "main_process_ip", "main_process_port", "distributed_type"})


def distributed_type(experiment: Experiment) -> str:
    """How accelerate is to distribute. One process is never wrapped, whatever the configuration says.

    CPU processes need the type for GPUs: for any other accelerate starts one process alone. It takes gloo by itself.
    """
    if experiment.num_gpus == 1:
        return "NO"
    return _FSDP if _asked_type(experiment) == _FSDP else "MULTI_GPU"


def plan_problems(experiment: Experiment) -> Reason | None:
    """Why this combination can't work on any machine, or None. Says it in the plan, not after an hour of queueing."""
    for check in (_custom_problem, _model_problem, _distribution_problem, _cpu_problem):
        problem = check(experiment)
        if problem is not None:
            return problem
    return None


def _custom_problem(experiment: Experiment) -> Reason | None:
    if experiment.custom is None:
        return None
    missing = custom.unknown_placeholders(experiment)
    if missing:
        return Reason(kind="unknown_placeholder", text=_placeholder_sentence(experiment, missing))
    problems = custom.source_problems(experiment.custom)
    return Reason(kind="custom_metrics", text="; ".join(problems)) if problems else None


def _model_problem(experiment: Experiment) -> Reason | None:
    if not experiment.model.startswith("config:") or trainers.get(experiment.trainer).builds_models:
        return None
    text = (
        f"{experiment.trainer} loads models and builds none: name a folder or a hub model instead of {experiment.model}"
    )
    return Reason(kind="model_of_other_trainer", text=text)


def _distribution_problem(experiment: Experiment) -> Reason | None:
    """A single process runs without wrapping, so its distributed type is of no account."""
    asked = _asked_type(experiment)
    if experiment.num_gpus == 1 or asked in _PLAIN:
        return None
    if asked != _FSDP:
        text = f"distributed_type {asked} is not supported; MULTI_GPU (DDP) and FSDP are"
        return Reason(kind="unsupported_distribution", text=text)
    return _FSDP_ON_CPU if experiment.device is Device.CPU else None


def _cpu_problem(experiment: Experiment) -> Reason | None:
    """What needs a GPU and would stop the run after its start, or silently be something else."""
    if experiment.device is not Device.CPU:
        return None
    arguments = experiment.arguments
    if experiment.num_gpus > 1 and argument_names.is_true(arguments.get("fsdp")):
        return _FSDP_ON_CPU
    attention = arguments.get("attn_implementation")
    if attention in _FLASH:
        return Reason(kind="flash_attention_on_cpu", text=f"{attention} needs a GPU; sdpa and eager run on a CPU")
    if argument_names.is_true(arguments.get("use_liger_kernel")):
        return Reason(kind="liger_on_cpu", text="liger kernels need a GPU; leave use_liger_kernel out on a CPU")
    precision = _word(experiment.accelerate.get("mixed_precision", "no"))
    if argument_names.is_true(arguments.get("fp16")) or precision in ("fp16", "fp8"):
        word = "fp16" if precision == "no" else precision
        return Reason(kind="precision_on_cpu", text=f"mixed precision {word} needs a GPU; bf16 runs on a CPU")
    return None


def _asked_type(experiment: Experiment) -> str:
    return _word(experiment.accelerate.get("distributed_type", "MULTI_GPU")).upper()


def _word(value: object) -> str:
    """A word of a configuration; YAML makes False of a bare `no`."""
    return "no" if value is None or value is False else str(value)


def _placeholder_sentence(experiment: Experiment, missing: set[str]) -> str:
    shown = ", ".join(f"{{{name}}}" for name in sorted(missing))
    given = ", ".join((*custom.PROVIDED, *(name for name in experiment.arguments if name not in custom.PROVIDED)))
    return f"the command asks for {shown}, which no argument gives; given are: {given}"


@lru_cache(maxsize=512)
def _yaml(settings: str) -> str:
    """YAML of a JSON object; few configurations are shared by many cells, and dumping YAML is slow."""
    import yaml

    content: Any = json.loads(settings)
    return "# Written by tunebench for this run.\n" + yaml.safe_dump(content, sort_keys=True, allow_unicode=True)

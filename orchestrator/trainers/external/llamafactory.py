"""LLaMA-Factory, `python -m llamafactory.launcher FILE.yaml`, under `workers/instrument/`.

`llamafactory-cli train` starts torchrun if it sees several GPUs, or if FORCE_TORCHRUN is set. The module `llamafactory.launcher` is
what torchrun would start. accelerate starts it here, so that no process starts processes of its own.

By default LLaMA-Factory checkpoints activations, unlike Tunebench's other trainers. So that rows of a table are comparable,
`disable_gradient_checkpointing` is always passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.records import Experiment, Reason, Text
from orchestrator.trainers import argument_names
from orchestrator.trainers.external.config_file import ConfigFileTrainer

_ALWAYS: Mapping[str, Text] = MappingProxyType({"do_train": "True", "disable_gradient_checkpointing": "True"})


class LlamaFactory(ConfigFileTrainer):
    """LLaMA-Factory's training."""

    name = "llamafactory"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate", "llamafactory")
    target = ("-m", "llamafactory.launcher")
    table = argument_names.LLAMAFACTORY
    base_arguments: Mapping[str, Text] = _ALWAYS

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        return {**_ALWAYS, **super().arguments(experiment, run_dir)}

    def problem(self, experiment: Experiment) -> Reason | None:
        missing = [name for name in ("dataset", "template") if name not in experiment.arguments]
        if not missing:
            return None
        text = f"trainer llamafactory needs the argument {missing[0]}; write the name that LLaMA-Factory gives it"
        return Reason(kind="llamafactory", text=text)

"""trl's supervised fine-tuning script, `python -m trl.scripts.sft`, under `workers/instrument/`.

The arguments have the names of trl 1.x. By default trl uses bf16 and gradient checkpointing, unlike Tunebench's other trainers.
So that rows of a table are comparable, the arguments `bf16` and `gradient_checkpointing` are always passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.records import Experiment, Text
from orchestrator.trainers import argument_names, instrumented
from orchestrator.trainers.instrumented import InstrumentedTrainer

ALWAYS_PASSED: Mapping[str, Text] = MappingProxyType({"bf16": "False", "gradient_checkpointing": "False"})


# Argument → the package that is needed if the argument is true.
PACKAGES = {
    **{"use_peft": "peft", "load_in_4bit": "bitsandbytes", "load_in_8bit": "bitsandbytes"},
    "use_liger_kernel": "liger-kernel",
}


class Trl(InstrumentedTrainer):
    """The sft script of trl."""

    name = "trl"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate", "datasets", "trl>=1.0")
    target = ("-m", "trl.scripts.sft")
    table = argument_names.TRL
    data_form: str | None = "text"
    builds_models: bool = False
    base_arguments: Mapping[str, Text] = ALWAYS_PASSED

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        arguments = dict(experiment.arguments)
        if experiment.data_path is not None and "dataset_name" not in arguments:
            arguments["dataset_name"] = experiment.data_path
            if experiment.data is not None:
                arguments.setdefault("dataset_text_field", experiment.data.text_field)
        for name, value in ALWAYS_PASSED.items():
            arguments.setdefault(name, value)
        return instrumented.with_run_folder(arguments, run_dir)

    def requires_for(self, arguments: Mapping[str, Text]) -> tuple[str, ...]:
        needed = [package for name, package in PACKAGES.items() if argument_names.is_true(arguments.get(name))]
        return (*self.requires, *dict.fromkeys(needed))

"""trl's supervised fine-tuning script, `python -m trl.scripts.sft`, under `workers/instrument/`.

Names are those of trl 1.x. Its bf16 and gradient checkpointing are on unless told otherwise, unlike every other
trainer's here: both are always passed, so that a table compares what it says it compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.records import Experiment, Measurement, Text
from orchestrator.trainers import instrumented, names
from orchestrator.trainers.trainer import Trainer

ALWAYS_PASSED: Mapping[str, Text] = MappingProxyType({"bf16": "False", "gradient_checkpointing": "False"})


class Trl(Trainer):
    """The sft script of trl."""

    name = "trl"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate", "datasets", "trl>=1.0")
    instrumented = True
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

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        words = instrumented.flags(self.arguments(experiment, run_dir))
        return instrumented.command(run_dir, "-m", "trl.scripts.sft", *words)

    def metrics(self, run_dir: Path) -> list[Measurement]:
        return instrumented.measurements(run_dir)

    def requires_for(self, arguments: Mapping[str, Text]) -> tuple[str, ...]:
        needed = list(self.requires)
        if names.is_true(arguments.get("use_peft")):
            needed.append("peft")
        if names.is_true(arguments.get("load_in_4bit")) or names.is_true(arguments.get("load_in_8bit")):
            needed.append("bitsandbytes")
        if names.is_true(arguments.get("use_liger_kernel")):
            needed.append("liger-kernel")
        return tuple(needed)

    def translate(self, arguments: Mapping[str, Text | None]) -> tuple[dict[str, Text | None], tuple[str, ...]]:
        return names.translate(names.TRL, arguments)

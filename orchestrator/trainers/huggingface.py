"""The built-in trainer: `workers/sft/sft.py`, a plain transformers Trainer script, under `workers/instrument/`.

Turns an experiment into its command line and its worker files into numbers. What the script does with the arguments is
the script's own affair; their names are the canonical ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.records import Experiment, Measurement, Text
from orchestrator.trainers import instrumented, names
from orchestrator.trainers.trainer import NOTHING, Trainer

SCRIPT = str(instrumented.WORKERS / "sft" / "sft.py")


class HuggingFace(Trainer):
    """transformers Trainer and peft, by the script that ships with Tunebench."""

    name = "huggingface"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate")
    instrumented = True
    data_form: str | None = "tokens"
    base_arguments: Mapping[str, Text] = NOTHING

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        arguments = dict(experiment.arguments)
        if experiment.data_path is not None:
            arguments["training_data_path"] = experiment.data_path  # the user's own file, too, is read as prepared
        return instrumented.with_run_folder(arguments, run_dir)

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        words = instrumented.flags(self.arguments(experiment, run_dir))
        return instrumented.command(run_dir, SCRIPT, *words)

    def metrics(self, run_dir: Path) -> list[Measurement]:
        return instrumented.measurements(run_dir)

    def requires_for(self, arguments: Mapping[str, Text]) -> tuple[str, ...]:
        needed = list(self.requires)
        if arguments.get("peft_method", "none") != "none":
            needed.append("peft")
        if arguments.get("quantization") in {"nf4", "fp4", "int8"}:
            needed.append("bitsandbytes")
        if arguments.get("quantization") == "gptq":
            needed += ["optimum", "gptqmodel"]
        if names.is_true(arguments.get("use_liger_kernel")):
            needed.append("liger-kernel")
        return tuple(needed)

    def translate(self, arguments: Mapping[str, Text | None]) -> tuple[dict[str, Text | None], tuple[str, ...]]:
        return names.translate(names.HUGGINGFACE, arguments)

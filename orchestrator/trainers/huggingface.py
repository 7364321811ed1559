"""The built-in trainer: `workers/sft/sft.py`, a plain transformers Trainer script, under `workers/instrument/`.

Its argument names are the canonical names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.files.cache import cache_folder
from orchestrator.files.package import WORKERS
from orchestrator.records import Experiment, Text
from orchestrator.trainers import argument_names, instrumented
from orchestrator.trainers.instrumented import InstrumentedTrainer

# Thunder's newest release has no upper bound for torch, and cannot be imported with torch 2.13.
THUNDER = ("torch>=2.7.1,<2.12", "lightning-thunder")

QUANTIZATION_PACKAGES: Mapping[Text, tuple[str, ...]] = {
    **dict.fromkeys(("nf4", "fp4", "int8"), ("bitsandbytes",)),
    "gptq": ("optimum", "gptqmodel"),
}

# Optimizers of transformers (`optim`) whose code is in another package.
OPTIMIZER_PACKAGES: Mapping[Text, tuple[str, ...]] = {
    **dict.fromkeys(
        ("adamw_bnb_8bit", "adamw_8bit", "ademamix", "ademamix_8bit", "lion_8bit", "lion_32bit"), ("bitsandbytes",)
    ),
    **dict.fromkeys(
        (f"paged_{name}_{bits}bit" for name in ("adamw", "ademamix", "lion") for bits in (8, 32)), ("bitsandbytes",)
    ),
    **dict.fromkeys(("rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit"), ("bitsandbytes",)),
    **dict.fromkeys(("adamw_torch_4bit", "adamw_torch_8bit"), ("torchao",)),
}


class HuggingFace(InstrumentedTrainer):
    """The trainer that uses transformers' Trainer and peft, with a script that ships with Tunebench."""

    name = "huggingface"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate")
    target = (str(WORKERS / "sft" / "sft.py"),)
    table = argument_names.HUGGINGFACE
    data_form: str | None = "tokens"
    starts_warm = True

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        arguments = dict(experiment.arguments)
        if experiment.data_path is not None:
            # This also replaces a user's own file by its prepared copy.
            arguments["training_data_path"] = experiment.data_path
        if arguments.get("weights") == "saved":
            arguments["weights_folder"] = str(cache_folder() / "weights")
        return instrumented.with_run_folder(arguments, run_dir)

    def requires_for(self, arguments: Mapping[str, Text]) -> tuple[str, ...]:
        peft = ("peft",) if arguments.get("peft_method", "none") != "none" else ()
        quantization = QUANTIZATION_PACKAGES.get(arguments.get("quantization", "none"), ())
        liger = ("liger-kernel",) if argument_names.is_true(arguments.get("use_liger_kernel")) else ()
        thunder = THUNDER if arguments.get("torch_compile_backend") == "thunder" else ()
        optimizer = OPTIMIZER_PACKAGES.get(arguments.get("optim", ""), ())
        return (*self.requires, *peft, *quantization, *liger, *thunder, *optimizer)

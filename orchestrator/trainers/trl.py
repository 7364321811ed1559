"""trl's scripts for supervised fine-tuning and for DPO, `python -m trl.scripts.sft` and `dpo`, under `workers/instrument/`.

The arguments have the names of trl 1.x. By default trl uses bf16 and gradient checkpointing, unlike Tunebench's other trainers.
So that rows of a table are comparable, the arguments `bf16` and `gradient_checkpointing` are always passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.records import Caveat, Experiment, Measurement, Reason, Text
from orchestrator.trainers import argument_names, instrumented
from orchestrator.trainers.instrumented import InstrumentedTrainer

ALWAYS_PASSED: Mapping[str, Text] = MappingProxyType({"bf16": "False", "gradient_checkpointing": "False"})


# Argument → the package that is needed if the argument is true.
PACKAGES = {
    **{"use_peft": "peft", "load_in_4bit": "bitsandbytes", "load_in_8bit": "bitsandbytes"},
    "use_liger_kernel": "liger-kernel",
}


_WITHOUT_LABELS = Caveat(detail="a batch of preferences has no labels")


class Trl(InstrumentedTrainer):
    """The sft script of trl."""

    name = "trl"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate", "datasets", "trl>=1.0")
    target = ("-m", "trl.scripts.sft")
    table = argument_names.TRL
    data_form: str | None = "text"
    starts_warm = True
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


class TrlDpo(Trl):
    """The DPO script of trl. A row of its data is a pair: a chosen and a rejected answer. So a pair is two samples of a batch."""

    name = "trl_dpo"
    target = ("-m", "trl.scripts.dpo")
    table = argument_names.TRL_DPO
    data_form = None

    def problem(self, experiment: Experiment) -> Reason | None:
        if "packing" in experiment.arguments:
            text = "trainer trl_dpo cannot pack rows, because each pair is compared; remove packing"
            return Reason(kind="packed_preferences", text=text)
        if "dataset_name" in experiment.arguments or "datasets" in experiment.arguments:
            return None
        text = "trainer trl_dpo needs preferences; write dataset_name: and a hub name or the path of your own folder"
        return Reason(kind="no_preferences", text=text)

    def metrics(self, run_dir: Path) -> list[Measurement]:
        """Return the Trainer's metrics, the pairs per second, and the reason why tokens with a label are missing."""
        from orchestrator.measure import throughput
        from orchestrator.measure.rank_files import worker_files

        workers = worker_files(run_dir)
        missing = Measurement(name="labelled_tokens_per_s", value=None, source="worker", missing=_WITHOUT_LABELS)
        found = [*super().metrics(run_dir), missing]
        steps = throughput.read(run_dir, workers, world_size=len(workers)).measurements if workers else ()
        samples = next((number.value for number in steps if number.name == "samples_per_s"), None)
        if isinstance(samples, (int, float)):
            found.append(Measurement(name="pairs_per_s", value=samples / 2, source="steps of all ranks"))
        return found

"""fms-hf-tuning, `python -m tuning.sft_trainer`, under `workers/instrument/`.

Its arguments have the names of the reference's scenario files, so that those files expand to the same runs. The launcher
names the plugin file of the acceleration framework in an environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.records import Experiment, Text
from orchestrator.trainers import argument_names, instrumented
from orchestrator.trainers.instrumented import InstrumentedTrainer


class FmsHfTuning(InstrumentedTrainer):
    """The trainer of the reference's scenario files."""

    name = "fms_hf_tuning"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate", "fms-hf-tuning")
    target = ("-m", "tuning.sft_trainer")
    table = argument_names.FMS_HF_TUNING
    data_form: str | None = "text"
    builds_models: bool = False
    base_arguments: Mapping[str, Text] = MappingProxyType({"packing": "True", "max_seq_len": "4096"})

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        arguments = dict(experiment.arguments)
        if experiment.data_path is not None:
            arguments.setdefault("training_data_path", instrumented.data_file(experiment.data_path))
        return instrumented.with_run_folder(arguments, run_dir)

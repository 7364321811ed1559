"""fms-hf-tuning, `python -m tuning.sft_trainer`, under `workers/instrument/`.

Its arguments stay as the scenario files of the reference have them, so that those files expand to the same runs. The
acceleration framework's plugin file goes by environment variable, which is the launcher's to set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.records import Experiment, Measurement, Text
from orchestrator.trainers import instrumented, names
from orchestrator.trainers.trainer import Trainer


class FmsHfTuning(Trainer):
    """The trainer of the reference's scenario files."""

    name = "fms_hf_tuning"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate", "fms-hf-tuning")
    instrumented = True
    data_form: str | None = "text"
    builds_models: bool = False
    base_arguments: Mapping[str, Text] = MappingProxyType({"packing": "True", "max_seq_len": "4096"})

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        arguments = dict(experiment.arguments)
        if experiment.data_path is not None:
            arguments.setdefault("training_data_path", instrumented.data_file(experiment.data_path))
        return instrumented.with_run_folder(arguments, run_dir)

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        words = instrumented.flags(self.arguments(experiment, run_dir))
        return instrumented.command(run_dir, "-m", "tuning.sft_trainer", *words)

    def metrics(self, run_dir: Path) -> list[Measurement]:
        return instrumented.measurements(run_dir)

    def translate(self, arguments: Mapping[str, Text | None]) -> tuple[dict[str, Text | None], tuple[str, ...]]:
        return names.translate(names.FMS_HF_TUNING, arguments)

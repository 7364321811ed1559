"""Axolotl, `python -m axolotl.cli.train FILE.yaml`, under `workers/instrument/`.

The module trains in its own process, whereas the command `axolotl train` would start accelerate itself. Arguments have Axolotl's
own names. In an experiment, the model and the batch have the names of Tunebench, so that axes and batches work as for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.records import Experiment, Reason, Text
from orchestrator.trainers import argument_names
from orchestrator.trainers.external.config_file import ConfigFileTrainer

_IN_FILE = {"model_name_or_path": "base_model", "per_device_train_batch_size": "micro_batch_size"}


class Axolotl(ConfigFileTrainer):
    """Axolotl's training."""

    name = "axolotl"
    requires: tuple[str, ...] = ("torch", "transformers", "accelerate", "axolotl")
    target = ("-m", "axolotl.cli.train")
    table = argument_names.AXOLOTL
    takes_defaults = False
    variables: Mapping[str, str] = MappingProxyType({"AXOLOTL_DO_NOT_TRACK": "1"})

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        return {_IN_FILE.get(name, name): value for name, value in super().arguments(experiment, run_dir).items()}

    def problem(self, experiment: Experiment) -> Reason | None:
        if "datasets" in experiment.arguments or "pretraining_dataset" in experiment.arguments:
            return None
        text = "trainer axolotl needs data; write datasets: and a list such as [{path: tatsu-lab/alpaca, type: alpaca}]"
        return Reason(kind="axolotl", text=text)

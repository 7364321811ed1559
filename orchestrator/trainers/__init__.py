"""The trainers: a dict from name to instance. Other packages add trainers under the entry-point group `tunebench.trainers`."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.entry_points import Registry
from orchestrator.trainers.external.axolotl import Axolotl
from orchestrator.trainers.external.custom import Custom
from orchestrator.trainers.external.litgpt import LitGpt
from orchestrator.trainers.external.llamafactory import LlamaFactory
from orchestrator.trainers.external.operators import Operators
from orchestrator.trainers.external.pytest_benchmark import PytestBenchmark
from orchestrator.trainers.external.thunder import Thunder
from orchestrator.trainers.fms_hf_tuning import FmsHfTuning
from orchestrator.trainers.huggingface import HuggingFace
from orchestrator.trainers.script import OwnScript
from orchestrator.trainers.trainer import Trainer
from orchestrator.trainers.trl import Trl, TrlDpo

__all__ = ["TRAINERS", "Trainer", "get", "known", "load_problems"]

TRAINERS: Mapping[str, Trainer] = {
    "huggingface": HuggingFace(),
    "fms_hf_tuning": FmsHfTuning(),
    "trl": Trl(),
    "trl_dpo": TrlDpo(),
    "script": OwnScript(),
    "custom": Custom(),
    "llamafactory": LlamaFactory(),
    "axolotl": Axolotl(),
    "litgpt": LitGpt(),
    "thunder": Thunder(),
    "operators": Operators(),
    "pytest_benchmark": PytestBenchmark(),
}

_REGISTRY = Registry(kind=Trainer, group="tunebench.trainers", ours=TRAINERS)
get, known, load_problems = _REGISTRY.get, _REGISTRY.names, _REGISTRY.load_problems

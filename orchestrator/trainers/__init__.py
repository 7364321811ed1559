"""The trainers, one dict: name -> instance. Third parties add theirs by the entry-point group `tunebench.trainers`.

An entry point is loaded when a trainer that is not ours is asked for; one that fails to load is reported by its name
and never stops the program. A trainer of ours can't be replaced from outside.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator import plugs
from orchestrator.errors import SelectionError
from orchestrator.trainers.custom import Custom
from orchestrator.trainers.fms_hf_tuning import FmsHfTuning
from orchestrator.trainers.huggingface import HuggingFace
from orchestrator.trainers.trainer import Trainer
from orchestrator.trainers.trl import Trl

__all__ = ["ENTRY_POINTS", "TRAINERS", "Trainer", "get", "known", "load_problems"]

ENTRY_POINTS = "tunebench.trainers"

TRAINERS: Mapping[str, Trainer] = {
    "huggingface": HuggingFace(),
    "fms_hf_tuning": FmsHfTuning(),
    "trl": Trl(),
    "custom": Custom(),
}


def get(name: str) -> Trainer:
    """The trainer of that name. Raises SelectionError, which says what there is and what failed to load."""
    if name in TRAINERS:
        return TRAINERS[name]
    others, problems = _third_parties()
    if name in others:
        return others[name]
    raise SelectionError(" ".join([f"There is no trainer {name!r}; there are: {', '.join(known())}.", *problems]))


def known() -> tuple[str, ...]:
    """Every trainer that can be asked for, ours first."""
    return (*TRAINERS, *sorted(_third_parties()[0]))


def load_problems() -> tuple[str, ...]:
    """A sentence for each installed trainer that could not be loaded."""
    return _third_parties()[1]


def _third_parties() -> tuple[Mapping[str, Trainer], tuple[str, ...]]:
    return plugs.installed(ENTRY_POINTS, Trainer, ours=TRAINERS)

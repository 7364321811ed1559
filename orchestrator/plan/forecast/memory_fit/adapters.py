"""Adapters that are trained instead of a model's weights: their rank and the matrices that they adapt.

Only LoRA is known; every other `peft_method` raises NotKnown. `model_states` and `activations` compute the memory of the adapters.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.plan.forecast.memory_fit.read_argument import is_off, whole, word
from orchestrator.plan.forecast.memory_fit.shapes import ModelShape, NotKnown
from orchestrator.records import Text, as_items

# PEFT's own choice of matrices, for arguments without `target_modules`.
PEFT_DEFAULTS: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("llama", "mistral", "qwen2", "qwen3"), frozenset({"q_proj", "v_proj"})
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """The settings of LoRA: rank, names of the adapted matrices, and whether their inputs get dropout."""

    rank: int
    targets: frozenset[str]
    dropout: bool

    def parameters(self, shape: ModelShape) -> int:
        """Return the number of parameters in the adapters of one layer."""
        adapted = (matrix for matrix in shape.matrices if matrix.name in self.targets)
        return sum(self.rank * (matrix.inputs + matrix.outputs) for matrix in adapted)


def adapters_of(arguments: Mapping[str, Text], shape: ModelShape) -> Adapters | None:
    """Return the adapters that the arguments ask for, or None. Raises NotKnown."""
    method = word(arguments, "peft_method") or "none"
    if method == "none":
        return None
    if method != "lora":
        raise NotKnown(f"peft_method {method}")
    return Adapters(
        rank=whole(arguments, "r", 8),
        targets=_targets(arguments.get("target_modules"), shape),
        dropout=not is_off(arguments.get("lora_dropout", "0")),
    )


def _targets(given: Text | None, shape: ModelShape) -> frozenset[str]:
    names = frozenset(matrix.name for matrix in shape.matrices)
    if given is None or given == "None":
        if shape.family not in PEFT_DEFAULTS:
            raise NotKnown(f"the default target_modules for {shape.family}")
        return PEFT_DEFAULTS[shape.family]
    words = as_items(given)
    if len(words) == 1 and words[0].startswith("["):
        try:
            words = [str(word) for word in ast.literal_eval(words[0])]
        except (ValueError, SyntaxError, TypeError) as error:
            raise NotKnown(f"target_modules {words[0]!r}") from error
    if list(words) == ["all-linear"]:
        if shape.experts:  # PEFT adapts router and experts, too, and adds each product to a copy of the whole weight
            raise NotKnown("adapters of experts")
        return names
    if not words or not names.issuperset(words):
        raise NotKnown(f"target_modules {', '.join(words)}")
    return frozenset(words)

"""Adapters that are trained in the place of a model's weights: which matrices they stand beside, and how wide they are.

LoRA alone is known; any other way of `peft_method` is NotKnown. What they take is `standing`'s and `activations`'s to reckon.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.plan.memory_fit.read_argument import is_off, whole, word
from orchestrator.plan.memory_fit.shapes import ModelShape, NotKnown
from orchestrator.records import Text, as_items

PEFT_DEFAULTS: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("llama", "mistral", "qwen2", "qwen3"), frozenset({"q_proj", "v_proj"})
)
"""What LoRA adapts where `target_modules` does not say, as PEFT has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """LoRA: rank, the names of the adapted matrices, whether their inputs are dropped out."""

    rank: int
    targets: frozenset[str]
    dropout: bool


def adapters_of(arguments: Mapping[str, Text], shape: ModelShape) -> Adapters | None:
    """Those that the arguments ask for. Raises NotKnown."""
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
            raise NotKnown(f"what LoRA adapts of {shape.family} by itself")
        return PEFT_DEFAULTS[shape.family]
    words = as_items(given)
    if len(words) == 1 and words[0].startswith("["):
        try:
            words = [str(word) for word in ast.literal_eval(words[0])]
        except (ValueError, SyntaxError, TypeError) as error:
            raise NotKnown(f"target_modules {words[0]!r}") from error
    if list(words) == ["all-linear"]:
        return names
    if not words or not names.issuperset(words):
        raise NotKnown(f"target_modules {', '.join(words)}")
    return frozenset(words)

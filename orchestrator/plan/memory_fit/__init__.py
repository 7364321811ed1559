"""The peak GPU memory of an experiment, estimated from its configuration alone, and whether a card can hold it.

Seven nouns: `shapes` (a model's sizes, from its configuration file), `adapters` (what is trained beside its weights), `training`
(what of an experiment's arguments decides about memory), `standing` (weights, gradients, optimizer states), `activations` (what
the forward pass keeps for the backward pass), `estimate` (the moments of a training step and the largest of them), `verdict` (an
estimate against a card, in words).
Nothing here needs a GPU, torch or transformers, starts a process or goes to a network; docs/memory-fit.md says how far the
numbers hold.
"""

from orchestrator.plan.memory_fit.estimate import Estimate, Moment, Unknown, estimate
from orchestrator.plan.memory_fit.verdict import Fit, column, fits, json_value, parse_memory, summary

__all__ = [
    "Estimate",
    "Fit",
    "Moment",
    "Unknown",
    "column",
    "estimate",
    "fits",
    "json_value",
    "parse_memory",
    "summary",
]

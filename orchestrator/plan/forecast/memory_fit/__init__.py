"""An estimate of an experiment's peak GPU memory from its configuration, and a verdict: whether the experiment fits on a GPU.

- `shapes`: the sizes of a model, from its configuration file;
- `adapters`: the trained adapters;
- `training`: the settings that memory depends on;
- `launch`: number types, and the division of work between processes;
- `model_states`: weights, gradients, copies; `optimizer`: the optimizer's states; `gathered`: the weights that FSDP gathers;
- `activations`: the bytes that the forward pass keeps for the backward pass;
- `estimate`: the sum at each moment of a training step, and the largest sum;
- `verdict`: the comparison with a GPU's capacity, in words.

The estimate needs no GPU, torch, transformers, process or network. docs/memory-fit.md lists the errors of the estimate.
"""

from orchestrator.plan.forecast.memory_fit.estimate import Estimate, Moment, Unknown, estimate
from orchestrator.plan.forecast.memory_fit.verdict import (
    Fit,
    column,
    fits,
    json_value,
    parse_memory,
    summary,
    unmeasured_line,
)

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
    "unmeasured_line",
]

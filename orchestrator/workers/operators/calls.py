"""One call of an operator, in one direction: forward, backward, or both. Each call makes new results and changes no gradient.

`forward` records for a later backward pass, as in a training. `backward` repeats the backward pass of one recorded forward pass.
Gradients are returned and not added to those of the call before.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import torch
from implementations import Call
from shipped import Tensors

FORWARD, BACKWARD, BOTH = "forward", "backward", "both"


def results(found: Any) -> Tuple[torch.Tensor, ...]:
    """Return the tensors that a function returned."""
    items = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(item for item in items if isinstance(item, torch.Tensor))


def learning(tensors: Tensors) -> List[torch.Tensor]:
    return [tensor for tensor in tensors.values() if tensor.requires_grad]


def gradients(outputs: Sequence[torch.Tensor], tensors: Tensors) -> Tuple[torch.Tensor, ...]:
    """Return the gradients of the tensors, for ones as the gradient of each output."""
    ones = [torch.ones_like(output) for output in outputs]
    found: Tuple[torch.Tensor, ...] = torch.autograd.grad(outputs, learning(tensors), ones)
    return found


def one_call(function: Call, tensors: Tensors, direction: str) -> Callable[[], Any]:
    """Return a function without arguments that makes one call."""
    if direction == FORWARD:
        return lambda: function(**tensors)
    if direction == BOTH:
        return _both(function, tensors)
    outputs = results(function(**tensors))
    ones = [torch.ones_like(output) for output in outputs]
    inputs = learning(tensors)
    return lambda: torch.autograd.grad(outputs, inputs, ones, retain_graph=True)


def _both(function: Call, tensors: Tensors) -> Callable[[], Any]:
    inputs = learning(tensors)
    ones = [torch.ones_like(output) for output in results(function(**tensors))]
    return lambda: torch.autograd.grad(results(function(**tensors)), inputs, ones)


def in_turn(calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    """Return a function that makes the next of several calls each time. With copies of the tensors, none of them is in a cache."""
    if len(calls) == 1:
        return calls[0]
    turns: Iterator[Callable[[], Any]] = itertools.cycle(calls)
    return lambda: next(turns)()

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
# Seeds of gradients, far from those of the tensors and the ranks. With the same seed, a gradient would be equal to the first
# tensor, and a transposed gradient of a weight would be right. A generator on a CPU uses only 32 bits of its seed.
OF_GRADIENTS = 2**31


def results(found: Any) -> Tuple[torch.Tensor, ...]:
    """Return the tensors that a function returned."""
    items = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(item for item in items if isinstance(item, torch.Tensor))


def learning(tensors: Tensors) -> List[torch.Tensor]:
    return [tensor for tensor in tensors.values() if tensor.requires_grad]


def from_above(outputs: Sequence[torch.Tensor], *, loss: float = 1.0) -> List[torch.Tensor]:
    """Return a gradient of each output: random numbers that every type has exactly, and `loss` for a single number.

    With ones instead, a backward pass that forgets this gradient or mixes up its rows would be right, and fast.
    """
    found = []
    for place, output in enumerate(outputs):
        if output.is_meta or not output.dim():  # a wrong result may have no numbers
            found.append(torch.full_like(output, loss))
            continue
        generator = torch.Generator(device=output.device).manual_seed(OF_GRADIENTS + place)
        numbers = torch.randn(output.shape, generator=generator, device=output.device)
        found.append(numbers.bfloat16().to(output.dtype))
    return found


def gradients(
    outputs: Sequence[torch.Tensor], tensors: Tensors, above: Sequence[torch.Tensor]
) -> Tuple[torch.Tensor, ...]:
    """Return the gradients of the tensors. `above` has the gradient of each output."""
    found: Tuple[torch.Tensor, ...] = torch.autograd.grad(outputs, learning(tensors), above)
    return found


def one_call(function: Call, tensors: Tensors, direction: str) -> Callable[[], Any]:
    """Return a function without arguments that makes one call."""
    if direction == FORWARD:
        return lambda: function(**tensors)
    if direction == BOTH:
        return _both(function, tensors)
    outputs = results(function(**tensors))
    above, inputs = from_above(outputs), learning(tensors)
    return lambda: torch.autograd.grad(outputs, inputs, above, retain_graph=True)


def _both(function: Call, tensors: Tensors) -> Callable[[], Any]:
    above, inputs = from_above(results(function(**tensors))), learning(tensors)
    return lambda: torch.autograd.grad(results(function(**tensors)), inputs, above)


def in_turn(calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    """Return a function that makes the next of several calls each time. With copies of the tensors, none of them is in a cache."""
    if len(calls) == 1:
        return calls[0]
    turns: Iterator[Callable[[], Any]] = itertools.cycle(calls)
    return lambda: next(turns)()

"""The numerical error of an implementation: its results and gradients against those of the plain function in float64.

Both get the same numbers. So the error has two parts: the rounding of the type, and the mistakes of the implementation.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import calls
import torch
from implementations import Call
from shipped import Tensors
from torch import distributed

# The float64 copies of larger tensors would not fit next to them.
MOST_BYTES = 2**30
ERRORS = ("max_error", "relative_error")
# The gradient of a loss is one, or a quarter if four batches make a step. A wrong backward pass may leave it out.
_OF_LOSS = 0.25


class WrongResult(Exception):
    """The results of an implementation cannot be those of the operator, in one sentence."""


def error(function: Call, reference: Call, tensors: Tensors, *, with_gradients: bool) -> Dict[str, Any]:
    """Return the largest absolute error, and the error relative to the norm of the result. The worst result or gradient counts.

    Raise WrongResult if there are too few or too many results or gradients, or if one cannot be right: it has another shape or kind
    of number than that of the plain function, or a number that is not finite. Or it is of a class of its own, which may compute its
    numbers only when they are read.
    """
    if sum(tensor.nbytes for tensor in tensors.values()) > MOST_BYTES:
        of_worst_rank(_own_class(calls.results(function(**tensors))))
        return {"error_missing": "the tensors have more than 1 GiB, too much for copies in float64"}
    exact = {name: _wide(tensor) for name, tensor in tensors.items()}
    found = _everything(function, tensors, with_gradients=with_gradients)
    right = _everything(reference, exact, with_gradients=with_gradients)
    why = _own_class(found) or _first_wrong(found, right)
    errors = [(0.0, 0.0)] if why else [_errors(found[place], right[place]) for place in range(len(right))]
    largest, relative = of_worst_rank(why, max(pair[0] for pair in errors), max(pair[1] for pair in errors))
    return {"max_error": largest, "relative_error": relative}


def of_worst_rank(why_wrong: Optional[str], *numbers: float) -> List[float]:
    """Return each number's largest value of all ranks that compute together, and raise WrongResult on all of them if one is wrong.

    If only one rank ended, the others would wait for it, and the run would fail by a closed connection.
    """
    ranks: List[Any] = [(why_wrong, numbers)]
    if distributed.is_initialized():
        ranks *= distributed.get_world_size()
        distributed.all_gather_object(ranks, (why_wrong, numbers))
    for why, _ in ranks:
        if why is not None:
            raise WrongResult(why)
    return [max(values[place] for _, values in ranks) for place in range(len(numbers))]


def refuse_no_step(before: torch.Tensor, weights: torch.Tensor) -> None:
    """Raise WrongResult if the steps of a user's optimizer have left the weights as they were, or not finite.

    Which optimizer it is, only the user knows, so its weights are not compared with others.
    """
    if torch.equal(before, weights):
        raise WrongResult("it does not change the tensor weights in place, so it makes no step.")
    if not weights.isfinite().all():
        raise WrongResult("after its steps, the tensor weights has a NaN or an infinite number.")


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor


def _everything(function: Call, tensors: Tensors, *, with_gradients: bool) -> List[torch.Tensor]:
    outputs = calls.results(function(**tensors))
    if not with_gradients:
        return [*outputs]
    return [*outputs, *calls.gradients(outputs, tensors, calls.from_above(outputs, loss=_OF_LOSS))]


def _own_class(found: Sequence[torch.Tensor]) -> Optional[str]:
    own = next((type(tensor) for tensor in found if type(tensor) not in (torch.Tensor, torch.nn.Parameter)), None)
    if own is None:
        return None
    return f"it returns a tensor of the class {own.__name__}; return a torch.Tensor, whose numbers are there."


def _why_wrong(own: torch.Tensor, plain: torch.Tensor) -> Optional[str]:
    """Return why one tensor cannot be a result like the plain one, or None. A tensor of another shape could be broadcast."""
    if own.shape != plain.shape:
        return f"has the shape {list(own.shape)}, and that of the plain function has {list(plain.shape)}"
    if own.device != plain.device:
        return f"is on the device {own.device}, and that of the plain function is on {plain.device}"
    if not own.is_floating_point():
        return f"has the type {own.dtype}, and that of the plain function has floating-point numbers"
    if plain.isfinite().all() and not own.isfinite().all():
        return "has a NaN or an infinite number, and that of the plain function in float64 has none"
    return None


def _first_wrong(found: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> Optional[str]:
    if len(found) != len(right):
        return f"it returns {len(found)} tensors and gradients; the plain function has {len(right)}."
    every = enumerate(map(_why_wrong, found, right), start=1)
    return next((f"number {place} of its results and gradients {why}." for place, why in every if why), None)


def _errors(found: torch.Tensor, right: torch.Tensor) -> Tuple[float, float]:
    """Return both errors. If only zeros are right, anything else has the relative error 1."""
    found, right = found.detach().double(), right.detach()
    difference = found - right
    largest, norm = float(difference.abs().max()), float(right.norm())
    return largest, float(difference.norm()) / norm if norm else float(largest > 0)

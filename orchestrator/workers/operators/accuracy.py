"""The numerical error of an implementation: its results and gradients against those of the plain function in float64.

Both get the same numbers. So the error has two parts: the rounding of the type, and the mistakes of the implementation.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import calls
import torch
from implementations import Call
from shipped import ArgumentError, Tensors

# The float64 copies of larger tensors would not fit next to them.
MOST_BYTES = 2**30
ERRORS = ("max_error", "relative_error")


def error(function: Call, reference: Call, tensors: Tensors, *, with_gradients: bool) -> Dict[str, Any]:
    """Return the largest absolute error, and the error relative to the norm of the result. The worst result or gradient counts.

    Raise ArgumentError if a result or gradient has a number that is not finite, or if there are too few or too many.
    """
    if sum(tensor.nbytes for tensor in tensors.values()) > MOST_BYTES:
        return {"error_missing": "the tensors have more than 1 GiB, too much for copies in float64"}
    exact = {name: _wide(tensor) for name, tensor in tensors.items()}
    found = _everything(function, tensors, with_gradients=with_gradients)
    right = _everything(reference, exact, with_gradients=with_gradients)
    if len(found) != len(right):
        raise ArgumentError(
            f"the implementation returns {len(found)} tensors and gradients; the plain function has {len(right)}."
        )
    for number in (place for place in range(len(right)) if right[place].isfinite().all()):
        if not found[number].isfinite().all():
            raise ArgumentError(
                f"number {number + 1} of the implementation's results and gradients has a NaN or an infinite number, "
                "and that of the plain function has none."
            )
    errors = [_errors(found[place].double(), right[place]) for place in range(len(right))]
    return {"max_error": max(pair[0] for pair in errors), "relative_error": max(pair[1] for pair in errors)}


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor


def _everything(function: Call, tensors: Tensors, *, with_gradients: bool) -> List[torch.Tensor]:
    outputs = calls.results(function(**tensors))
    found = calls.gradients(outputs, tensors) if with_gradients else ()
    return [tensor.detach() for tensor in (*outputs, *found)]


def _errors(found: torch.Tensor, right: torch.Tensor) -> Tuple[float, float]:
    """Return both errors. If only zeros are right, anything else has the relative error 1."""
    difference = found - right
    largest, norm = float(difference.abs().max()), float(right.norm())
    return largest, float(difference.norm()) / norm if norm else float(largest > 0)

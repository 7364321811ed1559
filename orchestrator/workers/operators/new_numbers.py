"""New numbers in the tensors of a call. In a training, the numbers change from call to call; in a timing, they do not.

So a function that remembers its results is fast in the timing only. It is found after the timing: its calls with new numbers take
longer, or it returns the results of old numbers.
"""

from __future__ import annotations

from typing import Any, Callable

import calls
import timing
import torch
from accuracy import WrongResult, of_worst_rank
from shipped import Tensors

# A function that remembers nothing needs the same time for both calls. Only noise differs, so a few pairs of calls are enough.
LEAST_PAIRS, MOST_PAIRS = 3, 9
TIMES_LONGER = 3
# In sixteen bits, this factor changes each number.
FACTOR = 0.9


def refuse_memory(call: Callable[[], Any], tensors: Tensors) -> None:
    """Raise WrongResult if a call with new numbers takes much longer than one with those of the call before.

    The tensors get other numbers, in place. Ranks that call each other decide by the slowest, so all make as many calls.
    """
    new, same = float("inf"), float("inf")
    for pair in range(1, MOST_PAIRS + 1):
        _change(tensors)
        of_new, of_same = of_worst_rank(None, timing.seconds(call), timing.seconds(call))
        new, same = min(new, of_new), min(same, of_same)
        if pair >= LEAST_PAIRS and new <= TIMES_LONGER * same:
            return
    raise WrongResult(
        f"it remembers results: a call takes {new * 1e3:.3g} ms with new numbers in its tensors, "
        f"and {same * 1e3:.3g} ms with those of the call before; only calls with new numbers have a speed."
    )


def _change(tensors: Tensors) -> None:
    with torch.no_grad():
        for tensor in calls.learning(tensors):
            tensor.mul_(FACTOR)
            tensor.sum()  # both calls then find the tensor in the same caches


def put(tensors: Tensors, numbers: Tensors) -> None:
    """Copy other numbers into the tensors that a training changes, in place."""
    with torch.no_grad():
        for name, tensor in tensors.items():
            if tensor.requires_grad:
                tensor.copy_(numbers[name])

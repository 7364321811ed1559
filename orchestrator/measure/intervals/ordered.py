"""Experiments that differ in one number only, such as the batch size: which of them a race needs to run. Pure.

A larger number makes a training faster up to a plateau, and then no faster or slower: the speeds have one peak. So the first, the
middle and the last experiment of such an order run first. The peak is between the neighbours of the fastest one, so only
experiments between these are asked next: the middle one on each side, until the neighbours have run. What is estimated to be the
fastest may change during a race, and then other neighbours are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def held_back(order: Sequence[str]) -> set[str]:
    """Return the experiments that the first round leaves out: all but the first, the middle and the last."""
    return {*order} - {order[0], order[len(order) // 2], order[-1]}


def asked_next(
    order: Sequence[str], held: Collection[str], speeds: Mapping[str, float], too_large: Collection[str]
) -> list[str]:
    """Return the experiments of `held` that the race needs now, in at most two places of the order.

    `speeds` are the speeds that are known. `too_large` are experiments that ran out of memory. All others without a speed tell
    nothing. If no speed is known in the end, all are needed that are not too large.
    """
    known = [at for at, name in enumerate(order) if name in speeds]
    if not known:
        end = min((at for at, name in enumerate(order) if name in too_large), default=len(order))
        return [name for name in order[:end] if name in held]
    peak = max(known, key=lambda at: speeds[order[at]])
    marks = [at for at, name in enumerate(order) if at != peak and (name in speeds or name in too_large)]
    low = max((at for at in marks if at < peak), default=-1)
    high = min((at for at in marks if at > peak), default=len(order))
    sides = (order[low + 1 : peak], order[peak + 1 : high])
    inside = ([name for name in side if name in held] for side in sides)
    return [names[len(names) // 2] for names in inside if names]

"""Recompilations of torch.compile: their number, the sentence about them, and the caveat about a speed that includes them. Pure.

If torch compiled in a step, the step's line says so (`workers/instrument/compilations.py`): the line has `compiled` if the
compilation was expected, else `recompiled`. A recompilation takes as long as many steps, so a speed that includes recompilations
depends on the run's length.

Left out: the reason of a recompilation, unless the reason is a batch of a new width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orchestrator.measure.steady_state import Steady
from orchestrator.measure.steps import Step
from orchestrator.records import Caveat, CaveatKind

# If recompilations took more than this share of the steady time, the speed is in doubt.
MUCH_TIME = 0.02
# The sentence names at most this many steps.
_MOST_NAMED = 8


def count(series: Sequence[Step]) -> int | None:
    """Return the number of steps that recompiled; None if torch compiled nothing."""
    if not any(step.compiled or step.recompiled for step in series):
        return None
    return sum(bool(step.recompiled) for step in series)


def sentence(numbers: Sequence[int], *, widths_vary: bool) -> str:
    """Return a sentence about the steps that recompiled; `numbers` are the numbers of these steps."""
    named, more = numbers[:_MOST_NAMED], len(numbers) - _MOST_NAMED
    places = ", ".join(map(str, named)) + (f" and {more} more" if more > 0 else "")
    word = "step" if len(numbers) == 1 else "steps"
    return f"recompiled at {word} {places}" + (": batch widths vary" if widths_vary else "")


def widths_vary(recompiled: Sequence[Step]) -> bool:
    """Return whether at least half of these steps had a batch of a new width."""
    return bool(recompiled) and 2 * sum(step.new_width for step in recompiled) >= len(recompiled)


def caveats(series: Sequence[Step], state: Steady | Caveat) -> Iterator[Caveat]:
    """Yield a caveat if steps of the steady state recompiled, or if there is no steady state and some steps recompiled."""
    recompiled = [step for step in series if step.recompiled]
    window = series[state.discarded_steps :] if isinstance(state, Steady) else series
    inside = [step.seconds for step in window if step.recompiled]
    if not inside:
        return
    said = sentence([step.number for step in recompiled], widths_vary=widths_vary(recompiled))
    kind = CaveatKind.NOTE
    if isinstance(state, Steady):
        extra_s = math.fsum(max(0.0, seconds - state.median_s) for seconds in inside)
        if extra_s > MUCH_TIME * math.fsum(step.seconds for step in window):
            kind = CaveatKind.RECOMPILED
    yield Caveat(kind=kind, detail=said)

"""Counts the graphs that torch.compile compiles in each step, and says how long each stage of compilation took.

What is measured, and how: torch keeps a count of the graphs that it has compiled in this process. The count is read where a
step begins, after each micro-batch, and where the step ends. The first step of a training is expected to compile, and so is the
step that compiles the process's first graph. A later step that compiles has recompiled. A width is the number of positions in a
row of `input_ids`. A new width is the reason if torch compiled during a micro-batch whose width no earlier micro-batch had.

The times of the stages are torch's own, of the whole process: Dynamo traces Python code into graphs, Inductor compiles them. The
rest is that of AOTAutograd and of other compilers, and the loading of graphs that a cache had. torch also knows why it compiled a
piece of code again: the guard that did not hold.

What the counts leave out: graphs compiled between steps, as for an evaluation, and CUDA graphs that are recorded again. Code that a
compiler finds in its cache still counts as compiled.

This is a part of the instrument (`instrument.py`). It imports only the standard library.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

MOST_REASONS, LONGEST = 3, 200


def graphs() -> int:
    """Return the number of graphs that torch.compile has compiled in this process; 0 if it was never used."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    return int((counters.get("stats") or {}).get("unique_graphs", 0))


def stages() -> Optional[dict[str, Any]]:
    """Return the seconds of each stage, the graphs that Inductor's cache had or lacked, and why torch compiled again."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None or not graphs():
        return None
    try:
        spent, found = utils.calculate_time_spent(), utils.get_compilation_metrics()
        inductor = sum(one.inductor_cumulative_compile_time_us or 0 for one in found) / 1e6
        dynamo = max(0.0, spent["entire_frame_compile"] - spent.get("backend_compile", 0.0))
        counts = utils.counters["inductor"]
        reasons = dict.fromkeys(str(one.recompile_reason)[:LONGEST] for one in found if one.recompile_reason)
        return {
            "dynamo_s": dynamo,
            "inductor_s": inductor,
            "other_s": max(0.0, spent["total_wall_time"] - dynamo - inductor),
            "cache_hits": int(counts["fxgraph_cache_hit"]),
            "cache_misses": int(counts["fxgraph_cache_miss"]),
            "reasons": [*reasons][:MOST_REASONS],
        }
    except Exception:  # another version of torch has other names
        return None


def width_of(inputs: Any) -> Any:
    """Return the number of positions in a row of a micro-batch; None if it has no tokens."""
    shape = getattr(inputs.get("input_ids"), "shape", None) if hasattr(inputs, "get") else None
    return shape[-1] if shape else None


class Compilations:
    """The compilations of one training. In each step, call `begin`, then `batch` after each micro-batch, then `end`."""

    def __init__(self) -> None:
        self.widths: set[Any] = set()
        self.begin()

    def begin(self) -> None:
        self.before = self.last = graphs()
        self.new_width = False

    def batch(self, inputs: Any) -> None:
        """Record the width of a micro-batch after its training step."""
        now = graphs()
        if now:
            width = width_of(inputs)
            is_new = width is not None and bool(self.widths) and width not in self.widths
            self.new_width = self.new_width or (is_new and now > self.last)
            self.widths.add(width)
            self.last = now

    def end(self, *, first: bool) -> dict[str, Any]:
        """Return fields for the step's line; an empty dict if nothing was compiled. `first` is true for a training's first step."""
        count, before, new_width = graphs() - self.before, self.before, self.new_width
        self.begin()
        if count <= 0:  # negative if the target has set torch's count to zero
            return {}
        if first or not before:
            return {"compiled": count}
        return {"recompiled": count, **({"new_width": True} if new_width else {})}

"""The Trainer's memory tracker without its price: the same keys, and on CUDA the same bytes.

The tracker of transformers notes memory when a stage (init, train, eval, test) begins and ends, and starts a thread that
reads the process's resident memory over and over, without a pause, only to know its peak; every training step pays for it.
Here that thread ends at once, and the peak is the one that the kernel keeps (VmHWM, begun anew for each stage; where the
kernel does not allow that, the larger of the readings at both ends, which misses what rose and fell in between).

On CUDA everything is the original's: garbage collection, emptying the cache, resetting torch's peak, and the arithmetic.
Since the instrument resets that peak between its own stages, what was noted before its resets is put back in.

A part of the instrument (`instrument.py`). It is handed the class to derive from, so that each version of transformers
keeps its own keys. Read against transformers 4.46 to 5.23; no class of that name means no tracker.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

SPAN = "tracker"


def stage_of_caller(stages: Mapping[str, str]) -> str:
    """The stage of the Trainer's method that called. The original looks two frames up, and here there are more."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in stages:
            return str(stages[frame.f_code.co_name])
        frame = frame.f_back  # type: ignore[assignment]
    raise ValueError(f"was called from none of {', '.join(stages)}")


def light(original: Any, memory: Any) -> Any:
    """A class to stand in the place of `transformers.trainer.TrainerMemoryTracker`; `memory` is a `stages.Memory`."""

    class LightMemoryTracker(original):  # type: ignore[misc]
        def derive_stage(self) -> str:
            return stage_of_caller(self.stages)

        def concerns(self, stage: str) -> bool:
            """Whether the original will act: stages within others (an evaluation during training) it lets pass."""
            return not self.skip_memory_metrics and self.cur_stage in (None, stage)

        def peak_monitor_func(self) -> None:
            """What the original's thread would run."""

        def start(self) -> None:
            acts = not self.skip_memory_metrics and self.concerns(self.derive_stage())
            if acts:
                memory.peaks.note()
            super().start()
            if acts:  # the original has just reset torch's peak
                memory.peaks.open(SPAN)
                self.kernel_knows = memory.restart_high_water()

        def stop(self, stage: str) -> None:
            if not self.concerns(stage):
                return
            if stage == "train":  # before the cache is emptied
                memory.close()
            memory.peaks.note()
            allocated = memory.peaks.spans.pop(SPAN, [0, 0])[0]
            readings = [self.cpu_mem_used_at_start, self.cpu_mem_used()]
            self.cpu_mem_used_peak = max(readings + [memory.high_water()] * self.kernel_knows)
            super().stop(stage)
            found = getattr(self, "gpu", {}).get(stage) if self.torch is not None else None
            if found and allocated and not isinstance(found["peaked"], str):
                found["peaked"] = max(found["peaked"], allocated - found["end"])

    return LightMemoryTracker

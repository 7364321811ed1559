"""Two memory trackers: the Trainer's own tracker, always on, and a light tracker that costs nearly no time.

The light tracker gives the same keys, and on CUDA the same bytes. The tracker of transformers reads memory at the beginning and end
of a stage (init, train, eval, test). To know the peak, it starts a thread that reads the process's resident memory without a pause.
That thread slows every training step. In the light tracker, the thread ends at once. The peak is the kernel's VmHWM, restarted for
each stage. If the kernel does not allow the restart, the peak is the larger of two readings: one at the stage's beginning, one at
its end. A higher value between them is missed.

On CUDA everything is as in the original tracker: garbage collection, emptying the cache, resetting torch's peak, and the
arithmetic. The instrument also resets that peak between its own stages. So the tracker takes the highest peak before and after
these resets.

This is a part of the instrument (`instrument.py`). It derives its class from the tracker of the installed transformers, so each
version of transformers keeps its own keys. The numbers were compared with those of transformers 4.46 to 5.23.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

SPAN = "tracker"


def stage_of_caller(stages: Mapping[str, str]) -> str:
    """Return the stage of the Trainer's method that called the tracker. That method may be several frames up."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in stages:
            return str(stages[frame.f_code.co_name])
        frame = frame.f_back  # type: ignore[assignment]
    raise ValueError(f"the caller of the memory tracker is none of {', '.join(stages)}")


def always_on(original: Any) -> Any:
    """Return `transformers.trainer.TrainerMemoryTracker` as a class that always measures, even if the arguments disable it."""

    class AlwaysOn(original):  # type: ignore[misc]
        def __init__(self, skip_memory_metrics: bool = False) -> None:
            super().__init__(False)

    return AlwaysOn


def light(original: Any, memory: Any) -> Any:
    """Return a class that replaces `transformers.trainer.TrainerMemoryTracker`. `memory` is a `stages.Memory`."""

    class LightMemoryTracker(original):  # type: ignore[misc]
        def derive_stage(self) -> str:
            return stage_of_caller(self.stages)

        def concerns(self, stage: str) -> bool:
            """Return whether the original tracker acts in this stage.

            The original ignores a stage inside another stage, such as an evaluation during training.
            """
            return not self.skip_memory_metrics and self.cur_stage in (None, stage)

        def peak_monitor_func(self) -> None:
            """Do nothing. The original tracker runs this function in a thread, which therefore ends at once."""

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
            noted = getattr(self, "gpu", {}).get(stage) if self.torch is not None else None
            if noted and allocated and not isinstance(noted["peaked"], str):
                noted["peaked"] = max(noted["peaked"], allocated - noted["end"])

    return LightMemoryTracker

"""Profiles a few steps of a training with torch's profiler, if TUNEBENCH_PROFILE asks for it, and writes a trace per rank.

    TUNEBENCH_PROFILE         {"folder", "wait", "active"} as JSON: the folder of the traces, the number of steps before the
                              profiler warms up, and the number of profiled steps

The profiler warms up for two steps, whose events it drops: the first events of CUDA come late. If a training has too few steps,
the wait is shorter, but at least one step. Only the first and the last rank write a trace, `rank<R>.json`.

The trace is written, but not read here. The writing takes time before the next step. So the next step is marked with the word
`profile`, as a step after an evaluation is marked.

What the trace leaves out: shapes, stacks and memory, which make it several times larger and slow the steps.

This is a part of the instrument (`instrument.py`). It imports only the standard library, and torch when the training has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, Optional

WARM_UP = 2
LEAST_WAIT = 1


class Profile:
    """The profile of one rank's training. `notes` says which steps were profiled, or why none was."""

    def __init__(self, text: str, *, rank: int, world_size: int) -> None:
        self.asked: dict[str, Any] = json.loads(text)
        self.rank = rank
        self.chosen = rank in (0, world_size - 1)
        self.profiler: Any = None
        self.notes: Optional[dict[str, Any]] = None
        self.steps = 0

    def begin(self, most_steps: int) -> None:
        """Start when training begins. `most_steps` is the number of steps that the training will make."""
        if not self.chosen:
            return
        active = int(self.asked["active"])
        wait = min(int(self.asked["wait"]), most_steps - WARM_UP - active)
        if wait < LEAST_WAIT:
            needed = LEAST_WAIT + WARM_UP + active
            self.notes = {"why_not": f"the training has {most_steps} steps, and a profile needs {needed}"}
            return
        self.first, self.last = wait + WARM_UP + 1, wait + WARM_UP + active
        self.notes = {"why_not": f"the training ended before step {self.last}"}
        with self.care():
            found = sys.modules["torch"].profiler
            self.profiler = found.profile(
                schedule=found.schedule(wait=wait, warmup=WARM_UP, active=active, repeat=1),
                on_trace_ready=self.export,
            )
            self.profiler.start()

    def step(self) -> bool:
        """Note the end of a step. Return whether a trace was written in it."""
        self.steps += 1
        if self.profiler is None:
            return False
        with self.care():
            self.profiler.step()
        if self.steps >= self.last:
            self.end()
            return True
        return False

    def end(self) -> None:
        profiler, self.profiler = self.profiler, None
        if profiler is not None:
            with self.care():
                profiler.on_trace_ready = None  # the profile would not have whole steps
                profiler.stop()

    def export(self, profiler: Any) -> None:
        path = os.path.join(self.asked["folder"], f"rank{self.rank}.json")
        os.makedirs(self.asked["folder"], exist_ok=True)
        profiler.export_chrome_trace(path + ".part")
        os.replace(path + ".part", path)
        self.notes = {"first_step": self.first, "last_step": self.last, "file": os.path.basename(path)}

    @contextlib.contextmanager
    def care(self) -> Any:
        """Let the training go on if the profiler fails; its error is noted."""
        try:
            yield
        except Exception as error:
            self.profiler, self.notes = None, {"why_not": f"the profiler failed: {type(error).__name__}: {error}"}

"""Profiles a few steps of a training, if TUNEBENCH_PROFILE asks for it: traces of torch's profiler, or snapshots of memory.

    TUNEBENCH_PROFILE         {"folder", "wait", "active", "kinds"} as JSON: the folder of the files, the number of steps before
                              the profiler warms up, the number of profiled steps, and what is written

The kind `trace` is `rank<R>.json`, a trace of torch's profiler. The kind `memory` is `rank<R>-memory.pickle`, the history of
CUDA's memory in the profiled steps: each block with the lines of Python that asked for it.

The profiler warms up for two steps, whose events it drops: the first events of CUDA come late. If a training has too few steps,
the wait is shorter, but at least one step. Only the first and the last rank write files.

A file is written, but not read here. The writing takes time before the next step. So the next step is marked with the word
`profile`, as a step after an evaluation is marked.

What a trace leaves out: shapes, stacks and memory, which make it several times larger and slow the steps. A history of memory
has the last MOST_EVENTS events, and no lines of Python for the backward pass, which runs in a thread of its own.

This is a part of the instrument (`instrument.py`). It imports only the standard library, and torch when the training has it.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Optional

WARM_UP = 2
LEAST_WAIT = 1
MOST_EVENTS = 200_000


class Window(abc.ABC):
    """A recording of the profiled steps of one rank. `notes` says which steps they were, or why nothing was recorded."""

    ending = ""

    def __init__(self, asked: Mapping[str, Any], *, rank: int) -> None:
        self.path = os.path.join(asked["folder"], f"rank{rank}{self.ending}")
        self.notes: dict[str, Any] = {}
        self.runs = False

    def begin(self, first: int, last: int) -> None:
        """Start when training begins. The profiled steps are `first` to `last`."""
        self.first, self.last = first, last
        self.notes = {"why_not": f"the training ended before step {last}"}
        with self.care():
            self.runs = True
            self.start()

    def step(self, number: int) -> bool:
        """Note the end of a step. Return whether a file was written in it."""
        if not self.runs:
            return False
        with self.care():
            self.stepped(number)
            if number == self.last:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                self.write(self.path + ".part")
                os.replace(self.path + ".part", self.path)
                self.notes = {
                    "first_step": self.first, "last_step": self.last, "file": os.path.basename(self.path)
                }  # fmt: skip
        if number >= self.last:
            self.end()
        return number >= self.last

    def end(self) -> None:
        """Stop recording. If the profile has no whole steps, no file is written."""
        runs, self.runs = self.runs, False
        if runs:
            with self.care():
                self.stop()

    @abc.abstractmethod
    def start(self) -> None:
        """Begin before the first step."""

    @abc.abstractmethod
    def stepped(self, number: int) -> None:
        """Note that a step has ended, before the file is written."""

    @abc.abstractmethod
    def write(self, path: str) -> None:
        """Write the file."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop recording."""

    @contextlib.contextmanager
    def care(self) -> Any:
        """Let the training go on if the profiler fails; its error is noted."""
        try:
            yield
        except Exception as error:
            self.runs, self.notes = False, {"why_not": f"the profiler failed: {type(error).__name__}: {error}"}


class Trace(Window):
    """A trace of torch's profiler."""

    ending = ".json"

    def start(self) -> None:
        found = sys.modules["torch"].profiler
        active = self.last - self.first + 1
        schedule = found.schedule(wait=self.first - 1 - WARM_UP, warmup=WARM_UP, active=active, repeat=1)
        # Without a function for the trace, the profiler would throw it away when the last step ends.
        self.profiler = found.profile(schedule=schedule, on_trace_ready=lambda _: None)
        self.profiler.start()

    def stepped(self, number: int) -> None:
        self.profiler.step()

    def write(self, path: str) -> None:
        self.profiler.export_chrome_trace(path)

    def stop(self) -> None:
        self.profiler.on_trace_ready = None
        self.profiler.stop()


class Memory(Window):
    """The history of CUDA's memory."""

    ending = "-memory.pickle"

    def start(self) -> None:
        torch = sys.modules["torch"]
        if not torch.cuda.is_available() or not torch.cuda.is_initialized():
            self.runs, self.notes = False, {"why_not": "only CUDA has a history of its memory"}

    def stepped(self, number: int) -> None:
        if number == self.first - 1:
            sys.modules["torch"].cuda.memory._record_memory_history(max_entries=MOST_EVENTS, stacks="python")

    def write(self, path: str) -> None:
        sys.modules["torch"].cuda.memory._dump_snapshot(path)

    def stop(self) -> None:
        sys.modules["torch"].cuda.memory._record_memory_history(enabled=None)


KINDS = {"trace": Trace, "memory": Memory}


class Profile:
    """All recordings of the profiled steps of one rank."""

    def __init__(self, text: str, *, rank: int, world_size: int) -> None:
        self.asked: dict[str, Any] = json.loads(text)
        self.chosen = rank in (0, world_size - 1)
        self.windows = {kind: KINDS[kind](self.asked, rank=rank) for kind in self.asked["kinds"] if self.chosen}
        self.steps = 0

    def begin(self, most_steps: int) -> None:
        """Start when training begins. `most_steps` is the number of steps that the training will make."""
        active = int(self.asked["active"])
        wait = min(int(self.asked["wait"]), most_steps - WARM_UP - active)
        for window in self.windows.values():
            if wait < LEAST_WAIT:
                needed = LEAST_WAIT + WARM_UP + active
                window.notes = {"why_not": f"the training has {most_steps} steps, and a profile needs {needed}"}
            else:
                window.begin(wait + WARM_UP + 1, wait + WARM_UP + active)

    def step(self) -> bool:
        """Note the end of a step. Return whether a file was written in it."""
        self.steps += 1
        return any([window.step(self.steps) for window in self.windows.values()])

    def end(self) -> None:
        for window in self.windows.values():
            window.end()

    @property
    def notes(self) -> Optional[dict[str, Any]]:
        """The notes of each kind."""
        return {kind: window.notes for kind, window in self.windows.items()} or None

"""The progress of a benchmark, for programs to read (`tunebench run --json-lines`): a line of JSON for each event.

    handed_over  runs that are due now               started  a run has begun (noticed within a second)
    ended        a run's end, with its key numbers   said     a sentence for people, such as about prepared data
    found        a cell's largest value that fits (`--find`), the smallest value that does not, or why a probe failed

The other events have the names of `loop.EventKind`. Each event has its `time` in seconds since the epoch. A run is named by
`experiment`, `repeat` and `attempt`. A number that a run did not measure is null.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from orchestrator.campaign.loop import Event, EventKind
from orchestrator.campaign.probes.largest_value import Found
from orchestrator.campaign.status.campaign import watching
from orchestrator.files.printable_text import escaped
from orchestrator.records import Job, RunRecord

LOOK_AHEAD = 256
# The measurements that an `ended` line shows, if the run has them. The record has all measurements.
KEY_NUMBERS = (
    *("tokens_per_s", "tokens_per_s_per_gpu", "step_time_s", "train_tokens_per_second", "train_runtime", "train_loss"),
    *("peak_allocated_bytes", "peak_reserved_bytes", "mem_nvidia_mem_reserved"),
)


class EventLines:
    """A context manager. Pass its `on_event` to `run_benchmark`. `write` gets each line with its newline."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write
        self._waiting: list[Job] = []
        self._writing = threading.RLock()
        self._stack = ExitStack()

    def __enter__(self) -> EventLines:
        self._stack.enter_context(watching(self._notice))
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def on_event(self, event: Event) -> None:
        if event.kind is EventKind.HANDED_OVER:
            self._tell(event.kind, runs=[_run(job) for job in event.jobs])
            self._waiting = list(event.jobs)
        elif event.kind is EventKind.ENDED and event.record is not None:
            self._notice()  # so that even a short run has a `started` line before its `ended` line
            self._tell(event.kind, **_ended(event.record))
        else:
            self._tell(event.kind, text=event.text, runs=[_run(job) for job in event.jobs])

    def say(self, text: str) -> None:
        self._tell("said", text=text)

    def tell_found(self, found: Found) -> None:
        values = {"axis": found.search.axis, "value": found.value, "too_large": found.too_large}
        self._tell("found", experiment=found.search.experiment.id, **values, failure=found.failure)

    def _notice(self) -> None:
        """Write an event for each run that has begun.

        A run has begun if its folder exists, because a process makes this folder when it claims the run. Executors start runs
        roughly in the given order, so only the first LOOK_AHEAD waiting runs are checked.
        """
        with self._writing:
            for job in [job for job in self._waiting[:LOOK_AHEAD] if os.path.isdir(job.run_dir)]:
                self._waiting.remove(job)
                self._tell("started", **_run(job), run_dir=str(job.run_dir))

    def _tell(self, event: str, **fields: Any) -> None:
        line = {"event": str(event), "time": round(time.time(), 3), **fields}
        with self._writing:
            self.write(escaped(json.dumps(line)) + "\n")


def _run(job: Job) -> Mapping[str, Any]:
    return {"experiment": job.experiment_id, "repeat": job.repeat, "attempt": job.attempt}


def end_of(record: RunRecord) -> Mapping[str, Any]:
    """Return which run has ended, and how, for programs to read."""
    return {
        "experiment": record.experiment_id,
        "repeat": record.repeat,
        "attempt": record.attempt,
        "status": record.status.value,
        "kind": record.kind,
        "cause": record.cause,
    }


def _ended(record: RunRecord) -> Mapping[str, Any]:
    numbers = {number.name: number.value for number in record.measurements}
    return {
        **end_of(record),
        "wall_s": record.wall_s,
        "measurements": {name: numbers[name] for name in KEY_NUMBERS if name in numbers},
    }

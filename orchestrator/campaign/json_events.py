"""A running benchmark for programs: a line of JSON for each event. `tunebench run --json-lines`, in the place of `progress`.

    handed_over  runs that are due now               started  one of them has begun (noticed within a second)
    ended        how it ended, with its key numbers  said     a sentence for people (data that is prepared…)

and the benchmark's other events (`benchmark.EventKind`) under their names, each with `time` (seconds since the epoch). A run
is named by `experiment`, `repeat` and `attempt`. Null is what a run did not measure. Values to text: `write` puts it somewhere.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from orchestrator.campaign.loop import Event, EventKind
from orchestrator.campaign.status.campaign import paced
from orchestrator.files.printable_text import escaped
from orchestrator.records import Job, RunRecord

LOOK_AHEAD = 256
# The measurements that an `ended` line has, where the run has them; the record has all.
KEY_NUMBERS = (
    *("tokens_per_s", "tokens_per_s_per_gpu", "step_time_s", "train_tokens_per_second", "train_runtime", "train_loss"),
    *("peak_allocated_bytes", "peak_reserved_bytes", "mem_nvidia_mem_reserved"),
)


class EventLines:
    """A context in which `on_event` may be passed to `run_benchmark`. `write` gets each line, whole and with its end."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write
        self._waiting: list[Job] = []
        self._writing = threading.RLock()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="notices runs that begin", daemon=True)

    def __enter__(self) -> EventLines:
        self._watcher.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._watcher.join()

    def on_event(self, event: Event) -> None:
        if event.kind is EventKind.HANDED_OVER:
            self._tell(event.kind, runs=[_run(job) for job in event.jobs])
            self._waiting = list(event.jobs)
        elif event.kind is EventKind.ENDED and event.record is not None:
            self._notice()  # no run ends before it has begun, however short it was
            self._tell(event.kind, **_ended(event.record))
        else:
            self._tell(event.kind, text=event.text, runs=[_run(job) for job in event.jobs])

    def say(self, text: str) -> None:
        self._tell("said", text=text)

    def _watch(self) -> None:
        for _ in paced(self._notice, pause=self._over.wait):
            pass

    def _notice(self) -> None:
        """Tell which runs have begun: a claimed run has a folder. Executors take runs roughly in the order of the hand-over."""
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


def _ended(record: RunRecord) -> Mapping[str, Any]:
    numbers = {one.name: one.value for one in record.measurements}
    return {
        "experiment": record.experiment_id,
        "repeat": record.repeat,
        "attempt": record.attempt,
        "status": record.status.value,
        "kind": record.kind,
        "cause": record.cause,
        "wall_s": record.wall_s,
        "measurements": {name: numbers[name] for name in KEY_NUMBERS if name in numbers},
    }

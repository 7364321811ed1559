"""Which of the runs that were handed over wait, run and have ended. By their folders: a run that is claimed has one.

For those who show a benchmark that goes on in this process (`progress`, `event_lines`); several threads may ask.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from orchestrator.claims import RECORD_FILE
from orchestrator.records import Job

LOOK_AHEAD = 256
"""How many that wait are looked at: executors take them in their order, give or take."""

_Key = tuple[str, int, int]


class UnderWay:
    """The runs that are due. `total` counts those that ended, too; a later hand-over replaces what waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[_Key, Job] = {}
        self._running: dict[_Key, Job] = {}
        self._ended: set[_Key] = set()

    @property
    def ended(self) -> int:
        return len(self._ended)

    @property
    def total(self) -> int:
        return len(self._ended) + len(self._running) + len(self._waiting)

    def hand_over(self, jobs: Iterable[Job]) -> None:
        with self._lock:
            due = {_key(job): job for job in jobs}
            self._running = {}
            self._waiting = {key: job for key, job in due.items() if key not in self._ended}

    def end(self, job: Job) -> int | None:
        """Its number among those that ended; None for a run that nobody handed over here."""
        key = _key(job)
        with self._lock:
            known = [self._running.pop(key, None), self._waiting.pop(key, None)]
            if not any(known):
                return None
            self._ended.add(key)
            return len(self._ended)

    def look(self) -> tuple[tuple[Job, ...], tuple[Job, ...], tuple[Job, ...]]:
        """Those that have begun since the last look, those that run now, and those that wait."""
        with self._lock:
            ahead = [key for key, _ in zip(self._waiting, range(LOOK_AHEAD), strict=False)]
            begun = {key: self._waiting.pop(key) for key in ahead if os.path.isdir(self._waiting[key].run_dir)}
            self._running |= begun
            running = (job for job in self._running.values() if not os.path.exists(job.run_dir / RECORD_FILE))
            return tuple(begun.values()), tuple(running), tuple(self._waiting.values())


def _key(job: Job) -> _Key:
    return job.experiment_id, job.repeat, job.attempt

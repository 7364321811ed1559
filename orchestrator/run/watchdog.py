"""The watch over a run's progress. It checks that the first step and the next steps come in time, and does regular chores.

The sign of progress is the size of the instrument's step files. For a trainer without step files, the sign is the size of the
output. This size is read only a few times before each limit. If a program reports its own steps, the watch also checks whether
it has made enough steps (`reported_steps`). `process.run` enforces the limit of the run's whole time. This module ends no
process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.files import reading
from orchestrator.records import Limit, RunFolder

# A run without progress is noticed after its limit, and at most a fourth of the limit later.
LOOKS_PER_LIMIT = 4

SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.2, 15.0
_LAST_BYTES = 200
# The instrument may write a step up to this many seconds after the step's end (`workers/instrument/meter.py`). So a stall is judged
# this many seconds later.
WRITTEN_LATE_S = 1.0

# Part of the last line of a step file (`workers/instrument/meter.py`). Saving and evaluation after this line have no limit.
TRAINING_ENDED = '"ended"'


@dataclass(frozen=True, kw_only=True, slots=True)
class Signs:
    """The visible progress of a run.

    `mark` changes when there is progress. `over`: training has ended, but the process may still run.
    """

    begun: bool
    mark: object
    over: bool = False


def by_steps(run_dir: Path) -> Signs:
    """Return the progress that the step files of an instrumented trainer show. A step of any rank counts as progress."""
    sizes = dict(_sizes(RunFolder(run_dir).all_steps().values()))
    return Signs(begun=any(sizes.values()), mark=sizes, over=any(_over(path) for path, size in sizes.items() if size))


def by_output(*logs: Path) -> Signs:
    """Return the progress that a program's output shows. This is for a program without step files."""
    sizes = dict(_sizes(logs))
    return Signs(begun=any(sizes.values()), mark=sizes)


def _sizes(paths: Iterable[Path]) -> Iterable[tuple[Path, int]]:
    for path in paths:
        try:
            yield path, path.stat().st_size
        except OSError:
            continue


def _over(path: Path) -> bool:
    try:
        return TRAINING_ENDED in reading.read_tail(path, limit=_LAST_BYTES).rstrip().rpartition("\n")[2]
    except (OSError, ValueError):
        return False


class Ending(Protocol):
    """The early end of a run. `enough` returns whether the run has made the requested steps."""

    def next_look_at(self) -> float | None: ...

    def enough(self) -> bool: ...


@dataclass(slots=True)
class Chore:
    """Work that is repeated during a run.

    `pause_s` takes the seconds since the run began, and returns the pause before the next repetition.
    """

    work: Callable[[], None]
    pause_s: Callable[[float], float]


class Watch:
    """A watch over a run.

    It begins when it is made, and uses a monotonic clock. The result of `signs` may be `late_s` seconds old.
    """

    def __init__(
        self,
        signs: Callable[[], Signs],
        *,
        startup_timeout_s: float | None = None,
        stall_timeout_s: float | None = None,
        late_s: float = 0.0,
        ending: Ending | None = None,
        chores: Sequence[Chore] = (),
    ) -> None:
        self.signs = signs
        self.startup_timeout_s, self.stall_timeout_s, self.late_s = startup_timeout_s, stall_timeout_s, late_s
        self.ending, self.chores = ending, chores
        self.began = self.changed = self.looked = time.monotonic()
        self.due = [self.began + chore.pause_s(0.0) for chore in chores]
        self.seen = Signs(begun=False, mark=None)

    def next_look_s(self) -> float | None:
        """Return the seconds until the next look, or None if no look is necessary."""
        due = [*self.due]
        if self.startup_timeout_s is not None and not self.seen.begun:
            due.append(self.began + self.startup_timeout_s)
        if self.stall_timeout_s is not None and not self.seen.over:
            due.append(self.looked + self._pause_s())
        if self.ending is not None and (look_at := self.ending.next_look_at()) is not None:
            due.append(look_at)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _pause_s(self) -> float:
        return min(LONGEST_LOOK_S, max(SHORTEST_LOOK_S, (self.stall_timeout_s or 0.0) / LOOKS_PER_LIMIT))

    def look(self) -> Limit | None:
        """Return the limit that the run reached, if any. Do the chores that are due."""
        now = time.monotonic()
        for place, chore in enumerate(self.chores):
            if now >= self.due[place]:
                self.due[place] = now + chore.pause_s(now - self.began)
                chore.work()
        if self.ending is not None and self.ending.enough():
            return Limit.MEASURED
        if self.startup_timeout_s is None and self.stall_timeout_s is None:
            return None
        late = self.startup_timeout_s is not None and now >= self.began + self.startup_timeout_s
        if not late and now < self.looked + self._pause_s():
            return None
        self.looked = now
        seen = self.signs()
        if seen != self.seen:
            self.seen, self.changed = seen, now
        if not seen.begun:
            return Limit.STARTUP if late else None
        stalled = self.stall_timeout_s is not None and now >= self.changed + self.stall_timeout_s + self.late_s
        return Limit.STALL if stalled and not seen.over else None

"""The steps of a program that reports its own steps. The program prints lines (`steps: stdout`) or calls `tunebench.steps.step`.

While the program runs, its new lines are read as often as the run's time limits require. New lines are also read when `measure:`
may end the program. The lines of stdout become `steps-rank0.jsonl`. After the end, each rank that reported steps gets a worker file
in the form that the instrument uses. So readers of a run's files find the steps in the usual form.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from orchestrator import trainers
from orchestrator.files import reading, writing
from orchestrator.files.package import STEPS_MODULE
from orchestrator.machine import process_identity
from orchestrator.measure import steps
from orchestrator.measure.rank_files import why_wrong, worker_files
from orchestrator.measure.steps.printed import StepLines
from orchestrator.records import Command, Experiment, Limit, ProcessOutcome, RunFolder, StepSource
from orchestrator.records.run_folder import MODULES
from orchestrator.run.reported_steps.early_end import EarlyEnd
from orchestrator.run.watchdog import Signs, by_steps

SHORTEST_PAUSE_S, LONGEST_PAUSE_S, FIRST_PAUSE_S = 0.2, 15.0, 1.0
_PIECE_BYTES = 2**20
# The time to the next decision is estimated from this number of steps.
_LAST_STEPS = 10
# A clock of the program may differ this much from the clock of this process.
_TOLERANCE_S = 1.0


class ReportedSteps:
    """The steps that a running program has reported so far. `enough` decides whether the program has made enough steps.

    `is_gone` returns whether the run's folder is gone. Another folder may be in its place, so nothing is written then.
    """

    def __init__(
        self, experiment: Experiment, source: StepSource, folder: RunFolder, is_gone: Callable[[], bool] = lambda: False
    ) -> None:
        self.experiment, self.source, self.folder, self.is_gone = experiment, source, folder, is_gone
        self.lines = StepLines(self._moment, trainers.get(experiment.trainer).step_reader(experiment))
        self.ending = EarlyEnd(experiment.measure) if experiment.measure else None
        self.began, self.began_monotonic = time.time(), time.monotonic()
        self.place, self.rest, self.lost = 0, b"", ""
        self.looked, self.pause_s = self.began_monotonic, FIRST_PAUSE_S

    def _moment(self, reading: float) -> float | None:
        """Convert `reading`, a time on the program's clock, to seconds since the epoch. Return None if the clock is unknown."""
        now = time.time()
        for offset in (0.0, now - time.monotonic()):
            if self.began - _TOLERANCE_S <= reading + offset <= now + _TOLERANCE_S:
                return round(reading + offset, 6)
        return None

    def signs(self) -> Signs:
        """Return the progress of the run for the watchdog."""
        if self.source is StepSource.CALLS:
            return by_steps(self.folder.path)
        self.update()
        return Signs(begun=self.lines.found > 0, mark=self.lines.found)

    def next_look_at(self) -> float | None:
        """Return the earliest time, on the monotonic clock, at which the run may have made enough steps.

        Return None if the run has no rule for an early end.
        """
        return None if self.ending is None else self.looked + self.pause_s

    def enough(self) -> bool:
        """Return whether the run has made the steps that `measure:` requires.

        Read new lines if the last look was long enough ago.
        """
        if self.ending is None or time.monotonic() < self.looked + self.pause_s:
            return False
        self.update()
        self.looked = time.monotonic()
        last = self.ending.seconds[-_LAST_STEPS:]
        if last:
            left_s = self.ending.steps_to_go() * sum(last) / len(last)
            self.pause_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, left_s))
        return self.ending.step is not None and self._have_all_made(self.ending.step)

    def _have_all_made(self, number: int) -> bool:
        """Return whether the other processes have made as many steps as rank 0. One that failed or hangs never makes them.

        A process that has made no step yet has no file. Lines of stdout are the steps of all processes.
        """
        ranks = range(1, self.experiment.num_gpus) if self.source is StepSource.CALLS else ()
        return all(sum(1 for _ in islice(steps.of_file(self.folder.steps(rank)), number)) == number for rank in ranks)

    def update(self) -> None:
        """Read the lines that the program has written since the last call."""
        path = self.folder.stdout if self.source is StepSource.STDOUT else self.folder.steps(0)
        try:
            with reading.opened(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.place:  # a program emptied its log, such as one that rotates logs
                    self.lost = f"{path.name} was emptied while the program ran, so steps may be missing"
                    self.place = 0
                elif size > steps.MAX_BYTES:
                    self.lost = f"only the first {steps.MAX_BYTES // 2**20} MiB of {path.name} were searched for steps"
                file.seek(self.place)
                while self.place < steps.MAX_BYTES and (piece := file.read(_PIECE_BYTES)):
                    self.place += len(piece)
                    self._take(piece)
        except (OSError, reading.Unreadable):  # there is no file yet
            return

    def _take(self, piece: bytes) -> None:
        if self.source is StepSource.STDOUT:
            rows = self.lines.feed(piece)
            self._write(rows)
            seconds = [row["s"] for row in rows]
        else:
            *whole, self.rest = (self.rest + piece).split(b"\n")
            seconds = [step.seconds for line in whole if (step := steps.parse(line)) is not None]
        if self.ending is not None:
            for value in seconds:
                self.ending.add(value)

    def _take_file(self) -> None:
        """Replace the printed steps by the steps of the program's own file, if the file has as many."""
        rows = trainers.get(self.experiment.trainer).steps_at_end(self.experiment, self.folder.path)
        if rows and len(rows) >= self.lines.found:
            with suppress(OSError):
                writing.replace(self.folder.steps(0), "".join(json.dumps(row) + "\n" for row in rows))

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self.is_gone():
            return
        try:
            writing.append(self.folder.steps(0), "".join(json.dumps(row) + "\n" for row in rows))
        except OSError as error:  # such as a full disk
            self.lines.problem = f"the steps could not be written: {reading.reason(error)}"

    def finish(self, outcome: ProcessOutcome) -> None:
        """Read the last lines of a run that ended, and write the worker files of its ranks."""
        if self.is_gone():
            return
        self.update()
        if self.source is StepSource.STDOUT:
            self._take(b"\n")  # the last line may lack its line break
            self._take_file()
        if why_wrong(self.folder.path):
            return  # the run is invalid for this reason, so the file stays as it is
        ranks = self.folder.all_steps()
        if outcome.exit_code == 0 or outcome.limit is Limit.MEASURED:
            ranks.setdefault(0, self.folder.steps(0))
        of_instrument = {int(content.get("rank") or 0): content for content in worker_files(self.folder.path)}
        for rank in ranks:
            content = {**of_instrument.get(rank, {"schema": 2, "rank": rank}), **self._worker(outcome)}
            with suppress(OSError):  # a full disk is the run's failure, and not a defect of Tunebench
                writing.replace(self.folder.worker(rank), json.dumps(content) + "\n")

    def _worker(self, outcome: ProcessOutcome) -> dict[str, Any]:
        """Return the content of a rank's worker file: the facts about its steps."""
        measure, ending = self.experiment.measure, self.ending
        stopped = None
        if ending is not None and outcome.limit is Limit.MEASURED:
            stopped = {"step": ending.step, "why": ending.why, "half_width": ending.half_width}
        return {
            "world_size": self.experiment.num_gpus,
            "host": process_identity.host_name(),
            "clock": "host",
            "measure": asdict(measure) if measure else None,
            "stopped": stopped,
            "steps_from": self.source,
            "steps_note": self.lost or self.lines.note,
            "steps_problem": self.lines.problem,
        }


def prepare(command: Command, experiment: Experiment, run_dir: Path) -> Command:
    """Return the command. If its program calls `tunebench.steps`, the command gets a PYTHONPATH with that module.

    The module is copied into the run's folder, because the interpreter of the run may not have Tunebench.
    """
    if experiment.steps is not StepSource.CALLS:
        return command
    others = command.env.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
    path = os.pathsep.join(filter(None, (str(run_dir / MODULES), others)))
    files = {**command.files, f"{MODULES}/tunebench/steps.py": STEPS_MODULE.read_text(encoding="utf-8")}
    return replace(command, env={**command.env, "PYTHONPATH": path}, files=files)


def of_run(experiment: Experiment, folder: RunFolder, is_gone: Callable[[], bool]) -> ReportedSteps | None:
    """Return the steps of a run whose program reports its own steps. Return None for every other run."""
    return None if experiment.steps is None else ReportedSteps(experiment, experiment.steps, folder, is_gone)

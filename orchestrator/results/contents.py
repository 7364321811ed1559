"""The classes for the contents of a results folder: its experiments and their runs. `store` reads the contents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.records import Experiment, Job, JobState, RunRecord, Start, Status

NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """A run as its folder shows it. `record` is None until the run has ended."""

    job: Job
    state: JobState
    record: RunRecord | None = None

    def is_failed_surplus(self, experiment: Experiment) -> bool:
        """Return whether the run did not end ok, and its repeat is no longer requested, because `repeats` was lowered.

        No call tries such a run again, so it must not count as a failure. A surplus run that ended ok is a measurement like others.
        """
        ended_ok = self.record is not None and self.record.status is Status.OK
        is_over = self.state in (JobState.ENDED, JobState.LOST)
        return self.job.repeat > experiment.most_repeats and is_over and not ended_ok


def last_start(runs: Iterable[StoredRun]) -> Start | None:
    """Return how the last of these runs that ended ok was started; None if there is none. Older versions knew only cold starts."""
    ok = [run.record for run in runs if run.record is not None and run.record.status is Status.OK]
    if not ok:
        return None
    return Start.WARM if ok[-1].provenance.get("start") == Start.WARM else Start.COLD


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredExperiment:
    """An experiment and its runs, sorted by repeat and attempt."""

    experiment: Experiment
    runs: tuple[StoredRun, ...]

    @property
    def records(self) -> tuple[RunRecord, ...]:
        return tuple(run.record for run in self.runs if run.record is not None)

    def without_failed_surplus(self, warnings: list[str]) -> StoredExperiment:
        """Return the experiment without surplus repeats that did not end ok. If there are any, add a sentence to `warnings`."""
        ok = {run.job.repeat for run in self.runs if run.record is not None and run.record.status is Status.OK}
        kept, named = [], []
        for run in self.runs:
            if run.job.repeat in ok or not run.is_failed_surplus(self.experiment):
                kept.append(run)
            elif run.record is not None or run.state is JobState.LOST:  # an unreadable record has its own warning
                named.append(run.job.name)
        if named:
            shown = ", ".join([*named[:NAMED], *(["…"] if len(named) > NAMED else [])])
            are = "is" if len(named) == 1 else "are"
            warnings.append(
                f"{self.experiment.id}: {shown} did not end ok and {are} left out, because repeats: now asks for "
                f"{self.experiment.most_repeats}; the files stay in the folder"
            )
        return replace(self, runs=tuple(kept))


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """The experiments of a results folder in the order of the plan, and a warning for each file that cannot be read.

    `removed` has the ids of experiments that no call of `tunebench run` requests any more. These experiments stay in the
    folder, and reports leave them out.
    """

    experiments: tuple[StoredExperiment, ...]
    warnings: tuple[str, ...]
    removed: frozenset[str] = frozenset()

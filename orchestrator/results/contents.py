"""The classes for the contents of a results folder: its experiments and their runs. `store` reads the contents."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records import Experiment, Job, JobState, RunRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """A run as its folder shows it. `record` is None until the run has ended."""

    job: Job
    state: JobState
    record: RunRecord | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredExperiment:
    """An experiment and its runs, sorted by repeat and attempt."""

    experiment: Experiment
    runs: tuple[StoredRun, ...]

    @property
    def records(self) -> tuple[RunRecord, ...]:
        return tuple(run.record for run in self.runs if run.record is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """The experiments of a results folder in the order of the plan, and a warning for each file that cannot be read.

    `removed` has the ids of experiments that no call of `tunebench run` requests any more. These experiments stay in the
    folder, and reports leave them out.
    """

    experiments: tuple[StoredExperiment, ...]
    warnings: tuple[str, ...]
    removed: frozenset[str] = frozenset()

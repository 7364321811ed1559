"""What a results folder holds, as values: experiments and their runs. `store` reads them, everybody else looks at them."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records import Experiment, Job, JobState, RunRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """A run as its folder shows it; `record` is None until it ended."""

    job: Job
    state: JobState
    record: RunRecord | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredExperiment:
    """An experiment and its runs, by repeat and attempt."""

    experiment: Experiment
    runs: tuple[StoredRun, ...]

    @property
    def records(self) -> tuple[RunRecord, ...]:
        return tuple(run.record for run in self.runs if run.record is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What a results folder holds, in the order asked for, and a sentence for each file that can't be read.

    `removed` are the ids of experiments that no call wants any more: they stay in the store and leave the report.
    """

    experiments: tuple[StoredExperiment, ...]
    warnings: tuple[str, ...]
    removed: frozenset[str] = frozenset()

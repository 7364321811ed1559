"""Cancel the submitted runs of a results folder, from any host that can reach Slurm.

A run that has not begun is claimed and recorded as cancelled, so its element skips it. Slurm ends only the elements that carry out
such a run, and the elements with nothing left to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from orchestrator.errors import LaunchError
from orchestrator.executors.slurm import client
from orchestrator.executors.slurm.batches import Batch, BatchFolder, Mark, batch_folders
from orchestrator.executors.slurm.judging import Word
from orchestrator.executors.slurm.watched import Watched, allocation_of, refuse
from orchestrator.records import Job, JobState, Status
from orchestrator.results import claims

_BEFORE = Word(status=Status.CANCELLED, kind="cancelled", cause="it was cancelled before it began")


def cancel_waiting(results: Path, experiments: Collection[str]) -> tuple[list[Job], str | None]:
    """Cancel the submitted runs of these experiments that have not begun.

    Return these runs, and a sentence if Slurm could not be asked to remove their jobs from its queue (else None). Such jobs end
    as soon as they begin.
    """
    cancelled: list[Job] = []
    problem = None
    for folder in batch_folders(results):
        batch = folder.batch()
        if batch is None:
            continue
        idle = []
        for element in _unfinished(folder, batch):
            jobs = folder.jobs(batch.elements[element.number])
            refused = [job for job in jobs if job.experiment_id in experiments and _refused(element, job)]
            cancelled += refused
            if refused and all(claims.state(job.run_dir) is JobState.ENDED for job in jobs):
                idle.append(element.number)
        problem = _ended(folder, batch, idle) or problem
    return cancelled, problem


def cancel_running(jobs: Sequence[Job]) -> tuple[list[Job], str | None]:
    """Ask Slurm to end the elements that carry out these runs.

    Return the runs that elements of their results folder carry out, and a sentence if Slurm could not be asked (else None).
    """
    ending: list[Job] = []
    numbers: dict[tuple[BatchFolder, str], list[int]] = defaultdict(list)
    batches = {batch.name: folder for folder in batch_folders(jobs[0].folder.results) if (batch := folder.batch())}
    for job in jobs:
        details = allocation_of(job)
        if details.get("batch") in batches and isinstance(details.get("element"), int):
            ending.append(job)
            numbers[batches[details["batch"]], details["batch"]].append(details["element"])
    problem = None
    for (folder, _), elements in numbers.items():
        if batch := folder.batch():
            problem = _ended(folder, batch, elements) or problem
    return ending, problem


def _unfinished(folder: BatchFolder, batch: Batch) -> Iterator[Watched]:
    marks = folder.marks()
    for number in range(len(batch.elements)):
        restarts = marks.get(number, {})
        if not restarts or Mark.DONE not in restarts[max(restarts)]:
            yield Watched(folder=folder, name=batch.name, number=number, job_id=None, since=batch.created_at)


def _refused(element: Watched, job: Job) -> bool:
    """Cancel a run if it has not begun. Return whether it was cancelled."""
    if claims.state(job.run_dir) is not JobState.PENDING:
        return False
    refuse(element, job, _BEFORE)
    return claims.state(job.run_dir) is JobState.ENDED


def _ended(folder: BatchFolder, batch: Batch, elements: Sequence[int]) -> str | None:
    """End these elements in Slurm. Return a sentence if Slurm could not be asked."""
    submitted = folder.submitted()
    try:
        if len({*elements}) == len(batch.elements):
            client.cancel(batch.name)
        elif elements and submitted:
            client.cancel(batch.name, [(submitted.job_id, number) for number in elements])
    except LaunchError as error:
        return str(error)
    return None

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
        if idle:
            problem = _taken_from_queue(folder, batch, idle) or problem
    return cancelled, problem


def cancel_running(jobs: Sequence[Job]) -> tuple[list[Job], str | None]:
    """Ask Slurm to end the elements that carry out these runs.

    Return the runs that elements of their results folder carry out, and a sentence if Slurm could not be asked (else None).
    """
    ending: list[Job] = []
    elements: dict[str, list[tuple[int, int]]] = defaultdict(list)
    batches = {batch.name: batch for folder in batch_folders(jobs[0].folder.results) if (batch := folder.batch())}
    for job in jobs:
        name, job_id, element = (allocation_of(job).get(key) for key in ("batch", "job_id", "element"))
        if name in batches and isinstance(job_id, int) and isinstance(element, int):
            ending.append(job)
            elements[name].append((job_id, element))
    problem = None
    for name, some in elements.items():
        problem = _ended(batches[name], some) or problem
    return ending, problem


def is_copy(results: Path) -> bool:
    """Return whether batches of this results folder belong to another one, and this one is a copy of it."""
    return any(folder.is_copy() for folder in batch_folders(results))


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


def _taken_from_queue(folder: BatchFolder, batch: Batch, numbers: Sequence[int]) -> str | None:
    """End these elements, which have nothing left to do. Return a sentence if Slurm could not be asked."""
    try:
        submitted = folder.submitted()
        job_id = (
            submitted.job_id
            if submitted
            else next((row.job_id for row in client.queue() if row.name == batch.name), None)
        )
    except LaunchError as error:
        return str(error)
    return None if job_id is None else _ended(batch, [(job_id, number) for number in numbers])


def _ended(batch: Batch, elements: Sequence[tuple[int, int]]) -> str | None:
    """End these elements in Slurm: pairs of the job's number and the element's. Return a sentence if Slurm could not be asked."""
    try:
        client.cancel(batch.name, () if len({*elements}) == len(batch.elements) else elements)
    except LaunchError as error:
        return str(error)
    return None

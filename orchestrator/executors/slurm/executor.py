"""The executor `slurm` submits runs as arrays, waits for their ends, and finds arrays again that an earlier call submitted.

The executor starts no run itself: on its node, each element of an array carries out its runs (`worker`). If the caller closes the
iterator, the submitted jobs go on, and the next call attaches to them. `end` cancels them.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import LaunchError, NoAnswer
from orchestrator.executors.local import TUNEBENCH
from orchestrator.executors.slurm import client
from orchestrator.executors.slurm.batches import (
    BatchFolder,
    batch_folders,
    is_done,
    is_over,
    new_batch,
    run_name,
    unconfirmed,
)
from orchestrator.executors.slurm.cluster.refusals import refusal, refuse_secrets
from orchestrator.executors.slurm.judging import Word
from orchestrator.executors.slurm.script import batch_script
from orchestrator.executors.slurm.shapes import Element, Shape, Work, common_limit, elements, work_of
from orchestrator.executors.slurm.site import Site
from orchestrator.executors.slurm.watched import (
    Queue,
    Watched,
    claimed_by,
    look,
    marks_of,
    places,
    refuse,
    settle,
    watched_element,
)
from orchestrator.executors.slurm.worker import EXECUTOR
from orchestrator.files import writing
from orchestrator.files.printable_text import counted
from orchestrator.machine.stop_signals import held_back
from orchestrator.records import Job, JobState, Status
from orchestrator.results import claims
from orchestrator.results.claims import Claim
from orchestrator.results.store import Store

RUN_ARRAY = (*TUNEBENCH, "run-array")
_LOOK_AGAIN_S = 2.0
# Sites ask for at most this number of submissions a minute.
_SUBMITS, _SUBMITS_IN_S = 10, 60.0
_FULL_PAUSE_S = 60.0
# The number of times that a run is submitted whose job ends before the run begins.
_MOST_SUBMITS = 3
# The same for a run whose job Slurm forgets at once. Slurm may forget jobs, too, when its controller loses its state.
_MOST_FORGOTTEN = 10
_GOODBYE_S = 90.0


class SlurmExecutor:
    """An executor that submits its jobs to the cluster of a site. `say` gets sentences about submissions and Slurm's silence."""

    def __init__(
        self,
        site: Site | None = None,
        *,
        run_array: Sequence[str] = RUN_ARRAY,
        say: Callable[[str], object] = lambda sentence: None,
    ) -> None:
        self.site = site or Site()
        self.run_array = tuple(run_array)
        self.say = say
        self.submits: deque[float] = deque(maxlen=_SUBMITS)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        """Submit the jobs that no submitted element has, and yield each job with its state when it has ended."""
        if not jobs:
            return
        campaign = _Campaign(jobs, self)
        while campaign.waiting or campaign.watched:
            campaign.feed()
            for job, state in campaign.look():
                campaign.known.pop(job.experiment_id, None)  # its other runs are expected to take as long
                yield job, state
            if campaign.waiting or campaign.watched:
                time.sleep(_LOOK_AGAIN_S)

    def submit(self, jobs: Sequence[Job]) -> tuple[int, int]:
        """Submit as many of the jobs as the site and Slurm allow now. Return two numbers: the submitted jobs and the others.

        Raise NoAnswer if Slurm did not confirm a submission.
        """
        campaign = _Campaign(jobs, self)
        campaign.feed_all()
        if jobs and (unknown := unconfirmed(jobs[0].folder.results)):
            raise NoAnswer(
                f"Slurm has not confirmed {counted(unknown, 'submission')}, so some runs may not be in its queue; the same "
                "command without --submit-only finds out, and waits for the runs"
            )
        return len(jobs) - len(campaign.waiting), len(campaign.waiting)

    def holds(self, claim: Claim) -> bool:
        """Return whether a job of this executor's cluster carries out the claimed run."""
        return claim.executor == EXECUTOR and isinstance(claim.details.get("slurm"), Mapping)

    def goes_on(self, results: Path) -> str:
        """Return a sentence about the submitted jobs of a results folder, for a user who has interrupted the campaign."""
        if unknown := unconfirmed(results):
            return (
                f"Slurm has not confirmed {counted(unknown, 'submission')}. The same command looks for the jobs again."
            )
        if all(map(is_over, batch_folders(results))):
            return "No job of this campaign is in Slurm's queue."
        how = f"To wait for them, repeat the command; to end them: tunebench cancel {shlex.quote(str(results))}"
        return f"Submitted jobs go on. {how}"

    def end(self, jobs: Sequence[Job]) -> None:
        """Cancel the elements that have these jobs, and wait until their runs have ended."""
        if not jobs:
            return
        campaign = _Campaign(jobs, self)
        for folder in {element.folder for element in campaign.watched}:
            if batch := folder.batch():
                client.cancel(batch.name)
                folder.note_cancelled()
        deadline = time.monotonic() + _GOODBYE_S
        while time.monotonic() < deadline and any(claims.state(job.run_dir) is JobState.RUNNING for job in jobs):
            time.sleep(_LOOK_AGAIN_S)


class _Campaign:
    """The runs of one call: those that wait for their submission, and the submitted elements."""

    def __init__(self, jobs: Sequence[Job], executor: SlurmExecutor) -> None:
        self.site, self.run_array, self.submits = executor.site, executor.run_array, executor.submits
        self.results = jobs[0].folder.results
        self.waiting: list[Job] = []
        self.watched: list[Watched] = []
        self.say = executor.say
        self.queue = Queue(site=self.site, say=executor.say)
        self.planned: dict[Shape, list[Element]] | None = None
        self.known: dict[str, Work] = {}
        self.submitted: Counter[Job] = Counter()
        self.forgotten: Counter[Job] = Counter()
        # The number of elements that may be in the queue. It becomes smaller if Slurm accepts fewer.
        self.capacity = self.site.max_queued
        self.full_until = 0.0
        self.max_array: int | None = None
        self.throttled: set[BatchFolder] = set()
        self._attach(jobs)

    def _attach(self, jobs: Sequence[Job]) -> None:
        """Find the elements that earlier calls submitted: the element that claimed a run, or else the last one that has it."""
        by_run, folders = places(self.results)
        found: dict[tuple[str, int], Watched] = {}
        marks = {folder: folder.marks() for folder in folders}
        for job in jobs:
            element = claimed_by(job, folders)
            if element is None and (place := by_run.get(run_name(job))):
                folder, number = place
                if not is_done(marks[folder].get(number, {})):
                    element = watched_element(folder, number, folders[folder])
            if element is None:
                self.waiting.append(job)
                continue
            same = found.setdefault((element.name, element.number), element)
            same.left[job] = False
            same.begun |= element.begun
        self.watched = [*found.values()]
        if not self.watched:
            self.queue.next_at = time.time() + self.site.poll_s  # none of these jobs is in the queue yet

    def feed(self) -> bool:
        """Submit an array, if runs wait and the site's limits allow it. Return whether an array was submitted."""
        now, room = time.time(), self.capacity - len(self.watched)
        if not self.waiting or room <= 0 or now < self.full_until:
            return False
        if len(self.submits) == _SUBMITS and now - self.submits[0] < _SUBMITS_IN_S:
            return False
        if self.planned is None:
            self.planned = elements(map(self._work, self.waiting), self.site)
        count = sum(map(len, self.planned.values()))
        if room < min(count, max(1, self.capacity // 2)):
            return False  # few large arrays are better for the controller than many small ones
        if self.max_array is None:
            client.require()
            self.max_array = client.max_array_size()
        shape = next(iter(self.planned))
        return self._submit(self.planned[shape][: min(room, self.max_array)])

    def feed_all(self) -> None:
        """Submit arrays until the limits allow no more: smaller ones after Slurm refused a large one."""
        capacity = None
        while self.feed() or self.capacity != capacity:
            capacity = self.capacity

    def _work(self, job: Job) -> Work:
        """Return the run with its shape and its times. Read its experiment only once, and again after a run of it has ended."""
        name = job.experiment_id
        if name not in self.known:
            store = Store(self.results)
            records = [run.record for run in store.runs(name) if run.record]
            took_s = [record.wall_s for record in records if record.status is Status.OK]
            self.known[name] = work_of(job, store.experiment(name), took_s)
        return replace(self.known[name], job=job)

    def _submit(self, chosen: Sequence[Element]) -> bool:
        """Write the intent, submit the script, and note Slurm's number. Return False if Slurm accepts no more jobs now."""
        refuse_secrets(self.site)
        runs = [[work.job for work in element.work] for element in chosen]
        time_s = common_limit(chosen)
        with held_back():
            folder = new_batch(self.results, chosen[0].work[0].shape, runs, time_s=time_s, throttle=self.site.throttle)
            batch = folder.batch()
            assert batch is not None
            script = batch_script(batch, self.site, folder=folder.path, run_array=self.run_array)
            writing.replace(folder.script, script)
            self.submits.append(time.time())
            if not self._accepted(folder, len(runs)):
                return False
            for number, jobs in enumerate(runs):
                element = watched_element(folder, number, batch)
                element.left = dict.fromkeys(jobs, False)
                self.watched.append(element)
        sent = {job for jobs in runs for job in jobs}
        self.submitted.update(sent)
        self.waiting = [job for job in self.waiting if job not in sent]
        self.planned = None
        return True

    def _accepted(self, folder: BatchFolder, count: int) -> bool:
        """Call sbatch, and return whether Slurm accepted this number of elements.

        If sbatch does not answer, the job may exist: the queue shows it later by its name.
        """
        what = f"{counted(count, 'allocation')} ({folder.path})"
        try:
            job_id = client.submit(folder.script)
            folder.note_submitted(job_id)
            self.say(f"submitted job {job_id}: {what}")
        except NoAnswer as error:
            self.say(
                f"Slurm did not say whether it took {what}: {error}; if squeue does not show the job, it is submitted again"
            )
            return True
        except LaunchError as error:
            with suppress(OSError):
                shutil.rmtree(folder.path)
            if not self._goes_away(error, count):
                raise refusal(error, self.site) from error
            return False
        return True

    def _goes_away(self, error: LaunchError, count: int) -> bool:
        """Return whether a later or a smaller array may be accepted, and prepare for it.

        A limit of jobs may be below `max_queued`. So smaller arrays are tried, and then a pause.
        """
        if isinstance(error, client.QueueFull) and count > 1:
            self.capacity = len(self.watched) + count // 2
            return True
        self.full_until = time.time() + _FULL_PAUSE_S
        if isinstance(error, client.QueueFull):
            self.capacity = max(1, len(self.watched))
            return bool(self.watched) or client.has_jobs()
        return isinstance(error, client.Unreachable) and bool(self.submitted or self.watched)

    def look(self) -> Iterator[tuple[Job, JobState]]:
        """Yield each run that has ended, with its state. Runs that never began wait for their next submission."""
        if self.watched:
            self.queue.ask()
            self._throttle()
        marks = marks_of(self.watched)
        for element in self.watched[:]:
            ended, end = look(element, marks[element.folder].get(element.number, {}), self.queue)
            yield from ((job, JobState.ENDED) for job in ended)
            if end is not None:
                yield from self._settled(element, end)
            elif not element.left:
                self.watched.remove(element)
        self.queue.tell_held(self.watched)

    def _throttle(self) -> None:
        """Apply a changed `throttle:` of the site file to the arrays that earlier calls submitted. Slurm must list them."""
        for folder, element in {element.folder: element for element in self.watched}.items():
            if folder in self.throttled or self.queue.row(element) is None or element.job_id is None:
                continue
            self.throttled.add(folder)
            batch = folder.batch()
            if batch is not None and batch.throttle != self.site.throttle:
                with suppress(LaunchError):
                    client.throttle(element.job_id, self.site.throttle or 0)

    def _settled(self, element: Watched, end: Word) -> Iterator[tuple[Job, JobState]]:
        self.watched.remove(element)
        for job, state in settle(element, end):
            has_ended = end.listed or element.folder.log(element.number).exists()
            if state is JobState.PENDING and self.submitted[job] and (element.begun or not has_ended):
                self.submitted[job] -= 1  # its turn did not come, or Slurm forgot the job
                self.forgotten[job] += not element.begun
            if state is not JobState.PENDING:
                yield job, state
            elif self.submitted[job] < _MOST_SUBMITS and self.forgotten[job] < _MOST_FORGOTTEN:
                self.waiting.append(job)
                self.planned = None
            else:
                times = f"{self.submitted[job] + self.forgotten[job]} times"
                cause = f"its job ended {times} before the run began; the last time, {end.cause}"
                if self.forgotten[job]:
                    cause += "; `tunebench doctor --executor slurm` says whether the nodes see this folder"
                refuse(element, job, Word(status=Status.FAILED, kind="launcher", cause=cause))
                yield job, claims.state(job.run_dir)

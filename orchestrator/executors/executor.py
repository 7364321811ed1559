"""The interface of every executor, from Tunebench or from another package."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Protocol, runtime_checkable

from orchestrator.entry_points import WrongAnswer
from orchestrator.files.printable_text import quoted
from orchestrator.records import Job, JobState
from orchestrator.results.claims import Claim


@runtime_checkable
class Executor(Protocol):
    """An executor runs jobs and yields each job when it has ended."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        """Claim the jobs, run them in order, and yield each job with its state.

        If the caller closes the generator, end the running jobs. If another process has claimed a job first, yield this job with
        its present state.
        """
        ...


def ends(executor: Executor, jobs: Sequence[Job]) -> Generator[tuple[Job, JobState]]:
    """Run the jobs and yield each with its state, as the executor does. If this generator is closed, so is the executor's.

    Raise WrongAnswer if the executor of another package yields anything else.
    """
    ended = executor.run(jobs)
    whose = f"the executor {type(executor).__module__}.{type(executor).__qualname__}: run"
    if not isinstance(ended, Iterator):
        raise WrongAnswer(f"{whose} returned {quoted(ended)}, and not an iterator; make it a generator")
    close = getattr(ended, "close", None)
    with closing(ended) if callable(close) else nullcontext():  # type: ignore[type-var]
        for one in ended:
            if not (
                isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], Job) and isinstance(one[1], JobState)
            ):
                raise WrongAnswer(f"{whose} yielded {quoted(one)}, and not a job with its state; correct it there")
            yield one


@runtime_checkable
class AttachingExecutor(Executor, Protocol):
    """An executor whose jobs go on without it, such as jobs in the queue of a cluster.

    If the caller closes the generator of `run`, the jobs go on. A later call of `run` gets the jobs again, those that are running
    too, and waits for them.
    """

    def holds(self, claim: Claim) -> bool:
        """Return whether a job of this executor carries out the claimed run."""
        ...

    def end(self, jobs: Sequence[Job]) -> None:
        """Cancel these jobs, and wait until their runs have ended."""
        ...

"""What is shown while a benchmark runs: live lines on a terminal, a line for each run that ended anywhere else.

Reads the run folders, and of their files the ends, for what the running experiments are at (`running`); needs no events but the
ends. Redrawn once a second, so that watching costs next to nothing beside a measurement. Lines for programs are `event_lines`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator import claims, experiment_status, running, time_left
from orchestrator.benchmark import Event, EventKind
from orchestrator.metrics import show
from orchestrator.printable import printable
from orchestrator.records import Experiment, Job, JobState, RunRecord, Status
from orchestrator.running import Activity
from orchestrator.running_view import SEPARATOR, doing, seconds
from orchestrator.store import Store
from orchestrator.stored import StoredRun
from orchestrator.time_left import Expectation, Work
from orchestrator.under_way import UnderWay

REDRAWS_PER_S = 1.0
LINES = 8
"""Running experiments with a line of their own."""

STYLES = {Status.OK: "green", Status.CANCELLED: "yellow"}


class Progress:
    """A context in which `on_event` may be handed to `run_benchmark`.

    With a `store`, what ended in earlier sessions says how long such runs take, from the beginning.
    """

    def __init__(self, console: Console, experiments: Sequence[Experiment], *, store: Store | None = None) -> None:
        self.console = console
        self.store = store
        self.experiments = {one.id: one for one in experiments}
        self.started_at = time.monotonic()
        self._under_way = UnderWay()
        self._took: list[time_left.Took] = []
        self._expectation = Expectation(())
        self._stack = ExitStack()

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._remember(self._earlier())
            view = Live(
                get_renderable=self.redraw, console=self.console, refresh_per_second=REDRAWS_PER_S, transient=True
            )
            self._stack.enter_context(view)
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def on_event(self, event: Event) -> None:
        if event.kind is EventKind.HANDED_OVER:
            self._under_way.hand_over(event.jobs)
        elif event.kind is EventKind.ENDED and event.record is not None:
            numbers = [self._under_way.end(job) for job in event.jobs]
            self._remember(self._ended(event.jobs, event.record))
            self._print(_ended_line(event.record, number=next(iter(numbers), None), total=self._under_way.total))
        else:
            self._print(Text(event.text))

    def say(self, text: str) -> None:
        self._print(Text(text))

    def _print(self, line: Text) -> None:
        line.plain = printable(line.plain)
        self.console.print(line, soft_wrap=True)

    def _earlier(self) -> Iterator[time_left.Took]:
        for one in self.experiments.values() if self.store else ():
            for run in self.store.runs(one.id) if self.store else ():
                if took := experiment_status.took(one, run):
                    yield took

    def _ended(self, jobs: Sequence[Job], record: RunRecord) -> Iterator[time_left.Took]:
        for job in jobs:
            experiment = self.experiments.get(job.experiment_id)
            run = StoredRun(job=job, state=JobState.ENDED, record=record)
            if experiment is not None and (took := experiment_status.took(experiment, run)):
                yield took

    def _remember(self, took: Iterator[time_left.Took]) -> None:
        self._took.extend(took)
        self._expectation = Expectation(self._took)

    def redraw(self) -> Group:
        """Bar, how long in all and how long to go; a line for each that runs."""
        _, now, waiting = self._under_way.look()
        found = [(self.experiments[job.experiment_id], job) for job in now if job.experiment_id in self.experiments]
        at_work = [(experiment, job, running.look(job.run_dir, experiment)) for experiment, job in found]
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, self._under_way.total), completed=self._under_way.ended, width=20)
        head.add_row(bar, Text(self._headline(self._left_s(at_work, waiting))))
        lines = [_running_line(job, activity) for _, job, activity in at_work[:LINES]]
        more = [Text(f"and {len(at_work) - LINES} more", style="dim")] if len(at_work) > LINES else []
        return Group(head, *lines, *more)

    def _headline(self, left_s: float | None) -> str:
        ended, total = self._under_way.ended, self._under_way.total
        said = f"{ended}/{total} runs, {seconds(time.monotonic() - self.started_at)}"
        if ended == total:
            return said
        return f"{said}, time left unknown" if left_s is None else f"{said}, about {seconds(left_s)} to go"

    def _left_s(self, at_work: Sequence[tuple[Experiment, Job, Activity]], waiting: Sequence[Job]) -> float | None:
        now = time.time()
        spans = list(time_left.latest((one.began_at, one.ended_at, one.num_gpus) for one in self._took))
        works = []
        for experiment, job, activity in at_work:
            claim = claims.read_claim(job.run_dir)
            elapsed_s = max(0.0, now - claim.claimed_at) if claim else 0.0
            left = self._expectation.remaining_s(experiment, elapsed_s=elapsed_s, by_steps_s=activity.left_s)
            works.append(Work(num_gpus=experiment.num_gpus, seconds=left))
            spans.append((now - elapsed_s, now, experiment.num_gpus))
        for name, times in Counter(
            job.experiment_id for job in waiting if job.experiment_id in self.experiments
        ).items():
            one = self.experiments[name]
            works.append(Work(num_gpus=one.num_gpus, seconds=self._expectation.run_s(one), times=times))
        return time_left.left_s(works, gpus_at_once=time_left.gpus_at_once(spans))


def _running_line(job: Job, activity: Activity) -> Text:
    said = f"{doing(activity)}{SEPARATOR}{job.experiment_id} r{job.repeat}"
    return Text(said, style="cyan", overflow="ellipsis", no_wrap=True)


def _ended_line(record: RunRecord, *, number: int | None, total: int) -> Text:
    line = Text("" if number is None else f"{number}/{total} ")
    line.append(str(record.status), style=STYLES.get(record.status, "red"))
    line.append(f" {record.experiment_id} r{record.repeat}  {record.wall_s:.1f} s")
    if record.kind:
        line.append(f"  {record.kind}: {record.cause}")
    if record.status is Status.OK:
        line.append(_speed({one.name: one.value for one in record.measurements}))
    return line


def _speed(values: Mapping[str, object]) -> str:
    """The steady state's, as the report has it; of what was not seen step by step the Trainer's, which says whose it is."""
    for name, whose in (("tokens_per_s_per_gpu", ""), ("train_tokens_per_second", " by the Trainer's clock")):
        if isinstance(values.get(name), (int, float)):
            return f"  {show(name, values[name])} tokens/s a device{whose}"
        if name in values:
            return "  no steady-state speed"
    return ""

"""What is shown while a benchmark runs: a live line on a terminal, a line for each run that ended anywhere else.

Reads the run folders for what the running experiment is at; needs no events but the ends. Redrawn once a second, so that
watching costs next to nothing beside a measurement.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.benchmark import Event, EventKind
from orchestrator.metrics import show
from orchestrator.records import Experiment, Job, RunRecord, Status

REDRAWS_PER_S = 1.0
TAIL_BYTES = 4096
STYLES = {Status.OK: "green", Status.CANCELLED: "yellow"}


class Progress:
    """A context in which `on_event` may be handed to `run_benchmark`."""

    def __init__(self, console: Console, experiments: Sequence[Experiment]) -> None:
        self.console = console
        self.experiments = {one.id: one for one in experiments}
        self.due: list[Job] = []
        self.ended = 0
        self.started_at = time.monotonic()
        self._stack = ExitStack()

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            view = Live(
                get_renderable=self._live, console=self.console, refresh_per_second=REDRAWS_PER_S, transient=True
            )
            self._stack.enter_context(view)
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def on_event(self, event: Event) -> None:
        if event.kind is EventKind.HANDED_OVER:
            self.due = [*self.due[: self.ended], *event.jobs]  # repeats that adapt come as later hand-overs
        elif event.kind is EventKind.ENDED and event.record is not None:
            self.ended += 1
            self._print(_ended_line(self.ended, len(self.due), event.record))
        else:
            self._print(Text(event.text))

    def say(self, text: str) -> None:
        self._print(Text(text))

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True)

    def _live(self) -> Table:
        """Bar, what runs, at which step, how long in all and how long to go."""
        elapsed = time.monotonic() - self.started_at
        row = Table.grid(padding=(0, 1))
        left = f", about {_clock(elapsed / self.ended * (len(self.due) - self.ended))} to go" if self.ended else ""
        row.add_row(
            ProgressBar(total=max(1, len(self.due)), completed=self.ended, width=20),
            Text(f"{self.ended}/{len(self.due)} runs, {_clock(elapsed)}{left}"),
            Text(self._current(), style="cyan", overflow="ellipsis", no_wrap=True),
        )
        return row

    def _current(self) -> str:
        for job in self.due[self.ended : self.ended + 3]:
            if job.run_dir.exists() and not (job.run_dir / "record.json").exists():
                return f"{_stage(job.run_dir, self.experiments.get(job.experiment_id))} · {job.experiment_id}"
        return ""


def _stage(run_dir: Path, experiment: Experiment | None) -> str:
    steps = run_dir / "steps-rank0.jsonl"
    last = _last_line(steps) if steps.exists() else None
    if last is None:
        return "starting"
    planned = experiment.arguments.get("max_steps") if experiment else None
    of = f"/{planned}" if isinstance(planned, str) and planned.isdecimal() else ""
    loss = f", loss {last['loss']:.3f}" if isinstance(last.get("loss"), float) else ""
    return f"step {last.get('step', '?')}{of}{loss}"


def _last_line(file: Path) -> dict[str, Any] | None:
    """The last whole line of a file that is being written."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def _ended_line(number: int, total: int, record: RunRecord) -> Text:
    line = Text(f"{number}/{total} ")
    line.append(str(record.status), style=STYLES.get(record.status, "red"))
    line.append(f" {record.experiment_id} r{record.repeat}  {record.wall_s:.1f} s")
    if record.kind:
        line.append(f"  {record.kind}: {record.cause}")
    speed = next((one.value for one in record.measurements if one.name == "train_tokens_per_second"), None)
    if isinstance(speed, (int, float)):
        line.append(f"  {show('train_tokens_per_second', speed)} tokens/s a device")
    return line


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""The display of `tunebench run`: a line for each run that ended. On a terminal, the campaign's status is below these lines.

`tunebench status --watch` shows the same status. `status/campaign` reads it and `status/view` draws it. Drawing takes less than one
percent of a core, so it does not disturb a measurement. `json_events` writes lines for programs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePath
from types import MappingProxyType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from orchestrator.campaign.loop import Event, EventKind
from orchestrator.campaign.status import view
from orchestrator.campaign.status.campaign import Reader, watching
from orchestrator.errors import OrchestratorError
from orchestrator.files.printable_text import printable
from orchestrator.measure.metrics import metric, show
from orchestrator.records import Job, RunRecord, Status

STYLES = {Status.OK: "green", Status.CANCELLED: "yellow"}
# The line of a run shows the first of these that the run has. Without padding, if known: that decides in the report, too.
SPEEDS = (
    *("real_tokens_per_s_per_gpu", "tokens_per_s_per_gpu", "real_tokens_per_s", "tokens_per_s", "samples_per_s"),
    *("train_tokens_per_second", "train_samples_per_second", "call_time_s"),
)


class Progress:
    """A context manager. Pass its `on_event` to `run_benchmark`. A terminal shows the status that the `readers` read.

    If there are several readers, the line of a run names its results folder. `labels` maps an experiment's id to the values that
    distinguish the experiment, if its readable part does not show them.
    `is_race`: the runs of each round are counted anew, because the number of later rounds is unknown.
    """

    def __init__(
        self,
        console: Console,
        readers: Sequence[Reader] = (),
        *,
        labels: Mapping[str, str] = MappingProxyType({}),
        is_race: bool = False,
    ) -> None:
        self.console = console
        self.readers = readers
        self.labels = labels
        self.is_race = is_race
        self._began = time.monotonic()
        self._places = _short_names([reader.store.root for reader in readers])
        self._due: set[Job] = set()
        self._ended: set[Job] = set()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._stack = ExitStack()

    def __enter__(self) -> Progress:
        if self.console.is_terminal and self.readers:
            self._stack.enter_context(self._live)
            self._stack.enter_context(watching(self._draw))
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def on_event(self, event: Event) -> None:
        if event.kind is EventKind.HANDED_OVER:
            self._due = set(event.jobs)
            if self.is_race:
                self._ended.clear()
            for reader in self.readers:
                reader.expect(event.jobs)
        elif event.kind is EventKind.ENDED and event.record is not None:
            self._print(self._ended_line(event.jobs, event.record))
        else:
            self._print(Text(event.text))

    def say(self, text: str) -> None:
        self._print(Text(text))

    def _print(self, line: Text) -> None:
        line.plain = printable(line.plain)
        self.console.print(line, soft_wrap=True)

    def _draw(self) -> None:
        """Draw the current status. Keep the earlier drawing if the status cannot be read at this moment."""
        with suppress(OSError, OrchestratorError):
            elapsed = view.seconds(time.monotonic() - self._began)
            views = [
                view.as_view(reader.look(), title=f"{reader.store.root.name}, after {elapsed}")
                for reader in self.readers
            ]
            self._live.update(Group(*views), refresh=True)

    def _ended_line(self, jobs: Sequence[Job], record: RunRecord) -> Text:
        """Return the line for a run that ended: its number among the due runs, its status, its cause and its speed.

        The experiment is named by the readable part of its id. If several experiments share this part, the values that distinguish
        them follow, then the hash of the id. If runs of several results folders take turns, their folder follows.
        """
        counted = self._due.intersection(jobs)
        self._ended |= counted
        line = Text(f"{len(self._ended)}/{len(self._ended | self._due)} " if counted else "")
        line.append(str(record.status), style=STYLES.get(record.status, "red"))
        label = self.labels.get(record.experiment_id, "")
        name, _, digits = record.experiment_id.rpartition("-")
        place = next(
            (self._places[folder] for job in jobs for folder in job.run_dir.parents if folder in self._places), ""
        )
        where = f" in {place}" if place else ""
        line.append(f" {name} r{record.repeat}{where}{label and f'  {label} ({digits})'}  {record.wall_s:.1f} s")
        if record.kind:
            line.append(f"  {record.kind}: {record.cause}")
        if record.status is Status.OK:
            line.append(_speed({number.name: number.value for number in record.measurements}))
        return line


def _short_names(roots: Sequence[Path]) -> dict[Path, str]:
    """Return the fewest last parts of each path that distinguish several paths; nothing for a single path."""
    if len(set(roots)) < 2:
        return {}
    for count in range(1, max(len(root.parts) for root in roots)):
        names = {root: str(PurePath(*root.parts[-count:])) for root in roots}
        if len(set(names.values())) == len(names):
            return names
    return {root: str(root) for root in roots}


def _speed(values: Mapping[str, object]) -> str:
    """Return the first of SPEEDS that a run has, as text, or that it has no steady-state speed."""
    name = next((name for name in SPEEDS if name in values), None)
    if name is None:
        return ""
    if not isinstance(values[name], (int, float)):
        return "  no steady-state speed"
    unit = (metric(name).unit or "").removesuffix(", all devices")
    clock = " by the Trainer's clock" if name == "train_tokens_per_second" else ""
    return f"  {show(name, values[name])} {'a call' if unit == 's' else unit}{clock}"

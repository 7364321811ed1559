"""Start the command of `notify:` at a few moments of a campaign: at its end, at its first failure, and when a budget is reached.

The command gets a JSON object as its stdin. It is a process of its own, and no run waits for it: a thread waits for its end, and
ends it after LIMIT_S. Then it ends what the command has started. The beginning of the output goes to a file in `notices/` of the
results folder, next to the object. A command that fails changes no exit code; the campaign says so once, at its end.

The command's text is in no file of the results folder, because it may have an address that is a secret. Secrets in the object and
in the output are masked before they reach a file, so a kill of this process leaves none behind.
"""

from __future__ import annotations

import json
import os
import selectors
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from orchestrator.campaign.events.json_events import end_of
from orchestrator.campaign.loop import Event, EventKind, Summary
from orchestrator.errors import LaunchError
from orchestrator.files import reading, writing
from orchestrator.files.printable_text import escaped
from orchestrator.files.redaction import masker, redact
from orchestrator.machine import process, process_tree
from orchestrator.machine.child_environment import MARKER
from orchestrator.results.due_runs import FAILURES

FOLDER = "notices"
LIMIT_S = 30.0
# The log has about this much of the output. A little more is read, so that no secret is cut before it is masked.
MOST_BYTES, _PIECE_BYTES = 2**20, 2**16
_READ_BYTES = MOST_BYTES + _PIECE_BYTES
ENDED, FAILED, BUDGET = "ended", "failed", "budget"


class Notices:
    """A context manager for the notices of one campaign. At its end, commands that still run are ended.

    Without a command, every method does nothing. `names` maps ids of experiments to readable names.
    """

    def __init__(
        self,
        command: Sequence[str],
        root: Path,
        *,
        scenarios: Path,
        names: Mapping[str, str] = MappingProxyType({}),
        limit_s: float = LIMIT_S,
    ) -> None:
        self._command, self._root, self._scenarios, self._limit_s = tuple(command), root.absolute(), scenarios, limit_s
        self._names = names
        self._told: set[str] = set()
        self._ends: dict[threading.Thread, Callable[[], object]] = {}
        self._problems: list[str] = []

    def __enter__(self) -> Notices:
        return self

    def __exit__(self, *_error: object) -> None:
        for thread, end in self._ends.items():
            if thread.is_alive():
                end()
                thread.join()

    def on_event(self, event: Event) -> None:
        """Tell of the first failure, and of an event of the kind BUDGET."""
        if event.kind is EventKind.BUDGET:
            self._tell(BUDGET, text=event.text)
        elif event.kind is EventKind.ENDED and event.record is not None and event.record.status in FAILURES:
            experiment = event.record.experiment_id
            name = self._names.get(experiment, experiment)
            run = {**end_of(event.record), "name": name, "hint": event.record.hint}
            self._tell(FAILED, text=event.text.replace(experiment, name, 1), run=run)

    def ended(self, summary: Summary, *, answers: Sequence[str] = (), exit_code: int | None = None) -> None:
        """Tell of the end of the campaign. Its report has been written.

        `answers` are the sentences that name the winners of races. `exit_code` is that of the command, by default the summary's.
        """
        counts = Counter({status.value: count for status, count in summary.counts.items()})
        words = ", ".join(f"{count} {status}" for status, count in counts.most_common()) or "no runs"
        missing = f", {summary.missing} missing" if summary.missing else ""
        code = summary.exit_code if exit_code is None else exit_code
        text = " ".join([f"the campaign has ended: {words}{missing}{'.' if answers else ''}", *answers])
        self._tell(ENDED, text=text, runs=dict(counts), answers=list(answers), exit_code=code)

    def problems(self) -> list[str]:
        """Wait for the commands that still run, at most LIMIT_S. Return a sentence if one of them failed."""
        for thread in self._ends:
            thread.join()
        more = f" ({len(self._problems)} notices failed)" if len(self._problems) > 1 else ""
        return [f"{problem}{more}" for problem in self._problems[:1]]

    def _tell(self, what: str, **fields: Any) -> None:
        """Start the command, unless it has been told of this before."""
        if not self._command or what in self._told:
            return
        self._told.add(what)
        folder = self._root / FOLDER
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{what}-{uuid.uuid4().hex[:6]}"
        told, log, marker = folder / f"{name}.json", folder / f"{name}.log", uuid.uuid4().hex
        output, of_child = os.pipe()
        try:
            folder.mkdir(exist_ok=True)
            writing.place_once(told, self._document(what, fields))
            with told.open("rb") as given:
                child = process.spawn(self._command, log=of_child, env={MARKER: marker}, stdin=given.fileno())
        except (OSError, LaunchError) as error:
            os.close(output)
            self._problems.append(f"the command of notify: could not be started: {redact(str(error))}")
            return
        finally:
            os.close(of_child)
        end_all = partial(process_tree.end_tree, marker, root=child)
        wait = partial(self._wait, child, output=output, log=log, end_all=end_all)
        thread = threading.Thread(target=wait, name="waits for a notice", daemon=True)
        self._ends[thread] = end_all
        thread.start()

    def _wait(self, child: process_tree.Child, *, output: int, log: Path, end_all: Callable[[], object]) -> None:
        """Read the output until the command ends or its time is over. End all that it has started. Write the log."""
        with open(process.end_descriptor(child), "rb", buffering=0) as end, open(output, "rb", buffering=0) as pipe:
            os.set_blocking(output, False)
            said, has_ended = _said(end, pipe, limit_s=self._limit_s)
            end_all()
            said = _more(said, pipe)
        code = child.wait()
        try:
            writing.place_once(log, redact(said.decode(errors="replace"))[:MOST_BYTES])
        except OSError as error:
            self._problems.append(f"{log}: cannot be written: {reading.reason(error)}")
        how = f"ended with exit code {code}" if has_ended else f"was stopped after {self._limit_s:g} s"
        if code or not has_ended:
            self._problems.append(f"the command of notify: {how}; its output is in {log}")

    def _document(self, what: str, fields: Mapping[str, Any]) -> str:
        about = {
            "event": what,
            "time": round(time.time(), 3),
            "results": str(self._root),
            "scenarios": str(self._scenarios),
        }
        return escaped(json.dumps(masker()({**about, **fields}))) + "\n"


def _said(end: IO[bytes], pipe: IO[bytes], *, limit_s: float) -> tuple[bytes, bool]:
    """Read the output until the command ends. Return the output, and whether the command ended in time."""
    said, deadline = b"", time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        selector.register(end, selectors.EVENT_READ)
        selector.register(pipe, selectors.EVENT_READ)
        while (left_s := deadline - time.monotonic()) > 0:
            ready = {key.fileobj for key, _ in selector.select(left_s)}
            if end in ready:
                return said, True
            if pipe in ready:
                data = pipe.read(_PIECE_BYTES)
                said = _cut(said, data or b"")
                if data == b"":  # no process writes to it any more
                    selector.unregister(pipe)
    return said, False


def _more(said: bytes, pipe: IO[bytes]) -> bytes:
    """Return the output with what the pipe still has. A process that could not be ended may hold it open, and is not waited for."""
    while len(said) < _READ_BYTES and (data := pipe.read(_PIECE_BYTES)):
        said = _cut(said, data)
    return said


def _cut(said: bytes, data: bytes) -> bytes:
    return (said + data)[:_READ_BYTES] if len(said) < _READ_BYTES else said

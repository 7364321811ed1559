"""Starts watchers that accompany a run on several nodes. They run its monitors, and tell facts, clock and stacks of each node."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import IO, Any

from orchestrator.files import reading
from orchestrator.machine import process
from orchestrator.machine.process_tree import NODE
from orchestrator.machine.stacks import written_after
from orchestrator.plan.command import step_on_each_node
from orchestrator.records import Experiment, Gpu, RunFolder
from orchestrator.run import gpu_access

# The longest wait for the watchers of all nodes. After this time the run starts without them.
_READY_S = 60.0
_QUESTIONS = 5
# The longest waits for the stacks of one node, and of all nodes. A node may be dead, and the run has to end.
_NODE_S, _STACKS_S = 20.0, 60.0
# The longest waits for a look at the GPUs of all nodes, and for the end of all processes, which get INT, TERM and KILL.
_LOOK_S, _END_S = 5.0, 30.0


@dataclass(kw_only=True, slots=True)
class Companions:
    """The watchers of a run. `offsets_s` maps a node to its clock's time minus the time of this node's clock."""

    questions: IO[bytes] | None = None
    answers: IO[bytes] | None = None
    offsets_s: dict[str, float] = field(default_factory=dict)
    unread: bytes = b""

    def ask(self, question: str) -> None:
        """Ask all watchers. A watcher that has ended does not answer."""
        if self.questions is not None:
            with suppress(OSError):
                os.write(self.questions.fileno(), f"{question}\n".encode())

    def told(self, deadline: float) -> Iterator[Mapping[str, Any]]:
        """Yield the answers that come before the deadline. The caller stops when it has the answers that it needs."""
        while self.answers is not None:
            line, end, rest = self.unread.partition(b"\n")
            if end:
                self.unread = rest
                with suppress(ValueError):
                    answer = json.loads(line)
                    if isinstance(answer, Mapping):
                        yield answer
                continue
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.answers.fileno(), 2**16) if ready else b""
            if not chunk:
                return
            self.unread += chunk


@contextmanager
def accompany(experiment: Experiment, folder: RunFolder, marker: str) -> Iterator[Companions]:
    """Run a watcher on each node during a `with` block. A run on a single node has none."""
    if experiment.num_nodes == 1:
        yield Companions()
        return
    folder.nodes.mkdir(exist_ok=True)
    program = (sys.executable, "-P", "-m", "orchestrator.run.nodes.watcher", str(folder.path), marker)
    argv = (*step_on_each_node(experiment), "--overlap", "--input=all", *program)
    with process.companion(argv, log=folder.nodes / "watchers.log") as child:
        watchers = Companions(questions=child.stdin, answers=child.stdout)
        watchers.offsets_s.update(_clocks(watchers, experiment.num_nodes))
        yield watchers


def _clocks(watchers: Companions, nodes: int) -> dict[str, float]:
    """Return the offset of each node's clock: of several questions, the one that was answered fastest counts."""
    best: dict[str, tuple[float, float]] = {}
    deadline = time.monotonic() + _READY_S
    for _ in range(_QUESTIONS):
        asked_at = time.time()
        watchers.ask("time")
        for answer in islice(watchers.told(deadline), nodes):
            answered_at = time.time()
            with suppress(KeyError, TypeError, ValueError):
                node, offset_s = str(answer["node"]), float(answer["time"]) - (asked_at + answered_at) / 2
                best[node] = min(best.get(node, (inf, 0.0)), (answered_at - asked_at, offset_s))
        if len(best) < nodes:
            break  # a watcher has not started
    return {node: offset_s for node, (_, offset_s) in best.items()}


def stacks(watchers: Companions, log: Path, *, cancelled: Callable[[], bool] = lambda: False) -> Iterator[str]:
    """Yield the stacks of the processes on the other nodes. `log` is the run's stderr, into which a process may write its stack.

    One node after the other is asked: Slurm mixes long lines of several nodes.
    """
    deadline = time.monotonic() + _STACKS_S
    for node in sorted(watchers.offsets_s.keys() - {os.environ.get(NODE)}):
        if cancelled():
            return
        watchers.ask(f"stacks {node}")
        told = watchers.told(min(deadline, time.monotonic() + _NODE_S))
        answer = next((answer for answer in told if answer.get("node") == node and "stacks" in answer), None)
        if answer is None:
            yield f"# node {node}: it did not answer\n"
            continue
        for stack in answer["stacks"]:
            ask = partial(watchers.ask, f"signal {node} {stack['pid']}")
            text = stack["text"] or (written_after(ask, log) if time.monotonic() < deadline else None)
            if text is not None:
                yield stack["heading"] + text


def occupants(watchers: Companions, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return a description of each GPU that is in use: of these GPUs of this node, and of the run's GPUs of the other nodes."""
    others = _everywhere(watchers, "occupants", _LOOK_S)
    return (*gpu_access.occupants(gpus), *(f"node {node}: {text}" for node, texts in others for text in texts))


def watch(watchers: Companions) -> None:
    """Start the run's monitors on the other nodes, when their GPUs are idle."""
    _everywhere(watchers, "watch", _NODE_S)


def end(watchers: Companions) -> tuple[str, ...]:
    """End the run's processes on the other nodes, and return those that could not be ended. Slurm has ended most of them."""
    return tuple(f"{text} of node {node}" for node, texts in _everywhere(watchers, "end", _END_S) for text in texts)


def _everywhere(watchers: Companions, question: str, longest_s: float) -> list[tuple[str, Sequence[str]]]:
    """Return the answers of the other nodes, in the order of the nodes. A node that does not answer in time is left out."""
    others = watchers.offsets_s.keys() - {os.environ.get(NODE)}
    found: dict[str, Sequence[str]] = {}
    watchers.ask(question)  # also a watcher that has not answered yet
    for answer in watchers.told(time.monotonic() + longest_s) if others else ():
        if answer.get("node") in others and isinstance(answer.get(question), list):
            found[answer["node"]] = answer[question]
        if found.keys() == others:
            break
    return sorted(found.items())


def facts(folder: RunFolder, watchers: Companions) -> dict[str, Any]:
    """Return the facts of each node, and the largest offset of a clock; {} for a single node."""
    nodes = []
    for path in sorted(folder.nodes.glob("*/node.json")):
        with suppress(OSError, ValueError):
            node = reading.read_json(path, limit=reading.RECORD_BYTES)
            if isinstance(node, Mapping):
                nodes.append({**node, "clock_offset_s": watchers.offsets_s.get(str(node.get("node")))})
    nodes.sort(key=lambda node: str(node.get("number")).zfill(9))
    largest = max(map(abs, watchers.offsets_s.values()), default=None)
    return {"nodes": nodes, "largest_clock_offset_s": largest} if nodes else {}

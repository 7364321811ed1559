"""Starts watchers that accompany a run on several nodes. They run its monitors, and tell facts about each node and its clock."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from orchestrator.files import reading
from orchestrator.machine import process
from orchestrator.plan.command import step_on_each_node
from orchestrator.records import Experiment, RunFolder

# The longest wait for the watchers of all nodes. After this time the run starts without them.
_READY_S = 60.0
_QUESTIONS = 5


@dataclass(kw_only=True, slots=True)
class Companions:
    """The answers of the watchers. `offsets_s` maps a node to its clock's time minus the time of this node's clock."""

    offsets_s: dict[str, float] = field(default_factory=dict)


@contextmanager
def accompany(experiment: Experiment, folder: RunFolder, marker: str) -> Iterator[Companions]:
    """Run a watcher on each node during a `with` block. A run on a single node has none."""
    told = Companions()
    if experiment.num_nodes == 1:
        yield told
        return
    folder.nodes.mkdir(exist_ok=True)
    program = (sys.executable, "-P", "-m", "orchestrator.run.nodes.watcher", str(folder.path), marker)
    argv = (*step_on_each_node(experiment), "--overlap", "--input=all", *program)
    with process.companion(argv, log=folder.nodes / "watchers.log") as child:
        if child.stdin and child.stdout:
            told.offsets_s.update(_clocks(child.stdin, child.stdout, experiment.num_nodes))
        yield told


def _clocks(questions: IO[bytes], answers: IO[bytes], nodes: int) -> dict[str, float]:
    """Return the offset of each node's clock: of several questions, the one that was answered fastest counts."""
    best: dict[str, tuple[float, float]] = {}
    deadline = time.monotonic() + _READY_S
    for _ in range(_QUESTIONS):
        asked_at = time.time()
        with suppress(OSError):
            os.write(questions.fileno(), b"time\n")
        for node, their_time, answered_at in _answers(answers, nodes, deadline):
            answer = answered_at - asked_at, their_time - (asked_at + answered_at) / 2
            best[node] = min(best.get(node, answer), answer)
        if len(best) < nodes:
            break  # a watcher has not started
    return {node: offset_s for node, (_, offset_s) in best.items()}


def _answers(answers: IO[bytes], nodes: int, deadline: float) -> Iterator[tuple[str, float, float]]:
    """Yield the node, its time and the time of its answer, until each node has answered."""
    text, left = b"", nodes
    while left:
        ready, _, _ = select.select([answers], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(answers.fileno(), 2**16) if ready else b""
        if not chunk:
            return
        now = time.time()
        *lines, text = (text + chunk).split(b"\n")
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                told = json.loads(line)
                yield str(told["node"]), float(told["time"]), now
                left -= 1


def facts(folder: RunFolder, told: Companions) -> dict[str, Any]:
    """Return the facts of each node, and the largest offset of a clock; {} for a single node."""
    nodes = []
    for path in sorted(folder.nodes.glob("*/node.json")):
        with suppress(OSError, ValueError):
            node = reading.read_json(path, limit=reading.RECORD_BYTES)
            if isinstance(node, Mapping):
                nodes.append({**node, "clock_offset_s": told.offsets_s.get(str(node.get("node")))})
    nodes.sort(key=lambda node: str(node.get("number")).zfill(9))
    largest = max(map(abs, told.offsets_s.values()), default=None)
    return {"nodes": nodes, "largest_clock_offset_s": largest} if nodes else {}

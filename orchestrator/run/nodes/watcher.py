"""A program that accompanies a run on one of its nodes. `companions` starts it on each node, in a step next to the training.

    python -P -m orchestrator.run.nodes.watcher RUN_DIR MARKER

It writes facts about its node, and runs the run's monitors on the node's GPUs until its stdin ends. `run-one` itself runs the
monitors of the first node. Slurm gives all watchers the same stdin, and it also ends if `run-one` is killed. Each line is a
question, and a watcher answers with a line of JSON:

    time                 the node and its clock
    stacks NODE          only on this node: the run's Python processes with their stacks
    signal NODE PID      only on this node, and without an answer: the process writes its stack into the run's log

The watcher of the first node does not answer the other questions, because `run-one` does this work itself:

    occupants            the GPUs of the node that are in use
    watch                nothing; the monitors have begun
    end                  the run's processes that could not be ended
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator import monitors
from orchestrator.files import reading, writing
from orchestrator.machine import process_identity, process_tree, stacks
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.gpus import driver_versions, gpu_state, visible_gpus
from orchestrator.records import Device, Experiment, Gpu, RunFolder, load
from orchestrator.run import gpu_access

# Slurm may split a longer line, and mix it with the line of another node.
_TEXTS, _CHARACTERS = 4, 150


def main() -> None:
    run, marker = RunFolder(Path(sys.argv[1])), sys.argv[2]
    os.environ[MARKER] = (
        marker  # the samplers have it, and this program does not: it must outlive the training's processes
    )
    experiment = load(Experiment, reading.read_bytes(run.experiment, limit=reading.RECORD_BYTES))
    wanted = experiment.processes_per_node if experiment.device is Device.CUDA else 0
    with ExitStack() as monitoring:
        node = _Node(
            name=os.environ[process_tree.NODE],
            number=int(os.environ["SLURM_NODEID"]),
            marker=marker,
            experiment=experiment,
            gpus=visible_gpus()[:wanted],
            monitoring=monitoring,
        )
        node.write_facts(run)
        for question in sys.stdin:
            if told := node.answer(question.split(), run):
                sys.stdout.write(json.dumps({"node": node.name, **told}) + "\n")
                sys.stdout.flush()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Node:
    """A node of a run: its place in the allocation, and the GPUs that the run uses there."""

    name: str
    number: int
    marker: str
    experiment: Experiment
    gpus: Sequence[Gpu]
    monitoring: ExitStack

    def write_facts(self, run: RunFolder) -> None:
        folder = run.nodes / self.name
        folder.mkdir(parents=True, exist_ok=True)
        facts = {
            "node": self.name,
            "number": self.number,
            "host": process_identity.host_name(),
            "gpus": [gpu_state(gpu) for gpu in self.gpus],
            "driver": driver_versions() if self.gpus else {"driver": None, "cuda": None},
        }
        writing.replace(folder / "node.json", json.dumps(facts, indent=2) + "\n")

    def answer(self, question: list[str], run: RunFolder) -> dict[str, Any]:
        """Return the answer to a question; {} if it is for another node, or needs no answer."""
        match question:
            case ["time"]:
                return {"time": time.time()}
            case ["stacks", name] if name == self.name:
                found = [stack for stack in stacks.on_this_node(self.marker) if stack.text or _can_write_it(stack.pid)]
                return {"stacks": [asdict(stack) for stack in found]}
            case ["signal", name, pid] if name == self.name and _can_write_it(int(pid)):
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGUSR2)
            case [work] if self.number > 0:
                return {work: [text[:_CHARACTERS] for text in self._do(work, run)[:_TEXTS]]}
        return {}

    def _do(self, work: str, run: RunFolder) -> Sequence[str]:
        if work == "occupants":
            return gpu_access.occupants(self.gpus)
        if work == "watch":
            for name in self.experiment.monitors:
                self.monitoring.enter_context(monitors.get(name).watch(run.nodes / self.name, self.gpus))
        return process_tree.end_tree(self.marker).survivors if work == "end" else ()


def _can_write_it(pid: int) -> bool:
    return stacks.catches(pid, signal.SIGUSR2)


if __name__ == "__main__":
    main()

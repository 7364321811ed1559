"""A program that accompanies a run on one of its nodes. `companions` starts it on each node, in a step next to the training.

    python -P -m orchestrator.run.nodes.watcher RUN_DIR MARKER

It writes facts about its node, and runs the run's monitors on the node's GPUs until its stdin ends. `run-one` itself runs the
monitors of the first node. Slurm gives all watchers the same stdin, and it also ends if `run-one` is killed. Each line is a
question, and a watcher answers with a line of JSON:

    time                 the node and its clock
    stacks NODE          only on this node: the run's Python processes with their stacks
    signal NODE PID      only on this node, and without an answer: the process writes its stack into the run's log
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator import monitors
from orchestrator.files import reading, writing
from orchestrator.machine import stacks
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.gpus import driver_versions, gpu_state, visible_gpus
from orchestrator.records import Device, Experiment, RunFolder, load


def main() -> None:
    run, marker = RunFolder(Path(sys.argv[1])), sys.argv[2]
    node, is_first = os.environ[stacks.NODE], os.environ["SLURM_NODEID"] == "0"
    os.environ[MARKER] = (
        marker  # the samplers have it, and this program does not: it must outlive the training's processes
    )
    experiment = load(Experiment, reading.read_bytes(run.experiment, limit=reading.RECORD_BYTES))
    wanted = experiment.processes_per_node if experiment.device is Device.CUDA else 0
    gpus = visible_gpus()[:wanted]
    folder = run.nodes / node
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "node": node,
        "number": int(os.environ["SLURM_NODEID"]),
        "host": socket.gethostname(),
        "gpus": [gpu_state(gpu) for gpu in gpus],
        "driver": driver_versions() if gpus else {"driver": None, "cuda": None},
    }
    writing.replace(folder / "node.json", json.dumps(facts, indent=2) + "\n")
    with ExitStack() as stack:
        for name in () if is_first else experiment.monitors:
            stack.enter_context(monitors.get(name).watch(folder, gpus))
        for question in sys.stdin:
            if told := _answer(question.split(), node, marker):
                sys.stdout.write(json.dumps({"node": node, **told}) + "\n")
                sys.stdout.flush()


def _answer(question: list[str], node: str, marker: str) -> dict[str, Any]:
    """Return the answer to a question; {} if it is for another node, or needs no answer."""
    match question:
        case ["time"]:
            return {"time": time.time()}
        case ["stacks", name] if name == node:
            found = [stack for stack in stacks.on_this_node(marker) if stack.text or _can_write_it(stack.pid)]
            return {"stacks": [asdict(stack) for stack in found]}
        case ["signal", name, pid] if name == node and _can_write_it(int(pid)):
            with suppress(OSError):
                os.kill(int(pid), signal.SIGUSR2)
    return {}


def _can_write_it(pid: int) -> bool:
    return stacks.catches(pid, signal.SIGUSR2)


if __name__ == "__main__":
    main()

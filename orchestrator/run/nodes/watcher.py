"""A program that accompanies a run on one of its nodes. `companions` starts it on each node, in a step next to the training.

    python -P -m orchestrator.run.nodes.watcher RUN_DIR MARKER

It writes facts about its node, and runs the run's monitors on the node's GPUs until its stdin ends. `run-one` itself runs the
monitors of the first node. Slurm gives all watchers the same stdin, and it also ends if `run-one` is killed. Each line is a
question for the time: a watcher answers with its node and its clock.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from orchestrator import monitors
from orchestrator.files import reading, writing
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.gpus import driver_versions, gpu_state, visible_gpus
from orchestrator.records import Device, Experiment, RunFolder, load


def main() -> None:
    run, marker = RunFolder(Path(sys.argv[1])), sys.argv[2]
    node, is_first = os.environ["SLURMD_NODENAME"], os.environ["SLURM_NODEID"] == "0"
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
        for _ in sys.stdin:
            sys.stdout.write(json.dumps({"node": node, "time": time.time()}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Choose the experiments that may start warm, and the environment in which a warm starter makes the imports for them.

A run may start warm if its processes import what every training imports, in an environment that is known before the run.
The starter itself compares the environments once more, and refuses if it is unsure.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orchestrator import monitors, trainers
from orchestrator.executors.starters import Environment
from orchestrator.plan.command import environment
from orchestrator.records import Device, Experiment

# The variables that each run has for itself; see `workers/warm/starter.py`. The launcher writes the last one in another way.
_OF_THE_RUN = ("TUNEBENCH_", "CUDA_VISIBLE_DEVICES", "ACCELERATE_USE_CPU")


def environment_of(experiment: Experiment) -> Environment | str:
    """Return the environment of the experiment's imports, or the reason why it must start cold."""
    if reason := _why_cold(experiment):
        return reason
    variables = environment(experiment, visible="", run_dir=Path())
    if not variables.get("OMP_NUM_THREADS"):
        return "without OMP_NUM_THREADS, the number of threads depends on the cores at the imports"
    kept = {name: value for name, value in variables.items() if not name.startswith(_OF_THE_RUN)}
    if experiment.device is Device.CPU:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    python = os.path.expanduser(experiment.python) if experiment.python else sys.executable
    return Environment(python=python, variables=tuple(sorted(kept.items())))


def _why_cold(experiment: Experiment) -> str:
    """Return an empty text if the trainer can start warm, on one node, outside containers, and undisturbed; else the reason."""
    if not trainers.get(experiment.trainer).starts_warm or experiment.custom is not None:
        return f"the trainer {experiment.trainer} always starts cold"
    if experiment.script is not None:
        return "a script of your own always starts cold"
    if experiment.num_nodes > 1:
        return "runs on several nodes always start cold"
    if experiment.environment is not None:
        return "runs in a software environment or a container always start cold"
    disturbing = next((name for name in experiment.monitors if monitors.get(name).perturbs), None)
    return f"runs with the monitor {disturbing} always start cold" if disturbing else ""

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


def environment_of(experiment: Experiment) -> Environment | None:
    """Return the environment of the experiment's imports, or None if it must start cold."""
    if not may_be_warm(experiment):
        return None
    variables = environment(experiment, visible="", run_dir=Path())
    if not variables.get("OMP_NUM_THREADS"):  # then the number of threads depends on the cores at the imports
        return None
    kept = {name: value for name, value in variables.items() if not name.startswith(_OF_THE_RUN)}
    if experiment.device is Device.CPU:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    python = os.path.expanduser(experiment.python) if experiment.python else sys.executable
    return Environment(python=python, variables=tuple(sorted(kept.items())))


def may_be_warm(experiment: Experiment) -> bool:
    """Return whether the experiment has a trainer that can start warm, on one node, outside containers, and undisturbed."""
    elsewhere = experiment.num_nodes > 1 or experiment.environment is not None
    own_program = experiment.custom is not None or experiment.script is not None
    disturbed = any(monitors.get(name).perturbs for name in experiment.monitors)
    return trainers.get(experiment.trainer).starts_warm and not (elsewhere or own_program or disturbed)

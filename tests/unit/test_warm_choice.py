"""Which experiments start warm, by which options, and what a starter's environment is."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest
from factories.results import BASE

from orchestrator.campaign.race.aim import Aim
from orchestrator.campaign.way import Way, refuse_options_of_local
from orchestrator.errors import SelectionError
from orchestrator.executors.starters import Environment
from orchestrator.plan.command.warm_start import environment_of
from orchestrator.records import Device, Experiment

HF = replace(BASE, trainer="huggingface", device=Device.CPU, num_gpus=1, script=None, custom=None, monitors=())


@pytest.mark.parametrize(
    ("warm", "race", "probes", "measures"),
    [
        (None, False, True, False),  # `run`: only its probes
        (None, True, True, True),  # `tune`
        (True, False, True, True),
        (False, True, False, False),
    ],
)
def test_probes_and_races_start_warm_by_themselves(warm: bool | None, race: bool, probes: bool, measures: bool) -> None:
    way = Way(warm=warm, race=Aim() if race else None)
    assert (way.probes_warm, way.measures_warm) == (probes, measures)


def test_runs_on_several_gpus_start_warm_only_if_asked() -> None:
    on_gpu = replace(HF, device=Device.CUDA)
    on_two = replace(on_gpu, num_gpus=2)
    for way, one in ((Way(), replace(HF, num_gpus=2)), (Way(), on_gpu), (Way(warm=True), on_two)):
        assert isinstance(way.environment_of(one), Environment)
    assert Way().environment_of(on_two) == ""


@pytest.mark.parametrize(
    ("experiment", "reason"),
    [
        (replace(HF, num_nodes=2, num_gpus=2), "several nodes"),
        (replace(HF, environment="other"), "software environment"),
        (replace(HF, trainer="fms_hf_tuning"), "the trainer fms_hf_tuning always starts cold"),
        (replace(HF, trainer="operators"), "the trainer operators always starts cold"),
        (replace(HF, monitors=("torch_profiler",)), "the monitor torch_profiler"),
        (replace(HF, env={"OMP_NUM_THREADS": None}), "without OMP_NUM_THREADS"),
    ],
)
def test_what_cannot_start_warm_says_why_to_whoever_asked(experiment: Experiment, reason: str) -> None:
    assert isinstance(environment_of(HF), Environment)
    assert reason in str(environment_of(experiment))
    assert Way(warm=True).environment_of(experiment) == environment_of(experiment)
    assert Way(race=Aim()).environment_of(experiment) == "", "a race starts warm by itself, where it can"


def test_runs_share_a_starter_if_their_imports_see_the_same() -> None:
    assert environment_of(HF) == environment_of(replace(HF, trainer="trl", id="another", num_gpus=2))
    others = [
        replace(HF, env={"TORCH_LOGS": "all"}),
        replace(HF, python="~/other/python"),
        replace(HF, device=Device.CUDA),
    ]
    assert len({environment_of(one) for one in (HF, *others)}) == 4


def test_the_environment_of_a_starter_has_nothing_of_a_run() -> None:
    found = environment_of(replace(HF, device=Device.CUDA, env={"TORCH_LOGS": "all"}))
    assert isinstance(found, Environment) and found.python == sys.executable
    variables = dict(found.variables)
    assert variables["TORCH_LOGS"] == "all" and variables["OMP_NUM_THREADS"] == "4"
    assert not [name for name in variables if name.startswith(("TUNEBENCH_", "CUDA_VISIBLE_DEVICES", "ACCELERATE_"))]
    on_cpu = environment_of(replace(HF, python="~/x"))
    assert isinstance(on_cpu, Environment) and on_cpu.python == os.path.expanduser("~/x")
    assert dict(on_cpu.variables)["CUDA_VISIBLE_DEVICES"] == "" and "ACCELERATE_USE_CPU" not in dict(on_cpu.variables)


def test_warm_is_refused_where_another_executor_starts_the_runs() -> None:
    with pytest.raises(SelectionError, match="--warm works only with the executor 'local', not with 'slurm'"):
        refuse_options_of_local("slurm", parallel=1, gpus=None, warm=True)
    refuse_options_of_local("slurm", parallel=1, gpus=None, warm=False)

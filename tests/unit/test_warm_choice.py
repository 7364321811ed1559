"""Which experiments start warm, by which options, and what a starter's environment is."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from factories.results import BASE, record_of

from orchestrator.campaign.race.aim import Aim
from orchestrator.campaign.way import Way, refuse_options_of_local
from orchestrator.errors import SelectionError
from orchestrator.executors.starters import Environment
from orchestrator.plan.command.warm_start import environment_of
from orchestrator.records import Device, Experiment, Start, Status
from orchestrator.results.store import Store, write_record

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


@pytest.mark.parametrize("race", [None, Aim()])
@pytest.mark.parametrize("warm", [None, True])
@pytest.mark.parametrize("before", [None, Start.WARM, Start.COLD])
def test_without_an_option_a_run_starts_as_the_last_run_of_its_experiment(
    tmp_path: Path, before: Start | None, warm: bool | None, race: Aim | None
) -> None:
    """Else a folder of `tune` would get cold repeats from `run`, and its budget would expect them to be as short as warm ones."""
    store, one = Store.create(tmp_path / "results", {}), replace(HF, id="one")
    store.add([one])
    if before:
        for repeat, status, start in ((1, Status.OK, before), (2, Status.FAILED, None)):
            job = store.job(one.id, repeat=repeat, attempt=1)
            job.run_dir.mkdir(parents=True)
            ended = record_of(job, status, provenance={"start": start})
            write_record(job.run_dir, ended)
    found = Way(warm=warm, race=race).environment_of_run(store)(one)
    expected = warm or before is Start.WARM or (race is not None and before is None)
    assert isinstance(found, Environment) == bool(expected)


@pytest.mark.parametrize("num_gpus", [1, 2])
@pytest.mark.parametrize("device", [Device.CPU, Device.CUDA])
def test_a_race_starts_warm_on_each_number_of_devices(device: Device, num_gpus: int) -> None:
    assert isinstance(Way(race=Aim()).environment_of(replace(HF, device=device, num_gpus=num_gpus)), Environment)


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

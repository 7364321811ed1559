"""Containers as software environments: the whole command of each program, and what a container gets from its host."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from factories.results import experiment
from factories.suites import EIGHT_GPUS, planned

from orchestrator.errors import LaunchError
from orchestrator.files.package import WORKERS
from orchestrator.machine.environments.containers import in_container, settings_of
from orchestrator.machine.environments.containers.command import PROGRAMS, Settings, wrapped
from orchestrator.machine.environments.places import Place
from orchestrator.plan.command import build_command, step_on_each_node
from orchestrator.plan.placement import cannot_run_here
from orchestrator.records import Command, Container, Device, Environment, Experiment
from orchestrator.run.script import command_script
from orchestrator.trainers import get

RUN = Path("/results/experiments/s-a/runs/r1-t1")
HOST = Settings(
    image="IMAGE",
    home=Path("/cache/environments/0123456789ab/home"),
    mounts=("/results:/results", "/package/workers:/package/workers:ro", "/models:/data"),
    inherited={"HF_TOKEN": "hf_not_on_a_command_line", "NCCL_DEBUG": "WARN"},
    fixed={"HF_HOME": "/home/u/.cache/huggingface"},
)


def of(program: str, *, gpus: int = 2, nodes: int = 1) -> Experiment:
    container = Container(program=program, image="docker.io/pytorch/pytorch:2.6.0")
    software = Environment(
        name="box", request="0123456789ab", lock="ba9876543210", container=container, image="sha256:0"
    )
    device = Device.CUDA if gpus else Device.CPU
    env = {"PATH": "/opt/bin", "WANDB_MODE": None, "A": "1"}
    more = {"num_gpus": max(1, gpus) * nodes, "num_nodes": nodes, "device": device, "env": env, "python": "python"}
    return experiment(environment=software, **more)


def command_of(one: Experiment, settings: Settings) -> Command:
    command = build_command(one, python="python", gpus=["4", "5"], run_dir=RUN, port=29500, host="n1", files=False)
    container = one.environment.container if one.environment else None
    assert container
    gpus = one.processes_per_node if one.device is Device.CUDA else 0
    return wrapped(command, container.program, replace(settings, gpus=gpus), before=len(step_on_each_node(one)))


def shown(command: Command) -> str:
    variables = "".join(f"{name}={value}\n" for name, value in sorted(command.env.items()) if value is not None)
    unset = "".join(f"unset {name}\n" for name, value in sorted(command.env.items()) if value is None)
    text = f"cd {command.cwd}\n{variables}{unset}" + "".join(f"{word}\n" for word in command.argv)
    return text.replace(str(WORKERS), "WORKERS")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("case", "gpus", "nodes", "user"),
    [("gpus", 2, 1, None), ("cpu-as-root", 0, 1, "0:0"), ("two-nodes", 2, 2, None)],
)
def test_the_whole_command(
    golden: Callable[[str, str], None], program: str, case: str, gpus: int, nodes: int, user: str | None
) -> None:
    if (program, nodes) == ("podman", 2):
        return  # refused in the plan
    command = command_of(of(program, gpus=gpus, nodes=nodes), replace(HOST, user=user))
    golden(f"containers/{program}-{case}.txt", shown(command))
    assert "hf_not_on_a_command_line" not in " ".join(command.argv)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_script_repeats_a_run_in_its_container(golden: Callable[[str, str], None], program: str) -> None:
    command = command_of(of(program), replace(HOST, mounts=(*HOST.mounts, f"{RUN}:{RUN}")))
    text = command_script(command, {})
    end = text[text.index("done\n") :].replace(str(WORKERS), "WORKERS")
    golden(f"containers/{program}-command.sh", end)
    assert 'port="$(python3 -c' in text
    assert "hf_not_on_a_command_line" not in text


def test_a_container_gets_the_folders_that_the_experiment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("model", "hub", "cache", "tmp", "own/data", "environments"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("TUNEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TUNEBENCH_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    run_dir = tmp_path / "results" / "experiments" / "e" / "runs" / "r1-t1"
    arguments = {"files": (str(tmp_path / "own"), str(tmp_path / "own" / "data"), "/nowhere/at/all"), "lr": "1"}
    one = replace(of("podman", gpus=0), model=str(tmp_path / "model"), arguments=arguments)
    environ = {
        "HF_HOME": str(tmp_path / "hub"),
        "MY_TOKEN": "secret",
        "LD_PRELOAD": "x",
        "SLURM_JOB_ID": "1",
        "RANK": "0",
    }
    command = in_container(Command(argv=("x",), env={}, cwd=run_dir / "work"), one, run_dir=run_dir, environ=environ)
    mounts = [word.removeprefix("--volume=") for word in command.argv if word.startswith("--volume=")]
    same = [mount.partition(":")[0] for mount in mounts if mount.partition(":")[0] == mount.partition(":")[2]]
    for name in ("model", "hub", "cache", "own", "results", "environments/0123456789ab/home"):
        assert str(tmp_path / name) in same
    assert str(tmp_path / "own" / "data") not in same, "it is inside another folder"
    assert same[-1] == str(run_dir), "the script that repeats the run replaces it"
    assert f"{WORKERS}:{WORKERS}:ro" in mounts
    passed = [word.removeprefix("--env=") for word in command.argv if word.startswith("--env=")]
    assert {"HF_HOME", "MY_TOKEN", "SLURM_JOB_ID"} <= set(passed)
    assert not {"LD_PRELOAD", "RANK"} & set(passed)
    assert "sha256:0" in command.argv, "the image that was locked, whatever its tag names now"


@pytest.mark.parametrize("name", ["with,comma", "with:colon"])
def test_a_path_that_cannot_be_mounted_is_refused(tmp_path: Path, name: str) -> None:
    container = Container(program="podman", image="x")
    settings = settings_of(container, Place(tmp_path), [Path("/elsewhere") / name], image=None, environ={})
    with pytest.raises(LaunchError, match="a container cannot mount a path with a comma or a colon; rename"):
        wrapped(Command(argv=("x",), env={}, cwd=tmp_path), "podman", settings)


@pytest.mark.parametrize(
    ("program", "nodes", "executor", "expected"),
    [
        ("pyxis", 1, "local", "pyxis starts a container only through Slurm's srun; use --executor slurm"),
        ("pyxis", 1, "slurm", None),
        ("podman", 2, "slurm", "podman's containers do not see the network cards of a cluster"),
        ("podman", 1, "local", None),
        ("apptainer", 1, "local", "apptainer, which starts the container, is not on PATH; install it"),
    ],
)
def test_what_cannot_start_a_container_is_told_in_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, nodes: int, executor: str, expected: str | None
) -> None:
    stand_in(tmp_path / "bin", "podman")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    one = of(program, nodes=nodes)
    reason = cannot_run_here(one, get(one.trainer), EIGHT_GPUS, executor=executor)
    assert (reason is None) is (expected is None)
    assert reason is None or reason.text.startswith(expected or "")


def stand_in(folder: Path, name: str) -> None:
    folder.mkdir()
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(stat.S_IRWXU)


@pytest.mark.parametrize(
    ("on_path", "image", "expected"),
    [
        (("podman", "apptainer"), "docker://x/y:1", ("podman", "x/y:1")),
        (("apptainer",), "docker://x/y:1", ("apptainer", "docker://x/y:1")),
        ((), "x/y:1", ("podman", "x/y:1")),
        (("podman",), "{folder}/x.sif", ("apptainer", "{folder}/x.sif")),
        (("podman",), "x.sqsh", ("pyxis", "{folder}/x.sqsh")),
    ],
)
def test_the_program_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: tuple[str, ...], image: str, expected: tuple[str, str]
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in on_path))
    for name in on_path:
        stand_in(tmp_path / name, name)
    (tmp_path / "x.sif").touch()
    (tmp_path / "x.sqsh").touch()
    written = image.replace("{folder}", str(tmp_path))
    scenario = "- {name: s, environment: box, device: cpu, arguments: {model_name_or_path: config:tiny-llama}}"
    plan = planned(tmp_path, f"environments: {{box: {{container: '{written}'}}}}\nscenarios:\n{scenario}\n")
    (one,) = plan.experiments
    assert one.environment and one.environment.container and one.environment.lock is None
    container = one.environment.container
    assert (container.program, container.image) == (expected[0], expected[1].replace("{folder}", str(tmp_path)))
    assert one.python == "python"

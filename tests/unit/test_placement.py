"""Where an experiment can run: wrong anywhere, or merely not on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases
from factories.results import experiment

from orchestrator.machine.provenance import Machine
from orchestrator.plan.placement import cannot_run_here, interpreter, placed_on, undone, wrong_anywhere
from orchestrator.records import DataSpec, Device, Experiment, Framework, Gpu
from orchestrator.trainers import get

GPU = Gpu(index=0, uuid="GPU-0", name="H100")


@dataclass(frozen=True, kw_only=True)
class Installed(Machine):
    """A machine on which just these packages are installed."""

    versions: Mapping[str, str] = field(default_factory=dict)

    def packages(self, python: str | None, env: Mapping[str, str | None] | None = None) -> Mapping[str, str]:
        return self.versions


NEEDED = {"torch": "2.9.0", "transformers": "5.1.0", "accelerate": "1.15.0"}
FRAMEWORK = Framework(name="f", digest="d")
CPU = experiment(id="")


def kind(planned: Experiment, machine: Machine) -> str | None:
    reason = cannot_run_here(planned, get(planned.trainer), machine)
    return reason.kind if reason else None


@pytest.mark.parametrize(
    ("asked", "gpus", "processes", "placed"),
    [
        (Device.AUTO, 0, 1, Device.CPU),
        (Device.AUTO, 1, 1, Device.CUDA),
        (Device.AUTO, 1, 2, Device.CPU),
        (Device.AUTO, 4, 2, Device.CUDA),
        (Device.CUDA, 0, 1, Device.CUDA),
        (Device.CPU, 8, 1, Device.CPU),
    ],
)
def test_auto_takes_gpus_where_there_are_enough(asked: Device, gpus: int, processes: int, placed: Device) -> None:
    assert placed_on(asked, processes, Machine(gpus=(GPU,) * gpus)) is placed


@pytest.mark.parametrize(
    ("model", "source", "trainer", "expected"), cases("placement/paths_that_lead_nowhere_run_elsewhere")
)
def test_paths_that_lead_nowhere_run_elsewhere(model: str, source: str, trainer: str, expected: str | None) -> None:
    planned = replace(CPU, model=model, data=DataSpec(source=source, form="tokens"))
    reason = cannot_run_here(planned, get(trainer), Installed(versions=NEEDED))
    assert (reason is None) if expected is None else (reason is not None and reason.text.startswith(expected))


def test_processes_on_cpus_are_not_bounded_by_gpus() -> None:
    assert kind(replace(CPU, num_gpus=64), Installed(versions=NEEDED)) is None


@pytest.mark.parametrize(("gpus", "expected"), [(0, "no_gpu"), (1, "too_few_gpus"), (2, None)])
def test_gpus_are_counted(gpus: int, expected: str | None) -> None:
    machine = Installed(versions=NEEDED, gpus=(GPU,) * gpus)
    assert kind(replace(CPU, device=Device.CUDA, num_gpus=2), machine) == expected


@pytest.mark.parametrize(
    ("requires", "installed", "missing"), cases("placement/packages_are_asked_by_name_and_version")
)
def test_packages_are_asked_by_name_and_version(
    requires: tuple[str, ...], installed: dict[str, str], missing: str | None
) -> None:
    planned = replace(CPU, framework=replace(FRAMEWORK, requires=requires))
    reason = cannot_run_here(planned, get("huggingface"), Installed(versions={**NEEDED, **installed}))
    if missing is None:
        assert reason is None
    else:
        assert reason is not None
        assert reason.kind == "package_missing"
        assert missing in reason.text


@pytest.mark.parametrize(
    ("version", "is_here"), [("2.6.0a0+ecf3bae40a.nv25.1", True), ("2.6.0.dev20250101", True), ("2.5.1", False)]
)
def test_a_build_before_a_release_counts_as_the_release(version: str, is_here: bool) -> None:
    """NVIDIA's images have such versions of torch, with the features of the release."""
    planned = replace(CPU, framework=replace(FRAMEWORK, requires=("torch>=2.6",)))
    reason = cannot_run_here(planned, get("huggingface"), Installed(versions={**NEEDED, "torch": version}))
    assert (reason is None) == is_here


@pytest.mark.parametrize(
    ("required", "version", "is_here"),
    [
        ("torch!=2.7.0.post2", "2.7.0.post2", False),
        ("torch<=2.7.0", "2.7.0.post2", False),
        ("torch!=2.7.1+cu128", "2.7.1+cu128", False),
        ("torch!=2.6.0rc1", "2.6.0rc1", False),
        ("torch>=2.6,!=2.6.0a0", "2.6.0a0", False),
        ("torch>=2.6,<3", "2.6.0a0+nv25.1", True),
        ("torch~=2.6", "2.6.0a0+nv25.1", True),
        ("torch>=2.7", "2.6.0a0+nv25.1", False),
        ("torch<2.6", "2.6.0a0+nv25.1", False),
        ("torch==2.6.0", "2.6.0+cu124", True),
    ],
)
def test_a_version_that_is_excluded_is_not_accepted(required: str, version: str, is_here: bool) -> None:
    planned = replace(CPU, framework=replace(FRAMEWORK, requires=(required,)))
    reason = cannot_run_here(planned, get("huggingface"), Installed(versions={**NEEDED, "torch": version}))
    assert (reason is None) == is_here


def test_what_an_argument_needs_is_asked_too() -> None:
    planned = replace(CPU, arguments={"peft_method": "lora", "quantization": "nf4"})
    reason = cannot_run_here(planned, get("huggingface"), Installed(versions=NEEDED))
    assert reason is not None
    assert reason.text == "missing in this environment: peft, bitsandbytes; install with pip"


@pytest.mark.parametrize("python", ["/no/such/python", "~nobody-of-that-name/bin/python", "x" * 5000, "a\0b"])
def test_an_interpreter_that_is_not_there(python: str) -> None:
    assert kind(replace(CPU, python=python), Installed(versions=NEEDED)) == "no_interpreter"


def test_an_interpreter_must_be_an_executable_file(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("")
    for path in (tmp_path, tmp_path / "python"):
        reason = cannot_run_here(replace(CPU, python=str(path)), get("huggingface"), Installed(versions=NEEDED))
        assert reason is not None
        assert reason.text == f"the interpreter {path} is not an executable file on this machine"


def test_an_interpreter_is_searched_beside_the_scenario_file_and_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("suite/venv/bin", "here/bin", "on-path"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
    suite = tmp_path / "suite"
    found = {
        "venv/bin/python": suite / "venv/bin/python",
        "here/bin/python": tmp_path / "here/bin/python",
        "python": tmp_path / "on-path/python",
        "no/such/python": "no/such/python",
        "no-such-python": "no-such-python",
        "/usr/bin/python": "/usr/bin/python",
        "~/venv/bin/python": "~/venv/bin/python",
    }
    assert {name: interpreter(name, suite) for name in found} == {name: str(path) for name, path in found.items()}
    assert interpreter(None, suite) is None


def test_a_plugin_file_that_is_not_there(tmp_path: Path) -> None:
    absent = replace(FRAMEWORK, plugin_file=str(tmp_path / "x.yaml"), digest="")
    assert kind(replace(CPU, framework=absent), Installed(versions=NEEDED)) == "no_plugin_file"


@pytest.mark.parametrize(
    ("framework", "change", "trainer", "expected"),
    [
        ({}, {}, "huggingface", None),
        ({"plugin_file": "x.yaml"}, {}, "huggingface", "framework_of_other_trainer"),
        ({"plugin_file": "x.yaml"}, {}, "fms_hf_tuning", None),
        ({"device": Device.CUDA}, {}, "huggingface", "framework_needs_device"),
        ({"device": Device.CPU}, {}, "huggingface", None),
        ({"min_gpus": 2}, {}, "huggingface", "framework_needs_gpus"),
        ({"min_gpus": 2}, {"num_gpus": 2}, "huggingface", None),
        ({}, {"arguments": {"max_steps": "0"}}, "huggingface", "max_steps"),
        ({}, {"arguments": {"max_steps": "-3"}}, "trl", "max_steps"),
        ({}, {"arguments": {"max_steps": "0.0"}}, "huggingface", "max_steps"),
        ({}, {"arguments": {"max_steps": "-7.0"}}, "huggingface", "max_steps"),
        ({}, {"arguments": {"max_steps": "1e3"}}, "huggingface", None),
        ({}, {"arguments": {"max_steps": "-1"}}, "huggingface", None),
        ({}, {"arguments": {"max_steps": "0"}}, "custom", None),
    ],
)
def test_what_a_framework_asks_for_anywhere(
    framework: dict[str, Any], change: dict[str, Any], trainer: str, expected: str | None
) -> None:
    planned = replace(CPU, framework=replace(FRAMEWORK, **framework), trainer=trainer, **change)
    reason = wrong_anywhere(planned, get(trainer), Device.CPU)
    assert (reason.kind if reason else None) == expected


def test_auto_that_fell_back_is_wrong_only_here() -> None:
    """`device: auto` with a framework for GPUs: on the cluster it is right."""
    planned = replace(CPU, framework=replace(FRAMEWORK, device=Device.CUDA))
    assert wrong_anywhere(planned, get("huggingface"), Device.AUTO) is None
    assert kind(planned, Installed(versions=NEEDED)) == "no_gpu"


def test_an_argument_that_undoes_the_framework() -> None:
    framework = replace(FRAMEWORK, arguments={"a": "1", "gone": None})
    assert undone(framework, {"a": "1", "b": "2"}) is None
    for merged in ({"a": "2"}, {}, {"a": "1", "gone": "back"}):
        reason = undone(framework, merged)
        assert reason is not None
        assert reason.kind == "undoes_framework_config"


def test_an_interpreter_without_an_answer_lacks_no_package(tmp_path: Path) -> None:
    """A package was said to be missing, although nothing is known about the interpreter."""
    for name, text in (("silent", "exit 0"), ("failing", "exit 1"), ("other", "echo '[1]'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
        planned = replace(CPU, python=str(tmp_path / name))
        reason = cannot_run_here(planned, get(planned.trainer), Machine())
        assert reason is not None and reason.kind == "no_interpreter"
        assert reason.text.startswith(f"the interpreter {tmp_path / name} gave no answer; it must be Python")
    (tmp_path / "bare").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    (tmp_path / "bare").chmod(0o755)
    planned = replace(CPU, python=str(tmp_path / "bare"))
    assert kind(planned, Machine()) == "package_missing"

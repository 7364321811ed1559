"""`tunebench doctor`: everything looked at is a finding, and what is missing comes with what to do about it."""

from __future__ import annotations

import json
import platform
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from orchestrator.executors.slurm.cluster.probe import Probed
from orchestrator.plan.doctor import NEEDED, OPTIONAL, VERSIONS, Level, of_node

ROOT = Path(__file__).parents[2]
Call = Callable[..., tuple[int, str, str]]
Findings = dict[str, dict[str, str | None]]


def by_name(text: str) -> Findings:
    return {finding["name"]: finding for finding in json.loads(text)}


def test_everything_that_a_run_depends_on_is_looked_at(in_process: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, _ = in_process("doctor", "--json")
    found = by_name(out)
    looked_at = {"tunebench's Python", "torch", "transformers", "accelerate", "torch runs", "nvidia-smi", "ports"}
    looked_at |= {"control groups"}
    assert looked_at | {"disk here", "disk of the data cache", "HF cache", "offline switches"} <= found.keys()
    assert any(name.startswith("GPU") for name in found)
    assert found["offline switches"]["level"] == "note" and "HF_HUB_OFFLINE" in str(found["offline switches"]["found"])
    assert code == (1 if any(one["level"] == "missing" for one in found.values()) else 0)
    assert all(one["todo"] for one in found.values() if one["level"] != "ok")


def test_an_interpreter_that_is_not_there_is_said_and_is_exit_code_1(in_process: Call) -> None:
    code, out, _ = in_process("doctor", "--json", "--python", "/nowhere/python")
    found = by_name(out)
    assert code == 1
    assert found["training Python"]["level"] == found["torch runs"]["level"] == "missing"
    assert "existing interpreter" in str(found["training Python"]["todo"])


@pytest.mark.parametrize("python", ["/dev/null", "/", "/bin/true"])
def test_what_exists_but_is_not_python_is_missing(in_process: Call, python: str) -> None:
    code, out, _ = in_process("doctor", "--json", "--python", python)
    assert code == 1 and by_name(out)["training Python"]["level"] == "missing"


def test_an_interpreter_that_starts_is_shown_with_its_version(in_process: Call, tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    _, out, _ = in_process("doctor", "--json", "--python", str(tmp_path / "python"))
    found = by_name(out)["training Python"]
    assert found["level"] == "ok" and str(found["found"]).startswith(f"{platform.python_version()} (")


@pytest.mark.parametrize("says", ["echo done", "printf done"])
def test_what_an_interpreter_prints_after_its_answer_hides_nothing(in_process: Call, tmp_path: Path, says: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf 'loading 10%'\n{sys.executable} \"$@\"\ncode=$?\n{says}\nexit $code\n")
    python.chmod(0o755)
    _, with_text, _ = in_process("doctor", "--json", "--python", str(python))
    _, plain, _ = in_process("doctor", "--json")
    names = ("torch", "transformers", "torch runs")
    assert [by_name(with_text)[name] for name in names] == [by_name(plain)[name] for name in names]
    assert by_name(with_text)["training Python"]["level"] == "ok"


def test_an_interpreter_without_an_answer_lacks_no_package(in_process: Call) -> None:
    code, out, _ = in_process("doctor", "--json", "--python", "/bin/true")
    found = by_name(out)
    assert code == 1 and str(found["training Python"]["todo"]).startswith("it gave no answer; ")
    assert (found["torch"]["found"], found["torch"]["level"]) == ("unknown: the interpreter gave no answer", "note")
    assert str(found["torch runs"]["found"]).startswith("the interpreter gave no answer; it must be Python")
    assert found["torch runs"]["todo"] == "see training Python"


OTHER = {"torch": "1.9.0", "transformers": "4.1.0", "accelerate": "2.0", "peft": "0.13.2", "trl": "0.9.6"}
SUPPORTED = {
    "torch": "2.4.0a0+f70bd71a48.nv24.6",
    "transformers": "4.46.0.dev0",
    "accelerate": "1.2",
    "datasets": "3.0",
    "trl": "main",
}


@pytest.mark.parametrize("versions", [OTHER, SUPPORTED], ids=["other", "supported"])
def test_a_version_that_is_not_supported_is_as_a_missing_package(
    in_process: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]
) -> None:
    for name, version in versions.items():
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "python").symlink_to(sys.executable)
    _, out, _ = in_process("doctor", "--json", "--python", str(tmp_path / "python"))
    found = {name: one for name, one in by_name(out).items() if name in versions}
    assert {name: one["found"] for name, one in found.items()} == versions
    if versions is SUPPORTED:
        assert {one["level"] for one in found.values()} == {"ok"}
        return
    levels = {name: one["level"] for name, one in found.items()}
    assert levels == {name: "missing" if name in NEEDED else "note" for name in OTHER}
    assert found["transformers"]["todo"] == (
        "Tunebench does not support this version: pip install 'transformers>=4.46'"
    )


def test_the_supported_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    asked = {found.name: found.specifier for found in map(Requirement, every)}
    for name in (*NEEDED, *OPTIONAL):
        assert SpecifierSet(VERSIONS.get(name, "")) == asked.get(name, SpecifierSet()), name


def test_for_people_it_is_a_table(in_process: Call) -> None:
    _, out, _ = in_process("doctor", "--python", "/nowhere/python")
    assert out.splitlines()[0].split() == ["what", "found", "to", "do"]
    assert "/nowhere/python" in out and "missing" in out


def test_a_node_that_answered_is_said_with_its_own_findings() -> None:
    own = {"name": "torch", "level": "missing", "found": "not installed", "todo": "install it"}
    answer = {"node": "n7", "links": False, "findings": [own]}
    found = {one.name: one for one in of_node(Probed(answer=answer, took_s=12.0, offset_s=-90.0))}
    assert found["job on a node"].found.startswith("n7 answered after 12 s")
    assert found["links"].level is Level.NOTE and "hard links" in str(found["links"].todo)
    assert found["clock"].level is Level.NOTE and found["clock"].found.endswith("at most 90 s")
    assert found["node: torch"].level is Level.MISSING and found["node: torch"].todo == "install it"


def test_a_node_that_did_not_answer_is_missing_with_the_reason() -> None:
    (found,) = of_node(Probed(answer=None, took_s=300.0, problem="the job did not answer (Slurm: PENDING, Resources)"))
    assert found.level is Level.MISSING and "Resources" in found.found and found.todo


def test_only_executors_that_can_be_checked_are_accepted(in_process: Call) -> None:
    code, _, err = in_process("doctor", "--executor", "slrum")
    assert code == 2 and "only local and slurm can be checked" in err

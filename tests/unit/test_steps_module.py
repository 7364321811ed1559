"""`tunebench.steps` for training scripts: light, silent outside a run, one line for each step inside."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import tunebench.steps
from orchestrator.files.package import STEPS_MODULE
from orchestrator.measure import steps

Module = Callable[..., ModuleType]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Module:
    """Make the module anew, in a process with these variables."""

    def made(**env: str) -> ModuleType:
        for name in ("TUNEBENCH_RUN_DIR", "RANK", "LOCAL_RANK"):
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return importlib.reload(tunebench.steps)

    return made


def test_it_imports_the_standard_library_alone() -> None:
    code = "import sys, tunebench.steps; print(*sys.modules)"
    folder = STEPS_MODULE.parents[1]
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in done.stdout.split()} - {"tunebench", "__main__"}
    assert tops <= set(sys.stdlib_module_names), tops


def test_outside_a_run_a_call_does_nothing(module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module().step(tokens=4)
    assert list(tmp_path.iterdir()) == []


def test_each_call_after_the_first_is_a_step(module: Module, tmp_path: Path) -> None:
    step = module(TUNEBENCH_RUN_DIR=str(tmp_path), RANK="1", LOCAL_RANK="0").step
    for tokens in (8, 8.0, None):
        step(tokens=tokens, samples=2)
    (found,) = steps.read(tmp_path).values()
    assert [(one.number, one.tokens, one.samples) for one in found] == [(2, 8, 2), (3, None, 2)]
    assert all(one.seconds > 0 and one.ended_at and one.wait_s is None for one in found)
    assert [path.name for path in tmp_path.iterdir()] == ["steps-rank1.jsonl"]


def test_no_line_reaches_a_file_that_got_the_number_of_the_step_file(module: Module, tmp_path: Path) -> None:
    """A program that becomes a daemon closes all its files. Its next file then has the number of the step file."""
    loaded = module(TUNEBENCH_RUN_DIR=str(tmp_path))
    loaded.step(tokens=1)
    number = loaded._reporter.file
    os.close(number)
    own = os.open(tmp_path / "own.txt", os.O_WRONLY | os.O_CREAT)
    assert own == number
    try:
        loaded.step(tokens=2)
        loaded.step(tokens=3)
    finally:
        os.close(own)
    assert (tmp_path / "own.txt").read_bytes() == b""
    lines = (tmp_path / "steps-rank0.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["tokens"] for line in lines] == [1, 2, 3]


def test_a_folder_that_cannot_be_written_does_not_end_the_training(module: Module, tmp_path: Path) -> None:
    step = module(TUNEBENCH_RUN_DIR=str(tmp_path / "gone"), LOCAL_RANK="2").step
    step()
    (tmp_path / "gone").mkdir()
    step()
    assert list((tmp_path / "gone").iterdir()) == []


def test_a_line_says_how_many_graphs_were_compiled(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats: dict[str, int] = {}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters={"stats": stats}))
    step = module(TUNEBENCH_RUN_DIR=str(tmp_path)).step
    for graphs in (0, 2, 2, 5):
        stats["unique_graphs"] = graphs
        step(tokens=8)
    (found,) = steps.read(tmp_path).values()
    assert [(one.number, one.compiled, one.recompiled) for one in found] == [(2, 2, 0), (3, 0, 0), (4, 0, 3)]

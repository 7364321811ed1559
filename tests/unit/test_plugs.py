"""Plugs of third parties: a distribution on the path that brings good, broken and odd ones of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import executors, monitors, plugs, trainers
from orchestrator.errors import SelectionError

PLUG = """
from orchestrator.executors import Executor
from orchestrator.monitors import Monitor
from orchestrator.trainers import Trainer

class Training(Trainer):
    name = "good"
    def command(self, experiment, run_dir): return ["train"]
    def metrics(self, run_dir): return []

class Watching(Monitor):
    perturbs = True

class Running(Executor):
    def run(self, jobs): return iter(())

watching, odd = Watching(), 3
"""
KINDS = {"trainers": "Training", "monitors": "watching", "executors": "Running"}
OURS = {"trainers": "huggingface", "monitors": "nvml", "executors": "local"}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "plug_of_a_test.py").write_text(PLUG)
    info = tmp_path / "plug_of_a_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-of-a-test\nVersion: 1\n")
    points = {"good": "{}", "broken": "missing", "odd": "odd"}
    lines = []
    for kind, name in KINDS.items():
        lines += [f"[tunebench.{kind}]", f"{OURS[kind]} = plug_of_a_test:{name}"]
        lines += [f"{point} = plug_of_a_test:{target.format(name)}" for point, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugs._installed.cache_clear()
    yield
    plugs._installed.cache_clear()


def test_they_are_added_to_ours() -> None:
    assert trainers.get("good").name == "good" and trainers.known()[-1] == "good"
    assert trainers.get("good").translate({"a": "1"}) == ({"a": "1"}, ())
    assert monitors.get("good").perturbs and monitors.names()[-1] == "good"
    assert list(executors.get("good").run([])) == []


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_broken_stops_nothing_and_is_named(kind: str) -> None:
    package = {"trainers": trainers, "monitors": monitors, "executors": executors}[kind]
    singular = kind.removesuffix("s")
    with pytest.raises(SelectionError) as caught:
        package.get("broken")  # type: ignore[attr-defined]
    said = str(caught.value)
    assert said.startswith(
        f"There is no {singular} 'broken'; there are: {OURS[kind] if kind != 'monitors' else 'hf_memory'}"
    )
    assert f"The {singular} 'broken' (plug_of_a_test:missing) could not be loaded: AttributeError" in said
    assert f"The {singular} 'odd' (plug_of_a_test:odd) is no {singular.title()}: see docs/add-a-plug.md." in said
    assert f"The installed {singular} '{OURS[kind]}'" in said and "has the name of a built-in one" in said


def test_one_of_ours_cannot_be_replaced() -> None:
    assert trainers.get("huggingface") is trainers.TRAINERS["huggingface"]
    assert monitors.get("nvml") is monitors.MONITORS["nvml"]
    assert executors.get("local") is executors.EXECUTORS["local"]
    assert len(trainers.load_problems()) == len(monitors.load_problems()) == 3

"""Plugs of another package that raise an error or give a wrong answer: one sentence names the plug and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaigns import ROOT, tunebench

PLUG = """
import os
from orchestrator.trainers import Trainer
from my_plugs import recipes

class Plug(Trainer):
    name = "mine"
    launched = needs_model = False
    @property
    def variables(self):
        return {"A": os.environ["MISSING"]} if os.environ["WHERE"] == "variables" else {}
    def problem(self, experiment):
        if os.environ["WHERE"] == "exit":
            raise SystemExit(0)
        if os.environ["WHERE"] == "wordless":
            raise recipes.Wordless
        if os.environ["WHERE"] == "answer":
            return "no"
        return recipes.read() if os.environ["WHERE"] == "problem" else None
    def command(self, experiment, run_dir):
        return [experiment.arguments["recipe"]] if os.environ["WHERE"] == "command" else ["-c", "0"]
    def metrics(self, run_dir):
        return []
"""
MONITOR = """
import os
from orchestrator.monitors import Monitor
from orchestrator.records import Measurement

class Other(Monitor):
    def measurements(self, run_dir):
        value = {"list": [1], "missing": None}[os.environ["WHERE"]]
        return [Measurement(name="power", value=value, source="x", missing="it was off" if value is None else None)]
"""
RECIPES = """
def read():
    open("/no/such/recipe")
class Wordless(BaseException):
    def __str__(self):
        raise ValueError(os.environ["MY_TOKEN"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Install a package with a trainer, and with a module that the trainer uses."""
    package, info = tmp_path / "my_plugs", tmp_path / "my_plugs-1.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "trainer.py").write_text(PLUG)
    (package / "monitor.py").write_text(MONITOR)
    (package / "recipes.py").write_text(RECIPES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[tunebench.monitors]\nother = my_plugs.monitor:Other\n[tunebench.trainers]\nmine = my_plugs.trainer:Plug\n"
    )
    (tmp_path / "s.yaml").write_text("scenarios:\n- {name: x, trainer: mine, device: cpu}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "problem",
            "recipes.py:3: the trainer 'mine', which is not part of Tunebench, raised FileNotFoundError: [Errno 2] No such file",
        ),
        ("exit", "trainer.py:14: the trainer 'mine', which is not part of Tunebench, raised SystemExit: 0"),
        ("wordless", "trainer.py:16: the trainer 'mine', which is not part of Tunebench, raised Wordless;"),
        ("variables", "trainer.py:11: the trainer 'mine', which is not part of Tunebench, raised KeyError: 'MISSING'"),
        ("command", "trainer.py:21: the trainer 'mine', which is not part of Tunebench, raised KeyError: 'recipe'"),
    ],
)
def test_a_plan_names_the_plug_its_line_and_the_error(folder: Path, where: str, said: str) -> None:
    planned = tunebench(folder, "plan", "s.yaml", "--commands", PYTHONPATH=f"{folder}:{ROOT}", WHERE=where)
    assert planned.code == 2 and planned.err.startswith(f"error: {folder}/my_plugs/{said}"), planned.err
    assert planned.err.count("\n") == 1 and planned.err.endswith("; correct it there, or use another plug\n")


def test_a_wrong_answer_is_a_sentence(folder: Path) -> None:
    planned = tunebench(folder, "plan", "s.yaml", PYTHONPATH=f"{folder}:{ROOT}", WHERE="answer")
    said = "error: the trainer 'mine', which is not part of Tunebench: problem is wrong: its answer is 'no': Input should be"
    assert planned.code == 2 and planned.err.startswith(said) and planned.err.count("\n") == 1


@pytest.mark.parametrize(
    ("where", "said"), [("list", "value.float: Input should be a"), ("missing", "missing: Input should")]
)
def test_only_the_numbers_of_a_monitor_with_a_wrong_number_are_lost(folder: Path, where: str, said: str) -> None:
    command = '{command: ["{python}", "-c", "print(1)"], launcher: none}'
    (folder / "m.yaml").write_text(
        f"scenarios:\n- {{name: x, trainer: custom, device: cpu, monitors: [other], custom: {command}}}\n"
    )
    ran = tunebench(folder, "run", "m.yaml", PYTHONPATH=f"{folder}:{ROOT}", WHERE=where)
    ((record,),) = ran.records().values()
    assert ran.code == 0 and record.status.value == "ok"
    warning = next(one.detail for one in record.warnings if "other" in one.detail)
    assert (
        warning.startswith("monitor other could not read its samples: ValueError: Measurement(name='power'")
        and said in warning
    )


def test_a_package_with_damaged_files_is_named(tmp_path: Path) -> None:
    """Such as after an interrupted installation. Here pydantic asks for its own plugs before Tunebench does."""
    info = tmp_path / "cut_off-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cut-off\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[console_scripts]\na = a:main\nb")
    (tmp_path / "s.yaml").write_text("scenarios:\n- {name: x, trainer: unknown, device: cpu}\n")
    planned = tunebench(tmp_path, "plan", "s.yaml", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert planned.code == 2 and planned.err.count("\n") == 1, planned.err
    assert planned.err.startswith(f"error: {tmp_path}: the package 'cut-off' there has damaged files (TypeError: ")
    assert planned.err.endswith("; install it again\n")
    mistyped = tunebench(tmp_path, "doctor", "s.yaml", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert mistyped.code == 2 and mistyped.err.startswith("error: 's.yaml' is one argument too many")


def test_a_run_is_not_planned(folder: Path) -> None:
    ran = tunebench(folder, "run", "s.yaml", PYTHONPATH=f"{folder}:{ROOT}", WHERE="problem")
    assert ran.code == 2 and ran.err.startswith("error: ") and "Traceback" not in ran.err
    assert not ran.results.exists()

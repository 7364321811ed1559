"""A real training with the monitor `torch_profiler`, by the command: its trace, its mark, and what `profile` shows of it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import Campaign, tunebench
from factories.cases import text

from orchestrator.report.profile.trace import read
from orchestrator.results.store import Store

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "scenarios.yaml").write_text(text("scenarios/profiled.yaml"))
    return tunebench(folder, "run", "scenarios.yaml")


def test_three_steps_are_profiled_and_the_run_says_that_it_is_slowed(profiled: Campaign) -> None:
    record = profiled.record("long")
    assert record.status == "ok", record.tail
    numbers = {number.name: number.value for number in record.measurements}
    assert numbers["profiled_steps"] == 3
    assert "monitor torch_profiler slows the run" in profiled.err
    assert "1 experiment had a profiler in its steady state" in profiled.out, "so no speed is claimed"
    (trace,) = (profiled.run_dir("long") / "profile").iterdir()
    found = read(trace)
    assert found.steps == 3 and found.device == {}
    assert found.host["aten::mm"].calls > 1 and 0 < found.host["aten::mm"].seconds < found.step_s


def test_the_step_after_the_profile_is_marked_as_one_after_an_evaluation(profiled: Campaign) -> None:
    lines = (profiled.run_dir("long") / "steps-rank0.jsonl").read_text().splitlines()
    assert [line for line in lines if '"after": ["profile"]' in line] == [
        line for line in lines if '"step": 16,' in line and '"s"' in line
    ]


def test_a_training_that_is_too_short_says_so(profiled: Campaign) -> None:
    record = profiled.record("short")
    assert record.status == "ok", record.tail
    (number,) = [number for number in record.measurements if number.name == "profiled_steps"]
    assert number.value is None
    assert number.why_missing == "torch_profiler: the training has 5 steps, and a profile needs 6"
    assert not (profiled.run_dir("short") / "profile").exists()


def test_the_command_finds_the_trace(profiled: Campaign) -> None:
    said = tunebench(profiled.folder, "profile", "long")
    assert said.code == 0, said.said
    assert "3 steps of " in said.out and "aten::mm" in said.out
    refused = tunebench(profiled.folder, "profile", "short")
    assert refused.code == 2
    assert (
        "short: no run here has a trace; write `monitors: [torch_profiler]` into the scenario of a training"
        in refused.err
    )


def test_the_command_that_is_named_profiles_this_experiment(tmp_path: Path) -> None:
    """The error only said to edit the scenario."""
    content = text("scenarios/profiled.yaml").replace(
        "monitors: [torch_profiler]", "framework_config: [null, eager-attention]"
    )
    (tmp_path / "scenarios.yaml").write_text(content)
    changes = ("--set", "arguments.learning_rate=1e-4", "--set", "env.A=b c", "--set", "arguments.max_steps=12")
    tunebench(tmp_path, "run", "scenarios.yaml", "--scenario", "short", "--axis", "seed=1,2", *changes, "--warm")
    store = Store(tmp_path / "results")
    every = map(store.experiment, store.ids())
    (one,) = (one for one in every if one.framework and one.arguments["seed"] == "1")
    named = tunebench(tmp_path, "profile", one.id)
    makes, shows = named.err.partition("; this makes and shows one: ")[2].split(" && ")
    made = tunebench(tmp_path, *shlex.split(makes)[1:])
    assert (named.code, made.code) == (2, 0), made.said
    shown = tunebench(tmp_path, *shlex.split(shows)[1:])
    assert shown.code == 0 and "3 steps of " in shown.out
    (trace,) = (tmp_path / "results-profiled").glob("experiments/*/runs/*/profile/*")
    of_trace = Store(tmp_path / "results-profiled").experiment(trace.parents[3].name)
    assert replace(of_trace, id=one.id, monitors=()) == one, "only the monitor differs"

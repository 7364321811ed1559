"""What a running run is at, by the ends of its files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases
from factories.results import BASE
from factories.run_folders import worker as worker_file
from factories.run_folders import write_steps, write_worker
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign.status.activity import Activity, Phase, look, planned_steps
from orchestrator.campaign.status.compiled_steps import left_s
from orchestrator.campaign.status.view import doing
from orchestrator.measure.steps import parse
from orchestrator.records import Measure, StepSource

EXPERIMENT = replace(BASE, arguments={**BASE.arguments, "max_steps": "40"})
LONG = replace(BASE, arguments={**BASE.arguments, "max_steps": "1000"})


@pytest.fixture
def started(tmp_path: Path) -> Path:
    (tmp_path / "stdout.log").touch()
    return tmp_path


def test_the_phases_of_an_instrumented_run(tmp_path: Path) -> None:
    def phase() -> Phase:
        return look(tmp_path, EXPERIMENT).phase

    assert phase() is Phase.PREPARING
    (tmp_path / "stdout.log").touch()
    assert phase() is Phase.LOADING
    (tmp_path / "steps-rank0.jsonl").touch()
    assert phase() is Phase.WARMING_UP
    write_steps(tmp_path, 0, [1.0] * 9)
    assert phase() is Phase.WARMING_UP
    write_steps(tmp_path, 0, [1.0] * 10)
    assert phase() is Phase.MEASURING
    with (tmp_path / "steps-rank0.jsonl").open("a") as file:
        file.write('{"ended": 1700000000.0}\n')
    assert phase() is Phase.ENDING


def test_a_worker_that_has_written_its_file_is_at_its_end(started: Path) -> None:
    write_worker(started, worker_file())
    assert look(started, EXPERIMENT).phase is Phase.ENDING


@pytest.mark.parametrize("trainer", ["custom", "somebody-elses"])
def test_a_trainer_without_the_instrument_just_runs(started: Path, trainer: str) -> None:
    assert look(started, replace(EXPERIMENT, trainer=trainer)) == Activity(phase=Phase.RUNNING)


@pytest.mark.parametrize(
    ("measure", "steps", "phase"),
    [
        (Measure(discard_steps=3), 2, Phase.WARMING_UP),
        (Measure(discard_steps=3), 3, Phase.MEASURING),
        (Measure(discard_steps=0), 1, Phase.MEASURING),
        (Measure(at_most_steps=6), 2, Phase.WARMING_UP),
        (Measure(at_most_steps=6), 3, Phase.MEASURING),  # half of it at most
    ],
)
def test_warm_up_is_what_is_declared_or_the_first_steps(
    started: Path, measure: Measure, steps: int, phase: Phase
) -> None:
    write_steps(started, 0, [1.0] * steps)
    assert look(started, replace(EXPERIMENT, measure=measure)).phase is phase


def test_the_speed_is_that_of_the_last_steps_of_all_ranks(started: Path) -> None:
    two = replace(EXPERIMENT, num_gpus=2)
    write_steps(started, 0, [9.0] * 10 + [0.5] * 10, tokens=1000)
    assert look(started, two).tokens_per_s is None, "a rank that has said nothing yet"
    write_steps(started, 1, [9.0] * 10 + [0.25] * 10, tokens=100)
    seen = look(started, two)
    assert (seen.step, seen.of, seen.step_time_s, seen.left_s) == (20, 40, 0.5, 10.0)
    assert seen.tokens_per_s == pytest.approx(1000 / 0.5 + 100 / 0.25)
    sharing = replace(two, accelerate={"parallelism_config": {"parallelism_config_cp_size": 2}})
    assert look(started, sharing).tokens_per_s == pytest.approx(1000 / 0.5), "the ranks share a batch"
    write_steps(started, 1, [0.25] * 20, tokens=None)
    assert look(started, two).tokens_per_s is None


def test_steps_to_come_are_unknown_where_the_run_may_end_early(started: Path) -> None:
    write_steps(started, 0, [0.5] * 20)
    assert look(started, replace(EXPERIMENT, measure=Measure(within=0.01, at_most_steps=30))).left_s is None
    assert look(started, replace(EXPERIMENT, arguments={})).left_s is None


@pytest.mark.parametrize(
    ("asked", "at_most", "planned"),
    [("40", None, 40), ("40", 7, 7), ("-1", None, None), ("-1", 7, 7), ("0", None, None)],
)
def test_how_many_steps_there_will_be(asked: str, at_most: int | None, planned: int | None) -> None:
    one = replace(BASE, arguments={"max_steps": asked}, measure=Measure(at_most_steps=at_most))
    assert planned_steps(one) == planned


def test_half_a_line_is_waited_for_and_a_whole_one_that_is_no_json_is_named(started: Path) -> None:
    file = started / "steps-rank0.jsonl"
    whole = json.dumps({"step": 1, "s": 0.5, "tokens": 10}) + "\n" + json.dumps({"step": 1, "loss": 2.5}) + "\n"
    file.write_text(whole + '{"step": 2, "s"')
    seen = look(started, EXPERIMENT)
    assert (seen.step, seen.loss, seen.problem) == (1, 2.5, None)
    file.write_text(whole + "\0\0\0\n")
    seen = look(started, EXPERIMENT)
    assert seen.step == 1 and seen.problem is not None and str(file) in seen.problem


NESTED = "[" * 4000  # as deep as the part that is read is long
NO_STEPS = ['{"step": 2, "s": NaN}', '{"step": 2, "s": "x"}', "[1]", '{"s": 1.0}', "null", NESTED, '{"step":' + NESTED]


@pytest.mark.parametrize("line", NO_STEPS, ids=lambda line: line[:20])
def test_a_line_that_is_no_step_is_none(started: Path, line: str) -> None:
    (started / "steps-rank0.jsonl").write_text(f"{json.dumps({'step': 1, 's': 0.5})}\n{line}\n")
    seen = look(started, EXPERIMENT)
    assert (seen.step, seen.step_time_s) == (1, 0.5)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(started: Path) -> None:
    for name in ("steps-rank0.jsonl", "samples-nvml.csv"):
        os.mkfifo(started / name)
    seen = look(started, EXPERIMENT)
    assert (seen.step, seen.memory_bytes) == (0, None)


def test_only_the_end_of_a_long_file_is_read(started: Path) -> None:
    """What stands before the end cannot be read at all, and nothing comes of it."""
    write_steps(started, 0, [0.5] * 100)
    file = started / "steps-rank0.jsonl"
    file.write_bytes(b"\xff no step\n" * 10_000 + file.read_bytes())
    seen = look(started, EXPERIMENT)
    assert (seen.step, seen.problem) == (100, None)


def nvml(*lines: str) -> str:
    return "time,gpu,what,value\n" + "".join(f"1700000000.0,{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("name", "text", "expected"), cases("activity/memory_is_the_monitors_last_reading_of_the_fullest_gpu")
)
def test_memory_is_the_monitors_last_reading_of_the_fullest_gpu(
    started: Path, name: str, text: str, expected: Any
) -> None:
    (started / name).write_text(text + "1700000000.0,0,memory,99999999")  # half a line
    assert look(started, replace(EXPERIMENT, num_gpus=2)).memory_bytes == expected


def test_a_program_that_prints_its_steps(started: Path) -> None:
    experiment = replace(EXPERIMENT, trainer="custom", steps=StepSource.STDOUT, num_gpus=2)
    log = started / "stdout.log"
    log.write_text("loading\n")
    assert look(started, experiment) == Activity(phase=Phase.LOADING)
    lines = [json.dumps({"step": number, "time": number / 4, "tokens": 100}) for number in range(1, 14)]
    log.write_text("\n".join([*lines, "evaluating", '{"step": 14, "ti']))
    assert look(started, experiment) == Activity(
        phase=Phase.MEASURING, step=13, of=40, step_time_s=0.25, tokens_per_s=400.0, left_s=6.75
    )


# ------------------------------------------------------------------------------------------------ recompilations


def again(*numbers: int, of: int, seconds: float = 3.0) -> dict[str, Any]:
    """The steps of a run that compiles in its first step, and again at these steps."""
    every = range(1, of + 1)
    return {
        "seconds": [seconds if number in (1, *numbers) else 0.5 for number in every],
        "compiled": [1, *[0] * (of - 1)],
        "recompiled": [int(number in numbers) for number in every],
        "new_width": [number in numbers for number in every],
    }


def test_steps_that_recompiled_are_named_however_long_ago(started: Path) -> None:
    write_steps(started, 0, **again(3, 4, 12, of=200))
    seen = look(started, LONG)
    assert (seen.recompiled_at, seen.widths_vary) == ((3, 4, 12), True)
    assert doing(seen).endswith("recompiled at steps 3, 4, 12: batch widths vary")


def test_a_later_look_finds_what_was_added(started: Path) -> None:
    file = started / "steps-rank0.jsonl"
    write_steps(started, 0, **again(3, of=20))
    whole = file.read_bytes()
    write_steps(started, 0, **again(3, 21, of=21))
    later = file.read_bytes().removeprefix(whole)
    file.write_bytes(whole)
    assert look(started, LONG).recompiled_at == (3,)
    file.write_bytes(whole + later[:-20])
    assert look(started, LONG).recompiled_at == (3,), "half a line"
    file.write_bytes(whole + later)
    assert look(started, LONG).recompiled_at == (3, 21)
    write_steps(started, 0, **again(of=5))
    assert look(started, LONG).recompiled_at == (), "another training began the file again"


def test_a_step_that_compiled_does_not_set_the_pace(started: Path) -> None:
    write_steps(started, 0, **again(of=5, seconds=60.0))
    assert look(started, LONG).left_s == 995 * 0.5
    write_steps(started, 0, **again(100, of=100, seconds=60.0))
    assert look(started, LONG).left_s == 900 * 0.5 + 59.5, "as much for recompilations to come as for those before"
    write_steps(started, 0, **again(100, of=900, seconds=60.0))
    assert look(started, LONG).left_s == pytest.approx(100 * 0.5 + 59.5 / 9), "fewer steps are left than were made"


def test_the_time_left_is_unknown_while_every_step_compiles(started: Path) -> None:
    write_steps(started, 0, **again(2, 3, of=3))
    assert look(started, LONG).left_s is None
    write_steps(started, 0, **again(2, 3, of=4))
    assert look(started, LONG).left_s == 996 * 0.5 + 2 * 2.5


@given(st.lists(st.tuples(st.floats(0.1, 0.2), st.floats(0, 100)), min_size=1, max_size=30))
def test_the_time_left_grows_by_no_more_than_twice_what_compilations_took(costs: list[tuple[float, float]]) -> None:
    lines = [{"step": number, "s": pace + cost} for number, (pace, cost) in enumerate([(0.1, 0.0), *costs], start=1)]
    slow = {line["step"]: parse(json.dumps({**line, "recompiled": 1}).encode()) for line in lines if line["s"] > 0.2}
    compiled = {number: step for number, step in slow.items() if step}
    left = left_s(lines, compiled, of=1000)
    lost = sum(step.seconds for step in compiled.values())
    assert left is not None and 0 <= left <= 1000 * 0.2 + lost


def test_a_rank_that_recompiled_slows_the_others(started: Path) -> None:
    write_steps(started, 0, again(5, of=20)["seconds"])
    write_steps(started, 1, **again(5, of=20))
    seen = look(started, replace(LONG, num_gpus=2))
    assert (seen.recompiled_at, seen.left_s) == ((5,), 980 * 0.5 + 2.5)

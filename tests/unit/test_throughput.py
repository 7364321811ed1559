"""From the ranks' files to numbers: sums over ranks, the slowest rank's time, and a reason where there is no number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_folders import BEGAN, worker, write_steps, write_worker

from orchestrator import steps, throughput
from orchestrator.throughput import Reading, read

SLOW_HEAD = [5.0, 1.0, 0.5, *[0.1 + 0.001 * (i % 5) for i in range(40)]]


def numbers(reading: Reading) -> dict[str, Any]:
    return {one.name: one.value for one in reading.measurements}


def one_rank(run_dir: Path, seconds: list[float], **fields: Any) -> Reading:
    write_steps(run_dir, 0, seconds)
    content = worker(steps=len(seconds), **fields)
    write_worker(run_dir, content)
    return read(run_dir, [content], world_size=1)


def test_the_speed_is_that_of_the_steady_steps(tmp_path: Path) -> None:
    found = numbers(one_rank(tmp_path, SLOW_HEAD))
    tail = SLOW_HEAD[3:]
    assert found["discarded_steps"] == 3
    assert found["tokens_per_s"] == pytest.approx(1000 * len(tail) / sum(tail))
    assert found["real_tokens_per_s"] == pytest.approx(0.8 * found["tokens_per_s"])
    assert found["padding_share"] == pytest.approx(0.2)
    assert found["step_time_s"] == pytest.approx(0.102)
    assert found["first_step_s"] == 5.0
    assert found["warmup_s"] == 6.5
    assert "compile_s" not in found
    assert (found["startup_s"], found["model_load_s"], found["trainer_setup_s"]) == (4.0, 2.5, 0.5)


def test_warm_up_is_compilation_where_a_compiler_was_on(tmp_path: Path) -> None:
    found = numbers(one_rank(tmp_path, SLOW_HEAD, settings={"torch_compile": True}))
    assert found["compile_s"] == pytest.approx(6.5 - 3 * found["step_time_s"])


def test_a_declared_warm_up_is_taken(tmp_path: Path) -> None:
    found = numbers(one_rank(tmp_path, SLOW_HEAD, measure={"discard_steps": 10}))
    assert (found["discarded_steps"], found["steady_found_by"]) == (10, "declared")


def test_without_a_steady_state_there_is_no_speed_but_a_reason(tmp_path: Path) -> None:
    reading = one_rank(tmp_path, [1.0, 0.1, 0.1])
    assert numbers(reading)["tokens_per_s"] is None
    assert numbers(reading)["first_step_s"] == 1.0
    assert len([text for text in reading.warnings if text.startswith("no steady-state speed: ")]) == 1
    assert throughput.steady_window(tmp_path) is None


def test_ranks_add_up_and_the_slowest_sets_the_pace(tmp_path: Path) -> None:
    ordinary, slow = [0.1] * 40, [0.1] * 39 + [0.12]
    workers = []
    for rank, seconds in enumerate((ordinary, slow)):
        write_steps(tmp_path, rank, seconds, tokens=1000 + 500 * rank)
        workers.append(worker(rank, world_size=2))
        write_worker(tmp_path, workers[-1])
    reading = read(tmp_path, workers, world_size=2)
    found = numbers(reading)
    window = slow[found["discarded_steps"] :]
    assert found["tokens_per_s"] == pytest.approx(2500 * len(window) / sum(window))
    assert found["tokens_per_s_per_gpu"] == pytest.approx(found["tokens_per_s"] / 2)
    assert found["peak_allocated_bytes"] == 301
    assert found["host_rss_bytes"] == 2000
    assert [row["rank"] for row in reading.ranks] == [0, 1]
    assert sum(row["tokens_processed"] for row in reading.ranks) == 80_000


def test_a_rank_that_left_nothing_takes_the_number_away(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, [0.1] * 40)
    reading = read(tmp_path, [worker(0, world_size=2)], world_size=2)
    assert numbers(reading)["tokens_per_s"] is None
    assert "peak_allocated_bytes" not in numbers(reading)
    assert "1 of 2 rank(s) left steps" in reading.warnings[-1]


def test_a_full_memory_is_said(tmp_path: Path) -> None:
    memory = {"alloc_retries": 3, "ooms": 0}
    reading = one_rank(tmp_path, [0.1] * 40, memory={"steady": memory})
    assert any("tried again 3 time(s)" in text for text in reading.warnings)


def test_the_window_and_its_tokens_are_those_of_the_steady_steps(tmp_path: Path) -> None:
    one_rank(tmp_path, SLOW_HEAD)
    window = throughput.steady_window(tmp_path)
    assert window is not None
    assert window[0] == pytest.approx(BEGAN + 6.5)
    assert window[1] == pytest.approx(BEGAN + sum(SLOW_HEAD))
    assert throughput.tokens_in(tmp_path, window) == 800 * 40


def test_a_file_that_was_cut_off_gives_its_whole_lines(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, [0.1] * 5)
    path = tmp_path / "steps-rank0.jsonl"
    path.write_text(
        '{"step": 0, "t": 1.0, "loss": 2.0}\n[1]\n"x"\n' + path.read_text()[:-20] + "\n" + '{"step": 6, "t": 1.0, "s": '
    )
    assert [step.number for step in steps.read(tmp_path)[0]] == [1, 2, 3, 4]


def test_nothing_gives_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, [], world_size=1) == Reading()
    assert steps.read(tmp_path) == {}

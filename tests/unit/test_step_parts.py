"""From the parts in the lines of steps to a run's numbers, with a reason for each number that is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from factories.run_folders import worker, write_steps, write_worker

from orchestrator.measure import flops, throughput
from orchestrator.measure.steps import Step, batches, parse
from orchestrator.measure.throughput import Reading

PARTS = {"data": 0.01, "forward": 0.02, "backward": 0.04, "optimizer": 0.015}
TIMES = ("data_time_s", "forward_time_s", "backward_time_s", "optimizer_time_s")
DIVIDED: Mapping[str, Any] = {
    "undivided": None,
    "waits_unknown": "a single process waits for no other process",
    "clock": "cuda",
    "measure": {"discard_steps": 10},
}


def read(run_dir: Path, *ranks: Any, **of_worker: Any) -> Reading:
    """The numbers of a run of 20 steps of 0.1 s; each argument is the `parts` of a rank's steps, a list for each step's own."""
    workers = [worker(rank, world_size=len(ranks), steps=20, **{**DIVIDED, **of_worker}) for rank in range(len(ranks))]
    for rank, (content, parts) in enumerate(zip(workers, ranks, strict=True)):
        write_steps(run_dir, rank, [0.1] * 20, wait_s=0.013, parts=parts)
        write_worker(run_dir, content)
    return throughput.read(run_dir, workers, world_size=len(ranks))


def values(reading: Reading) -> dict[str, Any]:
    return {number.name: number.value for number in reading.measurements}


def reasons(reading: Reading) -> dict[str, str]:
    return {number.name: number.missing.detail for number in reading.measurements if number.missing}


def test_times_are_means_per_step_and_add_up_to_the_step(tmp_path: Path) -> None:
    found = values(read(tmp_path, [{**PARTS, "optimizer": 0.01 + 0.001 * (i % 2)} for i in range(20)]))
    assert [found[name] for name in TIMES] == pytest.approx([0.01, 0.02, 0.04, 0.0105])
    assert found["between_time_s"] == pytest.approx(0.003)
    assert sum(found[name] for name in (*TIMES, "between_time_s")) < 1 / found["steps_per_s"]


def test_a_runs_time_is_the_mean_over_its_ranks_and_each_rank_has_its_own(tmp_path: Path) -> None:
    """Rank 1 has a slow loader; rank 0 waits for it at the end of the backward pass."""
    first = {**PARTS, "backward": 0.05, "forward_comm": 0.0, "backward_comm": 0.03}
    reading = read(tmp_path, first, {**first, "data": 0.03, "backward": 0.03, "backward_comm": 0.0})
    found = values(reading)
    assert [found[name] for name in TIMES] == pytest.approx([0.02, 0.02, 0.04, 0.015])
    assert (found["exposed_comm_time_s"], found["backward_comm_time_s"]) == (pytest.approx(0.015), pytest.approx(0.015))
    assert [row["data_time_s"] for row in reading.ranks] == pytest.approx([0.01, 0.03])
    assert [row["exposed_comm_time_s"] for row in reading.ranks] == pytest.approx([0.03, 0.0])


def test_waits_are_a_mean_over_the_steps_that_were_watched(tmp_path: Path) -> None:
    watched = {**PARTS, "forward_comm": 0.004, "backward_comm": 0.006}
    parts = [watched if number % 5 == 4 else PARTS for number in range(20)]
    found = values(read(tmp_path, parts, waits_unknown=None))
    assert found["exposed_comm_time_s"] == pytest.approx(0.01)
    assert found["forward_time_s"] == pytest.approx(0.02)


def test_the_hosts_share_is_of_the_steady_time(tmp_path: Path) -> None:
    found = values(read(tmp_path, {**PARTS, "host": 0.06}))
    assert found["host_bound_share"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("parts", "of_worker", "missing"),
    [
        (PARTS, {}, {"exposed_comm_time_s": "a single process", "host_bound_share": "the training step"}),
        ({**PARTS, "host": 0.0}, {"clock": "host"}, {"exposed_comm_time_s": "a single process"}),
        (PARTS, {"clock": "host", "waits_unknown": None}, {"exposed_comm_time_s": "not marked", "host_bound_share": "on a CPU"}),
        ({"data": 0.01}, {}, {**dict.fromkeys(TIMES[1:], "the training step"), "host_bound_share": "the training step"}),
        ({}, {"undivided": "DeepSpeed's backward"}, dict.fromkeys((*TIMES, "host_bound_share"), "DeepSpeed's backward")),
        ({**PARTS, "forward": 0.5, "host": 0.0}, {}, dict.fromkeys((*TIMES, "host_bound_share"), "longer than the steps")),
    ],
)  # fmt: skip
def test_what_is_missing_has_a_reason(parts: Any, of_worker: Any, missing: Mapping[str, str], tmp_path: Path) -> None:
    reading = read(tmp_path, parts, **of_worker)
    said = reasons(reading)
    assert missing.keys() <= said.keys()
    assert all(why in said[name] for name, why in missing.items())
    assert all(value is None for name, value in values(reading).items() if name in said)


def test_a_step_without_parts_makes_the_times_unknown(tmp_path: Path) -> None:
    found = values(read(tmp_path, [PARTS] * 19 + [{}], undivided="read: RuntimeError: an error"))
    assert found["forward_time_s"] is None and found["step_time_s"] is not None


def test_an_older_instrument_and_a_program_without_a_trainer_have_neither_times_nor_reasons(tmp_path: Path) -> None:
    content = worker(steps=20)
    write_steps(tmp_path, 0, [0.1] * 20)
    write_worker(tmp_path, content)
    reading = throughput.read(tmp_path, [content], world_size=1)
    assert not values(reading).keys() & {*TIMES, "host_bound_share", "exposed_comm_time_s"} and not reasons(reading)


@pytest.mark.parametrize(
    "parts", [[1], "text", {"data": "1"}, {"data": -1.0}, {"data": True}, {"data": None}, {"data": 1e300}]
)
def test_parts_that_are_not_seconds_cost_only_the_parts(parts: Any) -> None:
    step = parse(json.dumps({"step": 1, "s": 0.1, "t": 5.0, "parts": parts}).encode())
    assert step is not None and step.seconds == 0.1 and step.parts == {}


ARCHITECTURE = {
    "frozen": 0, "trainable": 10**9, "expert_frozen": 0, "expert_trainable": 0, "attention_width": 32_768, "causal": True,
}  # fmt: skip
MODEL = {
    "architecture": ARCHITECTURE, "device_name": "NVIDIA H100 80GB HBM3", "dtype": "bfloat16", "mixed_precision": "bf16",
    "recomputation": "none",
}  # fmt: skip


def test_a_pass_has_its_own_share_of_the_peak(tmp_path: Path) -> None:
    """By hand: 2 FLOP per weight and token forward, 4 backward, and 1000 tokens a step."""
    found = values(read(tmp_path, PARTS, settings=MODEL))
    forward = 2 * 10**9 + 4 * 32_768 * 250 / 2
    assert found["forward_mfu"] == pytest.approx(1000 * forward / 0.02 / 989e12)
    assert found["backward_mfu"] == pytest.approx(1000 * 2 * forward / 0.04 / 989e12)
    assert found["mfu"] == pytest.approx(1000 * 3 * forward / 0.1 / 989e12)


def test_frozen_weights_take_no_gradient_of_their_own() -> None:
    lora = {**ARCHITECTURE, "frozen": 10**9, "trainable": 10**7}
    forward = flops.forward_flops_per_token(lora, squares_per_token=0)
    assert (forward, flops.model_flops_per_token(lora, squares_per_token=0)) == (2.02e9, 4.06e9)


def test_a_pass_faster_than_the_device_has_no_share() -> None:
    more = {"squares_per_token": 250, "tokens_per_step": 1000.0}
    found = flops.of_passes(MODEL, seconds={"forward": 1e-6, "backward": 0.04}, **more)
    assert found.keys() == {"backward_mfu"}
    assert flops.of_passes({**MODEL, "device_name": "a GPU"}, seconds={"forward": 0.02}, **more) == {}


def sized(*tokens: int | None) -> list[Step]:
    more = dict.fromkeys(("ended_at", "compute_s", "wait_s", "real", "labelled", "samples", "squares"))
    return [Step(number=number, seconds=0.1, tokens=count, **more) for number, count in enumerate(tokens)]


def test_batches_of_different_sizes_have_a_spread() -> None:
    assert batches.sizes(sized(1000, 3000), world_size=2) == {"step_tokens_per_gpu": 1000, "step_tokens_spread": 0.5}
    assert batches.sizes(sized(500, 500), world_size=1)["step_tokens_spread"] == 0
    assert batches.sizes(sized(500, None), world_size=1) == batches.sizes([], world_size=1) == {}

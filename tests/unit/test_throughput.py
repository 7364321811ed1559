"""From the ranks' files to numbers: sums over ranks, the time of all together, and a reason where there is no number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from factories.run_folders import BEGAN, worker, write_steps, write_worker

from orchestrator.measure import rank_files, steps, throughput
from orchestrator.measure.steps import recompilations
from orchestrator.measure.throughput import Reading, read
from orchestrator.records import Caveat, CaveatKind
from orchestrator.report import series

NOTHING: Mapping[str, Any] = {}
SLOW_HEAD = [5.0, 1.0, 0.5, *[0.1 + 0.001 * (i % 5) for i in range(40)]]


def details(reading: Reading) -> list[str]:
    return [caveat.detail for caveat in reading.warnings]


def numbers(reading: Reading) -> dict[str, Any]:
    return {one.name: one.value for one in reading.measurements}


def one_rank(run_dir: Path, seconds: list[float], *, of_worker: Mapping[str, Any] = NOTHING, **fields: Any) -> Reading:
    """A run of one process; `fields` are its steps', `of_worker` its worker file's."""
    run_dir.mkdir(exist_ok=True)
    write_steps(run_dir, 0, seconds, **fields)
    content = worker(steps=len(seconds), **of_worker)
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
    found = numbers(one_rank(tmp_path, SLOW_HEAD, of_worker={"settings": {"torch_compile": True}}))
    assert found["compile_s"] == pytest.approx(6.5 - 3 * found["step_time_s"])


def test_a_declared_warm_up_is_taken(tmp_path: Path) -> None:
    found = numbers(one_rank(tmp_path, SLOW_HEAD, of_worker={"measure": {"discard_steps": 10}}))
    assert (found["discarded_steps"], found["steady_found_by"]) == (10, "declared")


def test_without_a_steady_state_there_is_no_speed_but_a_reason(tmp_path: Path) -> None:
    reading = one_rank(tmp_path, [1.0, 0.1, 0.1])
    assert numbers(reading)["tokens_per_s"] is None
    assert numbers(reading)["first_step_s"] == 1.0
    assert [caveat.kind for caveat in reading.warnings] == [CaveatKind.NO_STEADY_SPEED]
    assert throughput.steady_window(tmp_path) is None


@pytest.mark.parametrize(
    ("least", "steps", "enough"), [(60, 40, False), (None, 40, True), (5, 8, True), (None, 8, False)]
)
def test_as_many_steady_steps_are_needed_as_were_asked_for(
    least: int | None, steps: int, enough: bool, tmp_path: Path
) -> None:
    found = numbers(one_rank(tmp_path, [0.1] * steps, of_worker={"measure": {"at_least_steps": least}}))
    assert (found["tokens_per_s"] is not None) is enough


def test_an_evaluation_is_no_warm_up_and_no_change_of_pace(tmp_path: Path) -> None:
    """Once among the first steps, where a spike would count as warm-up, and before every step of the run's end."""
    times, waits, after = [0.1] * 40, [0.0] * 40, [[] for _ in range(40)]
    for index in (5, *range(22, 40)):
        times[index], waits[index], after[index] = 0.6, 0.5, ["evaluate"]
    found = numbers(one_rank(tmp_path / "said", times, wait_s=waits, after=after))
    assert found["discarded_steps"] == 1
    assert found["tokens_per_s"] == pytest.approx(1000 * 39 / sum(times[1:]))
    assert numbers(one_rank(tmp_path / "unsaid", times, wait_s=waits))["tokens_per_s"] is None
    head = [*times[:22], *[0.1] * 18]
    assert numbers(one_rank(tmp_path / "head", head, wait_s=waits))["discarded_steps"] == 6


MODEL = {
    "architecture": {
        "frozen": 10**8, "trainable": 10**9, "expert_frozen": 0, "expert_trainable": 0, "attention_width": 32_768,
        "causal": True,
    },
    "device_name": "NVIDIA H100 80GB HBM3", "dtype": "bfloat16", "mixed_precision": "bf16", "recomputation": "none",
}  # fmt: skip


def two_ranks(run_dir: Path, *seconds: list[float], settings: Mapping[str, Any] = NOTHING, **of_rank_1: Any) -> Reading:
    """A run of two processes; `of_rank_1` are fields of the second one's steps."""
    workers = [worker(rank, world_size=2, settings=settings) for rank in (0, 1)]
    for rank, content in enumerate(workers):
        write_steps(run_dir, rank, seconds[rank], **(of_rank_1 if rank else {}))
        write_worker(run_dir, content)
    return read(run_dir, workers, world_size=2)


def test_the_work_of_a_known_model_on_a_known_device(tmp_path: Path) -> None:
    """By hand: 4 a frozen weight, 6 a trained one, and causal attention over sequences of 250 tokens."""
    found = numbers(two_ranks(tmp_path, [0.1] * 40, [0.1] * 40, settings=MODEL))
    work = 4 * 10**8 + 6 * 10**9 + 3 * 4 * 32_768 * 250 / 2
    assert found["model_flops_per_token"] == pytest.approx(work)
    assert found["tflops_per_s_per_gpu"] == pytest.approx(work * 10_000 / 1e12)
    assert found["mfu"] == found["hfu"] == pytest.approx(work * 10_000 / 989e12)


def test_more_work_than_the_device_can_do_is_an_error(tmp_path: Path) -> None:
    reading = two_ranks(tmp_path, [0.001] * 40, [0.001] * 40, settings=MODEL)
    assert not numbers(reading).keys() & {"model_flops_per_token", "tflops_per_s_per_gpu", "mfu", "hfu"}
    assert numbers(reading)["tokens_per_s_per_gpu"] == pytest.approx(1_000_000, rel=1e-4)
    assert reading.impossible is not None and "652% of the peak of 989 TFLOP/s" in reading.impossible


def test_on_an_unknown_device_there_is_work_and_no_share(tmp_path: Path) -> None:
    found = numbers(two_ranks(tmp_path, [0.1] * 40, [0.1] * 40, settings={**MODEL, "device_name": "NVIDIA H999"}))
    assert found["tflops_per_s_per_gpu"] > 0
    assert not found.keys() & {"mfu", "hfu"}


def test_ranks_add_up_and_the_slowest_sets_the_pace(tmp_path: Path) -> None:
    slow = [0.1] * 39 + [0.12]
    reading = two_ranks(tmp_path, [0.1] * 40, slow, tokens=1500)
    found = numbers(reading)
    window = slow[found["discarded_steps"] :]
    assert found["tokens_per_s"] == pytest.approx(2500 * len(window) / sum(window))
    assert [row["tokens_per_s"] for row in reading.ranks] == pytest.approx(
        [share * len(window) / sum(window) for share in (1000, 1500)]
    )
    assert found["tokens_per_s_per_gpu"] == pytest.approx(found["tokens_per_s"] / 2)
    assert found["peak_allocated_bytes"] == 301
    assert found["host_rss_bytes"] == 2000
    assert [row["rank"] for row in reading.ranks] == [0, 1]
    assert sum(row["tokens_processed"] for row in reading.ranks) == 80_000


def test_a_rank_has_no_rate_where_the_run_has_none(tmp_path: Path) -> None:
    rows = two_ranks(tmp_path, [0.1] * 5, [0.1] * 5).ranks
    assert [row["tokens_processed"] for row in rows] == [40_000, 40_000]
    assert not any({"tokens_per_s", "compute_time_s", "data_wait_share"} & row.keys() for row in rows)


def test_a_ranks_wait_for_data_is_a_share_of_its_own_time(tmp_path: Path) -> None:
    """Rank 0 takes 0.2 s longer for the first step; rank 1 waits for it in the second, and has waited for data in every one."""
    reading = two_ranks(tmp_path, [1.2, *[0.2] * 39], [1.0, 0.4, *[0.2] * 38], wait_s=0.05)
    assert [row["data_wait_share"] for row in reading.ranks] == pytest.approx([0.0, 39 * 0.05 / (39 * 0.2 + 0.2)])


def test_the_rates_of_ranks_add_up_over_the_steps_that_both_have(tmp_path: Path) -> None:
    """Rank 1 has written some more, some twice, and one at the wrong place."""
    lasting = [*range(1, 46), *range(20, 26), 3]
    moments = [BEGAN + 0.1 * number for number in lasting]
    reading = two_ranks(tmp_path, [0.1] * 40, [0.1] * len(lasting), step=lasting, t=moments)
    assert numbers(reading)["tokens_per_s"] == pytest.approx(20_000)
    assert [row["tokens_per_s"] for row in reading.ranks] == pytest.approx([10_000] * 2)


@pytest.mark.parametrize(("samples", "tokens", "is_wrong"), [(1000, 1000, False), (1001, 1000, True), (8, 0, False)])
def test_a_sample_has_at_least_one_token(samples: int, tokens: int, is_wrong: bool, tmp_path: Path) -> None:
    counts = {"samples": [samples] * 40, "tokens": [tokens] * 40, "real": [0] * 40, "labelled": [0] * 40}
    found = two_ranks(tmp_path, [0.1] * 40, [0.1] * 40, **counts).contradiction
    assert (found == f"step 1 of rank 1 has {samples:,} samples, and only {tokens:,} tokens") is is_wrong


@pytest.mark.parametrize(
    ("seconds", "is_wrong"), [(0.1, False), (0.11, False), (0.5, True), (-0.005, False), (-1.0, True)]
)
@pytest.mark.parametrize(("part", "verb"), [("wait_s", "waited"), ("compute_s", "computed")])
def test_a_part_of_a_step_is_no_longer_than_the_step(
    part: str, verb: str, seconds: float, is_wrong: bool, tmp_path: Path
) -> None:
    """A program may write its steps itself, and round its times."""
    found = two_ranks(tmp_path, [0.1] * 40, [0.1] * 40, **{part: [seconds] * 40}).contradiction
    assert found == (f"step 1 of rank 1 took 0.1 s, and {verb} for {seconds:g} s of it" if is_wrong else None)


@pytest.mark.parametrize(("later_s", "is_wrong"), [(3.9, False), (4.5, True), (-4.5, True)])
def test_ranks_that_trained_one_after_the_other_have_no_common_speed(
    later_s: float, is_wrong: bool, tmp_path: Path
) -> None:
    """In a loop of a shell without `&`, two processes had the sum of their speeds: 100.1 % of ideal scaling."""
    moments = [BEGAN + later_s + 0.1 * number for number in range(1, 41)]
    found = two_ranks(tmp_path, [0.1] * 40, [0.1] * 40, t=moments).contradiction
    late, early = (1, 0) if later_s > 0 else (0, 1)
    said = f"rank {late} began its first step 0.5 s after rank {early} had ended its last one"
    assert found == (said if is_wrong else None)


@pytest.mark.parametrize(("later_s", "is_apart"), [(0.15, False), (1.0, True), (3.5, True)])
def test_ranks_that_trained_at_once_only_for_a_while_have_no_speed(
    later_s: float, is_apart: bool, tmp_path: Path
) -> None:
    """A process that began when the other one had made half of its steps doubled the speed."""
    moments = [BEGAN + later_s + 0.1 * number for number in range(1, 41)]
    reading = two_ranks(tmp_path, [0.1] * 40, [0.1] * 40, t=moments)
    assert reading.contradiction is None
    assert (numbers(reading)["tokens_per_s"] is None) == is_apart
    said = [caveat.detail for caveat in reading.warnings if caveat.kind is CaveatKind.NO_STEADY_SPEED]
    assert bool(said) == is_apart
    assert all(one.startswith("the processes made the same steps at different times: in ") for one in said)


def test_the_clocks_of_several_hosts_are_not_compared(tmp_path: Path) -> None:
    """A clock that was off by more than the training made an honest run invalid."""
    moments = [BEGAN + 3600 + 0.1 * number for number in range(1, 41)]
    two_ranks(tmp_path, [0.1] * 40, [0.1] * 40, t=moments)
    workers = [worker(rank, world_size=2) for rank in (0, 1)]
    reading = throughput.read(tmp_path, workers, world_size=2, one_clock=False)
    assert reading.contradiction is None and numbers(reading)["tokens_per_s"] is not None


@pytest.mark.parametrize(("steps", "is_said"), [(20, True), (38, False)])
def test_a_rank_that_stopped_early_is_said(steps: int, is_said: bool, tmp_path: Path) -> None:
    reading = two_ranks(tmp_path, [0.1] * 40, [0.1] * steps)
    said = f"rank 1 made only {steps} steps, and another rank 40; only steps of all ranks count"
    assert (said in [caveat.detail for caveat in reading.warnings]) == is_said


@pytest.mark.parametrize("moment", [1e308, 1e18, 2.0**34, 0.0, -1.0])
def test_a_moment_that_cannot_be_makes_no_run_faster(moment: float, tmp_path: Path) -> None:
    moments = [BEGAN + 0.1 * number for number in range(1, 41)]
    moments[21] = moment
    found = numbers(two_ranks(tmp_path, [0.1] * 40, [0.1] * 40, t=moments))
    assert found["tokens_per_s"] == pytest.approx(20_000, rel=1e-4)


@pytest.mark.parametrize("moment", [1e308, 1e18, 2.0**34])
def test_steps_after_which_no_time_passes_leave_a_reason(moment: float, tmp_path: Path) -> None:
    seconds = [*[0.1] * 25, *[0.0] * 15]
    moments = [*(BEGAN + 0.1 * number for number in range(1, 26)), *[moment] * 15]
    two_ranks(tmp_path, seconds, seconds, t=moments)
    assert series.read(tmp_path, discarded_steps=25).window is None


def test_who_is_done_first_with_the_warm_up_waits_and_that_is_no_time_of_the_steady_steps(tmp_path: Path) -> None:
    """Rank 1 takes 0.1 s longer for the first step; rank 0 waits for it in the second one."""
    reading = two_ranks(tmp_path, [1.0, 0.3, *[0.2] * 38], [1.1, *[0.2] * 39])
    found = numbers(reading)
    assert found["discarded_steps"] == 1
    assert found["steady_s"] == pytest.approx(39 * 0.2)
    assert found["tokens_per_s"] == pytest.approx(2000 / 0.2)
    for name in ("tokens_per_s", "real_tokens_per_s"):
        assert [row[name] for row in reading.ranks] == pytest.approx([found[name] / 2] * 2)
    window = throughput.steady_window(tmp_path)
    assert window == pytest.approx((BEGAN + 1.1, BEGAN + 1.1 + 39 * 0.2))


SHARED = {"world_size": 2, "data_parallel_ranks": 1}


def test_two_ranks_that_share_a_batch_process_it_once(tmp_path: Path) -> None:
    """A group's work is that of one rank with a batch of its own; the speed per GPU is half of the group's."""
    reading = two_ranks(tmp_path, [0.2] * 40, [0.2] * 40, settings={**MODEL, **SHARED})
    alone = one_rank(tmp_path / "alone", [0.2] * 40)
    found, expected = numbers(reading), numbers(alone)
    for name in ("tokens_per_s", "real_tokens_per_s", "labelled_tokens_per_s", "samples_per_s", "padding_share"):
        assert found[name] == pytest.approx(expected[name])
    for name in ("tokens_per_s", "real_tokens_per_s"):
        assert found[f"{name}_per_gpu"] == pytest.approx(expected[name] / 2)
        assert [row[name] for row in reading.ranks] == pytest.approx([expected[name] / 2] * 2), "the parts add up"
    work = 4 * 10**8 + 6 * 10**9 + 3 * 4 * 32_768 * 250 / 2
    assert found["tflops_per_s_per_gpu"] == pytest.approx(work * expected["tokens_per_s"] / 2 / 1e12)
    assert throughput.tokens_in(tmp_path, (0, 2 * BEGAN)) == 800 * found["steady_steps"]


@pytest.mark.parametrize("name", ["tokens", "real", "labelled", "samples", "squares"])
def test_ranks_that_share_a_batch_and_count_differently_contradict_each_other(name: str, tmp_path: Path) -> None:
    """A version of accelerate that gives each rank a batch of its own would halve the run's tokens."""
    counts = {"tokens": 1000, "real": 800, "labelled": 500, "samples": 4, "squares": 250_000}
    other = {name: [*[counts[name]] * 29, counts[name] - 1, *[counts[name]] * 10]}
    workers = [worker(rank, world_size=2, settings=SHARED) for rank in (0, 1)]
    workers[1]["tokens"][{"tokens": "processed"}.get(name, name)] -= 1
    for rank in (0, 1):
        write_steps(tmp_path, rank, [0.1] * 40, **(other if rank else {}))
    said = read(tmp_path, workers, world_size=2).contradiction
    assert said is not None and said.startswith("step 30 of ranks 0 and 1, which share a batch, has ")
    apart = [{**one, "settings": {"world_size": 2, "data_parallel_ranks": 2}} for one in workers]
    assert read(tmp_path, apart, world_size=2).contradiction is None


def test_a_rank_that_left_nothing_takes_the_number_away(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, [0.1] * 40)
    reading = read(tmp_path, [worker(0, world_size=2)], world_size=2)
    assert numbers(reading)["tokens_per_s"] is None
    assert "peak_allocated_bytes" not in numbers(reading)
    assert "the steps are from rank(s) 0, and the run had 2 rank(s)" in reading.warnings[-1].detail


def test_steps_of_a_rank_that_there_was_not_take_the_number_away(tmp_path: Path) -> None:
    """A folder of two runs, or a wrong world size: whose tokens these are nobody knows."""
    for rank in range(3):
        write_steps(tmp_path, rank, [0.1] * 40)
    reading = read(tmp_path, [worker(rank, world_size=2) for rank in range(2)], world_size=2)
    assert numbers(reading)["tokens_per_s"] is None
    assert "the steps are from rank(s) 0, 1, 2, and the run had 2 rank(s)" in reading.warnings[-1].detail


def test_a_step_that_could_not_be_counted_takes_the_token_speeds_away_and_no_others(tmp_path: Path) -> None:
    unknown: list[int | None] = [1000] * 40
    unknown[25] = None
    found = numbers(one_rank(tmp_path, [0.1] * 40, **dict.fromkeys(steps.COUNTS, unknown)))
    assert found["step_time_s"] == pytest.approx(0.1)
    assert found["steps_per_s"] == pytest.approx(10)
    assert not {name for name in found if "tokens_per_s" in name or name in ("samples_per_s", "padding_share")}


@pytest.mark.parametrize(
    ("micro", "why"), [(0, "its Trainer overrides training_step"), (40, "a batch had no `input_ids`")]
)
def test_tokens_that_are_unknown_are_said(micro: int, why: str, tmp_path: Path) -> None:
    unknown: list[int | None] = [None] * 40
    tokens = {"processed": None, "steps": 40, "micro": micro}
    reading = one_rank(tmp_path, [0.1] * 40, of_worker={"tokens": tokens}, **dict.fromkeys(steps.COUNTS, unknown))
    assert [text for text in details(reading) if why in text and text.startswith("rank 0's tokens are unknown: ")]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"tokens": [8192, 1536] * 20, "samples": [16, 3] * 20}, True),
        ({"tokens": [8192, 1536] * 20}, False),
        ({"tokens": [8192] * 37 + [1536] * 3, "samples": [16] * 37 + [3] * 3}, False),
        ({"tokens": [8192] * 35 + [1536] * 5, "samples": [16] * 35 + [3] * 5}, True),
        ({"tokens": [8000, 4800] * 20, "samples": [10, 6] * 20}, True),
        ({"tokens": [8000, 6400] * 20, "samples": [10, 8] * 20}, False),
        ({"tokens": [None] * 40}, False),
    ],
    ids=["two kinds", "ragged text", "few epochs' ends", "many", "not half", "nearly whole", "not counted"],
)
def test_batches_of_two_kinds_are_said(counts: dict[str, list[int | None]], said: bool, tmp_path: Path) -> None:
    reading = one_rank(tmp_path, [0.1] * 40, **counts)
    assert any("had a smaller batch than the others" in text for text in details(reading)) is said


def test_a_rank_has_its_memory_of_every_stage(tmp_path: Path) -> None:
    def stage(bytes_: int, ooms: int) -> dict[str, int]:
        peaks = {"peak_allocated_bytes": bytes_, "peak_reserved_bytes": bytes_ + 1, "rss_bytes": bytes_ + 2}
        return {**peaks, "alloc_retries": ooms + 1, "ooms": ooms}

    memory = {"after_load": stage(10, 0), "first_step": stage(20, 0), "steady": stage(30, 1)}
    (row,) = one_rank(tmp_path / "whole", [0.1] * 40, of_worker={"memory": memory}).ranks
    assert [row[f"peak_reserved_{name}_bytes"] for name in memory] == [11, 21, 31]
    assert [row[f"host_rss_{name}_bytes"] for name in memory] == [12, 22, 32]
    assert (row["alloc_retries"], row["cuda_ooms"]) == (2, 1)
    (row,) = one_rank(tmp_path / "one step", [0.1], of_worker={"memory": {**memory, "steady": None}}).ranks
    assert "host_rss_steady_bytes" not in row and (row["alloc_retries"], row["cuda_ooms"]) == (1, 0)


def test_blocks_that_were_left_alone_are_said(tmp_path: Path) -> None:
    reading = one_rank(tmp_path, [0.1] * 40, of_worker={"toggle_steps": 20})
    assert [
        text for text in details(reading) if text.startswith("the instrument was off in every other block of 20 steps")
    ]


def test_data_without_labels_have_no_speed_in_labels(tmp_path: Path) -> None:
    found = numbers(one_rank(tmp_path, [0.1] * 40, labelled=0))
    assert found["tokens_per_s"] == pytest.approx(10_000)
    assert "labelled_tokens_per_s" not in found


def test_the_stages_of_compilation_are_those_of_the_slowest_rank(tmp_path: Path) -> None:
    quick = {"dynamo_s": 1.0, "inductor_s": 0.0, "other_s": 2.0, "cache_hits": 4, "cache_misses": 0, "reasons": []}
    slow = {"dynamo_s": 0.9, "inductor_s": 20.0, "other_s": 3.0, "cache_hits": 1, "cache_misses": 3, "reasons": []}
    found = rank_files._compiling([{"compiling": quick}, {"compiling": slow}])
    assert [*found.values()] == [0.9, 20.0, 3.0, 0.25]
    assert rank_files._compiling([{"compiling": slow}, {"compiling": None}]) == {}
    assert numbers(one_rank(tmp_path, [0.1] * 40, of_worker={"compiling": quick}))["compile_cache_hit_share"] == 1


def test_a_full_memory_is_said(tmp_path: Path) -> None:
    memory = {"alloc_retries": 3, "ooms": 0}
    reading = one_rank(tmp_path, [0.1] * 40, of_worker={"memory": {"steady": memory}})
    assert any("tried again 3 time(s)" in text for text in details(reading))


@pytest.mark.parametrize(("waited_s", "busy"), [(0.9, False), (1.1, True)])
def test_waiting_long_for_a_core_is_a_caveat_with_a_number(tmp_path: Path, waited_s: float, busy: bool) -> None:
    reading = one_rank(tmp_path, [0.1] * 40, of_worker={"core_wait": {"waited_s": waited_s, "wall_s": 10.0}})
    assert numbers(reading)["core_wait_share"] == pytest.approx(waited_s / 10)
    caveats = [caveat for caveat in reading.warnings if caveat.kind is CaveatKind.BUSY_HOST]
    assert [caveat.detail for caveat in caveats] == ["a process's threads waited for a core in 11% of the time"] * busy


def recompiled(at: dict[int, float], *, of: int = 60) -> dict[str, Any]:
    """The seconds and fields of a run that compiles in its first step, and again at these steps, for so long."""
    seconds = [at.get(number, 0.1) for number in range(1, of + 1)]
    again = [2 if number in at and number > 1 else 0 for number in range(1, of + 1)]
    return {
        "seconds": seconds,
        "compiled": [3, *[0] * (of - 1)],
        "recompiled": again,
        "new_width": [bool(n) for n in again],
    }


def test_recompilation_in_the_steady_state_is_a_caveat_that_names_the_steps(tmp_path: Path) -> None:
    reading = one_rank(tmp_path, **recompiled({1: 5.0, 3: 2.0, 4: 2.0, 40: 2.0}))
    assert numbers(reading)["recompiled_steps"] == 3
    (caveat,) = [one for one in reading.warnings if one.kind is CaveatKind.RECOMPILED]
    said = "recompiled at steps 3, 4, 40: batch widths vary"
    assert caveat.sentence == f"the steady state includes compilation: {said}"
    assert Caveat.of_sentence(caveat.sentence) == caveat


def test_recompilation_in_the_warm_up_is_only_counted(tmp_path: Path) -> None:
    reading = one_rank(tmp_path, **recompiled({1: 5.0, 3: 2.0, 4: 2.0}))
    assert numbers(reading)["recompiled_steps"] == 2
    assert "recompiled" not in " ".join(details(reading))


def test_recompilation_that_costs_little_is_a_note(tmp_path: Path) -> None:
    reading = one_rank(tmp_path, **recompiled({1: 5.0, 20: 0.15}))
    assert Caveat(detail="recompiled at step 20: batch widths vary") in reading.warnings
    assert CaveatKind.RECOMPILED not in {one.kind for one in reading.warnings}


def test_recompilation_is_a_note_where_there_is_no_steady_state(tmp_path: Path) -> None:
    reading = one_rank(tmp_path, **recompiled({1: 5.0, 3: 2.0}, of=8))
    assert {one.kind for one in reading.warnings} == {CaveatKind.NO_STEADY_SPEED, CaveatKind.NOTE}
    assert "recompiled at step 3: batch widths vary" in details(reading)


def test_a_step_recompiles_if_one_rank_does(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, [0.1] * 30)
    write_steps(tmp_path, 1, [0.1] * 30, recompiled=[0] * 19 + [1] + [0] * 10)
    workers = [worker(rank, world_size=2, steps=30) for rank in (0, 1)]
    reading = read(tmp_path, workers, world_size=2)
    assert numbers(reading)["recompiled_steps"] == 1
    assert "recompiled at step 20" in details(reading), "no rank saw a new width"


def test_without_compilation_nothing_is_counted(tmp_path: Path) -> None:
    assert "recompiled_steps" not in numbers(one_rank(tmp_path / "eager", [0.1] * 40))
    compiled = one_rank(tmp_path / "compiled", **recompiled({1: 5.0}, of=40))
    assert numbers(compiled)["recompiled_steps"] == 0 and "recompiled" not in " ".join(details(compiled))


def test_many_recompiled_steps_are_not_all_named() -> None:
    assert (
        recompilations.sentence(range(2, 14), widths_vary=False)
        == "recompiled at steps 2, 3, 4, 5, 6, 7, 8, 9 and 4 more"
    )


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


# ------------------------------------------------------------------- programs that report their steps themselves


def reported(run_dir: Path, *, world_size: int = 1, steps: int = 40, when: bool = True, **of_worker: Any) -> Reading:
    """A run whose program printed its steps of 0.1 s, with or without saying when."""
    rows = [{"step": at, "t": BEGAN + at / 10 if when else None, "s": 0.1, "tokens": 500} for at in range(1, steps + 1)]
    (run_dir / "steps-rank0.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    content = {"rank": 0, "world_size": world_size, "steps_from": "stdout", **of_worker}
    write_worker(run_dir, content)
    return read(run_dir, [content], world_size=world_size)


def test_printed_steps_are_those_of_all_processes(tmp_path: Path) -> None:
    found = numbers(reported(tmp_path, world_size=4))
    assert (found["tokens_per_s"], found["tokens_per_s_per_gpu"]) == (pytest.approx(5000), pytest.approx(1250))
    assert (found["steps"], found["tokens_processed"]) == (40, 20_000)
    assert not {"data_wait_share", "real_tokens_per_s", "samples_processed"} & found.keys(), "unknown is not 0"
    window = throughput.steady_window(tmp_path)
    assert window is not None and window[1] == BEGAN + 4


def test_steps_that_do_not_say_when_have_a_speed_and_no_window(tmp_path: Path) -> None:
    found = numbers(reported(tmp_path, when=False))
    assert found["step_time_s"] == pytest.approx(0.1)
    assert throughput.steady_window(tmp_path) is None
    drawn = series.read(tmp_path, discarded_steps=found["discarded_steps"])
    assert drawn.steps is not None and drawn.steps.steps == 40 and drawn.window is None


def test_steps_after_the_last_one_asked_for_are_left_out(tmp_path: Path) -> None:
    found = numbers(reported(tmp_path, measure={"discard_steps": 5, "at_most_steps": 30}))
    assert (found["steps"], found["steady_steps"]) == (30, 25)


def test_steps_that_cannot_be_right_have_no_speed(tmp_path: Path) -> None:
    reading = reported(tmp_path, steps_problem="step 1 came again", steps_note="a line is wrong")
    assert numbers(reading)["step_time_s"] is None
    assert [(caveat.kind, caveat.detail) for caveat in reading.warnings] == [
        (CaveatKind.NOTE, "a line is wrong"),
        (CaveatKind.NO_STEADY_SPEED, "step 1 came again"),
    ]

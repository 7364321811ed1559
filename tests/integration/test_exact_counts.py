"""Every step's tokens, samples and squares against a count of the same data loader, token by token in plain Python.

One process, two and four ranks; ragged batches, an epoch's incomplete end, accumulation, packing, padding-free. The last
training of a start is ended early. And a Trainer of somebody else's, whose loss is no number.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import pytest
from counted_trainings import (
    ACCUMULATED,
    COUNTS,
    PACKED,
    PADDED,
    SAVERS,
    VARIANTS,
    by_step,
    counts,
    losses,
    steps,
    trained,
    trained_by_theirs,
)
from trainings import INSTRUMENT, SFT, Run, at_once, start, training

# Many steps to spare: on a busy machine the first few dozen are too uneven for any interval.
MOST = 400
LONG = ["--max_steps", str(MOST), "--max_seq_len", "16"]
SOON = json.dumps({"discard_steps": 2, "at_least_steps": 4, "within": 9.0})


@dataclass(frozen=True, kw_only=True)
class Alone:
    """Trainings of one process each."""

    one: Run
    hiding: Run
    unfiltered: Run
    killed: Run


@pytest.fixture(scope="session")
def alone(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    variants = {**VARIANTS, **SAVERS, "stopped": LONG}
    chunks = "import memory_savers\nmemory_savers.CHUNK_ROWS = 100\n"
    measure = json.dumps({"at_most_steps": 13, "within": None})
    endless = [INSTRUMENT, "--", SFT, *training(prepared, "--max_steps", "100000", "--max_seq_len", "16")]
    folders = {name: tmp_path_factory.mktemp(name) for name in ("one", "hiding", "unfiltered", "killed")}

    def five_steps(folder: Path) -> bool:
        file = folder / "steps-rank0.jsonl"
        return file.exists() and file.read_text().count('"s"') >= 5

    one, hiding, unfiltered, killed = at_once(
        lambda: trained(folders["one"], prepared, 1, variants, before=chunks, TUNEBENCH_MEASURE=measure),
        lambda: trained_by_theirs(folders["hiding"], "3", "1"),
        lambda: trained_by_theirs(folders["unfiltered"], "6", "5", "unfiltered"),
        lambda: start(folders["killed"] / "run", endless, until=five_steps),
    )
    return Alone(one=one, hiding=hiding, unfiltered=unfiltered, killed=killed)


@pytest.fixture(scope="session")
def one(alone: Alone) -> Run:
    return alone.one


@pytest.fixture(scope="session")
def two(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The last training has seen enough once there is any interval, at the 20th step unless the machine is very busy."""
    tracked = [*LONG, "--skip_memory_metrics", "False"]
    variants = {**VARIANTS, "stopped": tracked}
    tracker = {"TUNEBENCH_MEMORY_TRACKER": "light"}
    return trained(tmp_path_factory.mktemp("two"), prepared, 2, variants, TUNEBENCH_MEASURE=SOON, **tracker)


@pytest.fixture(scope="session")
def four(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    variants = {"padded": PADDED, "packed": PACKED, "stopped": LONG}
    return trained(tmp_path_factory.mktemp("four"), prepared, 4, variants, TUNEBENCH_MEASURE=SOON)


RANKS = {"one": 1, "two": 2, "four": 4}
CASES = [(run, variant) for run in RANKS for variant in (*VARIANTS, "stopped") if run != "four" or variant != "free"]


@pytest.mark.parametrize(("run", "variant"), CASES)
def test_counts_are_those_of_the_data(run: str, variant: str, request: pytest.FixtureRequest) -> None:
    trained: Run = request.getfixturevalue(run)
    for rank in range(RANKS[run]):
        found, expected = steps(trained, variant, rank), by_step(trained, variant, rank, ACCUMULATED.get(variant, 1))
        if variant == "stopped":  # several epochs, in orders of their own, of which the first is known
            found, expected = found[: len(expected)], expected[: len(found)]
        assert counts(found) == expected
        assert len(found) >= 2
    if variant == "padded":
        assert any(line["real"] < line["tokens"] for line in found), "no padding would prove nothing"
        assert found[-1]["micro"] < 3 or trained.worker()["world_size"] > 1, "the end is not ragged"


@pytest.mark.parametrize("variant", SAVERS)
def test_less_memory_changes_neither_losses_nor_counts(one: Run, variant: str) -> None:
    assert counts(steps(one, variant, 0)) == counts(steps(one, "padded", 0))
    assert losses(one, variant) == pytest.approx(losses(one, "padded"), rel=1e-5)
    assert len(losses(one, variant)) >= 2


@pytest.mark.parametrize("run", RANKS)
def test_totals_are_the_sum_over_steps(run: str, request: pytest.FixtureRequest) -> None:
    trained: Run = request.getfixturevalue(run)
    for rank in range(RANKS[run]):
        found, total = steps(trained, "stopped", rank), trained.worker(rank)["tokens"]
        assert total["processed"] == sum(line["tokens"] for line in found)
        assert {name: total[name] for name in (*COUNTS[1:], "micro")} == {
            name: sum(line[name] for line in found) for name in (*COUNTS[1:], "micro")
        }
        assert total["steps"] == len(found)


def test_times_are_whole(one: Run) -> None:
    worker, found = one.worker(), steps(one, "stopped", 0)
    assert worker["clock"] == "host"
    assert worker["instrument_error"] is None
    for line in found:
        assert line["s"] == pytest.approx(line["wait_s"] + line["compute_s"], abs=1e-6)
        assert 0 <= line["wait_s"] < line["s"]
    for before, line in pairwise(found):
        assert line["t"] - before["t"] == pytest.approx(line["s"], abs=1e-5)
    stamps = worker["stamps"]
    assert found[0]["t"] == pytest.approx(stamps["first_step_end"], abs=1e-5)
    names = ["process_start", "instrument_start", "imports_done", "model_built", "trainer_built", "train_begin"]
    times = [stamps[name] for name in [*names, "first_step_end", "train_end", "written"]]
    assert times == sorted(times)
    begin, end = stamps["train_begin"], stamps["train_end"]
    assert begin <= found[0]["t"] - found[0]["s"] + 0.01, "the steps have no gaps, so all of them lie in the training"
    assert found[-1]["t"] <= end + 0.01
    assert sum(line["s"] for line in found) <= worker["metrics"]["train_runtime"] + 0.05


def test_it_ends_after_as_many_steps_as_it_may(one: Run) -> None:
    assert len(steps(one, "stopped", 0)) == 13
    worker = one.worker()
    assert worker["stopped"] == {"step": 13, "why": "at_most_steps", "half_width": None}
    assert worker["measure"] == {"at_most_steps": 13, "within": None}
    speed, runtime = worker["metrics"]["train_steps_per_second"], worker["metrics"]["train_runtime"]
    assert speed * runtime == pytest.approx(13, rel=0.02), "the speed of the steps that were planned"


@pytest.mark.parametrize("run", ["two", "four"])
def test_ranks_end_at_the_same_step_once_enough_is_known(run: str, request: pytest.FixtureRequest) -> None:
    trained: Run = request.getfixturevalue(run)
    ranks = range(RANKS[run])
    stopped = trained.worker()["stopped"]
    assert [trained.worker(rank)["stopped"] for rank in ranks] == [stopped] * len(ranks)
    assert stopped["why"] == "within"
    assert 0 <= stopped["half_width"] <= 9.0
    assert stopped["step"] % 10 == 0 and 20 <= stopped["step"] < MOST
    assert [len(steps(trained, "stopped", rank)) for rank in ranks] == [stopped["step"]] * len(ranks)


def test_the_light_tracker_gives_the_trainers_keys(two: Run, one: Run) -> None:
    stages = {f"{stage}_mem_cpu_{kind}_delta" for stage in ("init", "train") for kind in ("alloc", "peaked")}
    metrics = two.worker()["metrics"]
    assert {name for name in metrics if "_mem_" in name} == {"before_init_mem_cpu", *stages}
    assert metrics["before_init_mem_cpu"] > 50e6
    assert two.worker()["memory_tracker"] == "light"
    assert not any("_mem_" in name for name in one.worker()["metrics"])


def test_memory_on_a_cpu_is_the_hosts(one: Run) -> None:
    worker = one.worker()
    resident = [worker["memory"][stage].pop("rss_bytes") for stage in ("after_load", "first_step", "steady")]
    assert min(resident) > 50e6
    assert worker["peak"]["rss_bytes"] >= max(resident)
    assert {value for memory in worker["memory"].values() for value in memory.values()} == {None}
    assert (worker["peak"]["allocated_bytes"], worker["gpu"]) == (None, None)


def test_a_trainer_that_is_not_ours_is_counted_and_a_loss_that_it_hides_is_seen(alone: Alone) -> None:
    """By its defaults the Trainer logs 0.0 where a loss was no number."""
    run = alone.hiding
    worker = run.worker()
    lines = [line for line in run.steps() if "loss" not in line]
    step = {"tokens": 64, "real": 48, "labelled": 28, "samples": 4, "squares": 4 * 16**2, "micro": 2}
    assert counts(lines) == [step] * 7
    assert (worker["instrument_error"], worker["error"], worker["tokens"]["real"]) == (None, None, 7 * 48)
    expected = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "global_batch": 4, "world_size": 1}
    settings = run.settings
    assert {name: settings[name] for name in expected} == expected
    assert settings["architecture"]["trainable"] > 0 and settings["recomputation"] == "none"
    assert settings["dtype"] == "float32"
    losses = dict(worker["losses"])
    assert losses[2] > 0 and losses[3] == 0.0
    assert worker["metrics"]["train_loss"] > 0
    assert worker["nonfinite_step"] == 3


def test_a_loss_behind_the_last_one_that_was_logged_is_seen(alone: Alone) -> None:
    worker = alone.unfiltered.worker()
    assert [step for step, loss in worker["losses"] if loss is not None] == [5]
    assert worker["metrics"]["train_loss"] is None and worker["metrics"]["train_runtime"] > 0
    assert worker["nonfinite_step"] == 7, "the last step, since the Trainer tells the mean alone"


def test_a_killed_training_leaves_its_steps(alone: Alone) -> None:
    run = alone.killed
    lines = [json.loads(line) for line in (run.folder / "steps-rank0.jsonl").read_text().splitlines()]
    numbers = [line["step"] for line in lines if "s" in line]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 5
    order = [line["step"] for line in lines]
    assert order == sorted(order), "losses stand behind their steps"
    assert all(math.isfinite(line["s"]) and line["t"] > 1e9 for line in islice(lines, 5) if "s" in line)
    assert not (run.folder / "worker-rank0.json").exists()

"""The search for the largest value of an argument that fits in memory."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from factories.results import experiment, job, measured, of_command, record_of
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.campaign.probes import largest_value
from orchestrator.campaign.probes.largest_value import Found, Search, searches
from orchestrator.errors import SelectionError
from orchestrator.plan.forecast.memory_fit import Estimate, estimate
from orchestrator.records import DataSpec, Device, Experiment, RunRecord, Status

BATCH, LENGTH = "per_device_train_batch_size", "max_seq_len"
GPU = 80 << 30


def cell(batch: str = "8", **more: object) -> Experiment:
    return experiment(arguments={BATCH: batch, "max_steps": "500"}, device=Device.CUDA, **more)


def search(start: int = 8, axis: str = BATCH, expected: int | None = None) -> Search:
    return Search(experiment=cell(str(start)), axis=axis, start=start, expected=expected)


def record(status: Status, kind: str | None = None) -> RunRecord:
    return record_of(job(), status, kind=kind, cause=kind)


def searched(one: Search, limit: int) -> tuple[Found, list[int]]:
    """Return the result of a search, and the values that were tried. Values up to `limit` fit."""
    tried: list[int] = []

    def probed(_: Search, value: int) -> RunRecord:
        tried.append(value)
        return record(Status.OK) if value <= limit else record(Status.FAILED, "oom_cuda")

    found = largest_value.largest_value(one, probed)
    assert len(tried) == len(set(tried)), "no value is tried twice"
    return found, tried


def is_right(found: Found, limit: int) -> bool:
    """Return whether the largest value and the smallest value that does not fit are true, tried, and near each other."""
    if limit >= found.search.largest:
        return found.value == found.search.largest and found.too_large is None
    largest, too_large = found.value or 0, found.too_large or 0
    near = max(largest_value.step_of(largest), largest_value.step_of(found.search.expected or 1))
    return largest <= limit < too_large and too_large - largest <= near


@given(st.integers(1, 700_000), st.floats(0.7, 1.3), st.sampled_from([BATCH, LENGTH]))
def test_five_runs_are_enough_if_the_estimate_is_within_30_percent(limit: int, error: float, axis: str) -> None:
    expected = max(1, round(limit * error))
    assume(0.7 <= expected / limit <= 1.3)
    assume(axis != BATCH or limit < largest_value.LARGEST_BATCH)
    found, tried = searched(search(axis=axis, expected=expected), limit)
    assert len(tried) <= 5 and set(tried) <= set(range(1, found.search.largest + 1))
    assert is_right(found, limit)
    largest, too_large = found.value or 0, found.too_large or 0
    assert largest in tried and too_large in tried, "both were tried"
    assert too_large - largest <= max(1, 0.1 * limit) and (expected > 40 or (largest, too_large) == (limit, limit + 1))


@given(st.integers(0, 5000), st.integers(1, 64), st.none() | st.integers(1, 4096))
def test_the_largest_value_is_found_without_an_estimate_and_with_a_wrong_one(
    limit: int, start: int, expected: int | None
) -> None:
    found, tried = searched(search(start, expected=expected), limit)
    assert is_right(found, limit)
    assert len(tried) <= 2 * math.log2(largest_value.LARGEST_BATCH) + 2
    if expected is None and limit <= 40:
        assert (found.value or 0, found.too_large) == (limit, limit + 1)


def test_without_an_estimate_the_search_begins_with_the_cells_own_value() -> None:
    assert searched(search(32), 40)[1] == [32, 64, 48, 40, 44, 42, 41]


def of_llama(device: Device = Device.CUDA, **more: str) -> Experiment:
    arguments = {"model_name_or_path": "config:llama-1b", BATCH: "4", LENGTH: "2048", "dtype": "bfloat16", **more}
    return experiment(arguments=arguments, model="config:llama-1b", device=device)


@pytest.mark.parametrize("axis", [BATCH, LENGTH])
def test_the_search_is_started_from_the_estimate_of_memory(axis: str) -> None:
    (one,) = searches([of_llama()], axis, gpu_memory_bytes=GPU)
    assert one.expected is not None
    peaks = [estimate(largest_value.with_value(one, one.expected + more)) for more in (0, 1)]
    taken = [peak.peak_allocated_bytes + peak.context_bytes for peak in peaks if isinstance(peak, Estimate)]
    assert taken[0] <= 0.995 * GPU < taken[1]


@pytest.mark.parametrize(
    "one, axis, memory",
    [
        (of_llama(), "max_steps", GPU),  # needs no memory
        (of_llama(), BATCH, None),
        (of_llama(Device.CPU), BATCH, GPU),
        (of_llama(neftune_noise_alpha="5"), BATCH, GPU),  # has no estimate
    ],
)
def test_without_a_limit_by_the_estimate_nothing_is_expected(one: Experiment, axis: str, memory: int | None) -> None:
    one = replace(one, arguments={"max_steps": "500", **one.arguments})
    assert [found.expected for found in searches([one], axis, gpu_memory_bytes=memory)] == [None]


def test_an_argument_without_a_whole_number_is_refused() -> None:
    for one, axis, said in (
        (cell(), "max_step", "did you mean 'max_steps'"),
        (cell(), "r", "add --set arguments.r=N with a whole number"),
        (cell("many"), BATCH, f"{BATCH} 'many'; write a whole number from 1"),
        (cell("0"), BATCH, "write a whole number from 1"),
        (
            of_command("train", "{rank}", arguments={"r": "4"}),
            "r",
            "its command has neither {r} nor {arguments}; write {r}",
        ),
    ):
        with pytest.raises(SelectionError, match="the search cannot begin") as error:
            searches([one], axis, gpu_memory_bytes=None)
        assert said in str(error.value)


def test_the_argument_has_the_trainers_name() -> None:
    trl = experiment(trainer="trl", arguments={"max_length": "512"})
    assert [(one.axis, one.start) for one in searches([trl], LENGTH, gpu_memory_bytes=None)] == [("max_length", 512)]


def test_a_probe_of_a_length_has_data_of_this_length() -> None:
    data = DataSpec(source="builtin:synthetic", form="tokens", max_length=2048, samples=16)
    one = Search(
        experiment=cell(data=data, data_path="/before", global_batch=8),
        axis=LENGTH,
        start=8,
        expected=None,
        is_length=True,
    )
    probe = largest_value.with_value(one, 4096)
    assert probe.data is not None and probe.data.max_length == 4096 and probe.data_path != "/before"
    assert (probe.arguments[LENGTH], probe.global_batch, probe.repeats) == ("4096", 8, 1)
    assert probe.id.endswith(".max_seq_len4096")
    larger = largest_value.with_value(replace(one, axis=BATCH, is_length=False), 64)
    assert (larger.global_batch, larger.data_path, larger.arguments[BATCH]) == (None, "/before", "64")


def test_rows_that_are_shorter_than_the_length_prove_nothing() -> None:
    short = replace(record(Status.OK), measurements=measured(tokens_processed=3000, samples_processed=4))
    one = replace(search(512, LENGTH), is_length=True)
    found = largest_value.largest_value(one, lambda _, value: short)
    assert (found.value, found.too_large) == (512, None)
    (line,) = largest_value.found_lines([found])
    assert line.endswith(
        "max_seq_len 512 fits, and a larger one could not be tried "
        "(rows of the data have 750 tokens on average, not 1024; use builtin:synthetic)"
    )


def test_another_failure_ends_the_search_and_is_told() -> None:
    broken = record(Status.FAILED, "import_error")
    found = largest_value.largest_value(search(), lambda one, value: broken)
    assert (found.value, found.failure) == (None, f"{broken.kind}: {broken.cause}")


def test_a_probe_whose_record_cannot_be_read_did_not_run_out_of_memory() -> None:
    found = largest_value.largest_value(search(), lambda one, value: None)
    (line,) = largest_value.found_lines([found])
    assert line.endswith("unknown, a probe failed (its record cannot be read)")


def test_what_fitted_before_another_failure_stands() -> None:
    """As where the data have no more rows than a batch asks for."""
    refused = record(Status.INVALID, "not_in_effect")
    found = largest_value.largest_value(search(), lambda one, value: record(Status.OK) if value <= 32 else refused)
    assert (found.value, found.too_large, found.failure) == (32, None, f"{refused.kind}: {refused.cause}")
    (line,) = largest_value.found_lines([found])
    assert line.endswith(f"{BATCH} 32 fits, and a larger one could not be tried (not_in_effect: not_in_effect)")


def test_the_line_of_a_cell_has_the_values_that_distinguish_it() -> None:
    cells = [replace(cell(), id=f"s-{optim}", arguments={"optim": optim}) for optim in ("sgd", "adamw_torch")]
    found = [
        Found(search=replace(search(), experiment=one), value=None, record=None, too_large=1, failure=None)
        for one in cells
    ]
    assert [*largest_value.found_lines(found)] == [
        f"s-sgd (optim=sgd): not even {BATCH} 1 fits",
        f"s-adamw_torch (optim=adamw_torch): not even {BATCH} 1 fits",
    ]


@pytest.mark.parametrize("word", ["{r}", "--r={r}", "{arguments}"])
def test_a_command_that_gets_the_argument_is_searched(word: str) -> None:
    (found,) = searches([of_command("train", word, arguments={"r": "4"})], "r", gpu_memory_bytes=None)
    assert (found.axis, found.start) == ("r", 4)

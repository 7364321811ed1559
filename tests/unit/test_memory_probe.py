"""The search for the largest batch, and what probes are made of."""

from __future__ import annotations

import math
from dataclasses import replace

from factories.results import experiment, job, record_of
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign import memory_probe
from orchestrator.records import Device, Experiment, RunRecord, Status


def cell(batch: str = "8", **more: object) -> Experiment:
    return experiment(arguments={"per_device_train_batch_size": batch, "max_steps": "500"}, device=Device.CUDA, **more)


def record(status: Status, kind: str | None = None) -> RunRecord:
    return record_of(job(), status, kind=kind, cause=kind)


@given(st.integers(0, 5000), st.integers(1, 64))
def test_the_largest_batch_that_fits_is_found_in_few_probes(capacity: int, begin: int) -> None:
    tried: list[int] = []

    def probed(_: Experiment, batch: int) -> RunRecord:
        tried.append(batch)
        return record(Status.OK) if batch <= capacity else record(Status.FAILED, "oom_cuda")

    found = memory_probe.largest_batch(cell(str(begin)), probed)
    assert found.batch == (min(capacity, memory_probe.LARGEST_BATCH) or None)
    assert len(tried) == len(set(tried)) <= 2 * math.log2(memory_probe.LARGEST_BATCH) + 2
    assert found.too_large == (found.batch or 0) + 1 or found.batch == memory_probe.LARGEST_BATCH


def test_another_failure_ends_the_search_and_is_told() -> None:
    broken = record(Status.FAILED, "import_error")
    found = memory_probe.largest_batch(cell(), lambda one, batch: broken)
    assert (found.batch, found.failure) == (None, f"{broken.kind}: {broken.cause}")


def test_a_probe_whose_record_cannot_be_read_did_not_run_out_of_memory() -> None:
    found = memory_probe.largest_batch(cell(), lambda one, batch: None)
    (line,) = memory_probe.batch_lines([found])
    assert line.endswith("unknown, a probe failed (its record cannot be read)")


def test_what_fitted_before_another_failure_stands() -> None:
    """As where the data have no more rows than a batch asks for."""
    refused = record(Status.INVALID, "not_in_effect")
    found = memory_probe.largest_batch(cell(), lambda one, batch: record(Status.OK) if batch <= 32 else refused)
    assert (found.batch, found.too_large, found.failure) == (32, None, f"{refused.kind}: {refused.cause}")
    (line,) = memory_probe.batch_lines([found])
    assert line.endswith(
        "per_device_train_batch_size 32 fits, and a larger one could not be tried (not_in_effect: not_in_effect)"
    )


def test_the_line_of_a_cell_has_the_values_that_distinguish_it() -> None:
    cells = [replace(cell(), id=f"s-{optim}", arguments={"optim": optim}) for optim in ("sgd", "adamw_torch")]
    found = [memory_probe.Found(experiment=one, batch=None, record=None, too_large=None, failure=None) for one in cells]
    assert [*memory_probe.batch_lines(found)] == [
        "s-sgd (optim=sgd): not even 1 fits",
        "s-adamw_torch (optim=adamw_torch): not even 1 fits",
    ]


def test_a_probe_is_the_same_training_ended_after_two_steps() -> None:
    long = cell(repeats=5, monitors=("nvml",))
    short = memory_probe.short(long)
    assert (short.id, short.arguments, short.repeats, short.monitors) == (long.id, long.arguments, 1, ())
    assert short.measure is not None and short.measure.at_most_steps == 2
    larger = memory_probe.with_batch(long, 64)
    assert larger.arguments == {"per_device_train_batch_size": "64", "max_steps": "500"} and larger.id != long.id

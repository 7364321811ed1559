"""Published values: the shipped file holds together, what is met and what is not, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from factories.results import ended, experiment, failed, stored
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compare.published import counts, judging, records, values, view
from orchestrator.compare.published.judging import State
from orchestrator.compare.published.values import COUNTED, UNITS, Found, Source, Value
from orchestrator.errors import ResultsError
from orchestrator.machine.provenance import this_machine
from orchestrator.measure.metrics import METRICS
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import parse_selection
from orchestrator.records import Device, Experiment, Gpu, Reason
from orchestrator.report.tables.terminal import plain

ROOT = Path(__file__).parents[2]
SHIPPED = values.read()
GIB = 2**30
H100 = Gpu(index=0, uuid="GPU-a", name="NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB)
NUMBERS = st.floats(min_value=1e-3, max_value=1e12)


@cache
def experiments() -> tuple[Experiment, ...]:
    suite = load_suite(ROOT / "examples" / "verify.yaml")
    every = parse_selection(scenarios=tuple(scenario.name for scenario in suite.scenarios))
    return expand(suite, every, this_machine()).experiments


# The shipped file


@pytest.mark.parametrize("value", SHIPPED, ids=lambda value: value.name)
def test_a_value_is_complete_and_names_one_experiment_for_each_cell(value: Value) -> None:
    needed = [judging.experiment_of(value, cell, experiments()) for cell in value.cells]
    assert len({one.id for one in needed}) == len(value.cells)
    assert not any(one.skip for one in needed)
    assert value.metric in METRICS and value.unit in UNITS
    assert value.allowed(value.published) >= 0
    assert (value.expected is None) == (not value.because)
    assert not (value.because and value.difference)
    assert value.metric in COUNTED or value.source.gpu_gib > 0
    assert value.published == value.expected or value.is_near(value.published, value.published)


def test_names_are_unique_and_every_run_is_needed_by_a_value() -> None:
    assert len({value.name for value in SHIPPED}) == len(SHIPPED)
    needed = {judging.experiment_of(value, cell, experiments()).id for value in SHIPPED for cell in value.cells}
    assert needed == {one.id for one in experiments()}


def test_what_needs_no_run_is_not_run_and_all_else_is() -> None:
    suite = load_suite(ROOT / "examples" / "verify.yaml")
    slow = {scenario.name for scenario in suite.scenarios if scenario.slow}
    assert slow == {one.scenario for one in SHIPPED} - {one.scenario for one in SHIPPED if one.metric not in COUNTED}


def test_the_page_has_every_value_as_the_command_shows_it() -> None:
    page = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    assert [one.name for one in SHIPPED if one.name not in page] == []
    assert [one.source.where for one in SHIPPED if one.source.where not in page] == []


# Judging


SOURCE = Source(
    name="someone", where="a page", date="2026", hardware="A100", software="torch 2", protocol="In words.", gpu_gib=40
)
SMALL = experiment("small", scenario="s", arguments={"size": "1"}, device=Device.CUDA)
LARGE = experiment("large", scenario="s", arguments={"size": "2", "more": "True"}, device=Device.CUDA)


def published(**fields: object) -> Value:
    usual = {"name": "peak", "scenario": "s", "cell": {"size": 1}, "metric": "peak_allocated_bytes", "unit": "GiB"}
    return Value(**{"source": SOURCE, **usual, "published": 10.0, "tolerance": "10%", **fields})  # type: ignore[arg-type]


def outcome(
    value: Value,
    recorded: dict[str, Found] | None = None,
    *,
    gpus: Sequence[Gpu] = (H100,),
    cells: Sequence[Experiment] = (SMALL, LARGE),
) -> judging.Outcome:
    (found,) = judging.judge([value], cells, counted={}, recorded=recorded or {}, gpus=gpus)
    return found


def peak(gib: float, **more: float) -> Found:
    return Found(numbers={"peak_allocated_bytes": gib * GIB, **more}, software="torch 3")


@given(NUMBERS, NUMBERS, st.sampled_from(["exact", "0%", "5%", "20%", "0.6", "3"]))
def test_a_tolerance_holds_on_both_sides_and_grows_with_its_number(reference: float, far: float, words: str) -> None:
    value = published(tolerance=words)
    assert value.is_near(reference, reference)
    allowed = value.allowed(reference)
    assert value.is_near(reference + allowed * 0.99, reference) and value.is_near(reference - allowed * 0.99, reference)
    outside = allowed * 1.01 + far
    assert not value.is_near(reference + outside, reference) or reference + outside == reference
    if words == "exact":
        assert allowed == 0


@pytest.mark.parametrize(
    ("value", "gib", "state", "ours"),
    [
        (published(), 10.9, State.MET, 10.9),
        (published(), 11.1, State.NOT_MET, 11.1),
        (published(tolerance="0.5"), 9.4, State.NOT_MET, 9.4),
        (published(tolerance="0.5", expected=9.0, because="of it"), 9.4, State.EXPLAINED, 9.4),
        (published(tolerance="0.5", expected=9.0, because="of it"), 9.6, State.MET, 9.6),
        (published(minus={"size": 2}, published=-10.0), 10.0, State.MET, -10.0),
        (published(over={"size": 2, "more": True}, published=0.5, unit="×"), 10.0, State.MET, 0.5),
    ],
)
def test_a_number_of_a_run_is_judged(value: Value, gib: float, state: State, ours: float) -> None:
    found = outcome(value, {SMALL.id: peak(gib), LARGE.id: peak(20.0)}, gpus=())
    assert (found.state, found.ours, found.software) == (state, pytest.approx(ours), "torch 3")


def test_a_metric_that_needs_no_run_is_not_taken_from_one() -> None:
    value, run = published(metric="total_parameters", unit="", tolerance="exact"), peak(1.0, total_parameters=10.0)
    assert outcome(value, {SMALL.id: run}).state is State.NOT_RUN
    (found,) = judging.judge([value], [SMALL], counted={SMALL.id: run}, recorded={}, gpus=())
    assert found.state is State.MET


PACKAGE = replace(SMALL, cannot_run_here=Reason(kind="package_missing", text="missing: torchao"))


@pytest.mark.parametrize(
    ("recorded", "gpus", "cells", "state", "reason"),
    [
        ({}, (), (SMALL,), State.CANNOT_RUN, "needs a GPU with 40 GiB"),
        ({}, (replace(H100, memory_bytes=24 * GIB),), (SMALL,), State.CANNOT_RUN, "needs a GPU with 40 GiB"),
        ({}, (H100,), (PACKAGE,), State.CANNOT_RUN, "missing: torchao"),
        ({}, (H100,), (SMALL,), State.NOT_RUN, "no run yet"),
        ({SMALL.id: Found()}, (), (SMALL,), State.NOT_RUN, "the run has no peak_allocated_bytes"),
        ({SMALL.id: Found(problem="the run is failed: oom")}, (), (SMALL,), State.NOT_RUN, "the run is failed: oom"),
    ],
)
def test_a_missing_number_has_a_reason(
    recorded: dict[str, Found], gpus: Sequence[Gpu], cells: Sequence[Experiment], state: State, reason: str
) -> None:
    found = outcome(published(), recorded, gpus=gpus, cells=cells)
    assert (found.state, found.reason, found.ours) == (state, reason, None)


def test_one_of_two_runs_is_not_enough() -> None:
    found = outcome(published(minus={"size": 2}), {SMALL.id: peak(10.0)})
    assert (found.state, found.reason) == (State.NOT_RUN, "no run yet")


# The runs of a results folder


def test_numbers_of_runs_are_means_of_those_that_ended_ok(tmp_path: Path) -> None:
    runs = [ended(SMALL, repeat, peak_allocated_bytes=gib * GIB) for repeat, gib in ((1, 9), (2, 11))]
    root = stored(tmp_path / "results", (replace(SMALL, repeats=2), runs), (LARGE, [failed(LARGE, 1)]))
    found = records.read(root)
    assert found[SMALL.id].numbers["peak_allocated_bytes"] == 10 * GIB
    assert "torch 2.13.0" in found[SMALL.id].software
    assert found[LARGE.id].problem == "the run is failed: oom_cuda, in a sentence" and not found[LARGE.id].numbers


def test_a_number_of_0_is_none(tmp_path: Path) -> None:
    """A ratio of two such numbers was nan."""
    found = records.read(
        stored(tmp_path / "results", (SMALL, [ended(SMALL, 1, tokens_per_s=0.0, peak_allocated_bytes=0)]))
    )
    assert not {"tokens_per_s", "peak_allocated_bytes"} & found[SMALL.id].numbers.keys()


def test_an_experiment_without_a_run_has_no_numbers(tmp_path: Path) -> None:
    assert records.read(stored(tmp_path / "results", (SMALL, [ended(SMALL, 1)]), (LARGE, []))).keys() == {SMALL.id}


def test_a_folder_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="there is no such folder"):
        records.read(tmp_path / "nowhere")


# Counting


def test_models_that_cannot_be_built_have_the_reason(tmp_path: Path) -> None:
    nothing = replace(SMALL, python=str(tmp_path / "no-python"))
    (found,) = counts.count([nothing]).values()
    assert "no-python" in found.problem and not found.numbers


# What is shown


def test_the_table_and_the_sentences(golden: Callable[[str, str], None]) -> None:
    cases = [
        (published(metric="total_parameters", published=9175040.0, unit="", tolerance="exact", name="a count"), {}),
        (published(name="a peak", difference="more layers"), {SMALL.id: peak(10.2)}),
        (published(name="another peak", difference="more rows"), {SMALL.id: peak(3.0)}),
        (published(name="another protocol", expected=8.0, because="it holds less"), {SMALL.id: peak(8.2)}),
        (published(name="a difference", tolerance="0.6", published=-7.16, unit="GB"), {SMALL.id: peak(3.0)}),
        (published(name="a ratio", unit="×"), {}),
        (published(name="a failed run"), {SMALL.id: Found(problem="the run is failed: no memory")}),
    ]
    shown = [outcome(value, recorded) for value, recorded in cases]
    shown[0] = replace(shown[0], state=State.MET, ours=9175040.0)
    shown.append(outcome(published(name="a large model"), gpus=()))
    text = plain(view.table(shown), width=100) + "\n".join(["", *view.sentences(shown), "", view.summary(shown), ""])
    golden("report/published.txt", "\n".join(line.rstrip() for line in text.splitlines()) + "\n")

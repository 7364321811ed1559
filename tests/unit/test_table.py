"""Results folders as a table: repeats grouped, failures never averaged away, missing never 0."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from factories.cases import document
from factories.claimed_runs import claimed, of_the_dead
from factories.results import BASE, ended, failed, stored
from factories.tables import Made, made_table
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ResultsError
from orchestrator.records import Caveat, CaveatKind, DataSpec, Framework, Reason, Repeats, RunRecord, Status
from orchestrator.results import requested
from orchestrator.results.store import Store
from orchestrator.results.table import column_types, rows
from orchestrator.results.table.baseline import ok_runs
from orchestrator.results.table.load import _experiments, load


def test_numbers_too_large_for_a_float_are_text() -> None:
    records = [{"x": 0.5}, {"x": 10**400}, {}]
    values = column_types.frame_of(records, frozenset())["x"].tolist()
    assert values[:2] == ["0.5", str(10**400)] and pd.isna(values[2])


def only(root: Path, *records: RunRecord) -> pd.Series:
    frame = load([stored(root, (BASE, list(records)))]).experiments
    assert len(frame) == 1
    return frame.iloc[0]


def test_a_cold_first_run_is_left_out_and_said_where_the_rule_discards_it(tmp_path: Path) -> None:
    speeds = (900.0, 1000.0, 1010.0, 990.0, 1005.0, 995.0)
    for name, rule in (("auto", "auto"), ("none", None)):
        experiment = replace(BASE, repeats=5, adaptive=Repeats(min=5, max=5, discard_first=rule))
        records = [ended(experiment, repeat, tokens_per_s=speed) for repeat, speed in enumerate(speeds, start=1)]
        table = load([stored(tmp_path / name, (experiment, records))])
        (row,) = table.experiments.to_dict("records")
        assert (row["runs_ok"], row["runs"], row["tokens_per_s"] > 995) == ((5, 6, True) if rule else (6, 6, False))
        assert ("the first run was slow" in str(row.get("warnings"))) is (rule is not None)
        assert ("the first run was slow" in "".join(table.warnings)) is (rule is not None)
        (values,) = ok_runs(table, ["tokens_per_s"])
        assert sorted(values["tokens_per_s"]) == sorted(speeds[1:] if rule else speeds)
        assert len(table.runs) == 6, "the run itself stays"


@pytest.mark.parametrize("word", ["slow", "cold"])
def test_tables_of_older_versions_call_a_slow_first_run_cold(word: str) -> None:
    caveat = Caveat.of_sentence(f"the first run was {word}, so it is left out: 9 % slower")
    assert (caveat.kind, caveat.detail) == (CaveatKind.COLD_FIRST_RUN, "9 % slower")
    assert caveat.sentence == "the first run was slow, so it is left out: 9 % slower"


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.FAILED])
def test_only_a_run_that_was_the_first_in_time_and_ended_ok_is_called_cold(tmp_path: Path, status: Status) -> None:
    experiment = replace(BASE, repeats=4, adaptive=Repeats(min=4, max=4, discard_first="auto"))
    speeds = (800.0, 1000.0, 1010.0, 990.0, 1005.0)
    first = replace(failed(experiment, 1), status=status, started_at=1.0)
    ok = [replace(ended(experiment, n, tokens_per_s=speed), started_at=2.0 + n) for n, speed in enumerate(speeds, 1)]
    for name, again, cold in (("late", 99.0, []), ("first", 2.0, [2])):
        records = [first, replace(ok[0], attempt=2, started_at=again), *ok[1:]]
        table = load([stored(tmp_path / name, (experiment, records))])
        said = ["the first run was slow" in str(text) for text in table.runs.get("warnings", [""] * len(table.runs))]
        assert table.runs["attempt"][said].tolist() == cold, "an attempt without a speed is never called cold"
        assert table.experiments["runs_ok"].tolist() == [5 - len(cold)]


def test_a_failed_repeat_that_is_no_longer_requested_is_no_failure_and_is_named(tmp_path: Path) -> None:
    ok = [ended(BASE, repeat, tokens_per_s=1000.0 + repeat) for repeat in (1, 2, 3, 5)]
    cancelled = replace(failed(BASE, 6), status=Status.CANCELLED)
    root = stored(tmp_path / "r", (BASE, [*ok, failed(BASE, 4), cancelled, failed(BASE, 7), ended(BASE, 7, attempt=2)]))
    of_the_dead(claimed(Store.resume(root), BASE, 8))
    table = load([root])
    assert table.experiments.iloc[0][["status", "runs", "runs_ok"]].tolist() == ["ok", 5, 5], "a surplus ok run counts"
    assert table.warnings == (
        f"{BASE.id}: r4-t1, r6-t1, r8-t1 did not end ok and are left out, because repeats: now asks for 3; "
        "the files stay in the folder",
    )
    third = load([stored(tmp_path / "requested", (BASE, [*ok[:2], failed(BASE, 3)]))])
    assert third.experiments["status"].tolist() == ["failed"]


def test_a_metric_is_the_mean_of_the_repeats_that_are_ok(tmp_path: Path) -> None:
    row = only(
        tmp_path / "r",
        ended(BASE, 1, train_loss=1.0, mem_torch_mem_alloc_in_bytes=10),
        ended(BASE, 2, train_loss=2.0, mem_torch_mem_alloc_in_bytes=14),
        failed(BASE, 3),
    )
    assert row["train_loss"] == 1.5
    assert row["mem_torch_mem_alloc_in_bytes"] == 12 and str(row["mem_torch_mem_alloc_in_bytes"]) == "12"
    assert (row["runs_ok"], row["runs"]) == (2, 3)
    assert (row["status"], row["failure_kind"]) == ("failed", "oom_cuda")


@pytest.mark.parametrize("first", ["step_time_s", "step_time_low_s"])
def test_the_interval_over_repeats_stands_above_those_within_them(first: str, tmp_path: Path) -> None:
    within = {"step_time_s": 1.0, "step_time_low_s": 0.99, "step_time_high_s": 1.01}
    cells = {first: within[first], **within}
    one = only(tmp_path / "one", ended(BASE, 1, **cells))
    assert (one["step_time_low_s"], one["step_time_high_s"]) == (0.99, 1.01)
    row = only(tmp_path / "two", ended(BASE, 1, **cells), ended(BASE, 2, **{name: 4 * s for name, s in cells.items()}))
    assert row["step_time_s"] == pytest.approx(2.0)
    assert row["step_time_low_s"] * row["step_time_high_s"] == pytest.approx(4.0) and row["step_time_low_s"] < 1.0


@pytest.mark.parametrize(
    ("texts", "found"), [(["5:2", "5:2", "5:3"], "5:2, 5:2, 5:3"), (["5:2"], "5:2"), (["5:2", None, "5:2"], None)]
)
def test_logged_losses_are_those_of_all_repeats_or_none(texts: list[str | None], found: str | None) -> None:
    """A mean of them asks for each: two alike are two."""
    runs = [{"train_loss": 2.0, **({"logged_losses": text} if text else {})} for text in texts]
    (cell,) = made_table(Made(runs=runs)).experiments["logged_losses"]
    assert cell == found if found else pd.isna(cell)


def test_an_experiment_without_an_ok_run_is_a_row_without_numbers(tmp_path: Path) -> None:
    row = only(tmp_path / "r", failed(BASE, 1), failed(BASE, 2, kind="data"))
    assert (row["status"], row["failure_kind"], row["runs_ok"], row["runs"]) == ("failed", "data", 0, 2)
    assert "mem_nvidia_mem_reserved" not in row and "wall_s" not in row
    assert row["effective_dtype"] == "float32"


def test_the_last_try_of_a_repeat_counts(tmp_path: Path) -> None:
    root = stored(tmp_path / "r", (BASE, [failed(BASE, 1), ended(BASE, 1, attempt=2, train_loss=1.0)]))
    table = load([root])
    assert table.experiments.iloc[0][["status", "runs", "runs_ok"]].tolist() == ["ok", 1, 1]
    assert table.runs["attempt"].tolist() == [1, 2]


def test_what_was_planned_and_not_run_is_a_row(tmp_path: Path) -> None:
    skipped = replace(BASE, id="b", skip=Reason(kind="batch", text="8 does not divide by 3."))
    table = load([stored(tmp_path / "r", (BASE, []), (skipped, []))])
    assert table.experiments["status"].tolist() == ["pending", "skipped"]
    assert table.experiments["failure_cause"].tolist()[1] == "8 does not divide by 3."
    assert table.experiments["runs"].tolist() == [0, 0]
    assert table.runs.empty


def test_a_run_is_everything_flat(tmp_path: Path) -> None:
    experiment = replace(
        BASE,
        framework=Framework(name="sdpa", digest="d"),
        arguments={**BASE.arguments, "target_modules": ("q", "v"), "empty": (), "wall_s": "own", "text": "a\nb,c"},
        data=DataSpec(source="builtin:synthetic", form="tokens"),
        tags=("quick", "cpu"),
        global_batch=8,
    )
    record = replace(ended(experiment, 1, train_loss=1.0, my_metric=3, epoch=None), warnings=(Caveat(detail="hot"),))
    table = load([stored(tmp_path / "r", (experiment, [record]))])
    row = table.runs.iloc[0].to_dict()
    expected = document("table/a_run_is_everything_flat")
    assert {name: row[name] for name in expected} == expected
    assert pd.isna(row["epoch"])
    assert "provenance_other" not in row and "argument_model_name_or_path" not in row
    assert table.warnings == (f"{BASE.id}: hot",)


def test_two_folders_have_a_column_that_tells_them_apart(tmp_path: Path) -> None:
    roots = [
        stored(tmp_path / name / "results", (BASE, [ended(BASE, 1, train_loss=loss)]))
        for name, loss in (("old", 1.0), ("new", 2.0))
    ]
    table = load(roots)
    assert table.experiments["results"].tolist() == ["old/results", "new/results"]
    assert table.runs["results"].tolist() == ["old/results", "new/results"]
    assert "results" not in load(roots[:1]).experiments
    with pytest.raises(ResultsError, match="named twice"):
        load([roots[0], roots[0]])


NUMBERS = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False, width=32))
OUTCOMES = st.lists(st.tuples(st.booleans(), NUMBERS), min_size=1, max_size=6)


@given(OUTCOMES)
def test_grouping_counts_all_and_averages_only_what_is_ok(outcomes: list[tuple[bool, float]]) -> None:
    records = [
        ended(BASE, number, train_loss=value) if ok else failed(BASE, number)
        for number, (ok, value) in enumerate(outcomes, start=1)
    ]
    (row,) = _experiments([rows.of_run(BASE, record) for record in records])
    values = [value for ok, value in outcomes if ok]
    assert (row["runs"], row["runs_ok"]) == (len(outcomes), len(values))
    assert (row["status"] == "ok") == (len(values) == len(outcomes))
    assert ("train_loss" in row) == bool(values)
    if values:
        assert math.isclose(row["train_loss"], math.fsum(values) / len(values), rel_tol=1e-12, abs_tol=1e-9)
        assert min(values) <= row["train_loss"] <= max(values)


@given(st.one_of(st.none(), st.booleans(), NUMBERS, st.text(), st.floats(), st.lists(st.integers())))
def test_a_cell_is_never_nan(value: object) -> None:
    cell = rows.cell(value)
    assert cell is None or not isinstance(cell, float) or math.isfinite(cell)


def test_many_experiments_are_framed_quickly() -> None:
    numbers = {f"m{n}": float(n) for n in range(60)}
    group = [rows.of_run(BASE, ended(BASE, repeat, **numbers)) for repeat in (1, 2, 3)]
    start = time.perf_counter()
    for _ in range(1000):
        _experiments(group)
    assert time.perf_counter() - start < 3


def test_what_no_call_asks_for_any_more_leaves_the_report_and_is_named(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results", {})
    old, new = replace(BASE, id="full-old-000000000000"), replace(BASE, id="full-new-000000000000")
    store.add([old, new])
    for calls in ([old, new], [new]):
        requested.note(store.root, file=tmp_path / "s.yaml", choices={}, names=["full"], experiments=calls)
    table = load([store.root])
    assert table.experiments["id"].tolist() == ["full-new-000000000000"]
    assert table.warnings == (
        "The table leaves out 1 experiment that a later `tunebench run` of the same file did not plan: "
        "full-old-000000000000; the runs stay in the folder",
    )

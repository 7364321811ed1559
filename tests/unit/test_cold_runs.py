"""Cold first runs: when they are seen, what is left out then, and that clean runs all count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from factories.comparisons import MEMORY, MOVED, NOISY, SPEED, STEP, compared, entry, paired, share_of, simulated
from hypothesis import given
from hypothesis import strategies as st
from simulated.shapes import Shape

from orchestrator.compare.comparison import Comparison, FirstRuns, Row, Verdict
from orchestrator.compare.view import as_csv, terminal

COLD = (900.0, *NOISY[1:])
TWO = NOISY[:2]


def first_runs(base: Sequence[float], new: Sequence[float], metric: str = SPEED) -> Row:
    (row,) = compared(paired(entry("one", {metric: base}), entry("one", {metric: new}))).rows
    return row


@pytest.mark.parametrize(
    ("base", "new", "treated"),
    [
        (COLD, NOISY, FirstRuns.LEFT_OUT),
        (NOISY, COLD, FirstRuns.LEFT_OUT),
        (NOISY, NOISY[::-1], FirstRuns.COUNTED),
        ((1100.0, *NOISY[1:]), NOISY, FirstRuns.COUNTED),  # faster
        ((*NOISY[1:], 900.0), NOISY, FirstRuns.COUNTED),  # the last
        (COLD, TWO, FirstRuns.COLD),
        (COLD, TWO[:1], FirstRuns.COLD),
        ((900.0, 1000.0), (900.0, 1000.0), FirstRuns.COUNTED),  # no noise is known
        ((900.0, *[1000.0] * 4), [1000.0] * 5, FirstRuns.LEFT_OUT),  # a coarse clock gives equal speeds
        ((999.0, *[1000.0] * 4), [1000.0] * 5, FirstRuns.COUNTED),
        ((0.0, *NOISY), NOISY, FirstRuns.COUNTED),
    ],
)
def test_a_first_run_far_outside_the_noise_is_left_out_on_both_sides(
    base: Sequence[float], new: Sequence[float], treated: FirstRuns
) -> None:
    row = first_runs(base, new)
    assert row.first_runs is treated
    if row.ratio is not None:
        left = treated is FirstRuns.LEFT_OUT
        assert (row.ratio.n_base, row.ratio.n_new) == (len(base) - left, len(new) - left)


def test_slow_is_up_for_a_time_and_memory_has_no_cold_run() -> None:
    assert first_runs((1100.0, *NOISY[1:]), NOISY, STEP).first_runs is FirstRuns.LEFT_OUT
    assert first_runs(COLD, NOISY, STEP).first_runs is FirstRuns.COUNTED
    assert first_runs((1100.0, *NOISY[1:]), NOISY, MEMORY).first_runs is FirstRuns.COUNTED


def test_a_slowdown_shows_that_cold_runs_hid() -> None:
    row = first_runs(COLD, [value * 0.96 for value in COLD])
    assert row.verdict is Verdict.REGRESSED and row.ratio is not None
    assert row.ratio.value == pytest.approx(0.96)


def test_the_first_run_is_the_one_that_started_first() -> None:
    """Repeats can run in another order. Where a start is unknown, the number of the repeat is the order."""
    base, new = entry("a", {SPEED: COLD[::-1]}, started_at=(5, 4, 3, 2, 1)), entry("a", {SPEED: NOISY})
    assert compared(paired(base, new)).rows[0].first_runs is FirstRuns.LEFT_OUT
    unknown = replace(base, runs=(replace(base.runs[0], started_at=None), *base.runs[1:]))
    assert compared(paired(unknown, new)).rows[0].first_runs is FirstRuns.COUNTED


def test_all_forms_say_it() -> None:
    comparison = compared(paired(entry("a", {SPEED: COLD}), entry("a", {SPEED: [value * 0.9 for value in NOISY]})))
    assert "4+4 runs, slow first runs left out" in terminal.text(comparison)
    assert ",left_out," in as_csv.text(comparison)
    few = compared(paired(entry("a", {SPEED: COLD}), entry("a", {SPEED: [value * 0.5 for value in TWO]})))
    assert "run more repeats" in terminal.text(few, everything=True)


# Seen over a campaign


def left_out(comparison: Comparison) -> int:
    return sum(row.first_runs is FirstRuns.LEFT_OUT for row in comparison.rows)


@pytest.mark.parametrize("sides", ["base", "both"])
def test_a_cold_campaign_leaves_all_first_runs_out_and_is_not_improved(sides: str) -> None:
    (comparison,) = simulated(Shape(rows=20, cold=sides))
    assert left_out(comparison) == 20
    assert comparison.fleet[0].verdict is not Verdict.IMPROVED
    (sentence,) = comparison.warnings
    assert sentence.startswith(f"{SPEED}: the first run is the slowest of its side in ")
    assert sentence.endswith(" of 40 cases; in 20 rows, the first runs of both sides are left out")


def test_rows_with_two_runs_keep_them_and_it_is_said() -> None:
    shape = Shape(rows=20, runs=2, cold="both")
    (comparison,) = simulated(shape)
    assert {row.first_runs for row in comparison.rows} == {FirstRuns.COLD}
    assert comparison.warnings[0].endswith("20 rows with fewer than 3 runs per side keep them")
    assert simulated(shape, alone=True)[0].warnings == ()


def test_a_rate_of_0_is_never_left_out() -> None:
    dead = paired(entry("dead", {SPEED: NOISY}), entry("dead", {SPEED: (0.0, *NOISY[1:])}))
    rows = compared(*simulated(Shape(rows=20, cold="both"))[0].pairs, dead).rows
    assert rows[0].first_runs is FirstRuns.LEFT_OUT
    assert (rows[-1].first_runs, rows[-1].verdict) == (FirstRuns.COUNTED, Verdict.UNTESTED)


def test_clean_campaigns_and_a_warming_machine_are_not_cold() -> None:
    """In a drift of 5 %, the first run is the slowest in most rows. The line of the others says why."""
    clean = simulated(Shape(rows=20), count=100)
    assert sum(bool(comparison.warnings) for comparison in clean) <= 2
    assert sum(map(left_out, clean)) <= 0.03 * 20 * 100
    warming = simulated(Shape(rows=20, drift=-0.05), count=100)
    assert sum(bool(comparison.warnings) for comparison in warming) <= 20


def test_five_percent_is_found_behind_cold_first_runs() -> None:
    """Each row by itself, five runs per side, 1.5 % between runs: 92 %, as with four clean runs."""
    shape = Shape(rows=2000, cold="both")
    assert share_of(simulated(shape, [0.05] * 2000, alone=True)[0].rows, Verdict.REGRESSED) >= 0.89
    assert share_of(simulated(shape, alone=True)[0].rows, *MOVED) <= 0.03


# What holds for all sides

values = st.lists(st.floats(0.5, 2.0).map(lambda value: round(value, 3)), min_size=1, max_size=6)
rows_of = st.lists(st.tuples(values, values), min_size=1, max_size=6)


def treated(rows: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[FirstRuns]:
    pairs = [
        paired(entry(str(number), {SPEED: base}), entry(str(number), {SPEED: new}))
        for number, (base, new) in enumerate(rows)
    ]
    return [row.first_runs for row in compared(*pairs).rows]


@given(rows_of)
def test_the_exchange_of_sides_leaves_out_the_same_runs(rows: list[tuple[list[float], list[float]]]) -> None:
    assert treated(rows) == treated([(new, base) for base, new in rows])


@given(rows_of, st.sampled_from([0.25, 8.0, 1024.0]))
def test_the_unit_and_the_order_of_later_runs_do_not_matter(
    rows: list[tuple[list[float], list[float]]], factor: float
) -> None:
    scaled = [([value * factor for value in base], new) for base, new in rows]
    assert treated(rows) == treated(scaled)
    one = rows[:1]
    assert treated(one) == treated([([base[0], *base[:0:-1]], new) for base, new in one])

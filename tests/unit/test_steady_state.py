"""Where the steady state begins, on series whose answer is known; and that there is no number where there is none."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from ending import Stopping, half_width
from factories.cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.measure.steady_state import Steady, find
from orchestrator.measure.steady_state.median_step import median_interval
from orchestrator.records import Caveat


def noise(n: int, *, seed: int = 1, sd: float = 0.02, carried_over: float = 0.5) -> list[float]:
    rng, state, series = random.Random(seed), 0.0, []
    for _ in range(n):
        state = carried_over * state + math.sqrt(1 - carried_over**2) * rng.gauss(0, 1)
        series.append(0.1 * math.exp(sd * state))
    return series


def steady(*args: object, **options: object) -> Steady:
    found = find(*args, **options)  # type: ignore[arg-type]
    assert isinstance(found, Steady), found
    return found


def reason(*args: object, **options: object) -> str:
    found = find(*args, **options)  # type: ignore[arg-type]
    assert isinstance(found, Caveat), found
    return found.detail


@pytest.mark.parametrize(("head", "cut"), cases("steady_state/a_slow_head_is_cut_where_it_ends"))
def test_a_slow_head_is_cut_where_it_ends(head: list[float], cut: int) -> None:
    found = steady(head + noise(60))
    assert abs(found.discarded_steps - cut) <= 1
    assert found.median_s == pytest.approx(0.1, rel=0.01)
    assert found.found_by == "found"


def test_a_slow_decay_is_cut_where_it_comes_within_three_per_cent() -> None:
    found = steady([value * (1 + math.exp(-step / 10)) for step, value in enumerate(noise(200))])
    assert 25 <= found.discarded_steps <= 60
    assert found.median_s == pytest.approx(0.1, rel=0.02)


def test_a_decay_that_lasts_is_no_steady_state() -> None:
    said = reason([value * (1 + math.exp(-step / 60)) for step, value in enumerate(noise(200))])
    assert "not level" in said and "faster" in said


def test_drift_is_no_steady_state() -> None:
    said = reason([value * (1 + 0.002 * step) for step, value in enumerate(noise(100))])
    assert "slower" in said and "%" in said


def test_a_level_that_rises_late_is_no_steady_state() -> None:
    assert "slower" in reason([*noise(60), *(1.1 * value for value in noise(60, seed=2))])


def test_recompiles_are_counted_and_priced_and_do_not_move_the_median() -> None:
    series = noise(100)
    series[40] = series[70] = 2.0
    found = steady(series)
    assert found.spikes == (40, 70)
    assert found.spike_share == pytest.approx(3.8 / sum(series[found.discarded_steps :]), rel=0.01)
    assert found.median_s == pytest.approx(0.1, rel=0.01)
    (said,) = found.warnings
    assert "spikes, 2" in said


def test_evaluation_is_a_cause_and_no_spike() -> None:
    series, waits, after = noise(100), [0.0] * 100, [()] * 100
    for step in (50, 80):
        series[step] += 3.0
        waits[step], after[step] = 3.0, ("evaluate",)  # type: ignore[call-overload]
    found = steady(series, waits_s=waits, after=after)
    assert found.spikes == ()
    assert "evaluation or saving" in found.warnings[0]


def test_a_profile_that_is_written_is_not_called_an_evaluation() -> None:
    series, waits, after = noise(100), [0.0] * 100, [()] * 100
    series[50] += 6.0
    waits[50], after[50] = 6.0, ("profile",)  # type: ignore[call-overload]
    (said,) = steady(series, waits_s=waits, after=after).warnings
    assert "writing the profile" in said and "evaluation" not in said


def test_evaluation_early_on_is_no_warm_up() -> None:
    series, waits, after = noise(60), [0.0] * 60, [()] * 60
    for step in (10, 11, 12):
        series[step] += 1.0
        waits[step], after[step] = 1.0, ("save",)  # type: ignore[call-overload]
    assert steady(series, waits_s=waits, after=after).discarded_steps == 1


def test_waiting_for_data_is_a_cause() -> None:
    series = [0.1 if step % 3 else 0.2 for step in range(90)]
    waits = [0.0 if step % 3 else 0.1 for step in range(90)]
    assert "waiting for data" in steady(series, waits_s=waits).warnings[0]


UNLIKE = "steps differ, as with ragged batches or on a busy machine"


def some_longer(share: float, *, every: int = 5) -> tuple[list[float], list[float]]:
    """Steps of 0.1 s of which every fifth takes 0.1 s more, and waits that are such a share of what it takes more."""
    scatter = noise(100, sd=0.2, carried_over=0.0)
    series = [s + (0.1 if step % every == 0 else 0.0) for step, s in enumerate(scatter)]
    excess = 1 - statistics.median(series) / statistics.fmean(series)
    of_all = excess * sum(series) * share
    return series, [of_all / (len(series) / every) if step % every == 0 else 0.0 for step in range(len(series))]


@pytest.mark.parametrize(("share", "is_cause"), [(0.7, True), (0.3, False)])
def test_a_cause_explains_half_of_the_difference(share: float, is_cause: bool) -> None:
    series, waits = some_longer(share)
    (said,) = steady(series, waits_s=waits).warnings
    assert ("waiting for data" in said) is is_cause and (UNLIKE in said) is not is_cause


def test_waits_that_every_step_has_are_no_cause() -> None:
    series, _ = some_longer(0.0)
    (said,) = steady(series, waits_s=[0.05] * len(series)).warnings
    assert said.endswith(UNLIKE)


def test_no_wait_makes_a_mean_shorter() -> None:
    series = [0.02 if step % 5 == 0 else s for step, s in enumerate(noise(100, sd=0.3, carried_over=0.0))]
    (said,) = steady(series, waits_s=[0.015 if step % 5 == 0 else 0.0 for step in range(100)]).warnings
    assert "shorter than the median" in said and said.endswith(UNLIKE)


def test_causes_that_explain_it_together_are_told_together() -> None:
    series, waits = some_longer(0.3)
    after: list[tuple[str, ...]] = [("save",) if step % 10 == 3 else () for step in range(100)]
    pause = 2 * max(waits)
    series = [s + (pause if after[step] else 0.0) for step, s in enumerate(series)]
    waits = [pause if after[step] else wait for step, wait in enumerate(waits)]
    (said,) = steady(series, waits_s=waits, after=after).warnings
    assert "waiting for data" in said and "evaluation or saving" in said, said


@pytest.mark.parametrize("n", [0, 1, 2, 5, 10])
def test_too_few_steps_give_no_number(n: int) -> None:
    assert "are needed" in reason(noise(n))


def test_how_many_are_needed_can_be_said() -> None:
    assert isinstance(find(noise(6), at_least_steps=3), Steady)
    assert "50 are needed" in reason(noise(40), at_least_steps=50)


def test_a_declared_warm_up_is_not_looked_for() -> None:
    found = steady([5.0, 5.0, *noise(40)], discard_steps=20)
    assert (found.discarded_steps, found.found_by, found.steps) == (20, "declared", 22)
    assert "are needed; a run needs at least 30 steps" in reason(noise(15), discard_steps=20)
    assert steady(noise(30), discard_steps=20).steps == 10


def test_a_series_without_noise() -> None:
    found = steady([0.1] * 30)
    assert (found.median_s, found.p5_s, found.p95_s, found.spikes) == (0.1, 0.1, 0.1, ())
    assert found.interval is None, "a clock without noise is too coarse"
    assert found.warnings == (
        "all 29 steady steps took 0.1 s: their clock is too coarse, so the step time has no interval",
    )


def by_clock(series: list[float], tick: float) -> list[float]:
    """The times as a clock with such ticks shows them."""
    ends = [round(sum(series[: at + 1]) / tick) * tick for at in range(len(series))]
    return [end - start for start, end in zip([0.0, *ends], ends, strict=False)]


@pytest.mark.parametrize("n", [40, 100, 300])
@pytest.mark.parametrize("tick", [0.01, 0.02])
def test_a_coarse_clock_is_said_and_no_precision_is_claimed(n: int, tick: float) -> None:
    found = steady(by_clock([1.04 * value for value in noise(n)], tick))
    assert found.interval is not None and found.interval.high - found.interval.low >= tick * 0.99
    assert found.interval.low <= 0.104 <= found.interval.high
    assert any("the clock of the steps is coarse: its ticks are" in said for said in found.warnings)


def test_a_clock_of_a_thousandth_is_fine() -> None:
    assert steady([round(value, 4) for value in noise(100)]).warnings == ()
    assert steady(noise(100, sd=0.0002)).warnings == ()


@pytest.mark.parametrize("kind", ["in turn", "correlated"])
@pytest.mark.parametrize("n", [20, 40])
def test_the_interval_of_a_short_run_holds_the_truth(n: int, kind: str) -> None:
    """Steps of two kinds in turn have no more a median than their mean has; and batches of correlated steps are alike."""
    held = intervals = 0
    for seed in range(600):
        series = noise(n, seed=seed, carried_over=0.8 if kind == "correlated" else 0.0)
        if kind == "in turn":
            series = [value * (1.1, 0.9)[step % 2] for step, value in enumerate(series)]
        found = find(series)
        if isinstance(found, Steady) and found.interval is not None:
            intervals += 1
            held += found.interval.low <= 0.1 <= found.interval.high
    assert intervals >= 540
    assert held / intervals >= 0.91


def test_a_long_series_is_cut_by_its_blocks() -> None:
    found = steady([*(1.5 * value for value in noise(1000, seed=2)), *noise(9000)])
    assert 950 <= found.discarded_steps <= 1050


def test_noise_alone_is_seldom_cut_and_seldom_refused() -> None:
    found = [find(noise(50, seed=seed)) for seed in range(300)]
    assert sum(isinstance(one, Caveat) for one in found) <= 6
    assert sum(isinstance(one, Steady) and one.discarded_steps > 1 for one in found) <= 9


times = st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=80)


@settings(deadline=None)
@given(times, st.sampled_from([0.25, 8.0]))
def test_another_unit_changes_nothing(series: list[float], factor: float) -> None:
    once, scaled = find(series), find([value * factor for value in series])
    assert type(once) is type(scaled)
    if isinstance(once, Steady) and isinstance(scaled, Steady):
        assert (scaled.discarded_steps, scaled.spikes) == (once.discarded_steps, once.spikes)
        assert scaled.median_s == once.median_s * factor


@settings(deadline=None)
@given(times)
def test_a_stretch_is_as_long_as_it_must_be(series: list[float]) -> None:
    """It has at least 5 steps and a tenth of the steady ones, at most half of them, and lies among them."""
    found = find(series, discard_steps=1)
    for said in odd(found):
        assert isinstance(found, Steady)
        words = said.split()
        begin, end = int(words[1]), int(words[3])
        assert begin >= 2 and end <= len(series)
        assert max(5, found.steps / 10) <= end - begin + 1 <= found.steps / 2


@settings(deadline=None)
@given(times)
def test_what_is_found_lies_inside_what_was_given(series: list[float]) -> None:
    found = find(series)
    if isinstance(found, Steady):
        assert 1 <= found.discarded_steps <= max(1, len(series) // 2)
        assert min(series) <= found.p5_s <= found.median_s <= found.p95_s <= max(series)
        assert 0 <= found.spike_share < 1
        assert found.steps == len(series) - found.discarded_steps >= 10


def test_what_compiles_again_in_the_head_is_warm_up() -> None:
    """Two steps of tail beside minutes of compilation would rank the faster of two last."""
    compiled = [60.0, 0.29, 0.29, 45.0, *noise(96)]
    found = steady(compiled)
    assert found.discarded_steps == 4
    assert found.mean_s == pytest.approx(0.1, rel=0.02)
    late = steady([60.0, *noise(300)[:25], 45.0, *noise(274)])
    assert late.discarded_steps == 27, "within the first tenth of a long run too"
    spike = steady([*noise(60), 45.0, *noise(39)])
    assert (spike.discarded_steps, len(spike.spikes)) == (1, 1), "later it is a spike, and counted"


@pytest.mark.parametrize("n", [40, 100, 300])
def test_a_compilation_in_the_first_half_is_warm_up_and_named(n: int) -> None:
    series = noise(n)
    series[n // 3] = 5.0
    found = steady(series)
    assert found.discarded_steps == n // 3 + 1
    assert found.mean_s == pytest.approx(0.1, rel=0.02)
    (said,) = found.warnings
    assert said.startswith(f"step {n // 3 + 1} took ") and "left out as warm-up" in said


def test_a_compilation_that_leaves_too_few_steps_leaves_no_number() -> None:
    assert "15 of warm-up, and 20 are needed" in reason([*noise(14), 5.0, *noise(16)], at_least_steps=20)


def test_large_steps_that_come_again_are_no_compilation() -> None:
    """As where each save or evaluation stalls a step: such steps belong to the run, and stay in its speed."""
    series = noise(200)
    for step in range(40, 200, 50):
        series[step] = 1.0
    found = steady(series)
    assert (found.discarded_steps, found.spikes) == (1, (40, 90, 140, 190))


def test_a_long_wait_is_no_compilation() -> None:
    """A loader that has to fill its buffer again, or an evaluation: the time before the step's own work does not count."""
    series, waits = noise(100), [0.0] * 100
    series[30], waits[30] = 5.1, 5.0
    assert steady(series, waits_s=waits).discarded_steps == 1
    assert steady(series, waits_s=waits, after=[("save",) if step == 30 else () for step in range(100)]).spikes == ()


def test_a_declared_warm_up_is_not_extended_by_a_compilation() -> None:
    series = noise(100)
    series[30] = 5.0
    found = steady(series, discard_steps=5)
    assert (found.discarded_steps, found.spikes) == (5, (30,))


def odd(found: Steady | Caveat) -> list[str]:
    return [said for said in found.warnings if "other steady steps" in said] if isinstance(found, Steady) else []


@pytest.mark.parametrize("n", [40, 100, 300])
@pytest.mark.parametrize("declared", [1, None])
def test_a_shift_in_the_last_fifth_is_no_number_or_a_warning(n: int, declared: int | None) -> None:
    late = [
        find(
            [value * (1.1 if step >= 0.8 * n else 1.0) for step, value in enumerate(noise(n, seed=seed))],
            discard_steps=declared,
        )
        for seed in range(50)
    ]
    silent = [one for one in late if isinstance(one, Steady) and not odd(one)]
    assert len(silent) <= (8 if n == 40 else 0)


def test_the_odd_stretch_is_named() -> None:
    series = [value * (1.1 if step >= 80 else 1.0) for step, value in enumerate(noise(100, sd=0.005))]
    (said,) = odd(find(series, discard_steps=5))
    assert said.startswith("steps 81 to 100 are ") and " slower than the other steady steps" in said
    assert float(said.split()[5].rstrip("%")) == pytest.approx(10, abs=0.5)
    fast = [value * (0.9 if 40 <= step < 60 else 1.0) for step, value in enumerate(noise(100, sd=0.005))]
    assert "faster" in odd(find(fast, discard_steps=5))[0]


def test_a_plateau_that_comes_late_is_no_number_or_a_warning() -> None:
    ramps = [
        find([value * (1 + 0.3 * max(0.0, 1 - step / 180)) for step, value in enumerate(noise(300, seed=seed))])
        for seed in range(30)
    ]
    silent = [one for one in ramps if isinstance(one, Steady) and not odd(one)]
    assert len(silent) <= 6


def test_noise_is_seldom_an_odd_stretch() -> None:
    """Correlated noise, ragged batches, two kinds of steps in turn, and pauses for garbage: none is a level of its own."""
    rng, told = random.Random(7), 0
    for seed in range(100):
        plain = noise(60, seed=seed)
        ragged = [0.1 * math.exp(0.3 * rng.gauss(0, 1)) for _ in range(60)]
        in_turn = [value * (1.1, 0.9)[step % 2] for step, value in enumerate(plain)]
        pauses = [value * (1.5 if step % 20 == 7 else 1.0) for step, value in enumerate(plain)]
        told += sum(bool(odd(find(series))) for series in (plain, ragged, in_turn, pauses))
    assert told <= 4


@pytest.mark.parametrize("n", range(36, 48))
def test_steps_of_two_kinds_in_turn_are_steady(n: int) -> None:
    """As where every epoch ends in a step of half the batch: medians of halves flip, the run does not change."""
    found = steady([(1.0, 0.5)[i % 2] for i in range(n)])
    assert found.mean_s == pytest.approx(0.75, rel=0.05)


def test_steps_of_two_kinds_at_random_are_steady() -> None:
    rng = random.Random(3)
    refused = [isinstance(find([rng.choice((1.0, 1.3)) for _ in range(60)]), Caveat) for _ in range(200)]
    assert sum(refused) <= 6


def test_a_shift_of_a_twentieth_is_still_seen() -> None:
    rng = random.Random(4)
    shifted = [[rng.gauss(1.0, 0.01) * (1.0 if i < 50 else 1.05) for i in range(100)] for _ in range(100)]
    assert sum(isinstance(find(series, discard_steps=1), Caveat) for series in shifted) >= 98


def test_the_interval_is_of_the_median_that_is_shown() -> None:
    """Pauses for evaluation before every step are in the step's time, and so they are in its interval."""
    plain = noise(60)
    found = steady([s + 0.2 for s in plain], waits_s=[0.2] * 60, after=[("evaluate",)] * 60)
    assert found.interval is not None
    assert found.interval.low <= found.median_s <= found.interval.high


def test_steps_without_duration_are_a_reason_and_no_error() -> None:
    assert "took no time" in reason([0.0] * 20)
    assert "took no time" in reason([0.0] * 20, discard_steps=2)


# The early stop's rule, as the training process applies it. How often it is right is simulated in test_intervals.


def looks(rule: Stopping, seconds: list[float], *, every: int = 10) -> int | None:
    """After how many steps it is enough."""
    for number, value in enumerate(seconds, start=1):
        rule.add(value)
        if number % every == 0 and rule.verdict()[0]:
            return number
    return None


def noisy(n: int, sd: float) -> list[float]:
    rng = random.Random(3)
    return [rng.gauss(1.0, sd) for _ in range(n)]


@given(
    st.one_of(
        st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=150),
        st.lists(st.sampled_from([0.1, 0.1000001, 0.11, 0.12]), min_size=8, max_size=150),
        st.builds(
            lambda n, seed, r: noise(n, seed=seed, carried_over=r),
            st.integers(8, 300),
            st.integers(0, 99),
            st.floats(-0.9, 0.95),
        ),
    )
)
def test_the_interval_is_the_one_that_the_report_shows(series: list[float]) -> None:
    interval, width = median_interval(series), half_width(series)
    if interval is None:
        assert width is None
    else:
        assert width == pytest.approx((interval.high - interval.low) / 2 / statistics.median(series), rel=1e-5)


def test_a_quiet_run_stops_after_two_looks() -> None:
    assert looks(Stopping(0, None, 0.01), noisy(500, 0.001)) == 30
    assert looks(Stopping(0, 100, 0.01), noisy(500, 0.001)) == 120


def test_a_noisy_run_goes_on() -> None:
    rule = Stopping(0, None, 0.01)
    assert looks(rule, noisy(200, 0.2)) is None
    assert rule.verdict()[1] is not None and rule.verdict()[1] > 0.01  # type: ignore[operator]


def test_a_declared_warm_up_does_not_count() -> None:
    assert looks(Stopping(50, None, 0.01), [5.0] * 50 + noisy(500, 0.001)) == 80


def test_an_undeclared_warm_up_can_hold_half_of_the_steps() -> None:
    stopped = looks(Stopping(None, None, 0.01), [5.0] * 30 + noisy(500, 0.001))
    assert stopped is not None and stopped >= 60


def test_too_few_steps_say_nothing() -> None:
    rule = Stopping(None, None, 0.01)
    rule.add(1.0)
    assert rule.verdict() == (False, None)
    assert half_width([1.0] * 7) is None

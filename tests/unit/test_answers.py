"""The answer on top of a page: which experiment is fastest for a model and number of GPUs, and when there is no answer."""

from __future__ import annotations

from dataclasses import replace
from math import log
from statistics import fmean

import pytest
from factories.tables import Made, made_table, speeds
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.records import Caveat, CaveatKind, Device
from orchestrator.report.highlights import highlights
from orchestrator.report.highlights.answers import MOST_ROWS, Answer, answers
from orchestrator.report.page import shell
from orchestrator.results.table.baseline import with_baseline
from orchestrator.results.table.column_choice import column

BASELINE, FAST, ALIKE = (100.0, 101.0, 99.0), (121.0, 122.5, 119.8), (100.4, 101.2, 99.1)
GIB = 2**30
DOUBT = (Caveat(kind=CaveatKind.NOT_LEVEL, detail="it swings"),)


def found(*cells: Made) -> tuple[Answer, ...]:
    return answers(with_baseline(made_table(*cells)))


def said(*cells: Made) -> str:
    (answer,) = found(*cells)
    return f"{answer.place}: {answer.text}"


def test_the_fastest_is_named_with_its_lead_and_its_memory() -> None:
    cells = [
        Made(runs=speeds(*BASELINE, peak_allocated_bytes=40 * GIB)),
        Made(framework="liger", runs=speeds(*FAST, peak_allocated_bytes=30.8 * GIB)),
    ]
    assert said(*cells) == (
        "llama-1b at 1 GPU: liger is fastest, 21 % faster (1.21×, 1.18 to 1.24) than baseline, with 23 % less memory"
    )
    (answer,) = found(*cells)
    assert [(one.name, one.speed, one.ratio, one.memory, one.runs, one.is_best) for one in answer.candidates] == [
        ("liger", "121.1", "1.21× (1.18 to 1.24)", "30.80 GiB", "3", True),
        ("baseline", "100", "reference", "40.00 GiB", "3", False),
    ]


def test_the_next_is_named_if_the_fastest_is_compared_with_another() -> None:
    cells = [Made(runs=speeds(*BASELINE)), Made(framework="liger", runs=speeds(*FAST))]
    second = Made(framework="fused", runs=speeds(110.0, 110.5, 109.0))
    text = said(*cells, second)
    assert (
        "liger is fastest, 21 % faster (1.21×, 1.18 to 1.24) than baseline; fused, the next, is 9.3 % slower (0.9"
        in text
    )


def test_what_was_faster_but_is_in_doubt_is_named() -> None:
    doubted = Made(framework="odd", runs=speeds(200.0, 201.0, 199.0), warnings=DOUBT)
    text = said(Made(runs=speeds(*BASELINE)), Made(framework="liger", runs=speeds(*FAST)), doubted)
    assert text.endswith("; odd was faster, but in doubt (not steady)")


def test_a_speed_that_only_one_has_is_no_answer() -> None:
    other = Made(framework="other", runs=speeds(None, samples_per_s=3.0))
    assert said(Made(runs=speeds(*BASELINE)), other).endswith("no answer: only baseline has this speed")


def test_a_reference_that_is_fastest_is_compared_with_the_next() -> None:
    slow = Made(framework="liger", runs=speeds(79.0, 80.1, 80.4))
    assert said(Made(runs=speeds(*BASELINE)), slow) == (
        "llama-1b at 1 GPU: baseline is fastest; liger, the next, is 20 % slower (0.80×, 0.78 to 0.82)"
    )


def test_without_a_clear_lead_both_are_named_and_none_is_best() -> None:
    (answer,) = found(Made(runs=speeds(*BASELINE)), Made(framework="x", runs=speeds(*ALIKE)))
    assert answer.text.startswith("x or baseline: no clear difference, 1.00")
    assert not any(one.is_best for one in answer.candidates)


def test_of_several_axes_all_rows_are_compared_along_the_first_as_in_the_table() -> None:
    cells = [
        Made(
            framework=None,
            arguments={"optim": optim, "size": str(size)},
            runs=speeds(*(size * factor * one for one in BASELINE)),
        )
        for optim, factor in (("adam", 1.0), ("sgd", 0.8))
        for size in (1, 2)
    ]
    table = with_baseline(made_table(*cells))
    (answer,) = answers(table)
    of_table = {
        (optim, str(size)): ratio
        for optim, size, ratio in zip(
            *(column(table.experiments, name) for name in ("optim", "size", "speedup")), strict=True
        )
    }
    assert sorted(of_table.values()) == pytest.approx([0.8, 0.8, 1.0, 1.0])
    for one in answer.candidates:
        _, optim, _, size = one.name.replace(",", "").split()
        assert one.ratio.partition(" ")[0] == ("reference" if of_table[optim, size] == 1 else "0.80×"), one


def test_single_runs_say_only_what_they_did() -> None:
    text = said(Made(runs=speeds(100.0)), Made(framework="liger", runs=speeds(150.0)))
    assert text.endswith("liger was fastest, at 1.50× the speed of baseline, one run each")
    near = said(Made(runs=speeds(100.0)), Made(framework="liger", runs=speeds(101.0)))
    assert near.endswith("liger or baseline: no clear difference, 1.010× (one run each)")


def test_runs_without_a_speed_are_counted() -> None:
    some = Made(framework="liger", runs=[*speeds(*FAST), {"train_loss": 2.0}])
    (answer,) = found(Made(runs=speeds(*BASELINE)), some)
    assert {one.name: one.runs for one in answer.candidates} == {"baseline": "3", "liger": "3 of 4"}


def test_a_speed_in_doubt_does_not_count_and_says_why() -> None:
    base = Made(runs=speeds(*BASELINE))
    doubted = Made(framework="liger", runs=speeds(*FAST), warnings=DOUBT)
    (answer,) = found(base, doubted)
    assert answer.text == "no answer: liger is in doubt (not steady), and only baseline is left"
    assert [(one.name, one.ratio, one.doubt) for one in answer.candidates] == [
        ("liger", "-", "not steady"),
        ("baseline", "reference", ""),
    ]
    both = Made(runs=speeds(*BASELINE), warnings=DOUBT)
    assert said(both, doubted).endswith("no answer: every speed is in doubt")


def test_one_kind_of_memory_is_shown_and_a_missing_one_is_a_dash() -> None:
    base = Made(runs=speeds(*BASELINE, device_peak_used_bytes=50 * GIB))
    fast = Made(framework="x", runs=speeds(*FAST, peak_allocated_bytes=30 * GIB))
    (answer,) = found(base, fast)
    assert (answer.memory, [one.memory for one in answer.candidates]) == ("peak alloc", ["30.00 GiB", "-"])


def test_the_cost_of_neighbours_widens_the_lead() -> None:
    cells = (
        Made(runs=speeds(*BASELINE, neighbours=1)),
        Made(framework="x", runs=speeds(104.0, 104.5, 103.8, neighbours=1)),
    )
    table = with_baseline(made_table(*cells))
    assert "x is fastest" in answers(table)[0].text
    assert "no clear difference" in answers(replace(table, neighbour_cost=0.05))[0].text


def test_experiments_with_other_neighbours_have_no_answer() -> None:
    cells = Made(runs=speeds(*BASELINE, neighbours=1)), Made(framework="x", runs=speeds(*FAST, neighbours=3))
    assert "had different numbers of neighbours" in said(*cells)


def test_each_model_and_number_of_gpus_has_its_own_answer() -> None:
    cells = [
        Made(framework=name, runs=speeds(*values), **where)
        for where in ({}, {"num_gpus": 2}, {"model": "org/other"}, {"device": Device.CPU, "scenario": "cpu"})
        for name, values in (("baseline", BASELINE), ("liger", FAST))
    ]
    places = [answer.place for answer in found(*cells, Made(scenario="alone", runs=speeds(1.0)))]
    assert places == ["llama-1b at 1 GPU", "llama-1b at 2 GPUs", "org/other at 1 GPU", "llama-1b with 1 CPU process"]


def test_arguments_that_distinguish_experiments_are_in_their_names() -> None:
    cells = [
        Made(runs=speeds(*BASELINE), arguments={"optim": "sgd"}),
        Made(runs=speeds(*FAST), arguments={"optim": "lion"}),
    ]
    assert "baseline, optim lion is fastest" in said(*cells)


def test_of_many_experiments_the_slow_ones_are_counted() -> None:
    (answer,) = found(*(Made(framework=f"f{n}", runs=speeds(100.0 + n)) for n in range(MOST_ROWS + 3)))
    assert (len(answer.candidates), answer.more) == (MOST_ROWS, 3)
    for more, text in ((1, "1 slower experiment is in"), (3, "3 slower experiments are in")):
        assert f"{text} the table below." in shell.render(
            "answers.html", races=(), answers=[replace(answer, more=more)], more=0
        )


@given(st.lists(st.lists(st.floats(80.0, 120.0), min_size=2, max_size=4), min_size=2, max_size=4))
@settings(deadline=None, max_examples=60)
def test_the_first_is_the_fastest_and_nothing_is_best_without_a_clear_lead(sides: list[list[float]]) -> None:
    (answer,) = found(*(Made(framework=f"f{n}", runs=speeds(*values)) for n, values in enumerate(sides)))
    means = {f"f{n}": fmean(map(log, values)) for n, values in enumerate(sides)}
    order = [means[one.name] for one in answer.candidates]
    assert order == sorted(order, reverse=True)
    assert ("no clear difference" in answer.text) == (not any(one.is_best for one in answer.candidates))
    assert [one.is_best for one in answer.candidates[1:]] == [False] * (len(sides) - 1)


def test_of_several_operators_each_is_named_also_if_the_shape_would_be_enough() -> None:
    calls = [
        Made(
            framework=None,
            trainer="operators",
            arguments={
                **({"dtype": "float32"} if operator == "rmsnorm" else {}),
                **{"operator": operator, "shape": shape, "implementation": implementation},
            },
            runs=[{"call_time_s": time} for time in times],
        )
        for operator, shape in (("rmsnorm", "64x64"), ("cross_entropy", "64x64"))
        for implementation, times in (("eager", (0.2, 0.21, 0.2)), ("inductor", (0.1, 0.11, 0.1)))
    ]
    places = [answer.place for answer in found(*calls)]
    assert [place.partition(", ")[2] for place in places] == ["rmsnorm, float32", "cross_entropy"]


@pytest.mark.parametrize(("error", "is_claimed"), [(0.4, True), (1.0, False)])
def test_nothing_is_claimed_against_a_baseline_with_a_wrong_result(error: float, is_claimed: bool) -> None:
    """A function that did nothing was the baseline, and the right one was 67 % slower."""
    cells = [
        Made(
            framework=None,
            trainer="operators",
            arguments={"operator": "swiglu", "implementation": name},
            runs=[{"call_time_s": time * factor, "relative_error": off} for factor in (1.0, 1.01, 0.99)],
        )
        for name, time, off in (("bad", 1e-4, error), ("good", 3e-4, 1e-7))
    ]
    table = with_baseline(made_table(*cells), ["implementation=bad"])
    assert any("slower" in one.text for one in highlights(table)) == is_claimed


@pytest.mark.parametrize("error", [0.003, 0.12, 0.5, 1.007, 30.0])
@pytest.mark.parametrize("has_eager", [True, False])
def test_a_function_with_a_wrong_result_is_the_last_however_fast_it_is(error: float, has_eager: bool) -> None:
    """It led the list, in grey."""
    cells = [
        Made(
            framework=None,
            trainer="operators",
            arguments={"operator": "swiglu", "implementation": name},
            runs=[{"call_time_s": time * factor, "relative_error": off} for factor in (1.0, 1.01, 0.99)],
            baseline={"implementation": "eager"} if has_eager else {},
        )
        for name, time, off in (
            ("eager" if has_eager else "mine", 4e-4, 1e-7),
            ("good", 3e-4, 1e-7),
            ("bad", 1e-4, error),
        )
    ]
    (answer,) = found(*cells)
    names = [one.name for one in answer.candidates]
    bad = next(one for one in answer.candidates if "bad" in one.name)
    assert not bad.is_best and "good is fastest" in answer.text
    assert names[-1 if error >= 0.5 else 0] == bad.name
    shown = f"{error:g}" if error >= 1 else f"{error}"
    assert bad.doubt == (f"wrong result, relative error {shown}" if error >= 0.5 else "less exact")

"""Findings in sentences: every number in them follows from the frames, and nothing is claimed that they do not bear."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, variance
from typing import Any

import pytest
from factories.results import BASE, ended, failed
from factories.samples import four_h200
from factories.tables import Made, made_table, speeds
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import is_printable
from orchestrator.measure.metrics import ONE_RUN_EFFECT
from orchestrator.records import Caveat, CaveatKind, Device, RunRecord, caveat, dump
from orchestrator.records import load as load_value
from orchestrator.report.highlights import Highlight, HighlightKind, highlights
from orchestrator.report.highlights.failures import ways
from orchestrator.report.highlights.gains import MOST_FASTER
from orchestrator.report.highlights.highlight import MOST_OTHERS
from orchestrator.results.table import rows
from orchestrator.results.table.baseline import with_baseline
from orchestrator.results.table.doubts import Doubt, DoubtKind, doubts
from orchestrator.results.table.load import ResultsTable, load

BASELINE = (100.0, 101.0, 99.0)
FAST = (121.0, 122.5, 119.8)


def texts(found: Sequence[Highlight], kind: HighlightKind) -> list[str]:
    return [one.text for one in found if one.kind is kind]


def gains(*cells: Made, baseline: Sequence[str] = ()) -> list[str]:
    return texts(highlights(with_baseline(made_table(*cells), baseline)), HighlightKind.GAIN)


def warned(*cells: Made) -> list[str]:
    return texts(highlights(made_table(*cells)), HighlightKind.WARNING)


# --------------------------------------------------------------------------------------------- what limits a step


def limited(
    runs: int = 3, *, by: Sequence[float] = (0.99, 1.0, 1.01), name: str, value: float, **others: float
) -> Made:
    """Runs of 0.1 s a step; the number `name` differs a little between the runs."""
    made = speeds(*[100.0] * runs, steps_per_s=10.0, **others)
    return Made(runs=[{**run, name: value * factor} for run, factor in zip(made, by, strict=False)])


def test_a_slow_loader_is_named_with_the_gain_without_the_wait() -> None:
    (text,) = gains(limited(name="data_time_s", value=0.031))
    assert text == (
        "baseline on llama-1b at 1 GPU: the data loader is the limit: 31 % (30 to 32) of a step; without the wait, "
        "the GPU would do 1.45×; try a larger dataloader_num_workers"
    )


@pytest.mark.parametrize(
    ("runs", "value", "by", "told"),
    [
        (3, 0.031, (0.99, 1.0, 1.01), True),
        (3, 0.031, (0.2, 1.0, 1.8), False),  # the runs differ too much
        (3, 0.009, (0.99, 1.0, 1.01), False),
        (1, 0.012, (1.0,), True),
        (1, 0.0105, (1.0,), False),  # one run, too near to the limit
    ],
)
def test_a_limit_is_named_only_beyond_the_noise(runs: int, value: float, by: Sequence[float], told: bool) -> None:
    assert bool(gains(limited(runs, by=by, name="data_time_s", value=value))) is told


def test_a_doubted_experiment_has_no_limit() -> None:
    busy = (Caveat(kind=CaveatKind.BUSY_HOST, detail="x"),)
    doubted = replace(limited(name="data_time_s", value=0.031), warnings=busy)
    assert gains(doubted) == []
    said = "by these numbers, it would be: baseline on llama-1b at 1 GPU: the data loader"
    assert texts(highlights(made_table(doubted)), HighlightKind.NOTE) == [
        f"it is not claimed what limits the steps of 1 experiment, because the numbers are in doubt (busy host); {said}"
    ]
    assert texts(highlights(made_table(replace(doubted, warnings=()))), HighlightKind.NOTE) == []


def test_a_host_that_sets_the_pace_is_named_with_what_helps() -> None:
    many = {"step_tokens_per_gpu": 8192.0, "step_tokens_spread": 0.0}
    (text,) = gains(limited(name="host_bound_share", value=0.9, gpu_utilization=0.29, **many))
    assert text == (
        "baseline on llama-1b at 1 GPU: host-bound: the GPU is busy 29 % of the time, and the host sets the pace in 90 % "
        "(88 to 92) of a step; try torch.compile or a larger batch"
    )
    (text,) = gains(limited(name="host_bound_share", value=0.9, step_tokens_per_gpu=2200.0, step_tokens_spread=0.35))
    assert text.endswith(
        "a step has 2,200 tokens per GPU, which differ by 35 % between steps; try packed rows or a larger batch"
    )
    assert gains(limited(name="host_bound_share", value=0.4, **many)) == []


def test_ragged_rows_on_a_gpu_that_is_little_busy_are_named_without_the_hosts_share() -> None:
    (text,) = gains(limited(name="gpu_utilization", value=0.29, step_tokens_per_gpu=2200.0, step_tokens_spread=0.1))
    assert text == (
        "baseline on llama-1b at 1 GPU: host-bound: the GPU is busy 29 % (28 to 30) of the time; a step has 2,200 tokens per GPU; "
        "try packed rows or a larger batch"
    )
    assert gains(limited(name="gpu_utilization", value=0.29, step_tokens_per_gpu=8192.0, step_tokens_spread=0.0)) == []
    assert gains(limited(name="gpu_utilization", value=0.9, step_tokens_per_gpu=2200.0, step_tokens_spread=0.5)) == []


def test_waits_of_ranks_are_named_and_a_slow_loader_is_not_called_host_bound() -> None:
    both = limited(name="host_bound_share", value=0.9, data_time_s=0.04, exposed_comm_time_s=0.02)
    loader, waits = gains(replace(both, num_gpus=2))
    assert "the data loader is the limit: 40 %" in loader
    assert waits.endswith(
        "each GPU waits for the others in 20 % of a step; try a larger batch or more gradient accumulation"
    )


def test_the_largest_limits_are_named_and_the_others_counted() -> None:
    cells = [replace(limited(name="data_time_s", value=0.02 + 0.001 * at), scenario=f"s{at}") for at in range(6)]
    found = [text for text in gains(*cells) if "data loader" in text]
    assert [re.search(r"limit: (\d+) %", text)[1] for text in found[:4]] == ["25", "24", "23", "22"]  # type: ignore[index]
    assert found[4] == "2 more experiments limited by the data loader"


# ------------------------------------------------------------------------------------------------- gains, recomputed


def welch(base: Sequence[float], new: Sequence[float]) -> tuple[float, float, float]:
    """Ratio of geometric means with its 95 % interval, as a textbook has it: scipy's quantile, Welch–Satterthwaite's degrees."""
    a, b = [math.log(value) for value in base], [math.log(value) for value in new]
    shift = fmean(b) - fmean(a)
    parts = [variance(side) / len(side) for side in (a, b)]
    degrees = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (a, b), strict=True))
    half = stats.t.ppf(0.975, degrees) * math.sqrt(sum(parts))
    return math.exp(shift), math.exp(shift - half), math.exp(shift + half)


@st.composite
def several_runs(draw: st.DrawFn) -> list[float]:
    """Runs of one cell, which differ by up to 3 %, and by more than rounding."""
    level = draw(st.floats(80.0, 120.0))
    noise = draw(st.lists(st.integers(970_000, 1_030_000), min_size=2, max_size=6, unique=True))
    return [level * one / 1_000_000 for one in noise]


RUNS = several_runs()
SENTENCE = re.compile(
    r"new is (?P<percent>[\d.]+) % (?P<word>faster|slower) \((?P<value>[\d.]+)×, (?P<low>[\d.]+) to (?P<high>[\d.]+)\) "
    r"than baseline on llama-1b at 1 GPU"
)
ALIKE = re.compile(
    r"(no difference seen between new and baseline|(?P<wide>no clear difference between new and baseline)) on llama-1b at 1 GPU: "
    r"(?P<value>[\d.]+)× \((?P<low>[\d.]+) to (?P<high>[\d.]+)\)(?P<more>; more repeats may decide)?$"
)


@given(RUNS, RUNS)
@settings(deadline=None)
def test_every_number_of_a_speed_is_that_of_the_runs(base: list[float], new: list[float]) -> None:
    table = made_table(Made(runs=speeds(*base)), Made(framework="new", runs=speeds(*new)))
    runs = table.runs.groupby("framework_config")["tokens_per_s"]
    value, low, high = welch(runs.get_group("baseline").tolist(), runs.get_group("new").tolist())
    assume(min(abs(end - 1) for end in (low, high)) > 1e-9)  # where rounding would decide
    (text,) = texts(highlights(table), HighlightKind.GAIN)
    claimed, alike = SENTENCE.match(text), ALIKE.match(text)
    if low <= 1 <= high:
        assert alike and not claimed, text
        is_wide = high >= 1 + ONE_RUN_EFFECT or 1 / low >= 1 + ONE_RUN_EFFECT
        assert (alike["wide"] is not None, alike["more"] is not None) == (is_wide, is_wide)
        expected, found = (value, low, high), alike
    else:
        assert claimed and not alike, text
        share = abs(value - 1)
        assert claimed["word"] == ("faster" if value > 1 else "slower")
        assert claimed["percent"] == (f"{100 * share:.0f}" if share >= 0.1 else f"{100 * share:.1f}")
        expected, found = (value, low, high), claimed
    digits = 2 if abs(expected[0] - 1) >= 0.1 else 3
    assert [found[name] for name in ("value", "low", "high")] == [f"{number:.{digits}f}" for number in expected]


GIB = 2**30


@given(st.integers(1, 80 * GIB), st.integers(1, 80 * GIB))
@settings(deadline=None)
def test_every_number_of_a_memory_is_that_of_the_experiments(base: int, new: int) -> None:
    mine, theirs = speeds(*FAST, peak_allocated_bytes=new), speeds(*BASELINE, peak_allocated_bytes=base)
    table = made_table(Made(runs=theirs), Made(framework="new", runs=mine))
    (text,) = texts(highlights(table), HighlightKind.GAIN)
    peaks = dict(zip(table.experiments["framework_config"], table.experiments["peak_allocated_bytes"], strict=True))
    change = peaks["new"] / peaks["baseline"] - 1
    if abs(change) < 0.005:
        assert "memory" not in text
        return
    share = f"{100 * abs(change):.0f}" if abs(change) >= 0.1 else f"{100 * abs(change):.1f}"
    assert f"needs {share} % {'more' if change > 0 else 'less'} memory (peak alloc " in text


def test_without_a_clear_difference_the_memory_comes_before_the_advice() -> None:
    new, base = speeds(80.0, 99.0, peak_allocated_bytes=GIB), speeds(100.0, 101.0, peak_allocated_bytes=2 * GIB)
    (text,) = texts(highlights(made_table(Made(runs=base), Made(framework="new", runs=new))), HighlightKind.GAIN)
    assert text.endswith("; new needs 50 % less memory (peak alloc 1.00 GiB against 2.00 GiB); more repeats may decide")


@given(st.lists(st.floats(100.0, 5000.0), min_size=2, max_size=5))
@settings(deadline=None)
def test_every_number_of_a_scaling_is_that_of_the_runs(of_two: list[float]) -> None:
    one, two = [{"tokens_per_s_per_gpu": v} for v in BASELINE], [{"tokens_per_s_per_gpu": v / 10} for v in of_two]
    table = made_table(Made(runs=one), Made(num_gpus=2, runs=two))
    (text,) = texts(highlights(table), HighlightKind.GAIN)
    efficiency = table.experiments["scaling_efficiency"].tolist()[1]
    assert text.startswith(f"baseline on llama-1b: 2 GPUs {100 * efficiency:.1f} % (")
    assert text.endswith(") of ideal scaling from 1 GPU")


def test_the_example_of_the_issue() -> None:
    cells = [
        Made(runs=speeds(*BASELINE, peak_allocated_bytes=40 * GIB)),
        Made(framework="liger", runs=speeds(*FAST, peak_allocated_bytes=30.8 * GIB)),
    ]
    assert gains(*cells) == [
        "liger is 21 % faster (1.21×, 1.18 to 1.24) than baseline on llama-1b at 1 GPU "
        "and needs 23 % less memory (peak alloc 30.80 GiB against 40.00 GiB)"
    ]


@pytest.mark.parametrize(
    ("busy", "rest"), [(0.71, "; GPUs busy 71 % of the time against 91 %"), (0.85, ""), (None, "")]
)
def test_gpus_that_wait_for_their_host_are_told(busy: float | None, rest: str) -> None:
    seen = {} if busy is None else {"gpu_utilization": busy}
    slow = Made(framework="liger", runs=speeds(79.0, 80.1, 80.4, **seen))
    (text,) = gains(Made(runs=speeds(*BASELINE, gpu_utilization=0.91)), slow)
    assert text.startswith("liger is 20 % slower (0.80×, ") and text.endswith(
        "than baseline on llama-1b at 1 GPU" + rest
    )


def test_one_run_a_side_has_no_interval_and_says_so() -> None:
    text = gains(Made(runs=speeds(100.0)), Made(framework="liger", runs=speeds(121.0)))
    assert text == ["liger ran at 1.21× the speed of baseline on llama-1b at 1 GPU, one run each"]
    cells = Made(runs=speeds(100.0, 101.0)), Made(framework="liger", runs=speeds(121.0))
    assert gains(*cells)[0].endswith(", 1 run against 2")
    (said,) = warned(*cells)
    assert said.startswith("1 comparison of single runs: ") and "--repeats 3" in said


def test_single_runs_that_hardly_differ_are_too_few_to_tell() -> None:
    """They were called equal: `no difference seen`, at 0.91×."""
    inside, outside = 100 * (1 + ONE_RUN_EFFECT) - 0.1, 100 * (1 + ONE_RUN_EFFECT) + 0.1
    places = "the speed of baseline on llama-1b at 1 GPU"
    for base, new, times in ((100.0, inside, "1.099×"), (inside, 100.0, "0.910×")):
        text = gains(Made(runs=speeds(base)), Made(framework="x", runs=speeds(new)))[0]
        assert text == f"x ran at {times} {places}, one run each, which is too few to tell"
    text = gains(Made(runs=speeds(100.0, 101.0, 99.0, 100.0)), Made(framework="x", runs=speeds(95.0)))[0]
    assert text == f"x ran at 0.950× {places}, 1 run against 4, which is too few to tell"
    assert "ran at 1.10×" in gains(Made(runs=speeds(100.0)), Made(framework="x", runs=speeds(outside)))[0]
    assert "ran at 0.908×" in gains(Made(runs=speeds(outside)), Made(framework="x", runs=speeds(100.0)))[0]


# ---------------------------------------------------------------------------------------------- what is comparable


@pytest.mark.parametrize(
    "other",
    [
        {"scenario": "lora"},
        {"model": "org/other"},
        {"num_gpus": 2},
        {"arguments": {"max_seq_len": "4096"}},
        {"arguments": {"per_device_train_batch_size": "4"}},
        {"device": Device.CPU},
    ],
)
def test_cells_that_differ_in_more_than_the_framework_are_not_compared(other: dict[str, object]) -> None:
    assert gains(Made(runs=speeds(*BASELINE)), Made(framework="liger", runs=speeds(*FAST), **other)) == []  # type: ignore[arg-type]


def test_what_the_framework_sets_itself_is_no_difference() -> None:
    sets = {"attn_implementation": "flash_attention_2"}
    base = Made(runs=speeds(*BASELINE), arguments={"attn_implementation": "sdpa"})
    assert "flash is" in gains(base, Made(framework="flash", runs=speeds(*FAST), sets=sets))[0]
    bare = Made(framework="flash", runs=speeds(*FAST), arguments=sets)
    assert gains(base, bare) == []


def test_of_several_baselines_the_one_with_the_same_arguments_counts() -> None:
    bases = [Made(runs=speeds(*BASELINE), arguments={"attn_implementation": name}) for name in ("eager", "sdpa")]
    sets = {"attn_implementation": "sdpa"}
    found = highlights(made_table(*bases, Made(framework="sdpa", runs=speeds(*FAST), sets=sets)))
    first = next(one for one in found if one.kind is HighlightKind.GAIN)
    assert first.experiments == (Made(framework="sdpa").id, bases[1].id)


def test_the_baseline_may_be_named() -> None:
    cells = [Made(framework=name, runs=speeds(*values)) for name, values in (("sdpa", BASELINE), ("eager", FAST))]
    assert "eager is 21 % faster (1.21×" in gains(*cells)[0], (
        "the one that stands first, where none is called a baseline"
    )
    assert "sdpa is 17 % slower (0.83×" in gains(*cells, baseline=["eager"])[0]
    with pytest.raises(
        SelectionError, match=r"--baseline egaer: no experiment has this framework; did you mean 'eager'"
    ):
        gains(*cells, baseline=["egaer"])


def test_the_trainers_own_speed_is_taken_only_where_no_run_has_steps() -> None:
    def runs(*values: float) -> list[dict[str, float]]:
        return [{"train_tokens_per_second": value} for value in values]

    base, new = Made(runs=runs(*BASELINE)), Made(framework="compile", runs=runs(*FAST))
    assert "by the Trainer's own speed, which includes warm-up" in gains(base, new)[0]
    measured = Made(scenario="other", runs=speeds(*BASELINE))
    assert gains(base, new, measured) == []


def test_padding_is_no_work() -> None:
    def runs(speed: float, padding: float) -> list[dict[str, float]]:
        all_of = [speed * factor for factor in (0.99, 1.0, 1.01)]
        return [{"tokens_per_s": v, "real_tokens_per_s": v * (1 - padding), "padding_share": padding} for v in all_of]

    text = gains(Made(runs=runs(1000.0, 0.5)), Made(framework="padding-free", runs=runs(700.0, 0.0)))
    assert text[0].startswith("padding-free is 40 % faster (1.40×, ") and "padding not counted" in text[0]


# ------------------------------------------------------------------------------------------------ nothing is claimed


DOUBTED = {
    CaveatKind.CONTAMINATED: ("python (1234)", "ran on GPUs that other processes used (python (1234))"),
    CaveatKind.THROTTLED: ("heat (hardware) 40%", "ran on GPUs with reduced clocks (heat (hardware) 40%)"),
    CaveatKind.BUSY_HOST: ("a rank waited", "ran on a busy host (a rank waited), so"),
    CaveatKind.RECOMPILED: (
        "recompiled at steps 3, 4, 12: batch widths vary",
        "compiled again in the steady state (recompiled at steps 3, 4, 12: batch widths vary), so",
    ),
    CaveatKind.NO_STEADY_SPEED: ("it left no steps", "had a run without a steady state (it left no steps), so"),
    CaveatKind.NOT_LEVEL: ("it swings", "had a run without a steady state (it swings), so"),
}


@pytest.mark.parametrize("side", ["baseline", "liger"])
@pytest.mark.parametrize("kind", DOUBTED)
def test_a_doubted_cell_is_a_warning_and_no_gain(kind: CaveatKind, side: str) -> None:
    detail, said = DOUBTED[kind]
    doubted = (Caveat(kind=kind, detail=detail),)
    cells = [
        Made(framework=name, runs=speeds(*values), warnings=doubted if name == side else ())
        for name, values in (("baseline", BASELINE), ("liger", FAST))
    ]
    assert gains(*cells) == []
    (text,) = warned(*cells)
    assert said in text and f"{side} on llama-1b at 1 GPU" in text and "no speed is claimed" in text


def test_of_details_that_differ_only_in_numbers_the_highest_is_shown() -> None:
    waited = [f"a rank waited for a core in {share} of the time" for share in ("9%", "31%", "23%")]
    doubted = tuple(Caveat(kind=CaveatKind.BUSY_HOST, detail=detail) for detail in waited)
    (text,) = warned(Made(runs=speeds(*BASELINE), warnings=doubted))
    assert "busy host (a rank waited for a core in 31% of the time), so" in text
    cells = [
        Made(framework=name, runs=speeds(*BASELINE), warnings=(Caveat(kind=CaveatKind.BUSY_HOST, detail=detail),))
        for name, detail in zip(("baseline", "liger"), waited, strict=False)
    ]
    (text,) = warned(*cells)
    assert "2 experiments ran on a busy host (at worst, a rank waited for a core in 31% of the time), so" in text


@pytest.mark.parametrize(("cost", "said"), [(None, "was not measured"), (0.03, "measured cost of neighbours, 3")])
def test_equally_many_neighbours_are_compared_and_their_cost_widens_the_interval(cost: float | None, said: str) -> None:
    def table(beside: int) -> ResultsTable:
        cells = [
            Made(runs=speeds(*BASELINE, neighbours=1)),
            Made(framework="liger", runs=speeds(*FAST, neighbours=beside)),
        ]
        return replace(made_table(*cells), neighbour_cost=cost)

    alike, others = (highlights(table(beside)) for beside in (1, 2))
    (gain,) = [one.text for one in alike if one.kind is HighlightKind.GAIN]
    low, high = map(float, re.findall(r"(\d\.\d+) to (\d\.\d+)\)", gain)[0])
    assert (high / low > 1.06) is (cost is not None) and "liger is 21 % faster (1.2" in gain
    assert any("equally many neighbours" in one.text and said in one.text for one in alike)
    assert not [one for one in others if one.kind is HighlightKind.GAIN]


def test_a_power_cap_is_daily_life() -> None:
    capped = {"throttle_reasons": "power cap 100%", "throttled_share": 1.0}
    cells = [Made(runs=speeds(*BASELINE, **capped)), Made(framework="liger", runs=speeds(*FAST, **capped))]
    assert "faster" in gains(*cells)[0] and warned(*cells) == []


def test_sentences_of_older_records_are_the_doubts_that_they_were(tmp_path: Path) -> None:
    said = "the run is not level after its warm-up: its last 20 steps are 3.8% faster than the 19 before"
    found = [one for row in doubts(load([four_h200(tmp_path)])) for one in row]
    assert found == [Doubt(kind=DoubtKind.NOT_STEADY, detail=said)]


@pytest.mark.parametrize(
    ("older", "kind", "detail"),
    [
        ("no steady-state speed: the run has no steps", CaveatKind.NO_STEADY_SPEED, "the run has no steps"),
        ("others used the run's GPUs: process 7 (x)", CaveatKind.CONTAMINATED, "process 7 (x)"),
        (
            "heat (software) held the clocks down in 20% of the steady state",
            CaveatKind.THROTTLED,
            "heat (software) 20%",
        ),
        ("the mean step is longer", CaveatKind.NOTE, "the mean step is longer"),
    ],
)
def test_a_sentence_of_an_older_record_is_its_caveat(older: str, kind: CaveatKind, detail: str) -> None:
    text = json.dumps(json.loads(dump(ended(BASE, 1))) | {"warnings": [older], "schema_version": 2})
    assert load_value(RunRecord, text).warnings == (Caveat(kind=kind, detail=detail),)


def test_other_words_for_a_caveat_change_no_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = four_h200(tmp_path)
    before = doubts(load([sample]))
    for kind in CaveatKind:
        monkeypatch.setitem(caveat.SENTENCES, kind, "in other words")
    assert doubts(load([sample])) == before


@pytest.mark.parametrize(("loss", "word"), [(3.0, "is faster but wrong"), (1.0, "is faster but wrong")])
def test_faster_but_wrong_is_a_warning(loss: float, word: str) -> None:
    numbers = {"steps": 40, "tokens_per_s_per_gpu": 100.0}
    base = [{**one, "train_loss": 2.0, **numbers} for one in speeds(*BASELINE)]
    new = [{**one, "train_loss": loss, **numbers, "tokens_per_s_per_gpu": 121.0} for one in speeds(*FAST)]
    cells = [Made(runs=base), Made(framework="liger", runs=new)]
    assert gains(*cells) == []
    (text,) = warned(*cells)
    side = "above" if loss > 2 else "below"
    assert text.startswith(
        f"liger on llama-1b at 1 GPU {word}: its training loss is 50 % {side} the baseline's after the same number of steps, so"
    )


def test_where_losses_cannot_be_compared_a_sentence_says_so_and_speeds_stand() -> None:
    base = speeds(*BASELINE, steps=40, effective_max_steps=40, train_loss=2.0, logged_losses="7:2 40:2")
    new = speeds(*FAST, steps=30, effective_max_steps=40, train_loss=9.0, logged_losses="10:9 30:9")
    cells = [Made(runs=base), Made(framework="liger", runs=new)]
    assert len(gains(*cells)) == 1
    said = "1 experiment had no baseline loss to compare with, so a wrong training would not be noticed: "
    assert warned(*cells) == [f"{said}liger on llama-1b at 1 GPU"]


# ------------------------------------------------------------------------------------------------------- failures


def test_failures_are_grouped_by_kind_with_their_causes() -> None:
    cells = [
        Made(framework=name, kinds=kinds, runs=runs)
        for name, kinds, runs in (
            ("a", ["oom_cuda"], []),
            ("b", ["nccl"], []),
            ("c", ["oom_cuda"], speeds(1.0)),
            ("d", [], speeds(1.0)),
        )
    ]
    found = [one for one in highlights(made_table(*cells)) if one.kind is HighlightKind.FAILURE]
    assert [one.text for one in found] == [
        "2 experiments failed with oom_cuda, 1 of them only in some runs "
        "(a on llama-1b at 1 GPU; c on llama-1b at 1 GPU): oom_cuda, in a sentence",
        "1 experiment failed with nccl (b on llama-1b at 1 GPU): nccl, in a sentence",
    ]
    assert [one.experiments for one in found] == [(cells[0].id, cells[2].id), (cells[1].id,)]


def test_an_experiment_that_failed_in_several_ways_is_in_the_sentence_of_each() -> None:
    cells = [Made(framework="a", kinds=["nccl", "oom_cuda", "nccl"]), Made(framework="b", kinds=["nccl"])]
    found = [one for one in highlights(made_table(*cells)) if one.kind is HighlightKind.FAILURE]
    assert [one.text for one in found] == [
        "2 experiments failed with nccl, 1 of them only in some runs "
        "(a on llama-1b at 1 GPU; b on llama-1b at 1 GPU): nccl, in a sentence",
        "1 experiment failed with oom_cuda, 1 of them only in some runs (a on llama-1b at 1 GPU): oom_cuda, in a sentence",
    ]


def test_causes_that_differ_only_in_their_numbers_are_one_cause() -> None:
    causes = ["tried 20 MiB", "tried 3.5 MiB", "no value"]
    records = [replace(failed(BASE, n), cause=cause) for n, cause in enumerate(causes, start=1)]
    found = ways([rows.of_run(BASE, record).outcome for record in records])
    assert [(way.runs, way.kind, way.cause) for way in found] == [
        (2, "oom_cuda", "tried 3.5 MiB"),
        (1, "oom_cuda", "no value"),
    ]


# --------------------------------------------------------------------------------------------------- bounds, names


def many(count: int, value: Callable[[int], float]) -> list[Made]:
    cells = []
    for n in range(count):
        model, factor = f"org/model-{n:03d}", value(n)
        cells += [
            Made(model=model, runs=speeds(*BASELINE)),
            Made(model=model, framework="liger", runs=speeds(*(v * factor for v in BASELINE))),
        ]
    return cells


def test_the_best_come_first_and_the_rest_is_counted() -> None:
    found = gains(*many(50, lambda n: 1 + n / 50))
    assert len(found) < 15
    values = [
        float(match[1])
        for text in found
        if (match := re.match(r"liger is [\d.]+ % faster \(([\d.]+)×.* on org/model", text))
    ]
    assert values == sorted(values, reverse=True) and len(values) == MOST_FASTER
    shown = sum("than" in text or "between" in text for text in found)
    assert (
        found[0].startswith("liger is 46 % faster (1.46×, 1.38 to 1.55) than baseline")
        and "over 50 comparisons" in found[0]
    )
    assert found[-1].startswith(f"{50 - shown + 1} more comparisons: ")


def test_the_second_place_comes_before_the_slowest() -> None:
    """After a race, the pair of interest is the winner and the next: it is never one of the pairs that are only counted."""
    shares = {"a": 1.0, "b": 0.95, "c": 0.8, "d": 0.6, "e": 0.4}
    cells = [
        Made(arguments={"kind": kind}, runs=speeds(*(value * share for value in BASELINE)))
        for kind, share in shares.items()
    ]
    second, *slowest, rest = gains(*cells)
    assert second.startswith("kind b is 5.0 % slower")
    assert [text[:6] for text in slowest] == ["kind e", "kind d"] and rest == "1 more comparison: 1 slower"


def test_after_a_race_more_repeats_are_no_advice() -> None:
    """A race makes few runs of what is clearly slower."""
    cells = Made(runs=speeds(100.0, 101.0)), Made(framework="liger", runs=speeds(121.0))
    table = made_table(*cells)
    raced = replace(table, raced=frozenset({cells[1].id}))
    of_single = [any("of single runs" in one.text for one in highlights(some)) for some in (table, raced)]
    assert of_single == [True, False]


def test_of_those_without_a_difference_what_may_be_most_comes_first_and_nothing_wide_is_called_alike() -> None:
    alike = [
        Made(model=f"alike-{n}", framework=name, runs=speeds(99.0, 100.0, 101.0))
        for n in (1, 2)
        for name in ("baseline", "x")
    ]
    wide = [
        Made(model=f"wide-{n}", framework=name, runs=speeds(*runs))
        for n in (1, 2, 3)
        for name, runs in (("baseline", (99.0, 100.0, 101.0)), ("x", (30.0 + n, 60.0, 120.0)))
    ]
    over_all, *found = gains(*alike, *wide)
    assert over_all.startswith("no clear difference between x and baseline: 0.") and "over 5 comparisons" in over_all
    assert [text.startswith("no clear difference between x and baseline on wide-") for text in found] == [
        True,
        True,
        False,
    ]
    assert found[-1] == "3 more comparisons: 2 without a difference, 1 without a clear difference"


@given(st.integers(0, 12), st.integers(0, 12))
@settings(deadline=None, max_examples=30)
def test_there_are_never_many_sentences(pairs: int, kinds: int) -> None:
    cells = [
        *many(pairs, lambda n: 0.8 + n / 10),
        *(Made(framework=f"f{n}", kinds=[f"kind_{n}"]) for n in range(kinds)),
    ]
    found = highlights(made_table(*cells))
    failures = [one for one in found if one.kind is HighlightKind.FAILURE]
    assert len(failures) == min(kinds, MOST_OTHERS + 1)
    assert {name for one in failures for name in one.experiments} == {
        f"full-config-llama-1b.f{n}.gpus1" for n in range(kinds)
    }
    compared = {name for one in found if one.kind is HighlightKind.GAIN for name in one.experiments}
    assert {Made(model=f"org/model-{n:03d}", framework="liger").id for n in range(pairs)} <= compared


HOSTILE = ["<script>alert(1)</script>", "a\nb\r\x1b[31m", "x" * 400, "\u202egnp.exe", "", "名前", "a, b and c"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_anywhere_are_one_printable_line(name: str) -> None:
    cells = [
        Made(model=name, runs=speeds(*BASELINE)),
        Made(
            model=name,
            framework=name or "-",
            runs=speeds(*FAST),
            warnings=(Caveat(kind=CaveatKind.THROTTLED, detail=name),),
        ),
        Made(model=name, framework="f", scenario=name, kinds=[name]),
    ]
    for one in highlights(made_table(*cells)):
        assert is_printable(one.text) and "\n" not in one.text and len(one.text) < 1000


def test_what_tells_two_cells_apart_is_in_their_names() -> None:
    cells = [
        Made(framework=framework, runs=speeds(*values), arguments={"max_seq_len": length, "seed": "1"})
        for length in ("512", "4096")
        for framework, values in (("baseline", BASELINE), ("liger", FAST))
    ]
    found = gains(*cells)
    assert len(set(found)) == 2 and all("max_seq_len 512" in text or "max_seq_len 4096" in text for text in found)
    assert not any("seed" in text for text in found)


def test_what_a_framework_sets_itself_is_no_part_of_its_name() -> None:
    plain = [Made(runs=speeds(1.0), arguments={"peft_method": name}) for name in ("none", "lora")]
    quantised = Made(framework="nf4", kinds=["nccl"], sets={"peft_method": "lora"})
    (text,) = texts(highlights(made_table(*plain, quantised)), HighlightKind.FAILURE)
    assert "(nf4 on llama-1b at 1 GPU)" in text


def test_processes_on_the_cpu_are_no_gpus() -> None:
    cells = [
        Made(framework=name, device=Device.CPU, runs=speeds(*runs))
        for name, runs in (("baseline", BASELINE), ("x", FAST))
    ]
    assert "on llama-1b with 1 CPU process" in gains(*cells)[0]


def test_a_fixed_batch_in_all_scales_beside_a_fixed_batch_a_device() -> None:
    cells = [
        Made(
            num_gpus=gpus,
            arguments={"per_device_train_batch_size": batch},
            global_batch=gpus * int(batch),
            runs=[{"tokens_per_s_per_gpu": speed}] * 2,
        )
        for gpus, batch, speed in ((1, "2", 100.0), (2, "1", 40.0), (2, "2", 80.0))
    ]
    (text,) = [text for text in gains(*cells) if "ideal scaling" in text]
    assert text.startswith("baseline on llama-1b, batch/device 2: 2 GPUs with batch/device 1 40.0 %"), text
    assert ", 2 GPUs 80.0 %" in text


def test_several_nodes_scale_from_one_node_of_as_many_gpus() -> None:
    cells = [
        Made(num_gpus=8, num_nodes=nodes, runs=[{"tokens_per_s_per_gpu": speed}])
        for nodes, speed in ((2, 90.0), (1, 100.0))
    ]
    assert gains(*cells) == ["baseline on llama-1b: 8 GPUs on 2 nodes 90.0 % of ideal scaling from 8 GPUs"]


# ------------------------------------------------------------------------- a count that is slower than its neighbours


def counts(*of: tuple[int, int, Sequence[float]], **same: Any) -> list[Made]:
    """Cells of these GPUs, nodes, and speeds per GPU of the runs."""
    return [
        Made(num_gpus=gpus, num_nodes=nodes, runs=[{"tokens_per_s_per_gpu": speed} for speed in runs], **same)
        for gpus, nodes, runs in of
    ]


def dips(*cells: Made) -> list[str]:
    return [text for text in gains(*cells) if " per GPU " in text or " per process " in text]


SLOWER, FASTER = (82.0, 82.5, 81.5), (98.0, 98.5, 97.5)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (
            counts((1, 1, BASELINE), (2, 1, BASELINE), (4, 1, SLOWER), (8, 1, FASTER), framework="ddp"),
            "ddp on llama-1b: 4 GPUs are 18 % slower (0.82×, 0.80 to 0.84) per GPU than 2 GPUs, "
            "and 16 % slower (0.84×, 0.83 to 0.85) than 8 GPUs",
        ),
        (
            counts((2, 1, [100.0]), (4, 1, [82.0]), (8, 1, [98.0])),
            "baseline on llama-1b: 4 GPUs ran at 0.82× (one run each) the speed per GPU of 2 GPUs, "
            "and at 0.84× (one run each) that of 8 GPUs",
        ),
        (
            counts((4, 1, BASELINE), (8, 1, SLOWER), (16, 2, FASTER)),
            "baseline on llama-1b: 8 GPUs are 18 % slower (0.82×, 0.80 to 0.84) per GPU than 4 GPUs, "
            "and 16 % slower (0.84×, 0.83 to 0.85) than 16 GPUs on 2 nodes",
        ),
        (
            counts((8, 1, BASELINE), (8, 2, SLOWER), (8, 4, FASTER)),
            "baseline on llama-1b: 8 GPUs on 2 nodes are 18 % slower (0.82×, 0.80 to 0.84) per GPU than 8 GPUs, "
            "and 16 % slower (0.84×, 0.83 to 0.85) than 8 GPUs on 4 nodes",
        ),
        (
            counts((4, 1, BASELINE), (8, 1, BASELINE), (8, 2, SLOWER), (16, 2, FASTER), (16, 4, FASTER)),
            "baseline on llama-1b: 8 GPUs on 2 nodes are 18 % slower (0.82×, 0.80 to 0.84) per GPU than 4 GPUs, "
            "and 16 % slower (0.84×, 0.83 to 0.85) than 16 GPUs on 4 nodes",
        ),
        (
            counts((1, 1, [100.0]), (2, 1, [80.0]), (3, 1, [100.0]), (4, 1, [80.0]), (5, 1, [90.0]), device=Device.CPU),
            "baseline on llama-1b: 2 CPU processes ran at 0.80× (one run each) the speed per process of 1 CPU process, "
            "and at 0.80× (one run each) that of 3 CPU processes; 4 CPU processes ran at 0.80× (one run each) the speed per "
            "process of 3 CPU processes, and at 0.89× (one run each) that of 5 CPU processes",
        ),
    ],
    ids=["several runs", "single runs", "a full node and two nodes", "nodes", "GPUs per node", "two counts"],
)
def test_a_count_that_is_slower_than_its_neighbours(cells: list[Made], expected: str) -> None:
    assert dips(*cells) == [expected]


@pytest.mark.parametrize(
    "cells",
    [
        counts((2, 1, BASELINE), (4, 1, SLOWER)),
        counts((2, 1, [100.0]), (4, 1, [92.0]), (8, 1, [100.0])),
        counts((2, 1, BASELINE), (4, 1, (60.0, 82.0, 110.0)), (8, 1, FASTER)),
        counts((2, 1, (100.0, 100.001)), (4, 1, (99.0, 99.001)), (8, 1, (100.0, 100.001))),
        [
            *counts((2, 1, BASELINE), (8, 1, FASTER)),
            *counts((4, 1, SLOWER), warnings=(Caveat(kind=CaveatKind.CONTAMINATED, detail="python (1234)"),)),
        ],
        [*counts((2, 1, BASELINE), (8, 1, FASTER)), *counts((4, 1, SLOWER), framework="other")],
    ],
    ids=[
        "two counts",
        "single runs differ little",
        "wide",
        "less than compare counts",
        "in doubt",
        "another framework",
    ],
)
def test_no_count_is_slower_without_a_clear_difference_to_both_neighbours(cells: list[Made]) -> None:
    assert dips(*cells) == []


def test_slower_counts_of_many_configurations_are_bounded() -> None:
    cells = [
        one for n in range(6) for one in counts((2, 1, [100.0]), (4, 1, [80.0 - n]), (8, 1, [100.0]), framework=f"f{n}")
    ]
    found = dips(*cells)
    assert [text[:2] for text in found] == ["f5", "f4", "f3", "f2", "2 "]
    assert found[-1] == "2 more configurations with a count that is slower per GPU than both neighbouring counts"


@given(st.lists(st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=4), min_size=3, max_size=6), st.booleans())
@settings(deadline=None)
def test_a_monotone_series_has_no_slower_count(runs: list[list[float]], falls: bool) -> None:
    order = sorted(runs, key=lambda some: fmean(map(math.log, some)), reverse=falls)
    nodes = [1, 1, 1, 2, 4, 8]
    assert dips(*counts(*((2**at, nodes[at], some) for at, some in enumerate(order)))) == []


def test_no_results_are_no_findings() -> None:
    assert highlights(made_table()) == ()


def test_the_order_of_experiments_changes_no_sentence() -> None:
    def found(table: ResultsTable) -> set[str]:
        return {one.text for one in highlights(with_baseline(table, ["baseline"]))}

    cells = many(4, lambda n: 0.7 + n / 4)
    assert found(made_table(*cells)) == found(made_table(*reversed(cells)))


# ------------------------------------------------------------------------------------------- energy, time of the GPUs


def test_a_clear_difference_of_the_energy_is_told() -> None:
    def told(*energies: float) -> str:
        new = [one | {"energy_per_real_token_j": j} for one, j in zip(speeds(*FAST), energies, strict=True)]
        base = [
            one | {"energy_per_real_token_j": j} for one, j in zip(speeds(*BASELINE), (1.0, 1.01, 0.99), strict=True)
        ]
        return gains(Made(runs=base), Made(framework="liger", runs=new))[0]

    assert told(0.76, 0.77, 0.75).endswith("; energy per token is 24 % lower (0.76×, 0.74 to 0.78)")
    assert "energy" not in told(1.0, 1.02, 0.98), "not clear"
    assert "energy" not in told(1.019, 1.02, 1.021), "clear, but too small to matter"


def test_time_of_the_gpus_that_measured_nothing_is_told() -> None:
    def told(steady_s: float, **more: object) -> list[str]:
        runs = [{"tokens_per_s": 1.0, "steady_s": steady_s}]
        return [text for text in gains(Made(runs=runs, **more)) if "measured nothing" in text]

    wall = made_table(Made(runs=speeds(1.0))).runs["wall_s"].tolist()[0]
    assert told(wall / 4) == [
        f"75 % of the GPU time measured nothing: start-up, loading and warm-up took {0.75 * wall / 3600:.2g} of "
        f"{wall / 3600:.2g} GPU-hours; runs with more steps measure more"
    ]
    assert told(wall * 0.6) == [] and told(2 * wall) == [] and told(wall / 4, device=Device.CPU) == []
    unsteady = Made(framework="liger", runs=[{"tokens_per_s": None, "steady_s": None, "steady_steps": None}])
    steady = Made(runs=[{"tokens_per_s": 1.0, "steady_s": wall / 4}])
    (text,) = [text for text in gains(steady, unsteady) if "measured nothing" in text]
    assert f" of {wall / 3600:.2g} GPU-hours of runs with a steady state; " in text


def test_operators_whose_calls_wait_for_the_host_are_told_the_idlest_first() -> None:
    def told(*shares: float, warnings: tuple[Caveat, ...] = ()) -> list[str]:
        frameworks = ("ddp", "liger", "fsdp")
        made = [
            Made(framework=name, runs=[{"tokens_per_s": 1.0, "device_busy_share": share}], warnings=warnings)
            for name, share in zip(frameworks, shares, strict=False)
        ]
        return [text for text in gains(*made) if "host-bound" in text]

    assert told(0.5, 0.9) == []
    (text,) = told(0.3, 0.1, 0.7)
    assert text.startswith("2 experiments are host-bound: the device computes for less than half of a call (liger")
    assert text.index("10 %") < text.index("30 %") and "70 %" not in text
    assert told(0.3)[0].startswith("1 experiment is host-bound")
    assert told(0.3, warnings=(Caveat(kind=CaveatKind.BUSY_HOST, detail="a process waited for a core"),)) == []

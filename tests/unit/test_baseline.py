"""Columns relative to a baseline: the numbers of the sentences, in the table."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from statistics import fmean

import pandas as pd
import pytest
from factories.results import BASE, ended
from factories.tables import Made, made_table, speeds
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.records import Caveat, CaveatKind, Status, Target
from orchestrator.report.highlights import highlights
from orchestrator.report.tables import as_markdown, benchmarks
from orchestrator.results.table import rows
from orchestrator.results.table.baseline import COLUMNS, ok_runs, pairs_of, with_baseline
from orchestrator.results.table.column_choice import cells, column
from orchestrator.results.table.doubts import DoubtKind, doubts
from orchestrator.results.table.load import ResultsTable, of_rows

RUNS = st.lists(st.floats(50.0, 500.0), min_size=1, max_size=4)


def row(table: ResultsTable, framework: str) -> dict[str, object]:
    frame = table.experiments
    return {name: cells(frame[name])[cells(frame["framework_config"]).index(framework)] for name in frame.columns}


@given(RUNS, RUNS)
@settings(deadline=None)
def test_a_speed_up_is_the_ratio_of_the_columns_beside_it(base: list[float], new: list[float]) -> None:
    table = with_baseline(made_table(Made(runs=speeds(*base)), Made(framework="new", runs=speeds(*new))), ["baseline"])
    mine, theirs = row(table, "new"), row(table, "baseline")
    assert mine["speedup"] == pytest.approx(mine["tokens_per_s"] / theirs["tokens_per_s"])  # type: ignore[operator]
    assert theirs["speedup"] == 1.0
    if min(len(base), len(new)) > 1:
        assert mine["speedup_low"] <= mine["speedup"] * (1 + 1e-12)  # type: ignore[operator]
        assert mine["speedup"] <= mine["speedup_high"] * (1 + 1e-12)  # type: ignore[operator]
    else:
        assert "speedup_low" not in mine and "speedup_high" not in mine


@given(RUNS, RUNS)
@settings(deadline=None)
def test_exchanging_the_sides_inverts_the_ratio(base: list[float], new: list[float]) -> None:
    table = made_table(Made(runs=speeds(*base)), Made(framework="new", runs=speeds(*new)))
    one, other = row(with_baseline(table, ["baseline"]), "new"), row(with_baseline(table, ["new"]), "baseline")
    assert one["speedup"] == pytest.approx(1 / other["speedup"])  # type: ignore[operator]


def test_the_last_tries_that_are_ok_count() -> None:
    table = made_table(Made(runs=speeds(100.0, 110.0), kinds=["nccl"]), Made(framework="new", runs=speeds(210.0)))
    assert row(with_baseline(table, ["baseline"]), "new")["speedup"] == pytest.approx(210 / math.sqrt(100 * 110))


def test_of_several_tries_at_a_repeat_the_last_one_counts_whatever_the_order_of_rows() -> None:
    tries = [ended(BASE, 1, attempt=attempt, tokens_per_s=speed) for attempt, speed in ((1, 100.0), (2, 200.0))]
    table = of_rows([rows.of_run(BASE, record) for record in tries])
    backwards = replace(table, runs=table.runs[::-1].reset_index(drop=True))
    for one in (table, backwards):
        assert ok_runs(one, ["tokens_per_s"]) == [{"tokens_per_s": [200.0]}]
    lost = replace(tries[1], status=Status.FAILED)
    assert ok_runs(of_rows([rows.of_run(BASE, one) for one in (tries[0], lost)]), ["tokens_per_s"]) == [{}]


def test_memory_is_of_the_first_source_that_both_have() -> None:
    base = speeds(1.0, peak_allocated_bytes=100, device_peak_used_bytes=400)
    new = speeds(1.0, peak_reserved_bytes=70, device_peak_used_bytes=300)
    table = made_table(Made(runs=base), Made(framework="new", runs=new))
    assert row(with_baseline(table, ["baseline"]), "new")["memory_ratio"] == 0.75
    (one,) = pairs_of(table)
    assert one.memory is not None and one.memory.metric == "device_peak_used_bytes"
    means = table.experiments.set_index("framework_config")["device_peak_used_bytes"]
    assert one.memory.ratio == means["new"] / means["baseline"]


def test_an_experiment_without_a_partner_has_no_ratio() -> None:
    cells_of = (Made(runs=speeds(100.0)), Made(framework="new", model="org/other", runs=speeds(120.0)))
    table = made_table(*cells_of)
    beside_it = with_baseline(table, ["baseline"])
    assert not set(COLUMNS) & set(beside_it.experiments.columns)
    (said,) = beside_it.warnings
    assert said.startswith("--baseline baseline: no experiment has a partner")
    assert pairs_of(table) == () and table.warnings == ()
    paired = made_table(Made(runs=speeds(100.0)), Made(framework="new", runs=speeds(120.0)))
    assert with_baseline(paired, ["baseline"]).warnings == ()


def test_a_call_that_takes_twice_as_long_has_half_the_speed_and_other_shapes_are_not_compared() -> None:
    own = {"baseline": {"implementation": "eager"}}
    fast, slow = ([{"call_time_s": seconds}] for seconds in (1e-5, 2e-5))
    table = made_table(
        Made(runs=fast, arguments={"implementation": "eager", "shape": "8x8"}, **own),
        Made(runs=slow, arguments={"implementation": "liger", "shape": "8x8"}, **own),
        Made(runs=slow, arguments={"implementation": "eager", "shape": "9x9"}, **own),
    )
    assert column(with_baseline(table).experiments, "speedup") == [1.0, pytest.approx(0.5), None]


def test_a_speed_up_in_doubt_is_shown_only_if_it_is_asked_for() -> None:
    doubt = Caveat(kind=CaveatKind.NOT_LEVEL, detail="its last 20 steps are slower")
    own = {"baseline": {"optim": "adamw"}}
    table = made_table(
        Made(runs=speeds(100.0), arguments={"optim": "adamw"}, **own),
        Made(runs=speeds(120.0), arguments={"optim": "sgd"}, **own),
        Made(runs=speeds(140.0), arguments={"optim": "lion"}, warnings=(doubt,), **own),
    )

    def speedups(*named: str) -> dict[str, float | None]:
        frame = with_baseline(table, named).experiments
        return dict(zip(column(frame, "optim"), column(frame, "speedup"), strict=True))

    assert speedups() == {"adamw": 1.0, "sgd": pytest.approx(1.2), "lion": None}
    assert speedups("optim=adamw") == {"adamw": 1.0, "sgd": pytest.approx(1.2), "lion": pytest.approx(1.4)}
    asked = with_baseline(table, ["optim=adamw"]).experiments
    asked = asked.assign(speedup_low=pd.NA, speedup_high=pd.NA)  # single runs have no interval
    assert column(asked, "doubt") == [None, None, "not steady"]
    assert [text.endswith("?") for text in as_markdown.words(asked, "speedup")] == [False, False, True]
    single = asked.drop(columns=["speedup_low", "speedup_high"])
    assert [text.endswith("×") for text in as_markdown.words(single, "speedup")] == [True, True, False], (
        "single runs, too"
    )


def test_the_baseline_that_is_asked_for_has_its_own_doubt() -> None:
    """Its row had no doubt, and its speed a mark: a reader who filters by `doubt` took it for a claim."""
    busy = Caveat(kind=CaveatKind.BUSY_HOST, detail="a process's threads waited for a core in 54% of the time")
    table = made_table(
        Made(runs=speeds(100.0), warnings=(busy,)),
        Made(framework="liger", runs=speeds(120.0)),
        Made(framework="liger", model="config:other", runs=speeds(90.0), warnings=(busy,)),
        Made(framework="liger", model="config:third", runs=speeds(90.0)),
    )
    asked = with_baseline(table, ["baseline"]).experiments
    assert column(asked, "doubt") == ["busy host", "busy host", "busy host", None], "also where nothing is compared"
    assert [text.endswith("?") for text in as_markdown.words(asked, "speedup")] == [True, True, False, False]
    assert column(with_baseline(table).experiments, "doubt") == [None] * 4
    both = (Made(framework=name, runs=speeds(100.0), warnings=(busy,)) for name in ("baseline", "liger"))
    text = benchmarks(with_baseline(made_table(*both), ["baseline"]))
    assert [row["doubt"] for row in csv.DictReader(io.StringIO(text))] == ["busy host"] * 2, "also where all rows agree"


def test_the_doubt_about_a_comparison_stays_beside_those_about_the_speed() -> None:
    """A wrong operator on a busy host was only on a busy host, beside its speed-up of 6.56."""
    busy = Caveat(kind=CaveatKind.BUSY_HOST, detail="a process's threads waited for a core in 54% of the time")

    def made(name: str, error: float, seconds: float) -> Made:
        runs = [{"call_time_s": seconds, "relative_error": error}] if seconds else []
        return Made(runs=runs, arguments={"implementation": name}, warnings=(busy,), kinds=[] if runs else ["unknown"])

    table = made_table(
        made("eager", 1e-7, 2e-5), made("wrong", 1e-2, 1e-5), made("same", 1e-7, 1e-5), made("gone", 0, 0)
    )
    asked = with_baseline(table, ["implementation=eager"])
    assert column(asked.experiments, "doubt") == ["busy host", "less exact, busy host", "busy host", None]
    assert [doubt.kind.value for doubt in doubts(asked)[1]] == ["less exact", "busy host"]


def test_a_loss_is_compared_beside_doubts_about_the_speed() -> None:
    busy = Caveat(kind=CaveatKind.BUSY_HOST, detail="a process's threads waited for a core in 54% of the time")
    made = [
        Made(runs=speeds(speed, train_loss=loss), arguments={"attn_implementation": word}, warnings=(busy,))
        for word, speed, loss in (("no", 100.0, 2.0), ("yes", 120.0, 3.0))
    ]
    asked = with_baseline(made_table(*made), ["attn_implementation=no"]).experiments
    assert column(asked, "loss_difference")[1] == pytest.approx(0.5)
    assert column(asked, "doubt")[1] == "other loss, busy host"


def test_runs_of_different_models_are_in_doubt() -> None:
    table = made_table(
        Made(runs=[{"tokens_per_s": 100.0}, {"tokens_per_s": 104.0}]), Made(framework="new", runs=speeds(120.0, 121.0))
    )
    assert [pair.in_doubt for pair in pairs_of(table)] == [False]
    runs = table.runs.assign(effective_model_fingerprint=["a", "b", "a", "a"])
    changed = replace(table, runs=runs)
    assert [pair.in_doubt for pair in pairs_of(changed)] == [True]
    warned = [shown.text for shown in highlights(changed)]
    assert any(
        "trained different models in its runs (the model's folder or its saved weights changed" in text
        for text in warned
    )


def test_repeats_with_their_own_seeds_have_their_own_weights() -> None:
    """With a target, each repeat has its own seed, so different saved weights are no change."""
    for target, doubted in ((None, True), (Target(loss=1.0), False)):
        one = replace(BASE, model="config:tiny-llama", target=target)
        runs = [ended(one, repeat, tokens_per_s=100.0 + repeat) for repeat in (1, 2)]
        runs = [replace(run, settings={"model_fingerprint": f"{run.repeat}"}) for run in runs]
        found = doubts(of_rows([rows.of_run(one, run) for run in runs]))
        assert any(doubt.kind is DoubtKind.MIXED for row in found for doubt in row) == doubted


@pytest.mark.parametrize(("name", "what"), [("provenance_torch", "torch"), ("provenance_python_version", "Python")])
def test_runs_with_different_packages_are_in_doubt(name: str, what: str) -> None:
    table = made_table(Made(runs=speeds(100.0, 104.0)), Made(framework="new", runs=speeds(120.0, 121.0)))
    changed = replace(table, runs=table.runs.assign(**{name: ["2.12.0", "2.13.0", "2.13.0", "2.13.0"]}))
    assert [pair.in_doubt for pair in pairs_of(changed)] == [True]
    warned = [shown.text for shown in highlights(changed)]
    expected = f"1 experiment had different packages in its runs ({what} 2.12.0 and 2.13.0), so no speed is claimed: "
    assert any(text.startswith(expected) for text in warned)
    between = replace(table, runs=table.runs.assign(**{name: ["2.12.0", "2.12.0", "2.13.0", "2.13.0"]}))
    assert [pair.in_doubt for pair in pairs_of(between)] == [False], "two experiments may have two versions"


def test_the_table_itself_stays_as_it_was() -> None:
    table = made_table(Made(runs=speeds(100.0, 101.0)), Made(framework="new", runs=speeds(120.0, 121.0)))
    before = table.experiments.copy()
    widened = with_baseline(table, ["baseline"])
    pd.testing.assert_frame_equal(table.experiments, before)
    pd.testing.assert_frame_equal(widened.experiments[list(before.columns)], before)
    assert widened.runs is table.runs


def test_many_experiments_are_compared_quickly() -> None:
    """Arguments are told apart by a look-up, not pair by pair: 2,000 × 2,000 would take minutes."""
    sizes = [str(n) for n in range(1000)]
    table = made_table(
        *(Made(arguments={"lora_r": n}, runs=speeds(100.0)) for n in sizes),
        *(Made(framework="new", arguments={"lora_r": n}, runs=speeds(120.0)) for n in sizes),
    )
    found = pairs_of(table)
    assert len(found) == 1000
    assert fmean(one.speed.ratio.value for one in found if one.speed) == pytest.approx(1.2)

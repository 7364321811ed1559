"""The charts of runs over time: the runs of an experiment lie over each other, and what does not count is said."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from factories import campaigns as made_campaigns

from orchestrator.records import Caveat, CaveatKind
from orchestrator.report.page import runs
from orchestrator.report.page.charts import all_charts, chart_data, colours
from orchestrator.report.page.charts.chart import Chart
from orchestrator.report.page.charts.over_time import Drawn
from orchestrator.report.page.charts.over_time.devices import devices
from orchestrator.report.page.charts.over_time.step_times import step_times
from orchestrator.report.page.folders import Folders
from orchestrator.report.series import Device, RunSeries, Steps
from orchestrator.results.table.load import ResultsTable, load

LEVEL = tuple((float(n), 0.30 + 0.001 * (n % 3)) for n in range(2, 31))


def run(
    name: str, *, first_s: float = 2.0, cut: int | None = 1, experiment: str = "liger · 1 GPU", **more: Any
) -> Drawn:
    first = (1.0, first_s)
    steady = {"cut": cut, "median_s": 0.301} if cut is not None else {}
    steps = Steps(points=(first, *LEVEL), first=first, steps=30, ranks=1, **steady)
    return Drawn(experiment=experiment, run=name, series=RunSeries(steps=steps), **more)


def lines(figure: dict[str, Any]) -> list[dict[str, Any]]:
    return [trace for trace in figure["data"] if trace["mode"] == "lines"]


def test_all_runs_of_an_experiment_are_in_one_drawing_in_its_colour() -> None:
    drawn = [run(f"r{n}-t1", place=3) for n in (10, 2, 1)] + [run("r1-t1", experiment="baseline · 1 GPU", place=0)]
    chart = step_times(drawn, [])
    assert [view.at for view in chart.views] == [("liger · 1 GPU",), ("baseline · 1 GPU",)]
    traces = lines(chart.views[0].figure)
    assert [trace["name"] for trace in traces] == ["r1-t1", "r2-t1", "r10-t1"]
    assert {trace["line"]["color"] for trace in traces} == {colours.colour(3)}
    assert [trace["opacity"] for trace in traces] == sorted({trace["opacity"] for trace in traces}, reverse=True)
    assert [row[0] for row in chart.views[0].rows] == ["r1-t1", "r2-t1", "r10-t1"]
    assert chart.views[0].summary.startswith("3 runs of 30 steps on 1 rank: first step 2 s, 1 step of warm-up, then a ")


def test_a_run_that_does_not_count_is_dashed_and_said_to_be_so() -> None:
    drawn = [
        run("r1-t1", first_s=9.0, not_counted="slow first run"),
        run("r2-t1"),
        run("r3-t1", cut=None, not_counted="failed"),
    ]
    (view,) = step_times(drawn, []).views
    assert [(trace["name"], trace["line"]["dash"]) for trace in lines(view.figure)] == [
        ("r1-t1 (slow first run, not counted)", "dash"),
        ("r2-t1", "solid"),
        ("r3-t1 (failed, not counted)", "dash"),
    ]
    assert "first step 2 s to 9 s" in view.summary
    assert view.summary.endswith(
        "1 run had no steady state. r1-t1 does not count (slow first run). r3-t1 does not count (failed)."
    )
    assert view.rows[0][0] == "r1-t1 (slow first run, not counted)"


def test_first_steps_off_the_scale_are_one_mark_with_all_numbers() -> None:
    (view,) = step_times([run("r1-t1", first_s=9.0), run("r2-t1", first_s=2.5), run("r3-t1", first_s=0.305)], []).views
    (marks,) = [trace for trace in view.figure["data"] if trace["name"] == "first step"]
    assert marks["hovertext"] == ["r1-t1: first step 9 s<br>r2-t1: first step 2.5 s", "r3-t1: first step 305 ms"]
    assert view.figure["layout"]["annotations"][0]["text"] == "first step 2.5 s to 9 s, off the scale ↑"
    low, high = view.figure["layout"]["yaxis"]["range"]
    assert low < 300 and max(y for trace in lines(view.figure) for y in trace["y"]) <= high < 330
    assert [len(trace["x"]) for trace in lines(view.figure)] == [29, 29, 30]


def test_the_longest_warm_up_is_shaded_and_each_has_its_end() -> None:
    (view,) = step_times([run("r1-t1", cut=1), run("r2-t1", cut=4), run("r3-t1", cut=1)], []).views
    band, *ends, median = view.figure["layout"]["shapes"]
    assert (band["type"], band["x1"]) == ("rect", 4.5)
    assert [end["x0"] for end in ends] == [1.5, 4.5]
    assert median["y0"] == pytest.approx(301)
    assert "1 to 4 steps of warm-up" in view.summary


GPU = Device(place=0, uuid=None, memory_bytes=((-9.0, 0.0), (0.5, 2.0**30)), power_w=((-9.0, 76.0), (20.0, 700.0)))


def test_memory_and_power_begin_with_the_first_step() -> None:
    of_gpus = RunSeries(devices=(GPU, replace(GPU, place=1)), window=(2.0, 19.0), from_first_step=True)
    (view,) = devices([Drawn(experiment="liger", run="r1-t1", series=of_gpus, place=2)], []).views
    axis = view.figure["layout"]["xaxis"]
    assert (axis["range"], axis["title"]["text"]) == ([-0.2, 20.0], "seconds since the first step began")
    assert min(x for trace in view.figure["data"] for x in trace["x"]) == -9, "a double-click shows what was before"
    assert {trace["line"]["color"] for trace in view.figure["data"]} == {colours.colour(2)}
    looks = {trace["name"]: (trace["opacity"], trace["line"]["dash"]) for trace in view.figure["data"]}
    assert looks["GPU 0"] != looks["GPU 1"]


def test_without_a_first_step_the_axis_says_what_zero_is() -> None:
    (view,) = devices([Drawn(experiment="liger", run="r1-t1", series=RunSeries(devices=(GPU,)))], []).views
    axis = view.figure["layout"]["xaxis"]
    assert axis["title"]["text"] == "seconds since the first reading"
    assert "range" not in axis


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = list(made_campaigns.experiments(("baseline", "liger"), ("config:llama-1b",), (1, 2)))
    return made_campaigns.campaign(tmp_path_factory.mktemp("over") / "results", chosen, repeats=3, series=99)


def drawn_charts(table: ResultsTable, root: Path) -> dict[str, Chart]:
    known, ended = chart_data.read(table, most=100), runs.read(table.runs)
    made = all_charts.charts(table, known, ended, Folders.of([root]), capacities={})
    return {chart.id: chart for chart in made if isinstance(chart, Chart)}


def test_a_cold_first_run_is_drawn_as_one_that_does_not_count(campaign: Path) -> None:
    table = load([campaign])
    cold = Caveat(kind=CaveatKind.COLD_FIRST_RUN, detail="it is clearly slower than the others")
    table.runs.loc[table.runs.index[0], "warnings"] = cold.sentence
    view = drawn_charts(table, campaign)["steps"].views[0]
    assert [row[0] for row in view.rows] == ["r1-t1 (slow first run, not counted)", "r2-t1", "r3-t1"]


def test_what_does_not_fit_is_said_and_first_runs_come_first(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_charts, "MOST_STEPS", 6)
    monkeypatch.setattr(all_charts, "MOST_GPUS", 2)
    charts = drawn_charts(load([campaign]), campaign)
    assert [len(view.rows) for view in charts["steps"].views] == [2, 2, 1, 1]
    assert [view.at[1] for view in charts["devices"].views] == ["r1-t1", "r1-t1"]
    assert charts["steps"].notes == (
        "The page has room for the step times of 6 runs; those of 6 more runs are only in their folders.",
    )
    assert charts["devices"].notes == (
        "The page has room for the memory and power of 2 runs; those of 10 more runs are only in their folders.",
    )


def test_long_runs_leave_room_for_fewer(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_charts, "STEP_POINTS", 161)  # a run has 40 steps
    assert sum(len(view.rows) for view in drawn_charts(load([campaign]), campaign)["steps"].views) == 5


def test_the_most_step_times_leave_the_page_of_a_thousand_experiments_small() -> None:
    """A page of 1000 experiments has less than 15 MB, of which other things take about 12."""
    shortest = all_charts.STEP_POINTS // all_charts.MOST_STEPS
    for length, count in ((shortest, all_charts.MOST_STEPS), (200, all_charts.STEP_POINTS // 200)):
        points = tuple((float(n), 0.300123 + 0.001234 * (n % 7)) for n in range(length))
        whole = RunSeries(steps=Steps(points=points, first=points[0], steps=9999, ranks=8, cut=1, median_s=0.3))
        drawn = [replace(run("r1-t1", experiment=f"{n}"), series=whole) for n in range(count)]
        written = json.dumps([asdict(view) for view in step_times(drawn, []).views], separators=(",", ":"))
        assert len(written) < 2_500_000

"""`tunebench.plot`: the figure has the numbers of the frame in the colours of the page, and the findings are the report's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from factories.results import BASE, ended, failed, stored

import tunebench
from orchestrator.errors import SelectionError
from orchestrator.records import Caveat, CaveatKind, Experiment, Framework, RunRecord
from orchestrator.report.highlights import highlights
from orchestrator.report.page.shell import TEMPLATES
from orchestrator.report.write import load_table

SPEEDS = {"baseline": 100.0, "liger": 130.0, "sdpa": 80.0}


def of(framework: str, **fields: Any) -> Experiment:
    return replace(BASE, id=f"full-{framework}-1", framework=Framework(name=framework, digest=framework), **fields)


def three_runs(one: Experiment, speed: float) -> list[RunRecord]:
    return [ended(one, n, tokens_per_s=speed + n) for n in (1, 2, 3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make three frameworks with three runs each, and a fourth that failed."""
    broken = of("broken")
    cells = [(of(name), three_runs(of(name), speed)) for name, speed in SPEEDS.items()]
    return stored(tmp_path_factory.mktemp("plot") / "results", *cells, (broken, [failed(broken, 1)]))


def points(figure: Any) -> list[tuple[float, float, float]]:
    """Return the points of a figure and the lengths of their whiskers to the left and right, from the top."""
    drawn = []
    for trace in figure.data:
        if trace.mode == "markers":
            drawn += zip(trace.y, trace.x, trace.error_x.arrayminus, trace.error_x.array, strict=True)
    return [(x, low, high) for _, x, low, high in sorted(drawn)]


def words(figure: Any) -> list[str]:
    return [text.strip("\N{NO-BREAK SPACE}") for trace in figure.data if trace.mode == "text" for text in trace.text]


def test_the_points_and_whiskers_are_the_numbers_of_the_frame(folder: Path) -> None:
    frame = tunebench.load(folder, baseline="baseline")
    rows = frame[frame["framework_config"].isin(["liger", "sdpa"])].sort_values("speedup", ascending=False)
    found = points(tunebench.plot.speedup(frame))
    assert [x for x, _, _ in found] == pytest.approx(rows["speedup"].tolist(), rel=1e-4)
    assert [x - low for x, low, _ in found] == pytest.approx(rows["speedup_low"].tolist(), rel=1e-4)
    assert [x + high for x, _, high in found] == pytest.approx(rows["speedup_high"].tolist(), rel=1e-4)


def test_without_a_named_baseline_it_draws_the_comparisons_of_the_report(folder: Path) -> None:
    frame = tunebench.load(folder)
    assert "speedup" not in frame
    assert tunebench.plot.speedup(frame) == tunebench.plot.speedup(tunebench.load(folder, baseline="baseline"))


def test_a_selection_of_rows_draws_these_rows_and_keeps_their_baseline(folder: Path) -> None:
    beside = tunebench.load(folder, baseline="baseline")
    figure = tunebench.plot.speedup(beside[beside["speedup"] > 1.1])
    assert [round(x, 1) for x, _, _ in points(figure)] == [1.3]
    assert [text.strip() for text in figure.layout.yaxis.ticktext] == ["liger"]
    assert figure.layout.xaxis.title.text == "speed relative to baseline"
    figure = tunebench.plot.speedup(tunebench.load(folder, baseline="liger"))
    assert figure.layout.xaxis.title.text == "speed relative to liger" and len(points(figure)) == 2


def test_the_colours_are_those_of_the_pages_light_theme(folder: Path) -> None:
    text = tunebench.plot.speedup(tunebench.load(folder)).to_json()
    used = set(re.findall(r'"#[0-9a-f]{6}"', text))
    light = (TEMPLATES / "page.css").read_text(encoding="utf-8").partition("}")[0]
    assert used and {colour.strip('"') for colour in used} <= set(re.findall(r"#[0-9a-f]{6}", light))
    assert '"@' not in text


def test_an_interval_that_is_too_long_for_the_plot_is_cut_there_and_its_words_are_whole(tmp_path: Path) -> None:
    wild = [ended(of("wild"), n, tokens_per_s=speed) for n, speed in ((1, 50.0), (2, 250.0))]
    calm = three_runs(of("baseline"), 100.0)
    frame = tunebench.load(stored(tmp_path / "r", (of("baseline"), calm), (of("wild"), wild)), baseline="baseline")
    figure = tunebench.plot.speedup(frame)
    row = frame[frame["framework_config"] == "wild"].iloc[0]
    ((x, low, high),) = points(figure)
    assert x + high < row["speedup_high"] and x - low > row["speedup_low"]
    assert words(figure) == [f"{x:.2f}× ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"]


@pytest.mark.parametrize(
    ("doubted", "said"), [("liger", ["⚠ throttled"]), ("baseline", ["⚠ baseline: throttled", "⚠ baseline: throttled"])]
)
def test_a_speed_in_doubt_has_words_and_no_point(tmp_path: Path, doubted: str, said: list[str]) -> None:
    caveat = Caveat(kind=CaveatKind.THROTTLED, detail="30 % of the time")
    cells = [
        (
            of(name),
            [replace(run, warnings=(caveat,)) if name == doubted else run for run in three_runs(of(name), speed)],
        )
        for name, speed in SPEEDS.items()
    ]
    figure = tunebench.plot.speedup(tunebench.load(stored(tmp_path / "r", *cells)))
    assert [word for word in words(figure) if "⚠" in word] == said
    assert len(points(figure)) == 2 - len(said)


def test_findings_are_the_sentences_of_the_report(folder: Path) -> None:
    frame = tunebench.load(folder)
    report = [found.text for found in highlights(load_table([folder]))]
    found = tunebench.plot.findings(frame)
    assert [re.sub("^(note|warning|failed): ", "", text) for text in found] == report
    assert any(text.startswith("liger is ") for text in found) and any(text.startswith("failed: ") for text in found)


def test_findings_of_some_rows_are_the_sentences_about_them(folder: Path) -> None:
    frame = tunebench.load(folder)
    everything = tunebench.plot.findings(frame)
    some = tunebench.plot.findings(frame[frame["framework_config"] == "sdpa"])
    assert some == [text for text in everything if text.startswith("sdpa is ")] and len(some) == 1
    runs = tunebench.load(folder, rows="runs")
    assert tunebench.plot.findings(runs[runs["framework_config"] == "sdpa"]) == some


def test_a_frame_in_other_units_and_of_several_folders_draws_the_same_points(folder: Path, tmp_path: Path) -> None:
    second = stored(tmp_path / "results-2", *((of(n), three_runs(of(n), 2 * v)) for n, v in SPEEDS.items()))
    both = tunebench.load([folder, second], units="readable", all=True)
    assert len(points(tunebench.plot.speedup(both))) == 4
    of_second = tunebench.plot.speedup(both[both["results"] == "results-2"])
    assert points(of_second) == points(tunebench.plot.speedup(tunebench.load(second)))


@pytest.mark.parametrize("function", [tunebench.plot.speedup, tunebench.plot.findings])
def test_a_frame_of_unknown_origin_is_refused_in_a_sentence(function: Any, folder: Path) -> None:
    frame = tunebench.load(folder)
    with pytest.raises(SelectionError, match=r"give a frame of tunebench\.load"):
        function(pd.DataFrame({"id": frame["id"]}))
    with pytest.raises(SelectionError, match="has no column 'id'"):
        function(frame[["status"]])


def test_rows_without_a_comparison_are_refused_in_a_sentence(folder: Path) -> None:
    frame = tunebench.load(folder)
    with pytest.raises(SelectionError, match="no row has a speed-up"):
        tunebench.plot.speedup(frame[frame["framework_config"] == "broken"])

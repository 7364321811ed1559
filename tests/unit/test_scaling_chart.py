"""The chart of scaling: the numbers of the findings with their intervals, and the same speeds in tokens per second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories.tables import Made, made_table
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.records import Caveat, CaveatKind
from orchestrator.report.highlights import highlights
from orchestrator.report.page import folders, table_data
from orchestrator.report.page.charts import bars, chart_data
from orchestrator.report.page.charts.chart import View
from orchestrator.report.page.charts.curves.scaling import scaling
from orchestrator.report.tables import terminal

NOT_LEVEL = Caveat(kind=CaveatKind.NOT_LEVEL, detail="its last 20 steps are slower")


def runs(gpus: int, *per_gpu: float) -> list[dict[str, float | int | str | None]]:
    return [{"tokens_per_s": value * gpus, "tokens_per_s_per_gpu": value} for value in per_gpu]


def made(framework: str, *counts: int, share: float = 0.97, **more: Any) -> list[Made]:
    speeds = {count: [base * share ** (count - 1) for base in (99.0, 100.0, 102.0)] for count in counts}
    return [Made(framework=framework, num_gpus=count, runs=runs(count, *speeds[count]), **more) for count in counts]


def views(*cells: Made) -> dict[str, View]:
    return {view.at[1]: view for view in scaling(chart_data.read(made_table(*cells), most=100), "Model").views}


def traces(view: View) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in view.figure["data"] if "marker" in trace}


def test_whiskers_and_words_are_those_of_the_findings() -> None:
    cells = made("baseline", 1, 2, 4)
    (finding,) = [one.text for one in highlights(made_table(*cells)) if "of ideal scaling" in one.text]
    view = views(*cells)["share of ideal"]
    (row,) = view.rows
    assert row[:2] == ("baseline", "100.0%")
    assert finding == f"baseline on llama-1b: 2 GPUs {row[2]}, 4 GPUs {row[3]} of ideal scaling from 1 GPU"
    line = traces(view)["baseline"]
    low, high = (float(end) / 100 for end in row[3].partition("(")[2].rstrip(")").split(" to "))
    assert line["y"][2] + line["error_y"]["array"][2] == pytest.approx(high, abs=0.0006)
    assert line["y"][2] - line["error_y"]["arrayminus"][2] == pytest.approx(low, abs=0.0006)
    assert line["error_y"]["array"][0] is None, "the smallest count is ideal by definition"
    assert f"4 GPUs: {row[3]} of ideal" in line["hovertext"][2]


@given(st.lists(st.floats(0.3, 1.1), min_size=1, max_size=4), st.integers(1, 4))
@settings(deadline=None, max_examples=20)
def test_every_line_starts_at_its_ideal_and_fits(shares: list[float], least: int) -> None:
    counts = (least, 2 * least, 4 * least)
    found = views(*(one for at, share in enumerate(shares) for one in made(f"f{at}", *counts, share=share)))
    low, high = found["share of ideal"].figure["layout"]["yaxis"]["range"]
    for line in traces(found["share of ideal"]).values():
        assert line["y"][0] == 1.0
        assert line["x"] == sorted(line["x"])
        assert all(low < y < high for y in line["y"])
        assert [round(x) for x in line["x"]] == list(counts), "moved a little, so that whiskers do not cover each other"


def test_the_absolute_view_has_speeds_and_ideal_lines() -> None:
    view = views(*made("baseline", 2, 4), *made("liger", 2, 4))["tokens/s"]
    line = traces(view)["baseline"]
    ideal = [trace for trace in view.figure["data"] if trace["name"] == "ideal"]
    assert line["x"] == [2, 4]
    assert line["y"] == pytest.approx([194.65, 366.29], rel=1e-3)
    assert [trace["y"] for trace in ideal] == [pytest.approx([194.65, 389.3], rel=1e-3)] * 2
    assert [trace["showlegend"] for trace in ideal] == [True, False]
    assert all(line["error_y"]["array"])
    assert view.summary.startswith("2 rows over 2, 4 GPUs; the highest is ")
    assert view.rows[0][2].startswith("366.3 tokens/s (")
    axis = view.figure["layout"]["yaxis"]
    assert axis["tickvals"] == [200, 300, 400]


def test_what_is_in_doubt_is_hollow_and_has_no_whisker() -> None:
    small, large = made("baseline", 1, 2)
    doubted = Made(framework="baseline", num_gpus=2, runs=large.runs, warnings=(NOT_LEVEL,))
    line = traces(views(small, doubted)["share of ideal"])["baseline"]
    assert line["marker"]["symbol"] == ["circle", "circle-open"]
    assert "error_y" not in line
    base = Made(framework="baseline", num_gpus=1, runs=small.runs, warnings=(NOT_LEVEL,))
    assert traces(views(base, large)["share of ideal"])["baseline"]["marker"]["symbol"] == ["circle-open"] * 2


def test_a_single_run_has_no_interval_and_is_no_doubt() -> None:
    cells = [Made(num_gpus=count, runs=runs(count, 100.0 - count)) for count in (1, 2)]
    line = traces(views(*cells)["share of ideal"])["baseline"]
    assert line["marker"]["symbol"] == ["circle", "circle"]
    assert "error_y" not in line


def test_a_scaling_is_in_doubt_with_either_speed_wherever_it_is_shown() -> None:
    """It had no mark next to marked speeds, and a speed in doubt was the highest without a word."""
    small, large = made("baseline", 1, 2)
    for doubted, own in ((replace(small, warnings=(NOT_LEVEL,)), 0), (replace(large, warnings=(NOT_LEVEL,)), 1)):
        cells = [doubted if number == own else one for number, one in enumerate((small, large))]
        table = made_table(*cells)
        text = terminal.text(table, width=120)
        assert "97.0% ?" in text and ("100.0% ?" in text) is (own == 0)
        data = table_data.of(table, {}, folders.Folders(roots={}), detail_bytes=0).data
        assert [*data["unscaled"]] == [1]
        shown = views(*cells)
        assert shown["share of ideal"].summary.endswith("on 2 GPUs with 97.0% of ideal (in doubt).")
        assert shown["tokens/s"].summary.endswith("(in doubt).") is (own == 1)
        (throughput,) = bars.throughput(chart_data.read(table, most=100), "Model").views
        assert throughput.summary.startswith("1 row with 2 bars; highest baseline on 2 GPUs with ")
        assert throughput.summary.count("(in doubt)") == 1


def test_a_scaling_without_a_doubt_has_no_mark() -> None:
    table = made_table(*made("baseline", 1, 2))
    assert "?" not in terminal.text(table, width=120)
    assert table_data.of(table, {}, folders.Folders(roots={}), detail_bytes=0).data["unscaled"] == {}


@pytest.mark.parametrize(
    ("shares", "expected"), [((0.6, 0.9), "97.5 %"), ((1.0, 0.6), "39.0 %"), ((0.9, 0.88), "65.0 %")]
)
def test_less_padding_is_no_better_scaling(shares: tuple[float, float], expected: str) -> None:
    """With a fixed global batch, fewer rows on each GPU have less padding, so the speed with padding scales worse."""
    cells = [
        Made(
            num_gpus=gpus, runs=[one | real_speeds(one, share) for one in runs(gpus, speed * 0.99, speed, speed * 1.01)]
        )
        for gpus, speed, share in zip((1, 2), (10000.0, 6500.0), shares, strict=True)
    ]
    table = made_table(*cells)
    (finding,) = [one.text for one in highlights(table) if "of ideal scaling" in one.text]
    assert f"2 GPUs {expected} (" in finding
    assert f"{100 * table.experiments['scaling_efficiency'].tolist()[1]:.1f} %" == expected
    assert views(*cells)["share of ideal"].rows[0][2].startswith(expected)
    (line,) = [one for name, one in traces(views(*cells)["tokens/s"]).items() if name != "ideal"]
    is_real = abs(shares[0] - shares[1]) > 0.05
    assert line["y"] == pytest.approx(
        [10000.0 * (shares[0] if is_real else 1), 13000.0 * (shares[1] if is_real else 1)], rel=1e-3
    )


def test_a_count_with_less_padding_is_no_dip() -> None:
    cells = [
        Made(num_gpus=gpus, runs=[one | real_speeds(one, share) for one in runs(gpus, speed, speed * 1.01)])
        for gpus, speed, share in ((1, 100.0, 0.5), (2, 60.0, 0.85), (4, 100.0, 0.5))
    ]
    assert not [one.text for one in highlights(made_table(*cells)) if " per GPU than " in one.text]


def real_speeds(run: dict[str, Any], share: float) -> dict[str, float]:
    return {f"real_{name}": value * share for name, value in run.items()}

"""The charts of operators: speed-ups over sizes, the roof of the card; and the answers of their page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.screens import H100, of_gpu, screened
from factories.tables import Made, made_table
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.report.highlights import highlights, labels
from orchestrator.report.highlights.answers import answers
from orchestrator.report.page import runs, table_data
from orchestrator.report.page.charts import all_charts, chart_data
from orchestrator.report.page.charts.chart import Chart, View
from orchestrator.report.page.charts.curves.operators import calls
from orchestrator.report.page.charts.curves.operators.calls import Call, Roof
from orchestrator.report.page.charts.curves.operators.roofline import roofline
from orchestrator.report.page.charts.curves.operators.sizes import sizes
from orchestrator.report.page.folders import Folders
from orchestrator.report.tables import terminal
from orchestrator.results.table.baseline import with_baseline
from orchestrator.results.table.load import ResultsTable
from orchestrator.screen import stored

ROOF = Roof(card=H100, flops_per_s=690e12, bytes_per_s=3e12)


def made(
    shape: str,
    implementation: str = "eager",
    *times_us: float,
    operator: str = "rmsnorm",
    dtype: str = "bfloat16",
    **numbers: float,
) -> Made:
    """Make an experiment of `operators` with runs of these times."""
    return Made(
        framework=None,
        model="none",
        trainer="operators",
        arguments={"operator": operator, "shape": shape, "implementation": implementation, "dtype": dtype},
        baseline={"implementation": "eager"},
        runs=[{"call_time_s": time / 1e6, **numbers} for time in times_us or (99.0, 100.0, 101.0)],
    )


def of(*cells: Made, roof: Roof | None = ROOF) -> list[Call]:
    table = made_table(*cells)
    known = chart_data.read(table, most=100)
    return calls.read(table, known, {cell.key: roof for cell in known} if roof else {})


def traces(view: View) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in view.figure["data"]}


def test_speedups_are_drawn_over_shapes_from_small_to_large() -> None:
    shapes = ("1024x512", "64x32", "64x4096")
    base = [made(shape) for shape in shapes]
    liger = [made(shape, "liger", 100 / at, 100.5 / at, 99.5 / at) for at, shape in enumerate(shapes, start=1)]
    (view,) = sizes(of(*base, *liger), "Model").views
    assert view.figure["layout"]["xaxis"]["ticktext"] == ["64x32", "64x4096", "1024x512"]
    line = traces(view)["liger"]
    assert line["y"] == pytest.approx([2, 3, 1], abs=0.01)
    assert view.columns[1:] == ("64x32", "64x4096", "1024x512") and view.rows[0][1].startswith("2.00× (1.9")
    assert "the highest is liger at 64x4096 with 3.00×" in view.summary


def test_one_shape_makes_no_chart_over_sizes() -> None:
    assert not sizes(of(made("64x32"), made("64x32", "liger", 50.0, 51.0)), "Model").views


def test_each_operator_and_each_type_has_its_own_drawing() -> None:
    cells = [
        made(shape, implementation, operator=operator, dtype=dtype)
        for operator in ("rmsnorm", "swiglu")
        for dtype in ("bfloat16", "float32")
        for shape in ("64x32", "64x64")
        for implementation in ("eager", "liger")
    ]
    assert [view.at[1] for view in sizes(of(*cells), "Model").views] == [
        *("rmsnorm · bfloat16", "rmsnorm · float32", "swiglu · bfloat16", "swiglu · float32")
    ]


@given(st.floats(0.001, 5.0), st.floats(0.001, 5.0), st.booleans())
@settings(deadline=None, max_examples=40)
def test_the_share_of_the_roof_is_that_of_the_nearer_part(memory: float, compute: float, is_half: bool) -> None:
    rates = {"operator_bytes_per_s": memory * 3e12, "operator_tflops_per_s": compute * 690}
    (call,) = of(made("64x32", dtype="bfloat16" if is_half else "float32", **rates))
    limit = call.limit()
    assert limit is not None
    if not is_half:
        assert limit == (pytest.approx(memory), "memory"), "the screen multiplies in bfloat16 only"
    else:
        assert limit[0] == pytest.approx(max(memory, compute))
        attainable = min(690e12, (call.intensity or 0) * 3e12)
        assert call.flops_per_s == pytest.approx(limit[0] * attainable), "the definition of a roofline"


def test_the_roofline_has_both_parts_and_names_the_limit() -> None:
    numbers = {"operator_bytes_per_s": 1.5e12, "operator_tflops_per_s": 69.0, "device_busy_share": 0.1}
    views = roofline(of(made("64x32x8", operator="linear", **numbers)), "Model").views
    whole, rates = views
    assert whole.at[1:] == ("operations", H100, "all") and rates.at[1:] == ("bytes", H100, "linear")
    lines = traces(whole)
    knee = 690 / 3
    assert lines["HBM copy 3,000 GB/s"]["x"][1] == lines["bf16 matmul 690 TFLOP/s"]["x"][0] == pytest.approx(knee)
    assert lines["HBM copy 3,000 GB/s"]["y"][1] == lines["bf16 matmul 690 TFLOP/s"]["y"][1] == pytest.approx(690)
    (row,) = whole.rows
    assert row[3:] == (
        "46.0",
        "69 TFLOP/s",
        "1,500 GB/s",
        "50 %",
        "limit: memory, host-bound: the GPU is busy for 10 % of a call",
    )
    assert traces(rates)["eager"]["y"] == [1500.0]


def test_without_operations_there_are_only_bytes_and_without_a_screen_nothing() -> None:
    cells = made("64x32", operator_bytes_per_s=4.5e12)
    (view,) = roofline(of(cells), "Model").views
    assert view.at[1] == "bytes" and view.rows[0][-1] == "limit: memory, its tensors stay in a cache"
    assert not roofline(of(cells, roof=None), "Model").views


def test_a_product_in_float32_says_that_its_roof_is_unknown() -> None:
    (view, _) = roofline(
        of(made("64x32x8", operator="linear", dtype="float32", operator_bytes_per_s=1e12, operator_tflops_per_s=9.0)),
        "",
    ).views
    assert view.rows[0][-1] == "limit: memory, as far as known: a screen has no float32 product"


def test_the_fastest_implementation_is_named_for_each_call() -> None:
    cells = [
        *(made("64x32"), made("64x32", "liger", 49.0, 50.0, 51.0)),
        *(made("64x64"), made("64x64", "liger", 199.0, 200.0, 201.0)),
    ]
    small, large = answers(made_table(*cells))
    assert small.place == "full at 1 GPU, 64x32" and small.unit == "call"
    assert small.text.startswith("implementation liger is fastest, 100 % faster (2.00×")
    assert [(one.name, one.speed) for one in small.candidates] == [
        ("implementation liger", "50 µs"),
        ("implementation eager", "100 µs"),
    ]
    assert large.text.startswith("implementation eager is fastest; implementation liger, the next, is 50 % slower")


def titles(*cells: Made, root: Path) -> tuple[list[str], list[str]]:
    """Return the titles of the charts, and those of the charts that say why they are missing."""
    table = made_table(*cells)
    ended = {key: [replace(run, gpu_words=H100) for run in of_one] for key, of_one in runs.read(table.runs).items()}
    known = chart_data.read(table, most=100)
    found = list(all_charts.charts(table, known, ended, Folders(roots={None: root}), capacities={}))
    drawn = [chart.title for chart in found if isinstance(chart, Chart)]
    return drawn, [chart.title for chart in found if not isinstance(chart, Chart)]


def test_the_roof_is_that_of_the_screens_in_the_folder(tmp_path: Path) -> None:
    cells = [made(shape, way, operator_bytes_per_s=1e12) for shape in ("64x32", "64x64") for way in ("eager", "liger")]
    drawn, missing = titles(*cells, root=tmp_path)
    assert drawn == ["Call, s", "Speed-up over sizes"]
    assert missing == ["Operators against the roof of the card"], "nothing is said about charts of trainings"
    screen = screened([690e12], of_gpu(0, 3e12, "hbm_bytes_per_s"))
    (tmp_path / "screens").mkdir()
    (tmp_path / "screens" / "20261126080000-abcdef.json").write_text(stored.text(screen))
    drawn, missing = titles(*cells, root=tmp_path)
    assert drawn[-1] == "Operators against the roof of the card" and not missing


def test_a_busy_card_is_no_roof(tmp_path: Path) -> None:
    screen = screened([690e12], of_gpu(0, 3e12, "hbm_bytes_per_s"), busy=[0])
    (tmp_path / "screens").mkdir()
    (tmp_path / "screens" / "20261126080000-abcdef.json").write_text(stored.text(screen))
    _, missing = titles(made("64x32", operator_bytes_per_s=1e12), root=tmp_path)
    assert missing == ["Operators against the roof of the card"]


def judged(*cells: Made) -> ResultsTable:
    return with_baseline(made_table(*cells))


def test_a_function_that_is_faster_but_wrong_is_not_the_fastest() -> None:
    cells = [
        made("64x32", "eager", 99.0, 100.0, 101.0, relative_error=5e-8),
        made("64x32", "liger", 49.0, 50.0, 51.0, relative_error=4e-7),
        made("64x32", "mine:wrong", 9.0, 10.0, 11.0, relative_error=1.88),
    ]
    table = judged(*cells)
    (answer,) = answers(table)
    assert answer.text.startswith("implementation liger is fastest, 100 % faster")
    assert [(one.name, one.doubt) for one in answer.candidates] == [
        *(("implementation liger", ""), ("implementation eager", "")),
        ("implementation mine:wrong", "wrong result, relative error 1.88"),
    ]
    texts = [one.text for one in highlights(table)]
    assert any(
        "had a numerical error over 10 times that of the baseline, so no speed is claimed" in text for text in texts
    )
    assert not any("mine:wrong is" in text for text in texts)


def test_another_type_is_not_less_exact() -> None:
    one, other = (
        made("64x32", "eager", *times, dtype=dtype, relative_error=error)
        for dtype, error, times in (("float32", 5e-8, (99.0, 100.0, 101.0)), ("bfloat16", 2e-3, (49.0, 50.0, 51.0)))
    )
    table = judged(replace(one, baseline={"dtype": "float32"}), replace(other, baseline={"dtype": "float32"}))
    assert any("dtype bfloat16 is 100 % faster" in shown.text for shown in highlights(table))


@pytest.mark.parametrize(
    ("dtype", "base", "error", "doubt"),
    [
        ("float32", 1.4e-7, 1.6e-6, ""),  # inductor's and eager's rmsnorm
        ("float32", 1.4e-7, 3e-4, "less exact"),  # a product in TF32
        ("float32", 1.4e-7, 2e-3, "less exact"),  # a sum in bfloat16
        ("float32", 5e-6, 4e-5, ""),
        ("float16", 0.0, 9e-4, ""),
        ("float16", 2e-5, 2e-3, "less exact"),  # a sum in bfloat16
        ("bfloat16", 0.0, 7e-3, ""),
        ("bfloat16", 1.7e-3, 2e-2, "less exact"),
    ],
)
def test_rounding_is_not_less_exact(dtype: str, base: float, error: float, doubt: str) -> None:
    table = judged(
        made("64x32", "eager", 99.0, 100.0, 101.0, dtype=dtype, relative_error=base),
        made("64x32", "inductor", 49.0, 50.0, 51.0, dtype=dtype, relative_error=error),
    )
    (answer,) = answers(table)
    assert {one.name: one.doubt for one in answer.candidates}["implementation inductor"] == doubt


def test_a_report_says_what_was_called(tmp_path: Path) -> None:
    bytes_per_s = 3.625e9
    table = made_table(made("64x32", operator_bytes_per_s=bytes_per_s))
    shown = " ".join(terminal.text(table, width=100).split())
    assert "Same for all: scenario" in shown and "none" not in shown.partition("implementation")[0]
    for words in ("operator rmsnorm", "shape 64x32", "dtype bfloat16", "3.625 GB/s", "eager"):
        assert words in shown, words
    (cell,) = chart_data.read(table, most=9)
    assert cell.name == "eager"
    assert labels.Names(table).whole(0).endswith("implementation eager")
    assert ("operator", "rmsnorm") in table_data.of(table, {}, Folders.of([tmp_path]), detail_bytes=1000).constant

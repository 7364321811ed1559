"""The map of speed-ups beyond six models: a row for a framework, a column for a model or batch, a reason without a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from factories.tables import Made, made_table, speeds

from orchestrator.records import Caveat, CaveatKind
from orchestrator.report.highlights import highlights
from orchestrator.report.page.charts import chart_data, heat_map
from orchestrator.report.page.charts.chart import Chart, View
from orchestrator.results.table.baseline import with_baseline

NOT_LEVEL = Caveat(kind=CaveatKind.NOT_LEVEL, detail="its last 20 steps are slower")
MODELS = tuple(f"org/m{n}" for n in range(1, 8))


def made(framework: str, model: str, *values: float, **more: Any) -> Made:
    return Made(framework=framework, model=model, runs=speeds(*values), **more)


def pair(model: str, **more: Any) -> list[Made]:
    return [made("baseline", model, 100.0, 101.0, **more), made("liger", model, 120.0, 122.0, **more)]


def chart(cells: Sequence[Made]) -> Chart:
    return heat_map.speedups(chart_data.read(with_baseline(made_table(*cells)), most=1000), "Model")


def remarks(view: View) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(row[0], row[1]): row[2:] for row in view.rows}


def test_six_models_stand_side_by_side_without_a_map() -> None:
    assert chart([one for model in MODELS[:6] for one in pair(model)]).views == ()
    assert len(chart([one for model in MODELS for one in pair(model)]).views) == 1


def test_a_cell_has_the_speed_up_of_the_findings_with_its_interval() -> None:
    cells = [one for model in MODELS for one in pair(model)]
    (view,) = chart(cells).views
    (finding,) = [one.text for one in highlights(made_table(*cells)) if "org/m1 at" in one.text]
    value, ends, remark = remarks(view)["liger", "m1"]
    assert f"({value}, {ends})" in finding and remark == ""
    assert remarks(view)["baseline", "m1"] == ("1.00×", "-", "the reference")
    grey, claimed = view.figure["data"]
    assert view.figure["layout"]["yaxis"]["ticktext"] == ["liger ", "baseline "], "the fastest first"
    assert view.figure["layout"]["xaxis"]["ticktext"] == [model.removeprefix("org/") for model in MODELS]
    assert claimed["text"] == [["1.20×"] * 7, ["1.00×"] * 7]
    assert f"95 % interval {ends}" in claimed["hovertext"][0][0]
    assert {value for row in grey["z"] for value in row} == {None}
    assert claimed["zmax"] == -claimed["zmin"] > 0


def test_without_a_claim_a_cell_is_grey_and_has_its_reason() -> None:
    cells = [one for model in MODELS[:4] for one in pair(model)]
    cells += [made("baseline", MODELS[4], 100.0, 101.0), made("liger", MODELS[4], 130.0, warnings=(NOT_LEVEL,))]
    cells += [made("baseline", MODELS[5], 100.0, 101.0), Made(framework="liger", model=MODELS[5], kinds=("oom_cuda",))]
    cells += [made("baseline", MODELS[6], 100.0, warnings=(NOT_LEVEL,)), made("liger", MODELS[6], 120.0)]
    cells += [made("packing", MODELS[0], 100.5, 100.4)]
    (view,) = chart(cells).views
    found = {place: words for place, words in remarks(view).items() if words[0] == "-"}
    assert found["liger", "m5"] == ("-", "-", "not steady")
    assert found["liger", "m6"] == ("-", "-", "failed: oom_cuda")
    assert found["liger", "m7"] == ("-", "-", "its baseline is in doubt")
    assert found["baseline", "m7"] == ("-", "-", "not steady")
    assert found["packing", "m2"] == ("-", "-", "not run")
    assert remarks(view)["packing", "m1"][2] == "no clear difference"
    grey, claimed = view.figure["data"]
    liger = view.figure["layout"]["yaxis"]["ticktext"].index("liger ")
    assert grey["text"][liger] == ["", "", "", "", "⚠", "✕", "–"]
    assert "nothing is claimed: failed: oom_cuda" in grey["hovertext"][liger][5]
    assert all(
        (one is None) != (other is None) for one, other in zip(grey["z"][liger], claimed["z"][liger], strict=True)
    )
    assert f"{len(found)} cells without a claim" in view.summary


def test_a_batch_axis_is_a_choice_and_the_columns_of_a_model() -> None:
    batches = [{"per_device_train_batch_size": batch} for batch in ("4", "16")]
    cells = [one for model in MODELS for given in batches for one in pair(model, arguments=given)]
    found = {view.at: view for view in chart(cells).views}
    assert set(found) == {
        *(("all", f"batch/device {batch}", "1", "all", "all") for batch in (4, 16)),
        *((model, "all", "1", "all", "all") for model in MODELS),
    }
    of_model = found[MODELS[0], "all", "1", "all", "all"]
    assert of_model.figure["layout"]["xaxis"]["ticktext"] == ["batch/device 4", "batch/device 16"]
    assert of_model.figure["layout"]["yaxis"]["ticktext"] == ["liger ", "baseline "]
    assert next(iter(found)) == ("all", "batch/device 4", "1", "all", "all")


def test_each_gpu_count_has_its_map_and_many_models_are_in_stretches() -> None:
    models = [f"org/m{n}" for n in range(40)]
    cells = [one for model in models for count in (1, 2) for one in pair(model, num_gpus=count)]
    found = chart(cells)
    assert [view.at[2:4] for view in found.views] == [
        (count, stretch) for count in ("1", "2") for stretch in ("1–16", "17–32", "33–40")
    ]
    assert sum(len(view.rows) for view in found.views) == len(cells)


@pytest.mark.parametrize("owners", [("one", "two"), ("one", "one")])
def test_names_are_short_only_if_they_stay_different(owners: tuple[str, str]) -> None:
    models = [*MODELS, f"{owners[0]}/same", f"{owners[1]}/same" if owners[0] != owners[1] else "one/other"]
    (view,) = chart([one for model in models for one in pair(model)]).views
    names = view.figure["layout"]["xaxis"]["ticktext"]
    assert len(set(names)) == len(models)
    assert ("m1" in names) is (owners == ("one", "one"))

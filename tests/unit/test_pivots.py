"""A table from another side, held against what pandas itself makes of it."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pandas as pd
import pytest
from factories.cases import cases
from factories.tables import Made, made_table, speeds
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import is_printable
from orchestrator.report.tables import views
from orchestrator.results.table.load import ResultsTable
from orchestrator.results.table.pivots import View, group_by, pivot

MODELS, FRAMEWORKS = ("org/a", "org/b", "org/c"), ("baseline", "liger", "sdpa")


@st.composite
def tables(draw: st.DrawFn) -> ResultsTable:
    names = st.tuples(st.sampled_from(MODELS), st.sampled_from(FRAMEWORKS), st.integers(1, 4))
    keys = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    speed = st.one_of(st.none(), st.floats(1.0, 1e6))
    cells = [
        Made(model=model, framework=framework, num_gpus=gpus, runs=speeds(value, train_loss=value) if value else [{}])
        for (model, framework, gpus), value in ((key, draw(speed)) for key in keys)
    ]
    return made_table(*cells, Made(model="org/a", runs=speeds(7.0, train_loss=7.0), scenario="always"))


def geometric(values: pd.Series[float]) -> float:
    known = values.dropna()
    return float(np.exp(np.log(known).mean())) if len(known) else math.nan


@given(tables())
@settings(deadline=None, max_examples=50)
def test_a_pivot_is_pandas_pivot_table(table: ResultsTable) -> None:
    frame = table.experiments.astype({"tokens_per_s": float})
    expected = frame.pivot_table(
        index="model_name_or_path", columns="framework_config", values="tokens_per_s", aggfunc=geometric, dropna=False
    )
    view = pivot(table, "model_name_or_path,framework_config:tokens_per_s")
    found = view.frame.set_index("model_name_or_path").astype(float)
    assert list(found.index) == sorted(set(frame["model_name_or_path"]))
    assert list(found.columns) == sorted(set(frame["framework_config"]))
    for model in found.index:
        for framework in found.columns:
            there = model in expected.index and framework in expected.columns
            wanted = expected.loc[model, framework] if there else math.nan
            assert found.loc[model, framework] == pytest.approx(wanted, nan_ok=True)


@given(tables())
@settings(deadline=None, max_examples=50)
def test_groups_are_pandas_groups(table: ResultsTable) -> None:
    frame = table.experiments.astype({"tokens_per_s": float, "train_loss": float})
    grouped = frame.groupby(["framework_config", "num_gpus"])
    view = group_by(table, "framework_config,num_gpus")
    found = view.frame.set_index(["framework_config", "num_gpus"])
    assert list(found.index) == list(grouped.size().index)
    assert found["experiments"].tolist() == grouped.size().tolist()
    for name, how in (("tokens_per_s", geometric), ("train_loss", "mean")):
        wanted = grouped[name].agg(how).tolist()
        assert found[name].astype(float).tolist() == pytest.approx(wanted, nan_ok=True)


def test_ends_of_intervals_and_words_are_not_averaged() -> None:
    runs = speeds(1.0, 2.0, step_time_low_s=0.5, gpu_device_name="H100")
    columns = set(group_by(made_table(Made(runs=runs)), "framework_config").frame.columns)
    assert not columns & {"step_time_low_s", "tokens_per_s_low", "tokens_per_s_spread", "gpu_device_name"}


def test_several_experiments_in_a_cell_are_said() -> None:
    cells = [Made(scenario=name, runs=speeds(1.0)) for name in ("x", "y", "z")]
    assert pivot(made_table(*cells[:1]), "model_name_or_path,framework_config").notes == ()
    assert (
        "the geometric mean of up to 3 experiments"
        in pivot(made_table(*cells), "model_name_or_path,framework_config").notes[0]
    )


def test_the_metric_may_be_left_out_and_axes_may_be_joined() -> None:
    table = made_table(*(Made(num_gpus=n, framework=f, runs=speeds(float(n))) for n in (1, 2, 10) for f in FRAMEWORKS))
    view = pivot(table, "framework_config × num_gpus")
    assert view.title == "tokens_per_s by framework_config and num_gpus"
    assert list(view.frame.columns) == ["framework_config", "1", "2", "10"], "numbers by size"
    joined = pivot(table, "model_name_or_path+framework_config,num_gpus+device:tokens_per_s")
    assert list(joined.frame.columns) == [
        "model_name_or_path",
        "framework_config",
        *(f"{n} / cuda" for n in (1, 2, 10)),
    ]
    slow = made_table(Made(runs=[{"train_tokens_per_second": 5.0}]))
    assert pivot(slow, "model_name_or_path,framework_config").frame["baseline"].tolist() == [5.0]


@pytest.mark.parametrize(("asked", "said"), cases("pivots/what_is_no_pivot_is_a_sentence"))
def test_what_is_no_pivot_is_a_sentence(asked: str, said: str) -> None:
    with pytest.raises(SelectionError, match=said):
        pivot(made_table(Made(runs=speeds(1.0))), asked)


def test_a_group_of_a_column_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(SelectionError, match="--group-by framwork: there is no column 'framwork' here; did you mean"):
        group_by(made_table(Made(runs=speeds(1.0))), "framwork")
    with pytest.raises(
        SelectionError, match=r"no column 'framework' here; 'framework' is the heading of 'framework_config'$"
    ):
        group_by(made_table(Made(runs=speeds(1.0))), "framework")
    with pytest.raises(SelectionError, match="no experiment has a speed here"):
        pivot(made_table(Made(kinds=["nccl"])), "model_name_or_path,framework_config")


@pytest.fixture
def view() -> View:
    cells = [
        Made(model=model, framework=framework, runs=speeds(1000.0 * n, peak_allocated_bytes=n * 2**30))
        for n, (model, framework) in enumerate(
            (("org/a", "baseline"), ("org/a", "liger"), ("org/b|<b>", "liger")), start=1
        )
    ]
    return pivot(made_table(*cells), "model_name_or_path,framework_config:peak_allocated_bytes")


def shown(view: View, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(views.terminal(view, width=width))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def test_a_pivot_in_every_form(golden, view: View) -> None:
    golden("table/pivot.csv", views.text(view, "csv"))
    golden("table/pivot.md", views.text(view, "markdown"))
    golden("table/pivot.json", views.text(view, "json"))
    golden("table/pivot-80.txt", shown(view, 80))
    with pytest.raises(SelectionError, match="choose csv, json or markdown"):
        views.text(view, "xml")


def test_a_pivot_on_a_page_is_text(view: View) -> None:
    from orchestrator.report.page.view_page import view_page

    page = view_page(view)
    assert "<b>" not in page and "org/b|&lt;b&gt;" in page
    assert "2.00 GiB" in page and "3.00 GiB" in page


@pytest.mark.parametrize("width", [10, 24, 80])
def test_the_terminal_is_never_overrun(width: int, view: View) -> None:
    text = shown(view, width)
    assert max(map(len, text.splitlines())) <= width
    if width < 40:
        assert "do not fit" in " ".join(text.split())


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "model_name_or_path", "", "\u202ex"])
def test_names_from_anywhere_make_no_mess(name: str) -> None:
    table = made_table(Made(framework=name or "none", runs=speeds(1.0)), Made(framework="x", runs=speeds(2.0)))
    view = pivot(table, "model_name_or_path,framework_config")
    assert len(set(view.frame.columns)) == 3
    assert is_printable(shown(view, 80).replace("\n", "")) and is_printable(views.text(view, "json"))
    assert len(json.loads(views.text(view, "json"))["rows"]) == 1
    assert len(pd.read_csv(io.StringIO(views.text(view, "csv")))) == 1

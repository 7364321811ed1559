"""`tunebench.load`: the documented examples run, and what leaves for pandas has the types that docs/metrics.md names."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from factories.results import BASE, ended, failed, stored
from hypothesis import given, settings
from hypothesis import strategies as st

import tunebench
from orchestrator.errors import OrchestratorError, SelectionError
from orchestrator.records import Caveat, Framework
from orchestrator.report import tables
from orchestrator.results.table.column_types import COUNTS, known, typed
from orchestrator.results.table.load import load

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "notebook.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of results, made by `tunebench report` into CSV and Parquet as well."""
    root = tmp_path_factory.mktemp("notebook")
    liger = replace(BASE, id="full-liger-1", framework=Framework(name="liger", digest="1"))
    base = replace(BASE, id="full-base-1", framework=Framework(name="baseline", digest="0"))
    broken = replace(BASE, id="full-broken-1", framework=Framework(name="sdpa", digest="2"), repeats=1)
    numbers: dict[str, float | int | str | None] = {
        "peak_allocated_bytes": 2**33, "steps": 40, "train_loss": 2.5, "gpu_device_name": "H100"
    }  # fmt: skip
    for name, factor in (("results", 1.0), ("results-of-friday", 0.9)):
        ok = [[replace(ended(one, n, tokens_per_s=speed * factor + n, **numbers), ranks=({"rank": 0, "host": "a"},))
               for n in (1, 2, 3)] for one, speed in ((base, 100.0), (liger, 121.0))]  # fmt: skip
        place = stored(
            root / name, (base, ok[0]), (liger, ok[1]), (broken, [replace(failed(broken, 1), started_at=1e9 * factor)])
        )
        table = load([place])
        (place / "raw_summary.csv").write_text(tables.raw_summary(table))
        (place / "benchmarks.csv").write_text(tables.benchmarks(table))
        for file, content in tables.parquet(table).items():
            (place / file).write_bytes(content)
    return root


def test_the_examples_of_the_page_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    for example in EXAMPLES:
        exec(compile(example, str(PAGE), "exec"), names)
    assert len(EXAMPLES) >= 5
    assert names["experiments"]["framework_config"].tolist() == ["baseline", "liger", "sdpa"]
    assert names["spread"]["count"].tolist() == [3, 3]
    assert names["fast"]["framework_config"].tolist() == ["liger"]
    assert len(names["everything"].columns) > len(names["experiments"].columns)
    assert names["readable"]["peak_allocated_gib"].tolist()[:2] == [8.0, 8.0]
    assert [text.strip() for text in names["of_fast"].layout.yaxis.ticktext] == ["liger"]
    assert [text.startswith("failed: ") for text in names["about_failed"]] == [True]
    assert names["table"].columns.tolist() == ["results", "results-of-friday"]
    assert names["from_csv"]["tokens_per_s"].tolist() == names["runs"]["tokens_per_s"].tolist()


def documented() -> dict[str, str]:
    """Column → dtype, as the tables of docs/metrics.md say."""
    found: dict[str, str] = {}
    place = None
    for line in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            place = None
        elif cells[0] == "column":
            place = cells.index("dtype")
        elif place is not None and cells[0].startswith("`"):
            found[cells[0].strip("`")] = cells[place]
    return found


def test_the_page_of_the_metrics_names_every_type() -> None:
    assert documented() == known() == tunebench.dtypes()


def types_of(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


def refuse_other_types(frame: pd.DataFrame) -> None:
    """A count of a run is whole although the page says Float64, unless a mean in its column is not whole."""
    types = documented() | {
        name: "Int64" for name in COUNTS & set(frame.columns) if (frame[name].dropna() % 1 == 0).all()
    }
    assert {name: dtype for name, dtype in types_of(frame).items() if dtype != types.get(name, dtype)} == {}
    assert set(types_of(frame).values()) <= {"string", "Int64", "Float64", "boolean"}


@pytest.mark.parametrize("rows", ["experiments", "runs", "ranks", "devices"])
def test_what_is_loaded_has_the_documented_types(folder: Path, rows: Any) -> None:
    frame = tunebench.load(folder / "results", rows=rows, all=True)
    refuse_other_types(frame)
    assert len(frame) == {"experiments": 3, "runs": 7, "ranks": 6, "devices": 0}[rows]


@pytest.mark.parametrize("file", ["benchmarks", "raw_summary", "ranks"])
def test_parquet_files_have_the_documented_types(folder: Path, file: str) -> None:
    frame = pd.read_parquet(folder / "results" / f"{file}.parquet")
    refuse_other_types(frame)
    rows: Any = {"benchmarks": "experiments", "raw_summary": "runs", "ranks": "ranks"}[file]
    pd.testing.assert_frame_equal(frame, tunebench.load(folder / "results", rows=rows, all=True), check_flags=False)


@pytest.mark.parametrize("file", ["benchmarks", "raw_summary"])
def test_csv_files_load_with_the_documented_types(folder: Path, file: str) -> None:
    path = folder / "results" / f"{file}.csv"
    frame = pd.read_csv(path, dtype=tunebench.dtypes(), keep_default_na=False, na_values=[""])
    types = documented()
    named = {name: dtype for name, dtype in types_of(frame).items() if name in types}
    assert named == {name: types[name] for name in named} and "tokens_per_s" in named
    plain = pd.read_csv(path)
    assert plain["tokens_per_s"].dtype == "float64"


def test_types_are_the_same_whatever_was_measured(tmp_path: Path) -> None:
    """Whole or not, there or missing in every row: frames of two campaigns go together."""
    values = ({"steps": 40, "train_loss": 2}, {"steps": None, "train_loss": 2.5})
    roots = [stored(tmp_path / f"r{n}", (BASE, [ended(BASE, 1, **one)])) for n, one in enumerate(values)]
    first, second = (tunebench.load(root, all=True) for root in roots)
    assert {name: types_of(first)[name] for name in ("steps", "train_loss")} == {
        "steps": "Int64",
        "train_loss": "Float64",
    }
    assert types_of(first) == types_of(second)
    assert types_of(pd.concat([first, second])) == types_of(first)


def test_a_count_is_whole_unless_a_mean_over_repeats_is_not(tmp_path: Path) -> None:
    cuts = (1, 1, 2)
    runs = [
        ended(BASE, n, steps=40, total_parameters=2**40, discarded_steps=cut) for n, cut in enumerate(cuts, start=1)
    ]
    root = stored(tmp_path / "r", (BASE, runs))
    frame = tunebench.load(root, all=True)
    assert frame["discarded_steps"].dtype == "Float64" and frame["discarded_steps"][0] == pytest.approx(4 / 3)
    assert {name: str(frame[name].dtype) for name in ("steps", "total_parameters", "runs", "runs_ok")} == dict.fromkeys(
        ("steps", "total_parameters", "runs", "runs_ok"), "Int64"
    )
    runs_frame = tunebench.load(root, rows="runs", all=True)
    assert runs_frame["discarded_steps"].tolist() == list(cuts) and runs_frame["discarded_steps"].dtype == "Int64"
    (root / "benchmarks.csv").write_text(tables.benchmarks(load([root]), keep=["*"]))
    from_csv = pd.read_csv(root / "benchmarks.csv", dtype=tunebench.dtypes())
    assert from_csv["discarded_steps"].tolist() == frame["discarded_steps"].tolist()
    assert from_csv["total_parameters"].dtype == "Int64"


@given(
    st.lists(
        st.one_of(st.none(), st.text(max_size=5), st.integers(-(2**62), 2**62), st.floats(allow_nan=False)), min_size=1
    )
)
@settings(deadline=None)
def test_no_value_is_lost_on_its_way_into_a_type(values: list[Any]) -> None:
    kinds = {type(value) for value in values if value is not None}
    words = str in kinds or len(kinds) != 1
    texts = [None if value is None else str(value) for value in values]
    column = pd.Series(
        texts if words else values, dtype="string" if words else {int: "Int64", float: "Float64"}[min(kinds, key=str)]
    )
    found = typed(pd.DataFrame({"num_gpus": column, "mine": column}))
    assert found["mine"].tolist() == column.tolist()
    for before, after in zip(column, found["num_gpus"], strict=True):
        assert (pd.isna(before) and pd.isna(after)) or str(before) == str(after) or float(before) == float(after)


def test_a_baseline_and_several_folders(folder: Path) -> None:
    frame = tunebench.load([folder / "results", str(folder / "results-of-friday")], baseline="baseline")
    assert frame["results"].tolist() == ["results"] * 3 + ["results-of-friday"] * 3
    assert frame["speedup"].notna().tolist() == [True, True, False] * 2
    assert frame["speedup"].dtype == "Float64"


def test_beside_a_baseline_the_columns_are_there_though_a_side_has_one_run(tmp_path: Path) -> None:
    liger = replace(BASE, id="full-liger-1", framework=Framework(name="liger", digest="1"))
    base = replace(BASE, id="full-base-1", framework=Framework(name="baseline", digest="0"))
    place = stored(tmp_path / "results", *((one, [ended(one, 1, tokens_per_s=100.0)]) for one in (base, liger)))
    frame = tunebench.load(place, baseline="baseline")
    assert frame["speedup"].tolist() == [1.0, 1.0]
    for name in ("speedup_low", "speedup_high", "memory_ratio"):
        assert frame[name].isna().all() and frame[name].dtype == "Float64"
    assert "speedup" not in tunebench.load(place) and "speedup" not in tunebench.load(place, rows="runs")


def test_warnings_are_beside_the_frame(tmp_path: Path) -> None:
    root = stored(tmp_path / "r", (BASE, [replace(ended(BASE, 1), warnings=(Caveat(detail="hot"),))]))
    assert tunebench.load(root).attrs["warnings"] == [f"{BASE.id}: hot"]


def test_mistakes_are_sentences(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(OrchestratorError, match="there is no such folder"):
        tunebench.load(tmp_path / "nowhere")
    with pytest.raises(SelectionError, match="did you mean 'runs'"):
        tunebench.load(folder / "results", rows="run")  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="did you mean 'readable'"):
        tunebench.load(folder / "results", units="readible")  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="no results folder is named"):
        tunebench.load([])
    with pytest.raises(SelectionError, match="--baseline basline"):
        tunebench.load(folder / "results", baseline="basline")


def test_importing_it_is_light_and_nothing_hides_its_functions() -> None:
    code = (
        "import sys, orchestrator, tunebench; tunebench.plot.speedup; from tunebench import *\n"
        "heavy = {'pandas', 'numpy', 'plotly', 'pydantic', 'rich', 'typer'} & set(sys.modules)\n"
        "import orchestrator.report.write, orchestrator.results.table.column_types, orchestrator.report.notebook.plot\n"
        "print(sorted(heavy), callable(orchestrator.load), tunebench.load is orchestrator.load, dir(tunebench))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[] True True ['__version__', 'dtypes', 'load', 'plot']\n"


def test_without_pyarrow_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as Python has it of a package that cannot be imported
    with pytest.raises(
        OrchestratorError, match="needs pyarrow, which is not installed; install it with pip install 'tunebench"
    ):
        tables.parquet(load([stored(tmp_path / "r", (BASE, [ended(BASE, 1)]))]))


def test_parquet_holds_all_columns_but_those_dropped(folder: Path) -> None:
    table = load([folder / "results"])
    content = tables.parquet(table, drop=["effective_*"])["benchmarks.parquet"]
    columns = set(pd.read_parquet(io.BytesIO(content)).columns)
    assert columns == {name for name in table.experiments.columns if not name.startswith("effective_")}


def test_rows_that_a_folder_does_not_have_are_an_empty_frame_with_the_columns_of_the_run(folder: Path) -> None:
    devices = tunebench.load(folder / "results", rows="devices")
    columns = ["results", "id", "repeat", "attempt", "status"]
    assert devices.empty and list(devices.columns) == columns
    ranks = tunebench.load(folder / "results", rows="ranks")
    assert {name: str(devices[name].dtype) for name in columns[1:]} == {
        name: str(ranks[name].dtype) for name in columns[1:]
    }

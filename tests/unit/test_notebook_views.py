"""What `tunebench.load` shows by default, its units, and what `frame.attrs` says about the frame."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from factories.results import BASE, ended, failed, stored

import tunebench
from orchestrator.records import Framework
from orchestrator.results.table.load import load

NUMBERS: dict[str, float | int | str | None] = {
    **{"peak_allocated_bytes": 3 * 2**29, "energy_per_real_token_j": 0.25, "steps": 40, "wall_s": 12.0},
    **{"mem_nvidia_mem_reserved": 2048.0, "gpu_device_name": "H100"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two frameworks with three runs each, and a third that failed."""
    cells = []
    for name, speed in (("baseline", 100.0), ("liger", 120.0)):
        one = replace(BASE, id=f"full-{name}-1", framework=Framework(name=name, digest=name))
        runs = [
            ended(one, n, tokens_per_s=speed * n, step_time_s=0.1 / n, train_loss=2.0 + n, **NUMBERS) for n in (1, 2, 3)
        ]
        cells.append((one, runs))
    broken = replace(BASE, id="full-sdpa-1", framework=Framework(name="sdpa", digest="s"))
    return stored(tmp_path_factory.mktemp("views") / "results", *cells, (broken, [failed(broken, 1)]))


def test_the_default_view_has_facts_then_key_metrics_then_the_outcome(folder: Path) -> None:
    assert tunebench.load(folder).columns.tolist() == [
        *("model_name_or_path", "framework_config", "num_gpus", "per_device_train_batch_size"),
        *("tokens_per_s", "tokens_per_s_spread", "step_time_s"),
        *("peak_allocated_bytes", "mem_nvidia_mem_reserved", "train_loss"),
        *("status", "runs_ok", "runs", "failure_kind", "failure_cause", "id"),
    ]


def test_a_view_of_runs_has_the_repeat_and_the_outcome_too(folder: Path) -> None:
    columns = tunebench.load(folder, rows="runs").columns.tolist()
    assert [name for name in columns if name in ("repeat", "attempt", "tokens_per_s", "status", "id")] == [
        *("repeat", "attempt", "tokens_per_s", "status", "id"),
    ]


@pytest.mark.parametrize("rows", ["experiments", "runs"])
def test_all_has_every_column_of_the_table_and_the_view_has_the_same_values(folder: Path, rows: str) -> None:
    everything = tunebench.load(folder, rows=rows, all=True)  # type: ignore[arg-type]
    short = tunebench.load(folder, rows=rows)  # type: ignore[arg-type]
    assert everything.columns.tolist() == [str(name) for name in getattr(load([folder]), rows).columns]
    pd.testing.assert_frame_equal(short, everything[short.columns.tolist()])
    assert len(short.columns) < len(everything.columns)


def test_a_column_without_values_is_left_out_unless_a_named_baseline_asks_for_it(folder: Path, tmp_path: Path) -> None:
    single = stored(tmp_path / "one", (BASE, [ended(BASE, 1, tokens_per_s=1.0)]))
    assert not {"failure_kind", "peak_allocated_bytes"} & set(tunebench.load(single).columns)
    beside = tunebench.load(folder, baseline="baseline").columns.tolist()
    assert beside.index("tokens_per_s") < beside.index("speedup") < beside.index("speedup_low") < beside.index("status")


def test_a_speed_up_along_another_axis_says_what_it_is_compared_with(tmp_path: Path) -> None:
    cells = [
        replace(BASE, id=f"full-{name}-1", arguments={**BASE.arguments, "optim": name}) for name in ("sgd", "adamw")
    ]
    root = stored(tmp_path / "r", *((one, [ended(one, 1, tokens_per_s=10.0)]) for one in cells))
    assert tunebench.load(root)["compared_with"].tolist() == ["optim=sgd"] * 2


def test_a_padded_campaign_shows_the_speed_without_padding_first(tmp_path: Path) -> None:
    root = stored(tmp_path / "r", (BASE, [ended(BASE, 1, tokens_per_s=10.0, real_tokens_per_s=7.0, padding_share=0.3)]))
    columns = tunebench.load(root).columns.tolist()
    assert columns.index("real_tokens_per_s") + 1 == columns.index("tokens_per_s")


@pytest.mark.parametrize("units", ["base", "readable"])
def test_the_frame_names_the_columns_that_are_geometric_means(folder: Path, units: str) -> None:
    frame = tunebench.load(folder, all=True, units=units)  # type: ignore[arg-type]
    runs = tunebench.load(folder, rows="runs", all=True, units=units)  # type: ignore[arg-type]
    ok = runs[runs["id"] == "full-liger-1"]
    row = frame[frame["id"] == "full-liger-1"].iloc[0]
    step_time = "step_time_s" if units == "base" else "step_time_ms"
    assert {"tokens_per_s", step_time} <= set(frame.attrs["geometric_mean"]) <= set(frame.columns)
    for name in set(frame.attrs["geometric_mean"]) & set(ok.columns):
        assert row[name] == pytest.approx(statistics.geometric_mean(ok[name]))
    assert "train_loss" not in frame.attrs["geometric_mean"]
    assert row["train_loss"] == pytest.approx(statistics.mean(ok["train_loss"]))
    assert runs.attrs["geometric_mean"] == []


def test_readable_units_are_in_the_names_of_the_columns(folder: Path) -> None:
    base, readable = (tunebench.load(folder, all=True, units=units) for units in ("base", "readable"))  # type: ignore[arg-type]
    assert readable["peak_allocated_gib"][0] == 1.5
    assert readable["mem_nvidia_mem_reserved_gib"][0] == 2.0
    assert readable["energy_per_real_token_mj"][0] == 250.0
    assert readable["step_time_ms"].tolist()[:2] == [1000 * value for value in base["step_time_s"].tolist()[:2]]
    assert readable["wall_s"].tolist() == base["wall_s"].tolist()
    assert readable["tokens_per_s"].tolist() == base["tokens_per_s"].tolist()
    assert not {"peak_allocated_bytes", "step_time_s", "mem_nvidia_mem_reserved"} & set(readable.columns)


def test_a_readable_name_never_replaces_a_column_of_the_trainer(tmp_path: Path) -> None:
    root = stored(tmp_path / "r", (BASE, [ended(BASE, 1, peak_allocated_bytes=2**30, peak_allocated_gib=7.0)]))
    frame = tunebench.load(root, all=True, units="readable")
    assert (frame["peak_allocated_bytes"][0], frame["peak_allocated_gib"][0]) == (2**30, 7.0)


def test_the_notes_of_a_frame_survive_json_parquet_and_a_selection(folder: Path, tmp_path: Path) -> None:
    frame = tunebench.load(folder, baseline="baseline")
    assert frame.attrs["folders"] == [str(folder)] and frame.attrs["baseline"] == ["baseline"]
    assert json.loads(json.dumps(frame.attrs)) == frame.attrs
    frame.to_parquet(tmp_path / "f.parquet")
    assert pd.read_parquet(tmp_path / "f.parquet").attrs == frame.attrs
    assert frame[frame["speedup"] > 1].attrs == frame.attrs

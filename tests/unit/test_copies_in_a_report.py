"""A report counts a run once, also if a folder and a copy of it are named."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from factories.results import BASE, ended, experiment, failed, stored
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.results.table.load import ResultsTable, load

FIRST, SECOND = experiment(), experiment("b")


def made(root: Path, *repeats: int, wall_s: float = 0.125) -> Path:
    records = [replace(ended(FIRST, repeat), started_at=1e9 + repeat, wall_s=wall_s + repeat) for repeat in repeats]
    return stored(root, (FIRST, records), (SECOND, [replace(failed(SECOND, 1), started_at=1e9, wall_s=wall_s)]))


def counts(table: ResultsTable) -> dict[str, int]:
    return table.runs.groupby("results").size().to_dict()


@pytest.mark.parametrize("kind", ["folder", "csv", "parquet"])
def test_a_copy_is_left_out(tmp_path: Path, kind: str) -> None:
    root, copy = made(tmp_path / "a", 1, 2, 3), tmp_path / "copy"
    if kind == "folder":
        shutil.copytree(root, copy)
    else:
        words = [
            "report",
            str(root),
            "--output",
            str(tmp_path / "out"),
            *(["--format", kind] if kind == "parquet" else []),
        ]
        assert CliRunner().invoke(app, words).exit_code == 0
        copy = tmp_path / "out" / f"raw_summary.{kind}"
    table = load([root, copy])
    assert counts(table) == {"a": 4} and len(table.experiments) == 2
    assert [one for one in table.warnings if "left out" in one] == [
        f"{copy.name} is left out, because a has all of its runs"
    ]


def test_an_older_copy_is_left_out_wherever_it_is_named(tmp_path: Path) -> None:
    older, newer = made(tmp_path / "older", 1, 2), made(tmp_path / "newer", 1, 2, 3)
    for places in ([older, newer], [newer, older]):
        table = load(places)
        assert counts(table) == {"newer": 4}
        assert "older is left out, because newer has all of its runs" in table.warnings


def test_a_run_that_two_folders_have_counts_only_in_the_first(tmp_path: Path) -> None:
    table = load([made(tmp_path / "a", 1, 2), made(tmp_path / "b", 2, 3)])
    assert counts(table) == {"a": 3, "b": 1}
    assert "b has 2 runs that another folder or file also has: they are counted only there" in table.warnings


def test_three_equal_folders_are_one(tmp_path: Path) -> None:
    table = load([made(tmp_path / name, 1) for name in "abc"])
    assert counts(table) == {"a": 2}


def test_campaigns_that_began_in_the_same_second_are_no_copies(tmp_path: Path) -> None:
    table = load([made(tmp_path / "a", 1, 2), made(tmp_path / "b", 1, 2, wall_s=0.25)])
    assert counts(table) == {"a": 3, "b": 3} and not [one for one in table.warnings if "runs" in one]


def test_folders_without_runs_stay(tmp_path: Path) -> None:
    table = load([stored(tmp_path / name, (FIRST, [])) for name in "ab"])
    assert list(table.experiments["results"]) == ["a", "b"]


def test_a_folder_comes_before_a_file_that_has_its_runs_and_more(tmp_path: Path) -> None:
    """The folder knows more, such as the experiments that are due. A CSV file has truth values as words."""
    due = replace(BASE, id="due-000000000000")
    records = [replace(ended(FIRST, repeat, on_time=True), started_at=1e9 + repeat) for repeat in (1, 2, 3)]
    folder = stored(tmp_path / "a", (FIRST, records[:2]), (due, []))
    whole = stored(tmp_path / "whole", (FIRST, records))
    words = ["report", str(whole), "--output", str(tmp_path / "out")]
    assert CliRunner().invoke(app, words).exit_code == 0
    for places in ([folder, tmp_path / "out" / "raw_summary.csv"], [tmp_path / "out" / "raw_summary.csv", folder]):
        table = load(places)
        assert counts(table) == {"a": 2, "raw_summary.csv": 1} and due.id in list(table.experiments["id"])


def test_a_copy_that_has_more_experiments_stays_with_them(tmp_path: Path) -> None:
    due = replace(BASE, id="due-000000000000")
    records = [replace(ended(FIRST, repeat), started_at=1e9 + repeat) for repeat in (1, 2)]
    roots = [stored(tmp_path / "a", (FIRST, records)), stored(tmp_path / "b", (FIRST, records), (due, []))]
    table = load(roots)
    assert counts(table) == {"b": 2} and list(table.experiments["id"]) == [FIRST.id, due.id]

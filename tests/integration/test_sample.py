"""The campaign in docs/sample: what README and its own page say of it is what is made of its records today."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.store import Store

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "docs" / "sample"
FILES = ("benchmarks.csv", "raw_summary.csv", "ranks.csv", "devices.csv")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A copy under the same name: a report is written into its results folder."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "docs" / "sample"))


def test_the_table_of_the_readme_is_what_its_command_prints(sample: Path, in_process: Call) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^tunebench (report docs/sample .*)$", readme, re.MULTILINE)
    code, printed, _ = in_process(*shlex.split(command), width=200)
    table = [line for line in printed.splitlines() if line.startswith("|")]
    assert code == 0 and len(table) == 10
    assert "\n".join(table) in readme


def test_its_files_are_what_a_report_makes_of_its_records(sample: Path, in_process: Call) -> None:
    for name in FILES:
        (sample / name).unlink()
    assert in_process("report", "docs/sample", "--baseline", "baseline", width=200)[0] == 0
    for name in FILES:
        assert (sample / name).read_text(encoding="utf-8") == (SAMPLE / name).read_text(encoding="utf-8"), name


def test_its_text_says_what_its_records_say(sample: Path, in_process: Call) -> None:
    said = re.sub(r"\s+", " ", (SAMPLE / "README.md").read_text(encoding="utf-8"))
    _, printed, _ = in_process("report", "docs/sample", "--baseline", "baseline", "--format", "markdown", width=200)
    faster = re.findall(r"liger is ([\d.]+)× \(([\d.]+)–([\d.]+)\) faster", printed)
    assert len(faster) == 2
    assert all(f"{value} times ({low} to {high})" in said for value, low, high in faster)
    records = [record for one in Store.resume(sample).contents().experiments for record in one.records]
    assert sorted(one.status for one in records) == ["cancelled", *["ok"] * 24]
    assert {one.provenance["host"]["name"] for one in records} == {"host-1"}, "it came out of `tunebench bundle`"

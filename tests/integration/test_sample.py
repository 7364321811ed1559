"""The campaign in docs/sample: what README and its own page say of it is what is made of its records today."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "docs" / "sample"
TWO_H100 = ROOT / "tests" / "samples" / "two-h100.tar.gz"
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
    assert code == 0 and len(table) == 2 * 10, "a readable table, and one with all columns"
    assert "\n".join(table[:10]) in readme


def test_its_files_are_what_a_report_makes_of_its_records(sample: Path, in_process: Call) -> None:
    for name in FILES:
        (sample / name).unlink()
    assert in_process("report", "docs/sample", "--baseline", "baseline", width=200)[0] == 0
    for name in FILES:
        assert (sample / name).read_text(encoding="utf-8") == (SAMPLE / name).read_text(encoding="utf-8"), name


def test_the_texts_say_what_its_records_say(sample: Path, in_process: Call) -> None:
    said, readme, packing = (
        re.sub(r"\s+", " ", (ROOT / name).read_text(encoding="utf-8"))
        for name in ("docs/sample/README.md", "README.md", "docs/campaigns.md")
    )
    _, printed, _ = in_process("report", "docs/sample", "--baseline", "baseline", "--format", "markdown", width=200)
    factors = re.findall(r"liger is (\d+) % \w+ \(([\d.]+×, [\d.]+ to [\d.]+)\) .* needs \d+ % less", printed)
    assert len(factors) == 3
    assert all(f"{share} %" in said and f"({ratio})" in said for share, ratio in factors)
    ((busy, baselines),) = re.findall(r"GPUs busy (\d+) % of the time against (\d+) %", printed)
    assert (
        f"busy {busy} % of the time with Liger, and {baselines} % without it" in readme
        and f"and {busy} % of the time" in said
    )
    words = ("compare", "docs/sample", "docs/sample/packed.csv", "--ignore", "neighbours", "--format", "json")
    _, compared, _ = in_process(*words, width=200)
    fleet = {one["metric"]: one["ratio"] for one in json.loads(compared)["fleet"]}["tokens_per_s"]
    values = (fleet["value"], *fleet["interval"].values())
    percent = [f"{100 * (value - 1):+.1f}".replace("-", "−") for value in values]
    assert "{} % ({} to {}".format(*percent) in packing


def test_it_is_whole_and_says_nothing_of_whose_machine_it_was(sample: Path) -> None:
    records = [record for one in Store.resume(sample).contents().experiments for record in one.records]
    assert sorted(one.status for one in records) == ["cancelled", *["ok"] * 24]
    assert {one.provenance["host"]["name"] for one in records} == {"host-1"}, "it came out of `tunebench bundle`"
    texts = [path for path in SAMPLE.rglob("*") if path.is_file() and path.name != "report.html"]
    private = re.compile(r"/(?:work|root|home)/")
    assert [str(path) for path in texts if private.search(path.read_text(encoding="utf-8"))] == []


def test_a_bundle_of_a_campaign_on_two_gpus_is_reported_as_it_was_measured(tmp_path: Path, in_process: Call) -> None:
    """Two models × three frameworks on one H100, one model on two: 43 of 45 runs, because the time on the machine was over."""
    with tarfile.open(TWO_H100) as bundle:
        bundle.extractall(tmp_path, filter="data")
    folder = tmp_path / "sample-bundle"
    records = [record for one in Store.resume(folder).contents().experiments for record in one.records]
    assert [one.status for one in records] == ["ok"] * 43
    code, printed, _ = in_process("report", str(folder), "--baseline", "baseline", "--format", "markdown", width=200)
    assert code == 0
    assert "liger is 42 % faster (1.42×, 1.40 to 1.43) than baseline on llama-1b at 1 GPU" in printed
    assert "gradient-checkpointing is 19 % slower (0.81×, 0.81 to 0.81) than baseline on llama-1b at 2 GPUs" in printed
    assert "no speed is claimed: gradient-checkpointing on qwen2.5-0.5b at 1 GPU" in printed

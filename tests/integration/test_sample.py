"""The campaign in docs/sample: what README and its own page say of it is what is made of its records today."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from factories.samples import four_h200

from orchestrator.results.store import Store

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
    assert code == 0 and len(table) == 2 * 11, "a readable table, and one with all columns"
    assert "\n".join(table[:11]) in readme


def test_its_files_are_what_a_report_makes_of_its_records(sample: Path, in_process: Call) -> None:
    for name in FILES:
        (sample / name).unlink()
    assert in_process("report", "docs/sample", "--baseline", "baseline", width=200)[0] == 0
    for name in FILES:
        assert (sample / name).read_text(encoding="utf-8") == (SAMPLE / name).read_text(encoding="utf-8"), name


def test_the_texts_say_what_its_records_say(sample: Path, in_process: Call) -> None:
    said = text_of("docs/sample/README.md")
    _, printed, _ = in_process("report", "docs/sample", "--baseline", "baseline", "--format", "markdown", width=200)
    found = re.findall(r"is (\d+ % \w+) \(([\d.]+×, [\d.]+ to [\d.]+)\) .* needs (\d+) % less", printed)
    assert len(found) == 5
    for share, ratio, memory in found:
        assert share in said and ratio in said and re.search(rf"\b{memory} (?:and \d+ )?%", said), (
            share,
            ratio,
            memory,
        )
    scaling = [float(share) for share in re.findall(r"2 GPUs ([\d.]+) % ", printed)]
    assert "94 to 97 %" in said and len(scaling) == 3 and all(94 <= share <= 97 for share in scaling)
    assert "no speed is claimed: gradient-checkpointing on qwen2.5-0.5b at 1 GPU" in printed


def test_it_is_whole_and_says_nothing_of_whose_machine_it_was(sample: Path) -> None:
    records = [record for one in Store.resume(sample).contents().experiments for record in one.records]
    assert [one.status for one in records] == ["ok"] * 45
    assert {one.provenance["host"]["name"] for one in records} == {"vm"}, "a name that says nothing"
    texts = [path for path in SAMPLE.rglob("*") if path.is_file() and path.name != "report.html"]
    private = re.compile(r"/(?:work|root|home)/")
    assert [str(path) for path in texts if private.search(path.read_text(encoding="utf-8"))] == []


def test_the_sample_of_before_is_reported_as_it_was(tmp_path: Path, in_process: Call) -> None:
    """Its records are of an older version of Tunebench, and one of its runs was cancelled and made again."""
    folder = four_h200(tmp_path)
    before = {name: (folder / name).read_text(encoding="utf-8") for name in FILES}
    records = [record for one in Store.resume(folder).contents().experiments for record in one.records]
    assert sorted(one.status for one in records) == ["cancelled", *["ok"] * 24]
    assert in_process("report", "four-h200", "--baseline", "baseline", width=200)[0] == 0
    after = {name: (folder / name).read_text(encoding="utf-8") for name in FILES}
    rows, expected = (list(csv.DictReader(io.StringIO(files.pop("benchmarks.csv")))) for files in (after, before))
    assert (expected[0]["framework_config"], expected[0]["doubt"]) == ("baseline", ""), "its own row had no doubt then"
    expected[0]["doubt"] = "not steady"
    machine = {
        "device": "cuda",
        "gpu_device_name": "NVIDIA H200",
        "data": "builtin:synthetic",
        "monitors": "hf_memory nvml",
    }
    assert not machine.keys() & expected[0].keys(), "all rows share these, and the file left them out then"
    expected = [{**row, **machine} for row in expected]
    assert rows == expected and after == before
    words = ("compare", "four-h200", "four-h200/packed.csv", "--ignore", "neighbours", "--format", "json")
    _, compared, _ = in_process(*words, width=200)
    fleet = {one["metric"]: one["ratio"] for one in json.loads(compared)["fleet"]}["tokens_per_s"]
    percent = [f"{100 * (value - 1):+.1f}".replace("-", "−") for value in (fleet["value"], *fleet["interval"].values())]
    assert "{} % ({} to {}".format(*percent) in text_of("docs/campaigns.md")


def text_of(page: str) -> str:
    """Return the text of a page without its line ends."""
    return re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))

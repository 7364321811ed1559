"""trl's DPO script under the instrument, over one epoch of ragged preferences. The test counts their words itself."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import spelled
from campaigns import Campaign, tunebench
from factories.cases import text

from orchestrator import trainers

pytest.importorskip("trl")

PAIRS = 40
PREFERENCES = [
    {"prompt": "a b", "chosen": " c" * (3 + pair % 9), "rejected": " d" * (2 + pair % 5)} for pair in range(PAIRS)
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("dpo")
    spelled.make(folder)
    (folder / "preferences").mkdir()
    rows = "".join(json.dumps(row) + "\n" for row in PREFERENCES)
    (folder / "preferences" / "train.jsonl").write_text(rows)
    (folder / "scenarios.yaml").write_text(text("scenarios/trl-dpo.yaml"))
    return tunebench(folder, "run", "scenarios.yaml")


def test_both_answers_of_a_pair_are_counted(trained: Campaign) -> None:
    assert trained.code == 0, trained.said
    (counts,) = spelled.counted(trained.run_dir("dpo"))
    answers = [row[answer].split() for row in PREFERENCES for answer in ("chosen", "rejected")]
    prompt, end = 2, 1
    assert counts["real"] == sum(prompt + len(answer) + end for answer in answers)
    assert (counts["steps"], counts["samples"]) == (PAIRS / 2, 2 * PAIRS)
    assert counts["processed"] > counts["real"]
    assert counts["labelled"] is None, "unknown, and not 0"


def test_pairs_per_second_are_half_of_the_samples(trained: Campaign, tmp_path: Path) -> None:
    """In a second of steps on a busy machine, a run may not be level. So its steps get an equal pace, in a copy."""
    run_dir = Path(shutil.copytree(trained.run_dir("dpo"), tmp_path / "run"))
    file = run_dir / "steps-rank0.jsonl"
    steps = [json.loads(line) for line in file.read_text().splitlines()]
    level = [{**step, **({"s": 0.25, "compute_s": 0.2, "wait_s": 0.05} if "s" in step else {})} for step in steps]
    file.write_text("".join(json.dumps(step) + "\n" for step in level))
    values = {number.name: number.value for number in trainers.get("trl_dpo").metrics(run_dir)}
    assert values["pairs_per_s"] == pytest.approx(8), "2 pairs in a quarter of a second; a pair has 2 samples"
    numbers = {number.name: number for number in trained.record("dpo").measurements}
    assert numbers["labelled_tokens_per_s"].value is None
    assert numbers["labelled_tokens_per_s"].why_missing == "a batch of preferences has no labels"
    with (trained.results / "ranks.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert not row.get("labelled_tokens")


def test_what_took_effect_is_read_off_its_trainer(trained: Campaign) -> None:
    settings = trained.record("dpo").settings
    assert (settings["world_size"], settings["global_batch"], settings["peft_method"]) == (1, 2, None)
    assert settings["mixed_precision"] == "no" and not settings["gradient_checkpointing"]


def test_a_warm_run_trains_the_same(trained: Campaign) -> None:
    spelled.assert_same_when_warm(trained)

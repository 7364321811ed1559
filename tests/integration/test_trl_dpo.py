"""trl's DPO script under the instrument, over one epoch of ragged preferences. The test counts their words itself."""

from __future__ import annotations

import csv
import json

import pytest
import spelled
from campaigns import Campaign, tunebench
from factories.cases import text

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


def test_pairs_per_second_are_half_of_the_samples(trained: Campaign) -> None:
    numbers = {number.name: number for number in trained.record("dpo").measurements}
    assert numbers["pairs_per_s"].value == numbers["samples_per_s"].value / 2 > 0
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

"""A `--parallel` campaign on two GPUs: its runs have neighbours, and yet rows with equally many are compared and make findings."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from campaigns import Campaign, tunebench

from orchestrator.machine.gpus import visible_gpus
from orchestrator.report.highlights import HighlightKind, highlights
from orchestrator.results.table.baseline import pairs_of
from orchestrator.results.table.load import ResultsTable, load

REPEATS, BATCHES = 5, (2, 4)
SCENARIO: dict[str, Any] = {
    "name": "checkpoints",
    "framework_config": ["baseline", "gradient-checkpointing"],
    "device": "cuda",
    "repeats": REPEATS,
    "measure": {"discard_steps": 5},
    "matrix": {"per_device_train_batch_size": list(BATCHES)},
    "arguments": {
        "model_name_or_path": "config:llama-1b",
        "num_hidden_layers": 6,
        "dtype": "bfloat16",
        "bf16": True,
        "max_seq_len": 2048,
        "max_steps": 30,
    },
}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(visible_gpus()) < 2, reason="fewer than two NVIDIA GPUs"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("parallel")
    data = {"dataset_name": "builtin:synthetic", "samples": 128}
    (folder / "scenarios.yaml").write_text(yaml.safe_dump({"data_processing": data, "scenarios": [SCENARIO]}))
    done = tunebench(folder, "run", "scenarios.yaml", "--parallel", "2")
    assert done.code == 0, done.said
    return done


@pytest.fixture(scope="module")
def table(campaign: Campaign) -> ResultsTable:
    return load([campaign.results])


def test_every_run_had_one_neighbour(campaign: Campaign) -> None:
    runs = [record for records in campaign.records().values() for record in records]
    assert len(runs) == 2 * len(BATCHES) * REPEATS
    assert {record.neighbours for record in runs} == {1}


def test_each_batch_size_has_a_finding(table: ResultsTable) -> None:
    """Checkpoints compute the forward pass again, which is a third more work at most: 0.75 of the speed."""
    pairs = [pair for pair in pairs_of(table) if pair.speed]
    assert len(pairs) == len(BATCHES)
    for pair in pairs:
        assert pair.speed and 0.7 < pair.speed.ratio.value < 0.95
    found = [one.text for one in highlights(table) if one.kind is HighlightKind.GAIN]
    assert len([text for text in found if "gradient-checkpointing" in text and "slower" in text]) == len(BATCHES), found


def test_the_cost_of_neighbours_is_said(table: ResultsTable) -> None:
    warnings = [one.text for one in highlights(table) if one.kind is HighlightKind.WARNING]
    assert any("the cost of neighbours was not measured" in text for text in warnings)

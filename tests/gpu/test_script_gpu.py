"""A training as a user's script against the same training by the built-in trainer: the same speed, tokens and memory.

The script is the built-in trainer's own file. It gets the arguments that the built-in trainer's plan shows. Both run five times, in
turns: the rounds of a campaign have every experiment once.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml
from campaigns import Campaign, tunebench
from trainings import SFT

from orchestrator.machine.gpus import visible_gpus
from orchestrator.records import RunRecord, Status

REPEATS, SAME_SPEED = 5, 0.005
BOTH: dict[str, Any] = {
    "device": "cuda",
    "repeats": REPEATS,
    "monitors": ["hf_memory"],
    "measure": {"discard_steps": 10},
}
BUILT_IN: dict[str, Any] = {
    "model_name_or_path": "config:llama-1b",
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_seq_len": 2048,
    "max_steps": 60,
    "bf16": True,
}
DATA = {"dataset_name": "builtin:synthetic", "samples": 256}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not visible_gpus(), reason="no NVIDIA GPU"),
    pytest.mark.timeout(1200),
]


def written(folder: Path, **scenarios: dict[str, Any]) -> str:
    """Write a scenario file with these scenarios, and return its name."""
    named = [{"name": name, **BOTH, **scenario} for name, scenario in scenarios.items()]
    (folder / "scenarios.yaml").write_text(yaml.safe_dump({"data_processing": DATA, "scenarios": named}))
    return "scenarios.yaml"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("both")
    built_in = {"arguments": BUILT_IN}
    planned = tunebench(folder, "plan", written(folder, built_in=built_in), "--json")
    (received,) = (experiment["arguments"] for experiment in json.loads(planned.out)["experiments"])
    received.pop("output_dir")
    done = tunebench(folder, "run", written(folder, built_in=built_in, script={"script": SFT, "arguments": received}))
    assert done.code == 0, done.said
    return done


def of(campaign: Campaign, scenario: str) -> list[RunRecord]:
    (records,) = [records for name, records in campaign.records().items() if name.startswith(f"{scenario}-")]
    assert [record.status for record in records] == [Status.OK] * REPEATS
    return records


def values(campaign: Campaign, scenario: str, metric: str) -> list[Any]:
    """Return the metric of each run."""
    return [next(one.value for one in record.measurements if one.name == metric) for record in of(campaign, scenario)]


def test_they_ran_in_turns(both: Campaign) -> None:
    began = sorted(
        (record.started_at, scenario) for scenario in ("built_in", "script") for record in of(both, scenario)
    )
    rounds = [{scenario for _, scenario in began[at : at + 2]} for at in range(0, 2 * REPEATS, 2)]
    assert rounds == [{"built_in", "script"}] * REPEATS


@pytest.mark.parametrize("metric", ["tokens_per_s", "real_tokens_per_s"])
def test_the_speed_is_the_same_within_half_a_percent(both: Campaign, metric: str) -> None:
    built_in, script = (median(values(both, scenario, metric)) for scenario in ("built_in", "script"))
    assert script == pytest.approx(built_in, rel=SAME_SPEED), (
        f"script {script:.1f}, built-in trainer {built_in:.1f} tokens/s"
    )


@pytest.mark.parametrize(
    "metric",
    [
        *("tokens_processed", "samples_processed", "steps", "trainable_parameters", "model_flops_per_token"),
        *("mem_peak_torch_mem_alloc_in_bytes", "mem_torch_mem_alloc_in_bytes"),
        "peak_allocated_bytes",
    ],
)
def test_work_and_memory_are_the_same_in_every_run(both: Campaign, metric: str) -> None:
    found = {value for scenario in ("built_in", "script") for value in values(both, scenario, metric)}
    assert len(found) == 1 and None not in found


def test_the_losses_are_the_same(both: Campaign) -> None:
    """To a hundredth of a percent: sums on a GPU have no fixed order."""
    built_in, script = (median(values(both, scenario, "train_loss")) for scenario in ("built_in", "script"))
    assert script == pytest.approx(built_in, rel=1e-4)


def test_the_settings_in_effect_are_the_same(both: Campaign) -> None:
    built_in, script = (of(both, scenario)[0].settings for scenario in ("built_in", "script"))
    assert built_in == script and built_in["mixed_precision"] == "bf16"

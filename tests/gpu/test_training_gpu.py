"""On one GPU: eager against torch.compile, with every memory monitor, in one campaign that all tests here share.

The rows rank the two as their steady states do. The Trainer's own speed has the compilation in it and ranks them the other way
round. That is asserted as well: a row with only the Trainer's number would be believed.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pytest
from campaigns import Campaign, tunebench
from factories.cases import text

from orchestrator.machine.gpus import visible_gpus
from orchestrator.plan.forecast.memory_fit import Estimate, estimate
from orchestrator.records import RunRecord
from orchestrator.results.store import Store

GPUS = visible_gpus()
STEPS, LAST = 60, 20  # of the scenario file

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU"),
    pytest.mark.timeout(900),
]

SCENARIOS = text("scenarios/training-gpu.yaml")


def _campaign(folder: Path, scenario: str, *words: str) -> Campaign:
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    done = tunebench(folder, "run", "scenarios.yaml", "--scenario", scenario, "--memory", "all", *words)
    assert done.code == 0, done.said
    return done


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return _campaign(tmp_path_factory.mktemp("compiled"), "compiled")


@pytest.fixture(scope="module")
def eager(campaign: Campaign) -> RunRecord:
    return campaign.record("baseline")


@pytest.fixture(scope="module")
def numbers(eager: RunRecord) -> dict[str, Any]:
    return {measurement.name: measurement.value for measurement in eager.measurements}


def last_steps_s(results: Path, id: str) -> float:
    """Return the median time of the last steps of the step file itself: nothing compiles there any more."""
    (path,) = results.glob(f"experiments/{id}/runs/*/steps-rank0.jsonl")
    times = [line["s"] for line in map(json.loads, path.read_text().splitlines()) if "s" in line]
    assert len(times) == STEPS
    return median(times[-LAST:])


def test_rows_rank_as_the_steady_state_does_and_show_both_numbers(campaign: Campaign) -> None:
    frame = pd.read_csv(campaign.results / "benchmarks.csv").set_index("framework_config")
    eager, compiled = frame.loc["baseline"], frame.loc["torch-compile"]
    truth = last_steps_s(campaign.results, eager["id"]) / last_steps_s(campaign.results, compiled["id"])
    steady = compiled["tokens_per_s"] / eager["tokens_per_s"]
    theirs = compiled["train_tokens_per_second"] / eager["train_tokens_per_second"]
    print(
        f"compiled against eager: last steps {truth:.3f}, tokens_per_s {steady:.3f}, train_tokens_per_second {theirs:.3f}"
    )
    assert truth > 1.05, "compilation makes this model faster"
    assert steady == pytest.approx(truth, rel=0.02)
    assert theirs < 1, "and the Trainer's number says the opposite, for it has the compilation in it"
    assert compiled["compile_s"] > 5 and pd.isna(eager["compile_s"])
    assert abs(compiled["loss_difference"]) < 0.05


def test_a_run_trains_on_its_gpu_and_says_so(campaign: Campaign, eager: RunRecord) -> None:
    assert eager.settings["device"].startswith("cuda")
    assert eager.settings["device_name"] == GPUS[0].name
    assert eager.settings["mixed_precision"] == "bf16"
    assert eager.settings["wrapper_classes"] == []
    assert (eager.settings["torch_compile"], campaign.record("torch-compile").settings["torch_compile"]) == (
        False,
        True,
    )
    provenance = json.dumps(dict(eager.provenance))
    assert GPUS[0].name in provenance and "driver" in provenance


def test_each_memory_monitor_has_its_columns(eager: RunRecord, numbers: dict[str, Any]) -> None:
    weights = 2 * eager.settings["total_parameters"]
    assert numbers["before_init_mem_gpu"] >= 0
    assert numbers["mem_peak_torch_mem_alloc_in_bytes"] >= numbers["mem_torch_mem_alloc_in_bytes"] >= weights
    assert numbers["gpu_device_name"] == GPUS[0].name
    # A CUDA context alone takes hundreds of MiB; the first reading, before the run, has none.
    assert numbers["mem_nvidia_mem_reserved"] > 100


def test_the_estimate_is_within_a_tenth_of_the_measured_peak(campaign: Campaign, numbers: dict[str, Any]) -> None:
    stored = Store.resume(campaign.results).contents().experiments
    (experiment,) = [one.experiment for one in stored if "baseline" in one.experiment.id]
    estimated = estimate(experiment)
    assert isinstance(estimated, Estimate)
    assert estimated.peak_allocated_bytes == pytest.approx(numbers["peak_allocated_bytes"], rel=0.1)


def test_a_warm_start_needs_the_same_memory(tmp_path: Path, eager: RunRecord, numbers: dict[str, Any]) -> None:
    warm = _campaign(tmp_path, "compiled", "--framework", "baseline", "--warm").record("baseline")
    assert (eager.provenance["start"], warm.provenance["start"]) == ("cold", "warm"), warm.provenance["cold_because"]
    found = {measurement.name: measurement.value for measurement in warm.measurements}
    for name in ("peak_allocated_bytes", "peak_reserved_bytes", "tokens_processed"):
        assert found[name] == numbers[name], name
    assert found["peak_allocated_bytes"] > 0


@pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="liger-kernel is not installed")
def test_replaced_kernels_are_read_off_the_model(tmp_path: Path) -> None:
    assert _campaign(tmp_path, "kernels").record("liger").settings["liger"] is True

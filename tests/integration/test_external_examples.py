"""The examples of trainers that cannot train on this machine: fairseq2 and torchtitan.

Their plans give the reason. A stand-in takes the place of the trainer's module, and prints or writes a sample in the trainer's own
format. The samples were made by hand, after the writers of metrics in fairseq2 0.8.1 and torchtitan 0.3.0.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import ROOT, Call, Campaign, tunebench

SAMPLES = ROOT / "tests" / "samples"
EXAMPLES = ROOT / "examples"

# Writes the metrics of fairseq2 into its output folder, the first word. The last loss depends on the learning rate.
RECIPE = """
import pathlib, sys
output, *words = sys.argv[1:]
config = dict(word.split("=") for word in words[words.index("--config") + 1:])
assert config["common.no_sweep_dir"] == "true", config
folder = pathlib.Path(output, "metrics")
folder.mkdir(parents=True)
text = pathlib.Path("{sample}").read_text().replace('"Wall Time": 9.0', '"Wall Time": 0.01')  # this run is shorter
(folder / "train.jsonl").write_text(text.replace("1.75", str(1 + 1e4 * float(config["optimizer.config.lr"]))))
"""
# Prints what torchtitan prints, with more steps: the first takes 0.3 s, the others 20 ms. torchrun shows what rank 0 prints.
TITAN = """
import os, pathlib, sys
assert "--metrics.disable_color_printing" in sys.argv and "LOCAL_RANK" in os.environ
head, begin, first, step, validation, last, end = pathlib.Path("{sample}").read_text().splitlines()
print(head, begin, first.replace("20:00:05,900", "20:00:02,812"), sep="\\n")
for number in range(2, 30):
    seconds = f"{{2.812 + 0.02 * (number - 1):06.3f}}".replace(".", ",")
    print(step.replace("step:  2", f"step: {{number:2}}").replace("06,400", seconds))
print(validation, last.replace("step: 10", "step: 30").replace("07,400", "03,392"), end, sep="\\n")
"""


def example(name: str, folder: Path, **changes: Any) -> None:
    """Write an example's scenarios for this machine: without environments, on CPUs, with these keys."""
    file = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    del file["environments"]
    for scenario in file["scenarios"]:
        del scenario["environment"]
        scenario.pop("num_gpus_per_node", None)
        scenario.update(device="cpu", num_nodes=1, baseline={}, **changes)
        scenario["matrix"] = {name: values[-2:] for name, values in scenario.get("matrix", {}).items()}
    (folder / "scenarios.yaml").write_text(yaml.safe_dump(file))


def stand_in(folder: Path, module: str, code: str, sample: str) -> str:
    """Write the module, and return the folder for PYTHONPATH."""
    path = folder.joinpath("modules", *module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    path.write_text(code.format(sample=SAMPLES / sample))
    return str(folder / "modules")


def summary(campaign: Campaign) -> list[dict[str, str]]:
    """Return the rows of all runs, with every number; `benchmarks.csv` leaves out what does not vary."""
    with (campaign.results / "raw_summary.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("name", "cells"), [("fairseq2", 7), ("torchtitan", 4)])
def test_a_plan_without_a_gpu_gives_the_reason_and_builds_nothing(
    tmp_path: Path, call: Call, name: str, cells: int
) -> None:
    code, out, err = call(tmp_path, "plan", EXAMPLES / f"{name}.yaml", CUDA_VISIBLE_DEVICES="")
    assert code == 0, err
    assert f"{cells} experiments, 0 runs can be made here." in out + err
    assert "no NVIDIA GPU is visible" in out + err


@pytest.fixture(scope="module")
def fairseq2(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("fairseq2")
    example(
        "fairseq2",
        folder,
        num_gpus=1,
        repeats=1,
        env={"PYTHONPATH": stand_in(folder, "recipes.lm.sft", RECIPE, "fairseq2-train.jsonl")},
    )
    return tunebench(folder, "run", "scenarios.yaml")


def test_fairseq2_s_last_metrics_are_the_row(fairseq2: Campaign) -> None:
    assert fairseq2.code == 0, fairseq2.said
    rows = {row["id"][:-13]: row for row in summary(fairseq2)}
    assert [*rows] == [
        "environments-ps_llama3_2_1b_gsm8k.ws_1.lr_2e-5",
        *(f"learning-rates-ps_llama3_2_1b_gsm8k.ws_1.lr_{lr}" for lr in ("2e-5", "5e-5")),
    ]
    row = rows["learning-rates-ps_llama3_2_1b_gsm8k.ws_1.lr_5e-5"]
    names = ("train_loss", "train_runtime", "reported_tokens_per_s", "peak_reserved_bytes")
    assert [float(row[name]) for name in names] == [1.5, 0.01, 10240, 21e9]


def test_a_tag_finds_its_result_and_a_second_run_has_nothing_to_do(fairseq2: Campaign, call: Call) -> None:
    before = fairseq2.records()
    code, out, err = call(fairseq2.folder, "show", "lr_5e-5")
    assert code == 0 and "learning-rates-ps_llama3_2_1b_gsm8k.ws_1.lr_5e-5" in out, err
    code, out, err = call(fairseq2.folder, "run", "scenarios.yaml", "--cell", "lr_5e-5")
    assert code == 0 and "1.5" in out, err
    assert fairseq2.records() == before


def test_torchtitan_s_lines_are_steps(tmp_path: Path) -> None:
    path = stand_in(tmp_path, "torchtitan.train", TITAN, "torchtitan.log")
    example(
        "torchtitan",
        tmp_path,
        num_gpus=2,
        repeats=1,
        matrix={"compile": ["--compile.enable"]},
        env={"PYTHONPATH": path},
    )
    (tmp_path / "torchtitan_steps.py").write_text((EXAMPLES / "torchtitan_steps.py").read_text())
    done = tunebench(tmp_path, "run", "scenarios.yaml")
    assert done.code == 0, done.said
    (row,) = summary(done)
    assert (int(row["steps"]), int(row["tokens_processed"])) == (30, 30 * 2 * 2 * 2048)
    assert [float(row[name]) for name in ("first_step_s", "step_time_s")] == pytest.approx([0.3, 0.02], abs=1e-6)
    names = ("train_loss", "reported_tokens_per_s_per_gpu", "mfu", "peak_reserved_bytes")
    assert [float(row[name]) for name in names] == pytest.approx([10.50125, 8190, 0.4796, 38.62 * 2**30])

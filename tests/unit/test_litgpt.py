"""The trainer `litgpt`: the steps in its lines and in its CSV file, and what a plan refuses."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from factories.results import experiment
from test_argument_values import planned, said

from orchestrator.measure import steps as step_files
from orchestrator.measure.steps.printed import StepLines
from orchestrator.records import Experiment, Framework, Measure, ProcessOutcome, RunFolder, StepSource
from orchestrator.results.store import Store
from orchestrator.run import collect, reported_steps, validity
from orchestrator.trainers import get
from orchestrator.trainers.external.litgpt import steps

GOLDEN = Path(__file__).parents[1] / "golden" / "litgpt"
LITGPT = get("litgpt")
SIZES = {"train.global_batch_size": "4", "train.micro_batch_size": "2"}
LINES = """Epoch 1 | iter 1 step 0 | loss train: 7.001, val: n/a | iter time: 888.68 ms
Epoch 1 | iter 2 step 1 | loss train: 7.009, val: n/a | iter time: 118.22 ms (step)
Validating ...
Epoch 1 | iter 3 step 1 | loss train: 7.020, val: 6.871 | iter time: 116.91 ms
Epoch 1 | iter 4 step 2 | loss train: 7.031, val: 6.871 | iter time: 169.63 ms (step)
"""


def an_experiment(**fields: Any) -> Experiment:
    return experiment(**{"trainer": "litgpt", "steps": StepSource.STDOUT, "arguments": SIZES, **fields})


def run_folder(tmp_path: Path, one: Experiment, *, name: str = "metrics.csv") -> RunFolder:
    """A run's folder with the file of a real run of 12 micro-batches, which is 6 steps."""
    store = Store.create(tmp_path / "results", {})
    store.add([one])
    folder = RunFolder(store.run_dir(one.id, 1, 1))
    results = folder.output / "logs" / "csv" / "version_0"
    results.mkdir(parents=True)
    shutil.copy(GOLDEN / name, results / "metrics.csv")
    folder.stdout.write_text(LINES)
    return folder


def test_a_printed_step_has_the_time_of_its_micro_batches() -> None:
    found = StepLines(translate=LITGPT.step_reader(an_experiment())).feed(LINES.encode())
    assert [(step["step"], step["s"]) for step in found] == [(1, 1.0069), (2, 0.28654)]


def test_the_file_has_the_tokens_of_each_step(tmp_path: Path) -> None:
    one = an_experiment()
    found = LITGPT.steps_at_end(one, run_folder(tmp_path, one).path)
    assert [step["step"] for step in found] == [1, 2, 3, 4, 5, 6]
    assert found[0] == {"step": 1, "t": None, "s": 1.024603294, "tokens": 512, "real": 512, "samples": 4}
    assert (found[3]["tokens"], found[3]["real"]) == (512, 506)
    assert sum(step["s"] for step in found) == pytest.approx(2.0015474649999305)
    several = LITGPT.steps_at_end(an_experiment(num_gpus=2), run_folder(tmp_path / "two", one).path)
    assert len(several) == 12 and {step["tokens"] for step in several} == {None}, "the file has those of rank 0"


def test_a_last_row_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, an_experiment())
    file = folder.output / "logs" / "csv" / "version_0" / "metrics.csv"
    whole = file.read_bytes()
    last = whole.rstrip().rfind(b"\n") + 1
    seen = set()
    for end in range(last, len(whole)):
        file.write_bytes(whole[:end])
        seen |= {number.value for number in LITGPT.metrics(folder.path) if number.name == "train_runtime"}
    assert len(seen) == 1 and all(1.5 < seconds < 2.0016 for seconds in seen)


def test_full_fine_tuning_writes_no_padded_tokens(tmp_path: Path) -> None:
    one = an_experiment()
    folder = run_folder(tmp_path, one, name="metrics-full.csv")
    found = LITGPT.steps_at_end(one, folder.path)
    assert found[0] == {"step": 1, "t": None, "s": 0.263785229, "tokens": None, "real": 512, "samples": 4}
    assert (len(found), found[3]["real"]) == (6, 2046 - 1536)
    assert {number.name: number.value for number in LITGPT.metrics(folder.path)}["train_runtime"] is None


def test_the_file_replaces_the_printed_steps_if_it_has_as_many(tmp_path: Path) -> None:
    one = an_experiment(measure=Measure(discard_steps=1))
    folder = run_folder(tmp_path, one)
    outcome = ProcessOutcome(exit_code=0, signal=None, started_at=1.7e9, ended_at=1.7e9 + 10)
    reported_steps.ReportedSteps(one, StepSource.STDOUT, folder).finish(outcome)
    found = collect.read(one, folder.path, watching=(), gpus=(), wall_s=outcome.wall_s)
    values = {number.name: number.value for number in found.measurements}
    assert found.complete and found.contradiction is None
    assert (values["steps"], values["tokens_processed"], values["samples_processed"]) == (6, 3072, 24)
    assert values["first_step_s"] == 1.024603294
    assert values["train_runtime"] == 2.0015474649999305
    assert values["train_loss"] == pytest.approx(7.0526, abs=0.01)


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_a_loss_that_is_not_finite_makes_the_run_invalid(tmp_path: Path, word: str) -> None:
    one = an_experiment(measure=Measure(discard_steps=1))
    folder = run_folder(tmp_path, one)
    file = folder.output / "logs" / "csv" / "version_0" / "metrics.csv"
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    losses = [row for row in rows if row.get("loss")]
    for row in losses[-4:]:
        row["loss"] = word
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    outcome = ProcessOutcome(exit_code=0, signal=None, started_at=1.7e9, ended_at=1.7e9 + 10)
    reported_steps.ReportedSteps(one, StepSource.STDOUT, folder).finish(outcome)
    verdict = validity.invalid(one, collect.read(one, folder.path, watching=(), gpus=(), wall_s=outcome.wall_s))
    assert verdict is not None and verdict.kind == "nan_loss"


def test_tokens_that_are_no_number_are_not_known() -> None:
    rows = [{"step": 1.0, "iter_time": 0.1, "total_tokens": float("nan"), "lengths": float("inf")}]
    (found,) = steps(rows, 1, samples=2, gpus=1)
    assert (found["tokens"], found["real"], found["s"]) == (None, None, 0.1)


@pytest.mark.parametrize("damage", ["missing", "cut", "gap", "binary"])
def test_a_damaged_file_leaves_the_printed_steps(tmp_path: Path, damage: str) -> None:
    one = an_experiment()
    folder = run_folder(tmp_path, one)
    file = folder.output / "logs" / "csv" / "version_0" / "metrics.csv"
    text = file.read_text().splitlines(keepends=True)
    if damage == "missing":
        file.unlink()
    elif damage == "binary":
        file.write_bytes(b"step,time\n\xff\x00,1\n")
    else:
        file.write_text("".join(text[:4] if damage == "cut" else [text[0], *text[3:]]))
    reported_steps.ReportedSteps(one, StepSource.STDOUT, folder).finish(
        ProcessOutcome(exit_code=0, signal=None, started_at=0.0, ended_at=10.0)
    )
    assert [step.seconds for step in step_files.read(folder.path)[0]] == [1.0069, 0.28654]
    assert {number.name for number in LITGPT.metrics(folder.path)} == {"train_runtime", "train_loss"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, None),
        ({"arguments": {**SIZES, "subcommand": "finetune_full"}}, None),
        ({"arguments": {**SIZES, "subcommand": "pretrain"}}, "subcommand pretrain is invalid; write finetune_lora or"),
        ({"arguments": {}}, "write train.global_batch_size and train.micro_batch_size, such that"),
        ({"num_gpus": 3}, "write train.global_batch_size and train.micro_batch_size, such that"),
        ({"model": "config:tiny-llama"}, "trainer litgpt can't build config:tiny-llama"),
        (
            {"framework": Framework(name="fsdp", digest="d", accelerate={"distributed_type": "FSDP"})},
            "framework configuration 'fsdp' configures accelerate",
        ),
    ],
)
def test_what_leaves_the_steps_unknown_is_said_in_the_plan(fields: dict[str, Any], text: str | None) -> None:
    reason = LITGPT.problem(an_experiment(**fields))
    assert reason is None if text is None else (reason is not None and reason.text.startswith(text))


def test_names_may_have_dots_and_a_checkpoint_is_found_next_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model_config.yaml").write_text(json.dumps({}))
    plan = planned(tmp_path, "train.max_steps: 5\n    train.log_interval: 10", trainer="litgpt")
    (one,) = plan.experiments
    assert one.model == str(tmp_path / "m")
    assert one.arguments["train.max_steps"] == "5" and "train.log_interval" not in one.arguments
    assert "train.log_interval is left out: every micro-batch is logged." in plan.notes
    assert said(tmp_path, "data: JSON", trainer="litgpt", more="  steps: stdout\n").endswith("remove 'steps:'")

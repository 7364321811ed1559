"""The trainer `thunder`: the steps in the lines of its benchmark, the numbers in its JSON file, and what a plan refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import ended, experiment, stored
from test_argument_values import planned, said

from orchestrator.campaign.status.activity import look
from orchestrator.measure.steps.printed import StepLines
from orchestrator.records import (
    CaveatKind,
    Device,
    Experiment,
    Framework,
    Measurement,
    ProcessOutcome,
    RunFolder,
    StepSource,
)
from orchestrator.run import collect, reported_steps
from orchestrator.trainers import get

GOLDEN = Path(__file__).parents[1] / "golden" / "thunder"
THUNDER = get("thunder")
LINES = """Loading model with {'name': 'llama2-like', 'block_size': 128}
Time to instantiate model: 0.02 seconds.
iter 0: loss 4.6875, iter time: 105600.00ms, t: 128
iter 1: loss 4.6562, iter time: 2010.55ms, t: 128
iter 2: loss 4.6250, iter time: 2012.25ms, t: 128
{"step": 9, "seconds": 1}
Average iter time: 2011.40 ms
"""


def an_experiment(**fields: Any) -> Experiment:
    return experiment(**{"trainer": "thunder", "device": Device.CUDA, "steps": StepSource.STDOUT, **fields})


def steps_of(text: str, **fields: Any) -> list[dict[str, Any]]:
    return StepLines(translate=THUNDER.step_reader(an_experiment(**fields))).feed(text.encode())


def numbers(run_dir: Path) -> dict[str, Any]:
    return {number.name: number.value for number in THUNDER.metrics(run_dir) if number.name != "thunder_executors"}


def reasons(found: list[Measurement]) -> set[str]:
    return {number.why_missing for number in found if number.value is None and number.name != "thunder_executors"}


def test_each_iteration_is_a_step_and_the_first_one_is_the_compilation() -> None:
    found = steps_of(LINES)
    assert [(step["step"], step["s"]) for step in found] == [(1, 105.6), (2, 2.01055), (3, 2.01225)]
    assert {(step["tokens"], step["samples"]) for step in found} == {(128, 1)}


@pytest.mark.parametrize(
    ("arguments", "gpus", "rows"),
    [
        ({}, 1, 1),
        ({"micro_batch_size": "4"}, 2, 8),
        ({"micro_batch_size": "4", "global_batch_size": "32"}, 2, 32),
        ({"micro_batch_size": "four"}, 1, None),
        ({"dynamic": "True"}, 1, None),
    ],
)
def test_a_step_has_the_micro_batches_of_all_gpus(arguments: dict[str, str], gpus: int, rows: int | None) -> None:
    step = steps_of(LINES, arguments=arguments, num_gpus=gpus)[0]
    assert (step["samples"], step["tokens"]) == (rows, None if rows is None else rows * 128)


def test_the_view_of_a_running_run_reads_the_same_lines(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text(LINES)
    activity = look(tmp_path, an_experiment())
    assert activity.step == 3
    assert activity.tokens_per_s == pytest.approx(3 * 128 / (105.6 + 2.01055 + 2.01225))
    assert look(tmp_path, an_experiment(trainer="somebody-elses")).step == 9, "read as the lines of `steps: stdout`"


@pytest.mark.parametrize(
    ("file", "step_s", "tokens_per_s", "flops", "saved"),
    [
        ("eager", 2.0506449677500314, 66.30414212766036, 244423589.53940713, None),
        ("thunder", 2.883464449750136, 45.50389973397316, 167745575.97931865, 7179776),
    ],
)
def test_a_real_results_file(
    tmp_path: Path, file: str, step_s: float, tokens_per_s: float, flops: float, saved: int | None
) -> None:
    shutil.copy(GOLDEN / f"{file}.json", tmp_path / "thunder.json")
    assert numbers(tmp_path) == {
        "reported_step_time_s": pytest.approx(step_s),
        "reported_tokens_per_s": tokens_per_s,
        "reported_tflops_per_s_per_gpu": pytest.approx(flops / 1e12),
        "peak_allocated_bytes": None,  # a run without a GPU wrote this file, and its 0 is not a measurement
        "saved_for_backward_bytes": saved,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            '{"default": ["sdpa", "torchcompile_xentropy"], "all": ["python", "torch", "sdpa"]}',
            "sdpa, torchcompile_xentropy",
        ),
        ('{"default": [], "all": ["python"]}', "none"),
        ('{"error": "ImportError: no thunder"}', None),
        ('{"default": [1]}', None),
        ("[", None),
        (None, None),
    ],
)
def test_the_row_has_the_executors_of_the_run(tmp_path: Path, text: str | None, value: str | None) -> None:
    if text is not None:
        (tmp_path / "thunder-executors.json").write_text(text)
    (found,) = (number for number in THUNDER.metrics(tmp_path) if number.name == "thunder_executors")
    assert found.value == value
    assert value or found.why_missing == "thunder-executors.json has no names of executors"


def test_numbers_of_several_gpus(tmp_path: Path) -> None:
    """The benchmark counts the operations of one micro-batch, on all GPUs; memory is in 1e9 bytes."""
    written = {"model_flop_per_sec": 8e14, "Num GPUS": 4, "GA": 2, "memory_used_GB": 39.5, "average_iter_time": 250.0}
    (tmp_path / "thunder.json").write_text(json.dumps(written))
    found = numbers(tmp_path)
    assert found["reported_tflops_per_s_per_gpu"] == pytest.approx(400)
    assert (found["peak_allocated_bytes"], found["reported_step_time_s"]) == (39_500_000_000, 0.25)
    assert reasons(THUNDER.metrics(tmp_path)) == {
        "thunder.json has no usable tokens_per_sec",
        "thunder.json has no usable saved_for_backward_tensor_size_mib",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "the benchmark ended before it wrote thunder.json"),
        ("[1]", "thunder.json has no JSON object"),
        ("{", "thunder.json cannot be read"),
    ],
)
def test_without_results_the_numbers_are_missing_with_a_reason(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "thunder.json").write_text(text)
    (said,) = reasons(THUNDER.metrics(tmp_path))
    assert said.startswith(why)
    assert set(numbers(tmp_path).values()) == {None}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, None),
        ({"arguments": {"compile": "dynamo_thunder_inductor_cat"}}, None),
        ({"arguments": {"compile": "jit"}}, "compile jit is invalid; write eager, inductor, or a word with thunder"),
        ({"arguments": {"max_iters": "20"}}, "max_iters 20 must exceed warmup_iters 25"),
        ({"arguments": {"max_iters": "20", "warmup_iters": "5"}}, None),
        ({"num_gpus": 2}, "distributed_mode is none, so 2 GPUs would train separately"),
        ({"num_gpus": 2, "arguments": {"distributed_mode": "fsdp2"}}, None),
        ({"arguments": {"distributed_mode": "ddp"}}, "distributed_mode ddp needs several GPUs"),
        (
            {"num_gpus": 2, "arguments": {"distributed_mode": "ddp", "global_batch_size": "3"}},
            "global_batch_size 3 is not divisible by 2 GPUs × micro_batch_size 1",
        ),
        ({"model": "config:tiny-llama"}, "trainer thunder can't build config:tiny-llama"),
        (
            {"framework": Framework(name="fsdp", digest="d", accelerate={"distributed_type": "FSDP"})},
            "framework configuration 'fsdp' configures accelerate, which thunder does not use",
        ),
    ],
)
def test_what_the_benchmark_would_refuse_is_said_in_the_plan(fields: dict[str, Any], text: str | None) -> None:
    reason = THUNDER.problem(an_experiment(**fields))
    assert reason is None if text is None else (reason is not None and reason.text.startswith(text))


def test_names_and_values_are_checked(tmp_path: Path) -> None:
    def told(argument: str) -> str:
        return said(tmp_path, argument, trainer="thunder").partition("scenario 's': ")[2]

    assert told("max_iterss: 5") == "trainer thunder has no argument 'max_iterss'; write max_iters"
    assert told("max_iters: many") == "max_iters: 'many' is invalid; write a whole number"
    assert told("shard_mode: zero1").endswith("write one of zero2, zero3, hybrid_zero2, hybrid_zero3")
    plan = planned(tmp_path, "json_path: mine.json\n    use_legacy_thunder_te: true", trainer="thunder")
    assert "json_path is left out: every run writes into its own folder." in "\n".join(plan.notes)
    assert "use_legacy_thunder_te is not an argument that Tunebench knows of trainer thunder" in "\n".join(plan.notes)


def test_the_benchmark_needs_a_gpu_and_reports_its_own_steps(tmp_path: Path) -> None:
    def planned_on(device: str) -> Experiment:
        return planned(tmp_path, "compile: eager", trainer="thunder", more=f"  device: {device}\n").experiments[0]

    cpu, auto = planned_on("cpu"), planned_on("auto")
    assert cpu.skip is not None and cpu.skip.text == "trainer thunder works only on cuda, and device is cpu"
    assert auto.skip is None and auto.cannot_run_here is not None and auto.cannot_run_here.kind == "no_gpu"
    assert auto.steps is StepSource.STDOUT
    more = "  measure: {at_most_steps: 30}\n"
    assert planned(tmp_path, "compile: eager", trainer="thunder", more=more).experiments[0].measure is not None
    told = said(tmp_path, "compile: eager", trainer="thunder", more="  steps: stdout\n")
    assert told.endswith("trainer 'thunder' measures its steps itself; remove 'steps:'")


def campaign(root: Path, *, first_s: float) -> Path:
    """Five runs of a compiled training. The first iteration takes `first_s`; the others are the same in every campaign."""
    one = an_experiment(repeats=5, model="Llama-3.2-1B", arguments={"compile": "dynamo_thunder"})
    scratch = root / "scratch"
    records = []
    for repeat in range(1, 6):
        folder = RunFolder(scratch / f"r{repeat}")
        folder.path.mkdir(parents=True)
        times = [first_s * (1 + 0.002 * repeat), *(0.25 + 0.0001 * ((step * repeat) % 5) for step in range(44))]
        lines = [f"iter {at}: loss 10.0, iter time: {1000 * took:.2f}ms, t: 2048\n" for at, took in enumerate(times)]
        folder.stdout.write_text("".join(lines))
        outcome = ProcessOutcome(exit_code=0, signal=None, started_at=1.7e9, ended_at=1.7e9 + first_s + 60)
        reported_steps.ReportedSteps(one, StepSource.STDOUT, folder).finish(outcome)
        found = collect.read(one, folder.path, watching=(), gpus=(), wall_s=outcome.wall_s)
        assert found.complete and found.contradiction is None
        records.append(replace(ended(one, repeat), measurements=found.measurements, wall_s=outcome.wall_s))
    return stored(root / "results", (one, records))


def test_a_slower_compilation_is_a_slower_first_step_and_no_slower_speed(tmp_path: Path, in_process: Any) -> None:
    """A user's report: after an update, the first iteration took 215.1 s and not 105.6 s; the mean iteration stayed the same."""
    before, after = campaign(tmp_path / "before", first_s=105.6), campaign(tmp_path / "after", first_s=215.1)
    code, _, err = in_process("compare", before, after, "--output", tmp_path / "found.json", width=200)
    rows = {row["metric"]: row for row in json.loads((tmp_path / "found.json").read_text())["rows"] if row["metric"]}
    assert code == 1, err
    assert rows["first_step_s"]["verdict"] == "regressed"
    assert rows["tokens_per_s"]["verdict"] == "same"


def test_a_printed_loss_that_is_not_finite_is_told(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    line = "iter {}: loss {}, iter time: 20.10ms, t: 128\n"
    log.write_text("".join(line.format(at, 4.5) for at in range(3)))
    assert "train_loss" not in {one.name for one in THUNDER.metrics(tmp_path)}
    log.write_text(line.format(0, 4.5) + line.format(1, "nan") + line.format(2, "inf"))
    (loss,) = [one for one in THUNDER.metrics(tmp_path) if one.name == "train_loss"]
    assert loss.value is None and loss.missing is not None
    assert (loss.missing.kind, loss.missing.detail) == (CaveatKind.NOT_FINITE, "nan in iteration 1")

"""Programs whose numbers cannot be true, or cannot be read: each run ends in time, and a row never shows such a number as right."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from factories.results import experiment

from orchestrator import trainers
from orchestrator.records import CustomCommand, MetricSource, RunRecord, Status, StepSource
from orchestrator.results import claims
from orchestrator.results.store import Store
from orchestrator.run.run_one import run_one
from orchestrator.trainers.external import custom


def carried_out(folder: Path, code: str, *, results: str = "stdout", metrics: Any, **fields: Any) -> RunRecord:
    command = CustomCommand(command=("{python}", "-c", "{code}"), launcher="none", results=results, metrics=metrics)
    one = experiment("a", trainer="custom", custom=command, arguments={"code": code}, **fields)
    store = Store.create(folder / "results", {})
    store.add([one])
    job = store.job(one.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    return run_one(job.run_dir)


def test_a_pattern_that_backtracks_costs_its_own_number_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "LONGEST_SEARCH_S", 1.0)
    metrics = {"train_loss": MetricSource(pattern=r"(a+)+$"), "train_runtime": MetricSource(pattern=r"took (\S+)$")}
    began = time.monotonic()
    record = carried_out(tmp_path, f"print({'a' * 40 + 'b'!r}); print('took 1.5')", results="log", metrics=metrics)
    assert time.monotonic() - began < 20
    known = {number.name: number for number in record.measurements}
    assert (record.status, known["train_runtime"].value, known["train_loss"].value) == (Status.OK, 1.5, None)
    assert known["train_loss"].why_missing == (
        "the search for '(a+)+$' was ended after 1 s; write a pattern without nested repetitions"
    )


CUSTOM = {
    "train_runtime": [(-5, "must be above 0"), (0, "must be above 0"), (1e6, "must be at most the "), ("0.5", None)],
    "train_tokens_per_second": [
        (-100, "must be above 0"),
        (0, "must be above 0"),
        (1e9, None),
        (1e12, "must be at most 1e+10, because 1 device cannot reach more"),
    ],
    "train_samples_per_second": [(1e9, None), (1e12, "must be at most 1e+10, because")],
    "train_steps_per_second": [(1e5, None), (1e7, "must be at most 1e+06, because")],
    "tflops_per_s_per_gpu": [(400, None), (1e6, "must be at most 1e+05, because")],
    "num_input_tokens_seen": [(1e9, None), (1e12, "must be at most ")],
    "steps": [(1e6, None), (1e8, "must be at most ")],
    "peak_allocated_bytes": [(-1, "cannot be below 0"), (0, None), (2**40, None), (1e16, "must be at most 4.5e+15")],
    "mem_nvidia_mem_reserved": [(80 * 1024, None), (1e10, "must be at most 4.29e+09")],
    "energy_j": [(1e3, None), (1e9, "must be at most ")],
    "mfu": [(45, "must be at most 1; for percent, write the unit '%'"), (0.45, None)],
    "rounds": [(-1, "cannot be below 0"), (0, None)],
    "relative_error": [(-0.5, "cannot be below 0"), (1.5, None)],
    "operator_bytes_per_s": [(416e12, "must be at most 1e+14, because 1 device")],
    "train_loss": [(-3, None), (0, None)],
    "reward": [(-3, None), (0, None), (1e12, None)],
}


@pytest.mark.parametrize(("name", "value", "why"), [(name, *case) for name in CUSTOM for case in CUSTOM[name]])
def test_a_number_that_a_metric_cannot_be_makes_the_run_invalid(
    tmp_path: Path, name: str, value: Any, why: Any
) -> None:
    record = carried_out(tmp_path, f"print({json.dumps({name: value})!r})", metrics={name: MetricSource()})
    if why is None:
        assert (record.status, record.cause) == (Status.OK, None)
    else:
        assert (record.status, record.kind) == (Status.INVALID, "impossible")
        assert str(record.cause).startswith(f"{name} is {value:.6g}, and {why}")


@pytest.mark.parametrize(("loss", "is_warned"), [(0, True), (1e-9, False), (-3, False)])
def test_a_loss_of_exactly_0_is_worth_a_warning(tmp_path: Path, loss: float, is_warned: bool) -> None:
    """Rows without text have one token each, which counts for no loss: the training was ok and had a speed."""
    record = carried_out(
        tmp_path, f"print({json.dumps({'train_loss': loss})!r})", metrics={"train_loss": MetricSource()}
    )
    assert any("the loss is exactly 0" in caveat.sentence for caveat in record.warnings) == is_warned


TOGETHER: list[tuple[dict[str, float], str | None]] = [
    ({"peak_allocated_bytes": 8e9, "peak_reserved_bytes": 4e9}, "peak_reserved_bytes, which is 4e+09"),
    ({"peak_allocated_bytes": 8e9, "peak_reserved_bytes": 8e9}, None),
    ({"peak_allocated_bytes": 8.1e9, "peak_reserved_bytes": 8e9}, None),  # rounded
    ({"peak_allocated_bytes": 8e9}, None),
    ({"peak_allocated_steady_bytes": 9e9, "peak_allocated_bytes": 8e9}, "peak_allocated_bytes, which is 8e+09"),
    ({"allocated_after_load_bytes": 2e9, "peak_allocated_bytes": 1e9}, "peak_allocated_bytes, which is 1e+09"),
    ({"peak_allocated_first_step_bytes": 9e9, "peak_allocated_bytes": 8e9}, "peak_allocated_bytes, which is 8e+09"),
    ({"steps_to_target": 50}, "steps, which is 40"),
    ({"mfu": 0.9, "hfu": 0.1}, "hfu, which is 0.1"),
    ({"mfu": 0.4, "hfu": 0.4}, None),
    ({"mfu": 0.4, "hfu": 0}, None),  # it does not know its HFU
    ({"samples_processed": 1000, "tokens_processed": 10}, "tokens_processed, which is 10"),
    ({"samples_processed": 1000, "tokens_processed": 0}, None),  # it has no tokens
    ({"trainable_parameters": 9e9, "total_parameters": 1e9}, "total_parameters, which is 1e+09"),
    ({"trainable_parameters": 1e9, "total_parameters": 1e9}, None),
    ({"tokens_per_s_per_gpu": 900, "tokens_per_s": 100}, None),  # only the second one with its warm-up
    ({"real_tokens_per_s": 100, "tokens_per_s": 90}, None),
    ({"forward_comm_time_s": 0.02, "exposed_comm_time_s": 0.01}, None),
    ({"tokens_per_s": 100}, None),  # with its warm-up; Tunebench measures a higher speed per device
    ({"step_time_s": 0.5}, None),  # with its warm-up, above Tunebench's interval
    ({"step_time_low_s": 0.5, "step_time_high_s": 0.4}, "step_time_high_s, which is 0.4"),
    ({"step_time_s": 0.007, "step_time_p95_s": 0.003}, None),  # a mean with one step that saved a checkpoint
    ({"step_time_low_s": 0.5, "step_time_s": 0.6, "step_time_high_s": 0.7}, None),
    ({"discarded_steps": 99}, "steps, which is 40"),
    ({"discarded_steps": 40, "steady_steps": 0}, None),
    ({"steady_steps": 99}, "steps, which is 40"),
]


@pytest.mark.parametrize(("values", "why"), TOGETHER)
def test_numbers_of_a_program_that_contradict_each_other_or_its_steps_make_the_run_invalid(
    tmp_path: Path, values: dict[str, float], why: str | None
) -> None:
    line = "print(json.dumps({'step': n + 1, 'seconds': 0.003, 'tokens': 9}), flush=True)"
    steps = f"import json, time\nfor n in range(40): time.sleep(0.003); {line}\n"
    metrics = dict.fromkeys(values, MetricSource())
    code = f"{steps}print({json.dumps(values)!r})"
    record = carried_out(tmp_path, code, metrics=metrics, steps=StepSource.STDOUT)
    if why is None:
        assert (record.status, record.cause) == (Status.OK, None)
    else:
        assert (record.status, record.kind) == (Status.INVALID, "impossible")
        assert f"and must be at most {why}" in str(record.cause)


def test_a_loss_that_is_not_finite_makes_the_run_invalid_also_without_other_metrics(tmp_path: Path) -> None:
    record = carried_out(tmp_path, "print('{\"loss\": NaN}')", metrics={"train_loss": MetricSource(key="loss")})
    assert (record.status, record.kind) == (Status.INVALID, "nan_loss")


TOTALS = {"processed": 3840, "real": 3840, "labelled": 3840, "samples": 30, "squares": 30 * 128**2, "steps": 30}
COUNTS = {**dict.fromkeys(("tokens", "real", "labelled"), 128), "samples": 1, "squares": 128**2}
STEPS = [{"step": n, "t": 1e9 + n / 1000, "s": 0.001, **COUNTS} for n in range(1, 31)]
MORE = [{**STEPS[-1], "step": 30 + n, "t": STEPS[-1]["t"] + n * 1e-6, "s": 1e-6, "tokens": 691} for n in range(1, 51)]
INSTRUMENTED: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "as they were": (STEPS, None),
    "50 more": ([*STEPS, *MORE], "rank 0 has 80 lines of steps, and its worker file counts 30 steps"),
    "one less": (STEPS[:-1], "rank 0 has 29 lines of steps, and its worker file counts 30 steps"),
    "one twice": ([*STEPS[:-1], STEPS[-2]], "step 29 of rank 0 came after step 29"),
    "more tokens": (
        [*STEPS[:-1], {**STEPS[-1], "tokens": 10**6}],
        "the steps of rank 0 have 1,003,712 tokens, and its worker file 3,840",
    ),
    "more samples": (
        [*STEPS[:-1], {**STEPS[-1], "samples": 3}],
        "the steps of rank 0 have 32 samples, and its worker file 30",
    ),
    "shorter": (
        [{**step, "s": 1e-5} for step in STEPS],
        "the steps of rank 0 took 0.00029 s together, and 0.029 s passed by their times",
    ),
    "longer": (
        [{**step, "t": 1e9 + 10 * step["step"], "s": 10} for step in STEPS],
        "the steps of rank 0 took 300 s together, and the whole run ",
    ),
    "instant": ([{**step, "t": 1e9, "s": 0} for step in STEPS], "30 of 30 steps of rank 0 took less than 1 µs"),
}


@pytest.mark.parametrize("name", INSTRUMENTED)
def test_steps_are_held_to_the_totals_of_their_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(type(trainers.get("custom")), "instrumented", True)
    steps, why = INSTRUMENTED[name]
    worker = {"schema": 2, "rank": 0, "world_size": 1, "status": "ok", "error": None, "tokens": TOTALS, "settings": {}}
    files = {
        "steps-rank0.jsonl": "".join(json.dumps(step) + "\n" for step in steps),
        "worker-rank0.json": json.dumps(worker),
    }
    code = f"import os\nfor name, text in {files!r}.items():\n open(os.environ['TUNEBENCH_RUN_DIR'] + '/' + name, 'w').write(text)"
    record = carried_out(tmp_path, f"{code}\nprint('{{\"train_loss\": 1.5}}')", metrics={"train_loss": MetricSource()})
    if why is None:
        assert (record.status, record.cause) == (Status.OK, None)
    else:
        assert (record.status, record.kind) == (Status.INVALID, "impossible")
        assert str(record.cause).startswith(why)


CALLS = (
    "import os, time\nfrom tunebench.steps import step\nfor _ in range(31):\n    time.sleep(0.001); step(tokens=128)\n"
)
PRINTED = "for n in range(1, 31): print('{{\"step\": %d, {}}}' % n)"
MORE_LINES = "open(os.environ['TUNEBENCH_RUN_DIR'] + '/steps-rank0.jsonl', 'a').write({!r})"
REPORTED: dict[str, tuple[StepSource, str, str | None]] = {
    "calls": (StepSource.CALLS, CALLS, None),
    "a call of negative tokens": (StepSource.CALLS, CALLS + "step(tokens=-5)", "step 32 of rank 0 has -5 tokens"),
    "a call of 10^16 tokens": (
        StepSource.CALLS,
        CALLS + "step(tokens=10**16)",
        f"step 32 of rank 0 has {10**16} tokens",
    ),
    "a line of 10^400 tokens": (
        StepSource.CALLS,
        CALLS + MORE_LINES.format(json.dumps({"step": 32, "s": 0.001, "tokens": 10**400}) + "\n"),
        f"step 32 of rank 0 has {2**63} or more tokens",
    ),
    "lines from before": (
        StepSource.CALLS,
        CALLS + MORE_LINES.format("".join(json.dumps(step) + "\n" for step in STEPS)),
        "step 1 of rank 0 came after step 31",
    ),
    "a process that begins anew": (
        StepSource.CALLS,
        f"{CALLS}import sys\nif not os.environ.get('AGAIN'): os.environ['AGAIN'] = '1'; os.execv(sys.executable, sys.orig_argv)",
        "step 2 of rank 0 came after step 31",
    ),
    "a line of another time": (
        StepSource.CALLS,
        CALLS + MORE_LINES.format(json.dumps({**STEPS[0], "step": 32}) + "\n"),
        "the steps of rank 0 took ",
    ),
    "printed": (StepSource.STDOUT, PRINTED.format('"seconds": 0.001'), None),
    "printed too long": (
        StepSource.STDOUT,
        PRINTED.format('"seconds": 100'),
        "the steps of rank 0 took 3,000 s together",
    ),
    "printed and instant": (
        StepSource.STDOUT,
        PRINTED.format('"seconds": 0'),
        "30 of 30 steps of rank 0 took less than 1 µs",
    ),
    "printed and too much": (
        StepSource.STDOUT,
        PRINTED.format(f'"seconds": 0.001, "tokens": {10**9}'),
        "tokens_per_s is 1e+12, and must be at most 1e+10, because 1 device cannot reach more",
    ),
    "printed without a steady state": (
        StepSource.STDOUT,
        f'print(\'{{"step": 1, "seconds": 0.001, "tokens": {2**52}}}\')',
        "tokens_processed is 4.5036e+15, and must be at most ",
    ),
    "printed samples": (
        StepSource.STDOUT,
        PRINTED.format(f'"seconds": 0.001, "samples": {10**9}'),
        "samples_per_s is 1e+12, and must be at most 1e+10",
    ),
    "a clock of whole seconds": (
        StepSource.STDOUT,
        PRINTED.format('"time": 7'),
        "29 of 29 steps of rank 0 took less than 1 µs",
    ),
}


@pytest.mark.parametrize("name", REPORTED)
def test_reported_steps_are_held_to_the_clock(tmp_path: Path, name: str) -> None:
    source, code, why = REPORTED[name]
    record = carried_out(tmp_path, code, metrics={}, steps=source)
    if why is None:
        assert (record.status, record.cause) == (Status.OK, None)
    else:
        assert (record.status, record.kind) == (Status.INVALID, "impossible")
        assert str(record.cause).startswith(why)

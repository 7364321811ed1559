"""Runs of the trainer `operators`: a real process with torch, and two processes that call each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories.results import experiment
from test_reported_steps import carried_out, values

from orchestrator.records import Device, Experiment, Script, Status


def test_a_function_of_the_user_is_timed_and_its_error_is_known(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "import time\ndef late(x, weight):\n    time.sleep(0.003)\n    return x @ weight.T * 1.01\n"
    )
    one = experiment(
        trainer="operators",
        model="none",
        device=Device.CPU,
        arguments={
            **{"operator": "linear", "shape": "8x16x16", "implementation": "kernels:late"},
            **{"direction": "forward", "min_run_time_s": "0.05"},
        },
        env={"PYTHONPATH": str(tmp_path)},
    )
    run_dir, record = carried_out(tmp_path, one)
    assert record.status is Status.OK, record.tail
    found = values(record)
    assert 0.003 < found["call_time_s"] < 0.3
    assert found["relative_error"] == pytest.approx(0.01, rel=0.001)
    missing = {number.name: number.why_missing for number in record.measurements if number.value is None}
    assert {name for name, why in missing.items() if "a CPU computes on the host" in why} == {
        *("device_time_s", "device_span_s", "launches_per_call", "peak_allocated_bytes"),
    }
    assert (run_dir / "operators.json").exists()


def in_folder(folder: Path, implementation: str, code: str) -> Experiment:
    """An experiment whose function is in a file next to the scenario file."""
    module = implementation.partition(":")[0]
    (folder / f"{module}.py").write_text(code)
    arguments = {"operator": "linear", "shape": "8x16x16", "implementation": implementation, "min_run_time_s": "0.01"}
    script = Script(module=module, folder=str(folder))
    return experiment(trainer="operators", model="none", device=Device.CPU, arguments=arguments, script=script)


def test_a_function_next_to_the_scenario_file_is_found(tmp_path: Path) -> None:
    _, record = carried_out(tmp_path, in_folder(tmp_path, "near:own", "def own(x, weight):\n    return x @ weight.T\n"))
    assert record.status is Status.OK, record.tail


@pytest.mark.parametrize(
    ("implementation", "code", "cause"),
    [
        (
            "fast:own",
            "def own(x, weight):\n    return x + 'a'\n",
            "TypeError: unsupported operand type(s) for +: 'Tensor' and 'str' ({folder}/fast.py:2)",
        ),
        (
            "fast:own",
            "\ndef own(x):\n    return x\n",
            "TypeError: own() got an unexpected keyword argument 'weight' ({folder}/fast.py:2)",
        ),
        (
            "fast:own",
            "def own(x, weight):\n    return (x @ weight.T).expand(3, 8, 16)\n",
            "number 1 of its results and gradients has the shape [3, 8, 16], and that of the plain function has [8, 16].",
        ),
        (
            "fast:own",
            "def own(x, weight):\n    retrun x\n",
            "SyntaxError: invalid syntax (fast.py, line 2) ({folder}/fast.py:2)",
        ),
    ],
)
def test_an_exception_or_a_wrong_result_of_the_user_s_function_is_named(
    tmp_path: Path, implementation: str, code: str, cause: str
) -> None:
    _, record = carried_out(tmp_path, in_folder(tmp_path, implementation, code))
    assert record.kind == "function_failed"
    assert record.cause == f"FunctionError: implementation {implementation}: {cause.format(folder=tmp_path)}"


def test_a_module_with_the_name_of_another_one_is_not_measured(tmp_path: Path) -> None:
    _, record = carried_out(tmp_path, in_folder(tmp_path, "timing:own", "def own(x, weight):\n    return x\n"))
    assert record.kind == "bad_arguments"
    assert "Python has another module timing" in (record.cause or "") and "rename yours" in (record.cause or "")


def test_an_operator_that_does_not_exist_fails_with_its_sentence(tmp_path: Path) -> None:
    arguments = {"operator": "linear", "shape": "8x16x16", "implementation": "liger"}
    _, record = carried_out(tmp_path, experiment(trainer="operators", device=Device.CPU, arguments=arguments))
    assert record.status is Status.FAILED
    assert "Liger has no kernel for linear" in (record.cause or "")


def test_two_processes_reduce_together(tmp_path: Path) -> None:
    arguments = {"operator": "all_reduce", "shape": "4096"}
    one = experiment(trainer="operators", model="none", device=Device.CPU, num_gpus=2, arguments=arguments)
    _, record = carried_out(tmp_path, one)
    assert record.status is Status.OK, record.tail
    found = values(record)
    assert 0 < found["call_time_s"] < 5
    assert found["operator_bytes_per_s"] == pytest.approx(4 * 4096 / found["call_time_s"]), (
        "each of two sends all bytes once"
    )


REDUCES = """
import torch, torch.distributed as distributed
kept = {}
def right(x):
    found = x.clone()
    distributed.all_reduce(found)
    return found
def sends_nothing(x):
    return x * 2
def remembers(x):
    if kept and torch.equal(kept["x"], x):
        return kept["found"].clone()
    kept.update(x=x.detach().clone(), found=right(x))
    return kept["found"]
def twice_on_rank_1(x):
    return right(x) * (1 + distributed.get_rank())
def nan_on_rank_1(x):
    return right(x) * (float("nan") if distributed.get_rank() else 1)
"""
WHY_FAILED = {"remembers": "it remembers results", "nan_on_rank_1": "number 1 of its results and gradients has a NaN"}


@pytest.mark.parametrize("name", ["right", "sends_nothing", "twice_on_rank_1", *WHY_FAILED])
def test_a_user_s_function_must_reduce_the_numbers_of_all_processes(tmp_path: Path, name: str) -> None:
    one = replace(in_folder(tmp_path, f"reduces:{name}", REDUCES), num_gpus=2)
    one = replace(one, arguments={**one.arguments, "operator": "all_reduce", "shape": "200000"})
    _, record = carried_out(tmp_path, one)
    if why := WHY_FAILED.get(name):
        assert record.kind == "function_failed" and why in (record.cause or ""), record.tail
    else:
        assert record.status is Status.OK, record.tail
        assert (values(record)["relative_error"] > 0.5) == (name != "right"), "the worst rank counts"


TELLS_LESS = """
import timing
def total(call, *, least_s):
    return {"call_time_s": 1e-7, "call_time_iqr_s": 0.0, "blocks": 1, "calls": 1}
timing.total = total
def own(x, weight):
    return x @ weight.T
"""


def test_a_speed_that_the_cores_cannot_reach_makes_the_run_invalid(tmp_path: Path) -> None:
    one = in_folder(tmp_path, "fast:own", TELLS_LESS)
    one = replace(one, arguments={**one.arguments, "shape": "256x1024x1024"})
    _, record = carried_out(tmp_path, one)
    assert (record.status, record.kind) == (Status.INVALID, "impossible"), record.cause
    assert str(record.cause).startswith("operator_tflops_per_s is ") and "cores cannot reach more" in str(record.cause)

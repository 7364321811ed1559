"""Runs of the trainer `operators`: a real process with torch, and two processes that call each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories.results import experiment
from test_reported_steps import carried_out, values

from orchestrator.records import Device, Status


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

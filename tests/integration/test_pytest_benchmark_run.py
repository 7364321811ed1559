"""Runs of the trainer `pytest_benchmark`: real processes of pytest, one that ends well and others that fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import tunebench
from factories.results import experiment
from test_reported_steps import carried_out, values

from orchestrator.records import Experiment, RunRecord, Script, Status

pytest.importorskip("pytest_benchmark")

SUITE = """
import os
import pytest

@pytest.mark.parametrize("n", [10, 20])
def test_sum(benchmark, n):
    benchmark(sum, range(n))

def test_wrong(benchmark):
    assert benchmark(len, "a") == 2, "the length is wrong"

def test_plain():
    raise AssertionError("it has no benchmark, so it does not run")
"""


def suite(folder: Path, text: str = SUITE, **arguments: str) -> Experiment:
    (folder / "bench.py").write_text(text)
    return experiment(
        trainer="pytest_benchmark",
        model="none",
        script=Script(script="bench.py", cwd="scenario", folder=str(folder)),
        arguments={"path": "bench.py", "benchmark_max_time": "0.01", "benchmark_min_rounds": "3", **arguments},
    )


def cause(record: RunRecord) -> str:
    assert record.status is Status.FAILED
    return f"{record.kind}: {record.cause}"


def test_a_run_has_its_benchmarks_and_all_rounds(tmp_path: Path) -> None:
    run_dir, record = carried_out(tmp_path, suite(tmp_path, keyword="sum"))
    assert record.status is Status.OK, record.tail
    assert [row["fullname"] for row in record.benchmarks] == ["bench.py::test_sum[10]", "bench.py::test_sum[20]"]
    assert [row["params"] for row in record.benchmarks] == [{"n": 10}, {"n": 20}]
    written = json.loads((run_dir / "benchmarks.json").read_text())["benchmarks"]
    for row, benchmark in zip(record.benchmarks, written, strict=True):
        assert 0 < row["round_time_s"] == benchmark["stats"]["median"] < 1
        assert row["rounds"] == len(benchmark["stats"]["data"]) >= 3
    assert values(record)["benchmarks"] == 2 and 0 < values(record)["round_time_s"] < 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["bench.py", "results"]


def test_values_named_data_are_not_rounds(tmp_path: Path) -> None:
    text = """
import pytest

@pytest.mark.parametrize("data", [[1, [2, "] }"]]])
def test_sum(benchmark, data):
    benchmark.extra_info["data"] = benchmark.extra_info["stats"] = {"data": [[1], 2]}
    benchmark(len, data)
"""
    _, record = carried_out(tmp_path, suite(tmp_path, text))
    assert record.status is Status.OK, record.cause
    assert [row["params"] for row in record.benchmarks] == [{"data": [1, [2, "] }"]]}]


def test_a_failing_test_fails_the_run_and_is_named(tmp_path: Path) -> None:
    _, record = carried_out(tmp_path, suite(tmp_path))
    assert cause(record).startswith("test_failed: bench.py::test_wrong: AssertionError: the length is wrong")


@pytest.mark.parametrize(
    ("line", "options", "why"),
    [
        ("assert benchmark(len, 'b') == 2", "", "bench.py::test_b: AssertionError: assert 1 == 2"),
        ("assert benchmark(len, 'b') == 2", "--no-summary", "pytest ended with 1 failed, 1 passed in "),
        ("pytest.exit('enough', 0)", "", "pytest stopped: _pytest.outcomes.Exit: enough"),
        ("pytest.exit('enough\\nfor now', 0)", "", "pytest stopped: _pytest.outcomes.Exit: enough"),
    ],
)
def test_a_suite_with_a_failed_or_missing_test_fails_though_a_plugin_says_0(
    tmp_path: Path, line: str, options: str, why: str
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {options}\n")
    (tmp_path / "conftest.py").write_text("def pytest_sessionfinish(session): session.exitstatus = 0\n")
    text = f"import pytest\ndef test_a(benchmark): benchmark(len, 'a')\ndef test_b(benchmark): {line}\n"
    _, record = carried_out(tmp_path, suite(tmp_path, text))
    assert cause(record).startswith(f"test_failed: {why}")


def test_what_a_suite_prints_is_not_pytest_s_verdict(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import atexit\n"
        "def pytest_report_header(config): return '!!! experimental build !!!'\n"
        "for said in ('200 requests, 0 failed in 1.9s', '3 requests, 1 failed in 1.9s', '5 passed, 0 failed in 2.0s'):\n"
        "    atexit.register(print, said)\n"
    )
    _, record = carried_out(tmp_path, suite(tmp_path, "def test_a(benchmark): benchmark(len, 'a')\n"))
    assert record.status is Status.OK, record.cause


def test_a_suite_with_another_clock_fails(tmp_path: Path) -> None:
    text = "import time\ndef test_a(benchmark): benchmark(time.sleep, 0.002)\n"
    _, record = carried_out(tmp_path, suite(tmp_path, text, benchmark_timer="time.process_time"))
    assert "test_a: its clock, time.process_time, counts the time of the processor; choose" in cause(record)


def test_a_package_that_a_suite_needs_is_named(tmp_path: Path) -> None:
    _, record = carried_out(tmp_path, suite(tmp_path, "import nothing_like_it\n"))
    assert cause(record) == "import_error: bench.py: ModuleNotFoundError: No module named 'nothing_like_it'"


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "PY_COLORS"])
def test_a_coloured_log_names_the_failing_test(tmp_path: Path, variable: str) -> None:
    _, record = carried_out(tmp_path, replace(suite(tmp_path), env={variable: "1"}))
    assert cause(record).startswith("test_failed: bench.py::test_wrong: AssertionError: the length is wrong")


@pytest.mark.parametrize(
    ("line", "more", "cause_end"),
    [
        ("raise KeyboardInterrupt", "", "exit code 2: KeyboardInterrupt; 1 passed"),
        ("pytest.exit('enough', 3)", "", "exit code 3: _pytest.outcomes.Exit: enough; 1 passed"),
        ("assert 0", "addopts = --no-summary", "exit code 1: 1 failed, 1 passed"),
        ("benchmark(len, 'b')", "", "exit code 7: 2 passed"),
    ],
)
def test_a_run_that_names_no_failed_test_fails_with_pytest_s_last_lines(
    tmp_path: Path, line: str, more: str, cause_end: str
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = ignore\n{more}\n")
    if "7" in cause_end:
        (tmp_path / "conftest.py").write_text("def pytest_sessionfinish(session): session.exitstatus = 7\n")
    text = f"import pytest\ndef test_a(benchmark): benchmark(len, 'a')\ndef test_b(benchmark): {line}\n"
    _, record = carried_out(tmp_path, suite(tmp_path, text))
    assert cause(record).partition(" ended with ")[2].startswith(cause_end)


@pytest.mark.parametrize(
    ("arguments", "counts"), [({"keyword": "gone"}, "4 deselected"), ({"keyword": "plain"}, "1 skipped")]
)
def test_a_run_without_a_benchmark_fails(tmp_path: Path, arguments: dict[str, str], counts: str) -> None:
    _, record = carried_out(tmp_path, suite(tmp_path, **arguments))
    assert cause(record).startswith(f"test_failed: pytest ran no benchmark ({counts}")


def test_an_option_that_pytest_does_not_know_fails_in_its_own_words(tmp_path: Path) -> None:
    _, record = carried_out(tmp_path, suite(tmp_path, no_such_option="1"))
    assert "unrecognized arguments: --no-such-option=1" in cause(record)


LARGE = """
import pytest

@pytest.mark.parametrize("name", [str(number) + "a" * 3_000_000 for number in range(8)])
def test_it(benchmark, name):
    benchmark.pedantic(int, rounds=2)
"""


def test_a_record_that_is_too_large_to_be_read_is_a_failure_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(LARGE)
    (tmp_path / "s.yaml").write_text(
        "scenarios:\n- name: suite\n  trainer: pytest_benchmark\n  device: cpu\n  arguments: {path: test_it.py}\n"
    )
    done = tunebench(tmp_path, "run", "s.yaml", "--results", "results")
    (record,) = (json.loads(file.read_text()) for file in done.results.glob("experiments/*/runs/*/record.json"))
    assert done.code == 1 and record["status"] == "failed"
    assert "MiB, and at most 16 are read; shorten the names of its numbers" in record["cause"]


def test_a_benchmark_whose_clock_counts_no_seconds_is_named(tmp_path: Path) -> None:
    """The geometric mean over the benchmarks was possible, so the run was ok with a benchmark longer than the whole run."""
    text = """
import time
import pytest

@pytest.mark.benchmark(timer=lambda: time.perf_counter() * 1e6)
def test_slow(benchmark):
    benchmark.pedantic(time.sleep, args=(0.02,), rounds=3)

def test_fast(benchmark):
    benchmark.pedantic(sum, args=([1, 2],), rounds=20)
"""
    _, record = carried_out(tmp_path, suite(tmp_path, text))
    assert (record.status, record.kind) == (Status.INVALID, "impossible")
    assert str(record.cause).startswith("round_time_s of 'bench.py::test_slow' is 2")

"""The trainer `pytest_benchmark`: its command, what a plan refuses, the reading of its file, and the rows of its benchmarks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.campaigns import stored
from factories.results import ended, experiment, failed

from orchestrator.compare.comparison import Entry
from orchestrator.compare.sides.pairing import pair
from orchestrator.compare.sides.read import read
from orchestrator.errors import ConfigError
from orchestrator.machine.provenance import this_machine
from orchestrator.plan.command import build_command
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import Selection
from orchestrator.records import Experiment, RunFolder, RunRecord, Script
from orchestrator.records.experiment import experiment_of, ids_named
from orchestrator.report.tables import as_csv
from orchestrator.results.store import Store
from orchestrator.results.table.load import load
from orchestrator.trainers import get

TRAINER = get("pytest_benchmark")


def plan(folder: Path, arguments: str, *, more: str = "") -> Experiment:
    text = f"scenarios:\n- name: m\n  trainer: pytest_benchmark\n  device: cpu\n  arguments: {{{arguments}}}\n{more}"
    (folder / "s.yaml").write_text(text)
    (one,) = expand(load_suite(folder / "s.yaml"), Selection(), this_machine()).experiments
    return one


def suite(folder: Path, *, path: str = "bench.py", **arguments: str) -> Experiment:
    script = Script(script=path.partition("::")[0], cwd="scenario", folder=str(folder))
    return experiment(trainer="pytest_benchmark", model="none", script=script, arguments={"path": path, **arguments})


def words(one: Experiment) -> tuple[str, ...]:
    return build_command(one, python="python3", gpus=(), run_dir=Path("/run"), port=1).argv


def document(**medians: Any) -> dict[str, Any]:
    stats = {"iqr": 0, "rounds": 7, "data": [1.0] * 7}
    benchmarks = [{"fullname": name, "stats": {**stats, "median": median}} for name, median in medians.items()]
    return {"machine_info": {}, "benchmarks": benchmarks}


def run_folder(tmp_path: Path, written: Any, *, out: str = "", err: str = "") -> Path:
    store = Store.create(tmp_path / "results", {})
    one = suite(tmp_path)
    store.add([one])
    folder = RunFolder(store.run_dir(one.id, 1, 1))
    folder.path.mkdir(parents=True)
    folder.script.write_text("pytest")
    folder.stdout.write_text(out)
    folder.stderr.write_text(err)
    if written is not None:
        (folder.path / "benchmarks.json").write_text(written if isinstance(written, str) else json.dumps(written))
    return folder.path


def number(run_dir: Path) -> tuple[object, str]:
    measured = TRAINER.metrics(run_dir)[0]
    return measured.value, "" if measured.missing is None else measured.missing.sentence


def test_the_command_is_pytest_without_a_launcher(tmp_path: Path) -> None:
    one = suite(tmp_path, path="b.py::test_a[1::2]", keyword="not slow", benchmark_min_rounds="3", timeout="5")
    assert words(one) == (
        *("python3", "-m", "pytest", f"{tmp_path}/b.py::test_a[1::2]", "-k", "not slow", "-rfE"),
        *("--benchmark-only", "--benchmark-enable", "--benchmark-json=/run/benchmarks.json"),
        *("-o", "cache_dir=/run/pytest_cache", "--benchmark-storage=file:///run/pytest_cache"),
        *("--benchmark-min-rounds=3", "--timeout=5"),
    )
    command = build_command(one, python="python3", gpus=(), run_dir=Path("/run"), port=1)
    assert (command.cwd, command.files) == (tmp_path, {})


def test_an_option_without_a_value_is_there_if_it_is_true(tmp_path: Path) -> None:
    assert "--benchmark-disable-gc" in words(suite(tmp_path, benchmark_disable_gc="True"))
    assert not any("gc" in word for word in words(suite(tmp_path, benchmark_disable_gc="False")))
    assert "--benchmark-warmup=on" in words(suite(tmp_path, benchmark_warmup="True"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("path: gone.py", "there is no test file or folder 'gone.py'"),
        ("keyword: einsum", "path must be one text"),
        ("path: bench.py, benchmark_json: x", "Tunebench decides benchmark_json; remove it"),
        ("path: bench.py, --x: 1", "--x is not the name of an option"),
    ],
)
def test_the_plan_skips_what_pytest_would_refuse(tmp_path: Path, arguments: str, message: str) -> None:
    (tmp_path / "bench.py").touch()
    one = plan(tmp_path, arguments)
    assert one.skip is not None and message in one.skip.text


def test_one_process_is_enough(tmp_path: Path) -> None:
    (tmp_path / "bench.py").touch()
    found = plan(tmp_path, "path: bench.py", more="  num_gpus: 2\n").skip
    assert found is not None and "write num_gpus: 1" in found.text


def test_a_typing_error_and_a_wrong_value_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no argument 'benchmark_min_round'; write benchmark_min_rounds"):
        plan(tmp_path, "path: bench.py, benchmark_min_round: 3")
    with pytest.raises(ConfigError, match="benchmark_min_rounds: 'few' is invalid; write a whole number"):
        plan(tmp_path, "path: bench.py, benchmark_min_rounds: few")


def test_an_edited_suite_is_another_experiment(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    for hidden in (".git", "environment"):
        (folder / hidden).mkdir(parents=True)
        (folder / hidden / "x.py").touch()
    (folder / "environment" / "pyvenv.cfg").touch()
    for name in ("bench.py", "conftest.py", "data.txt"):
        (folder / name).touch()
    before = plan(tmp_path, "path: suite")
    assert set(before.sources) == {"suite/bench.py", "suite/conftest.py"}
    one_file = plan(tmp_path, "path: suite/bench.py::test_a")
    assert set(one_file.sources) == {"suite/bench.py", "suite/conftest.py"}
    (folder / "conftest.py").write_text("# edited")
    assert plan(tmp_path, "path: suite").id != before.id


@pytest.mark.parametrize("path", ["a/suite", "a/suite/bench.py::test_a", "./a/../a/suite"])
def test_an_edited_conftest_of_a_parent_folder_is_another_experiment(tmp_path: Path, path: str) -> None:
    scenarios = tmp_path / "scenarios"
    folders = (scenarios, scenarios / "a", scenarios / "a" / "suite")
    folders[-1].mkdir(parents=True)
    (folders[-1] / "bench.py").touch()
    (scenarios / "helper.py").touch()
    for folder in (tmp_path, *folders[:-1]):
        (folder / "conftest.py").write_text("import helper")
    before = plan(scenarios, f"path: {path!r}")
    assert set(before.sources) == {"a/suite/bench.py", "conftest.py", "a/conftest.py", "helper.py"}
    for folder in folders[:-1]:
        (folder / "conftest.py").write_text("import helper  # edited")
        edited = plan(scenarios, f"path: {path!r}")
        assert edited.id != before.id
        before = edited


def test_a_suite_outside_the_scenario_file_s_folder_has_its_own_conftest(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "suite").mkdir()
    for name in ("conftest.py", "suite/conftest.py", "suite/bench.py"):
        (tmp_path / name).touch()
    assert set(plan(tmp_path / "scenarios", "path: ../suite").sources) == {"../suite/bench.py", "../suite/conftest.py"}


def test_a_run_has_the_median_of_each_benchmark_and_their_geometric_mean(tmp_path: Path) -> None:
    run_dir = run_folder(tmp_path, document(a=1e-3, b=4e-3))
    assert number(run_dir) == (pytest.approx(2e-3), "")
    assert TRAINER.benchmarks(run_dir)[0] == {"fullname": "a", "round_time_s": 1e-3, "round_iqr_s": 0.0, "rounds": 7}


@pytest.mark.parametrize("median", [0, -1.0, float("nan"), float("inf"), "1", True, None])
def test_a_time_that_is_no_time_is_missing(tmp_path: Path, median: object) -> None:
    run_dir = run_folder(tmp_path, document(a=median, b=2.0))
    assert [row.get("round_time_s") for row in TRAINER.benchmarks(run_dir)] == [None, 2.0]
    (run_dir / "benchmarks.json").write_text(json.dumps(document(a=median)))
    assert number(run_dir) == (None, "benchmarks.json has no times above 0")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (None, "pytest ended before it wrote benchmarks.json"),
        ("{", "benchmarks.json cannot be read: it is not JSON"),
        ({"benchmarks": []}, "benchmarks.json cannot be read: it is not from pytest-benchmark"),
        ({"machine_info": {}, "benchmarks": [{}]}, "benchmarks.json cannot be read: a benchmark in it has no name"),
        (document(), "benchmarks.json has no times above 0"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_reason(tmp_path: Path, written: object, why: str) -> None:
    value, reason = number(run_folder(tmp_path, written))
    assert value is None and reason.startswith(why)


def test_a_file_that_is_older_than_the_run_is_refused(tmp_path: Path) -> None:
    run_dir = run_folder(tmp_path, document(a=1.0))
    os.utime(run_dir / "benchmarks.json", (1, 1))
    assert number(run_dir) == (None, "benchmarks.json is older than the run")
    assert TRAINER.benchmarks(run_dir) == []


@pytest.mark.parametrize("clock", ["process_time", "thread_time", "perf_counter_ns"])
def test_times_of_another_clock_are_no_times(tmp_path: Path, clock: str) -> None:
    """A sleep of 2 ms takes 40 µs of the processor's time. Compared with the usual clock, it was 50 times as fast."""
    written = document(a=1.0, b=2.0)
    written["benchmarks"][1]["options"] = {"timer": clock}
    run_dir = run_folder(tmp_path, written)
    value, reason = number(run_dir)
    assert value is None and reason.startswith(f"b: its clock, time.{clock}, counts ")
    assert [row.get("round_time_s") for row in TRAINER.benchmarks(run_dir)] == [1.0, None]
    file = tmp_path / "side.json"
    file.write_text(json.dumps(written))
    assert [entry.failure is None for entry in read([file]).entries] == [True, False]


@pytest.mark.parametrize("clock", [None, "perf_counter", "monotonic", "own_function"])
def test_a_clock_that_counts_seconds_is_right(tmp_path: Path, clock: str | None) -> None:
    written = document(a=1.0)
    written["benchmarks"][0]["options"] = {"timer": clock}
    assert number(run_folder(tmp_path, written)) == (1.0, "")


def test_a_parameter_that_is_an_object_is_left_out(tmp_path: Path) -> None:
    written = document(a=1.0)
    written["benchmarks"][0]["params"] = {"n": 10, "join": "UNSERIALIZABLE[<function add at 0x7f8c48966fc0>]"}
    assert TRAINER.benchmarks(run_folder(tmp_path, written))[0]["params"] == {"n": 10}


def test_only_the_rounds_are_removed_before_the_file_is_parsed(tmp_path: Path) -> None:
    written = document(a=1.0)
    lists = {"data": [1.0, 2.0], "stats": {"data": [3.0]}, "text": '"stats": {"data": [4.0]}'}
    written["benchmarks"][0] |= {"params": lists, "group": '\n            "stats": {\n                "data": [5.0]'}
    run_dir = run_folder(tmp_path, json.dumps(written, indent=4))
    assert TRAINER.benchmarks(run_dir)[0]["params"] == lists
    assert TRAINER.benchmarks(run_dir)[0]["group"] == written["benchmarks"][0]["group"]
    (run_dir / "benchmarks.json").write_text(json.dumps(document(a=1.0), indent=4).replace("1.0,", "not_parsed,"))
    assert number(run_dir) == (1.0, "")


@pytest.mark.parametrize(
    ("out", "err", "exit_code", "cause"),
    [
        (
            "FAILED b.py::test_a - ValueError: boom\nFAILED b.py::test_b - E",
            "",
            1,
            "b.py::test_a (and 1 more): ValueError: boom",
        ),
        ("E   ModuleNotFoundError: x\nERROR b.py\n", "", 2, "b.py: ModuleNotFoundError: x"),
        ("", "ERROR: Can't have both\n", 4, "pytest: Can't have both"),
        ("", "ERROR: usage: pytest [options]\npython -m pytest: error: unrecognized", 4, "pytest: unrecognized"),
        ("=== 2 deselected in 0.01s ===", "", 5, "pytest ran no benchmark (2 deselected in 0.01s); select a test"),
        ("collected", "", 3, None),
        ("\x1b[31mFAILED\x1b[0m b.py::\x1b[1mtest_a\x1b[0m - E: x", "", 1, "b.py::test_a: E: x"),
        (
            "3 loops in 9s\n== \x1b[31m1 failed\x1b[0m in 2.9s ==",
            "",
            1,
            "pytest ended with exit code 1: 1 failed in 2.9s",
        ),
    ],
)
def test_the_cause_of_a_failure_is_in_pytest_s_own_words(
    tmp_path: Path, out: str, err: str, exit_code: int, cause: str | None
) -> None:
    found = TRAINER.failure(run_folder(tmp_path, None, out=out, err=err), exit_code)
    assert found == cause if cause is None else (found or "").startswith(cause)


# rows


def measured(one: Experiment, repeat: int, benchmarks: Mapping[str, Any], **params: object) -> RunRecord:
    rows = tuple(
        {"fullname": name, "params": params, "round_time_s": value, "rounds": 7} for name, value in benchmarks.items()
    )
    return replace(ended(one, repeat, round_time_s=1.0), benchmarks=rows)


def campaign(root: Path, one: Experiment, *runs: Mapping[str, Any]) -> Path:
    return stored(root, (one, [measured(one, repeat, run, n=10) for repeat, run in enumerate(runs, start=1)]))


def times(entry: Entry) -> list[float]:
    return [run.numbers["round_time_s"] for run in entry.runs]


def test_each_benchmark_is_a_row_with_the_mean_and_the_spread_between_processes(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", suite(tmp_path), {"b": 1.0, "a": 2.0}, {"b": 4.0, "a": 2.0})
    frame = load([root]).experiments
    assert list(frame["fullname"]) == ["b", "a"] and list(frame["n"].astype(str)) == ["10", "10"]
    assert list(frame["round_time_s"]) == pytest.approx([2.0, 2.0])
    assert list(frame["round_time_spread"]) == pytest.approx([1.6651, 0.0], abs=1e-4)
    assert [experiment_of(name) for name in frame["id"]] == [suite(tmp_path).id] * 2
    assert ids_named(str(frame["id"][0]), [suite(tmp_path).id]) == [suite(tmp_path).id]


def test_a_failed_repeat_belongs_to_each_benchmark_and_a_skipped_benchmark_has_fewer_runs(tmp_path: Path) -> None:
    one = replace(suite(tmp_path), repeats=3)
    runs = [measured(one, 1, {"a": 1.0, "b": 2.0}), measured(one, 2, {"a": 1.0}), failed(one, 3)]
    frame = load([stored(tmp_path / "r", (one, runs))]).experiments
    assert [list(frame[name]) for name in ("fullname", "status", "runs", "runs_ok")] == [
        ["a", "b"],
        ["failed", "failed"],
        [3, 2],
        [2, 1],
    ]


def test_an_edited_number_is_missing(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", suite(tmp_path), {"a": -1.0, "b": "x", "c": 2.0})
    assert load([root]).experiments["round_time_s"].fillna(0).tolist() == [0, 0, 2.0]


def test_compare_has_one_value_for_each_process_and_pairs_by_name(tmp_path: Path) -> None:
    base = campaign(tmp_path / "base", suite(tmp_path), {"a": 1.0, "b": 2.0}, {"a": 1.5, "b": 2.5})
    edited = replace(suite(tmp_path), id="s-a-999999999999")
    new = campaign(tmp_path / "new", edited, {"b": 3.0, "a": 4.0})
    pairs = pair(*(read([root]) for root in (base, new)))
    assert [one.label for one in pairs] == ["a", "b"]
    assert [times(one.base) for one in pairs if one.base] == [[1.0, 1.5], [2.0, 2.5]]
    assert [times(one.new) for one in pairs if one.new] == [[4.0], [3.0]]


def test_a_results_folder_pairs_with_a_file_of_pytest_benchmark(tmp_path: Path) -> None:
    base = campaign(tmp_path / "base", suite(tmp_path), {"a": 1.0})
    (tmp_path / "new.json").write_text(json.dumps(document(a=1.0)))
    (one,) = pair(read([base]), read([tmp_path / "new.json"]))
    assert one.base is not None and one.new is not None and one.disqualifying == ()


@pytest.mark.parametrize("edited", [False, True])
def test_the_benchmarks_of_a_suite_that_failed_are_failed(tmp_path: Path, edited: bool) -> None:
    one = suite(tmp_path)
    other = replace(one, id="s-a-999999999999") if edited else one
    base = campaign(tmp_path / "base", one, {"a": 1.0, "b": 2.0})
    new = stored(tmp_path / "new", (other, [failed(other, 1)]))
    pairs = pair(read([base]), read([new]))
    assert [(one.label, one.new and one.new.status) for one in pairs] == [("a", "failed"), ("b", "failed")]
    assert [one.base and one.base.status for one in pair(read([new]), read([base]))] == ["failed", "failed"]


def test_a_table_of_runs_keeps_the_benchmarks_apart(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", suite(tmp_path), {"a": 1.0, "b": 2.0}, {"a": 1.5, "b": 2.5})
    file = tmp_path / "raw_summary.csv"
    file.write_text(as_csv.text(load([root]).runs))
    assert [times(entry) for entry in read([file]).entries] == [[1.0, 1.5], [2.0, 2.5]]

"""The monitors' pure halves against the reference's cases; where ours differs on purpose, it says so here."""

import json
from pathlib import Path

import pytest

from orchestrator import monitors
from orchestrator.errors import SelectionError
from orchestrator.measure.memory_logs import log_summary, memory_summary
from orchestrator.monitors.hf_memory import HfMemory
from orchestrator.monitors.nvidia_smi import SAMPLES, NvidiaSmi
from orchestrator.records import Command

UNITS = Path(__file__).parent.parent / "golden" / "units"
NO_STAGE = {"empty", "no-before-init", "no-init", "no-train", "strings"}
"""The reference gives 0 for no stage at all and dies of a missing one; ours is a dash for each."""

NO_NUMBER = {"header-only", "empty-file", "not-available", "driver-error-text"}
CUT = {"cut-before-value"}
"""The reference dies of a last line that was cut off before its value; ours ignores that line."""


def cases(name):
    return {case["case"]: case for case in json.loads((UNITS / f"{name}.json").read_text(encoding="utf-8"))["cases"]}


@pytest.mark.parametrize("name", cases("hf_memory"))
def test_hf_memory_as_the_reference(name):
    case = cases("hf_memory")[name]
    expected = None if name in NO_STAGE else tuple(case["result"])
    assert memory_summary(case["metrics"]) == expected


@pytest.mark.parametrize("name", cases("nvidia_log"))
def test_nvidia_log_as_the_reference(name):
    case = cases("nvidia_log")[name]
    summary = log_summary(case["csv"])
    if name in NO_NUMBER:
        assert (summary.mean, summary.device_name) == (None, None)
        assert summary.problem
        return
    assert summary.problem is None and summary.unreadable == 0
    if name in CUT:
        assert summary.mean == 40488.0
        return
    expected = case["result"]
    assert (summary.peak_by_device, summary.device_name) == (expected["peak_by_device"], expected["device_name"])
    assert summary.mean == expected["mean"]


def test_unreadable_lines_in_the_middle_are_counted_and_left_out(tmp_path):
    header, first, *rest = cases("nvidia_log")["one-gpu-nonzero-first"]["csv"].splitlines(keepends=True)
    broken = "2024/05/01 12:00:00.500, NVIDIA A100-SXM4-80GB, 0, [Unknown Error]\n"
    (tmp_path / SAMPLES).write_text("".join([header, first, broken, *rest]), encoding="utf-8")
    memory, name = NvidiaSmi().measurements(tmp_path)
    assert (memory.value, name.value) == (40488.0, "NVIDIA A100-SXM4-80GB")
    assert "1 unreadable" in memory.source


def test_no_log_is_a_dash_that_says_why(tmp_path):
    memory, name = NvidiaSmi().measurements(tmp_path)
    assert memory.value is None and name.value is None
    assert "no GPU was watched" in memory.why_missing


def test_hf_memory_reads_the_workers_file(tmp_path):
    metrics = {**cases("hf_memory")["grows"]["metrics"], "before_init_mem_cpu": 5, "train_runtime": 3.0}
    (tmp_path / "worker-rank0.json").write_text(json.dumps({"metrics": metrics}), encoding="utf-8")
    values = {number.name: number.value for number in HfMemory().measurements(tmp_path)}
    assert values["mem_peak_torch_mem_alloc_in_bytes"] == 62894512960
    assert values["mem_torch_mem_alloc_in_bytes"] == 36146687296
    assert values["before_init_mem_cpu"] == 5
    assert "train_runtime" not in values


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"metrics": null}'])
def test_hf_memory_without_a_whole_file_is_a_dash(tmp_path, text):
    if text is not None:
        (tmp_path / "worker-rank0.json").write_text(text, encoding="utf-8")
    assert [number.value for number in HfMemory().measurements(tmp_path)] == [None, None]


def test_hf_memory_asks_the_instrument_and_adds_no_argument(tmp_path):
    command = Command(argv=("python", "/w/instrument.py", "/w/sft.py"), env={"A": "1"}, cwd=tmp_path)
    for monitor, tracker in ((HfMemory(), "light"), (HfMemory(native=True), "native")):
        asked = monitor.prepare(command, tmp_path)
        assert asked.argv == command.argv
        assert asked.env == {"A": "1", "TUNEBENCH_MEMORY_TRACKER": tracker}
    own = Command(argv=("my-trainer",), env={}, cwd=tmp_path)
    assert HfMemory().prepare(own, tmp_path) == own


def test_an_unknown_monitor_is_an_error_that_lists_the_known():
    with pytest.raises(SelectionError, match="hf_memory, hf_memory_native, nvidia_smi"):
        monitors.get("nvidia")
    assert monitors.get("hf_memory_native").perturbs and not monitors.get("hf_memory").perturbs

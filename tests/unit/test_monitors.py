"""The monitors' pure halves against the reference's cases; where ours differs on purpose, it says so here."""

import json
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orchestrator import monitors
from orchestrator.errors import SelectionError
from orchestrator.measure.gpu_timeline import sampler_file
from orchestrator.measure.memory_logs import SAMPLES, log_summary, memory_summary
from orchestrator.monitors.hf_memory import HfMemory
from orchestrator.monitors.nvidia_smi import COST, NvidiaSmi
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


BEGAN = datetime(2026, 11, 24, 12, 0, 0, 500_000)


def watched(run_dir, readings, *, lasted_s=20.0, gpus=2, exit_code=None, other_zone_h=0):
    """Write the log of a run of two GPUs: a line for each (second, index, MiB). A text stands for a line as it is."""
    lines = ["timestamp, name, index, memory.used [MiB]"]
    for reading in readings:
        if not isinstance(reading, str):
            moment = BEGAN + timedelta(seconds=reading[0], hours=other_zone_h)
            reading = f"{moment:%Y/%m/%d %H:%M:%S}.500, NVIDIA H100 80GB HBM3, {reading[1]}, {reading[2]} MiB"
        lines.append(reading)
    (run_dir / SAMPLES).write_text("\n".join(lines) + "\n", encoding="utf-8")
    began = BEGAN.timestamp()
    noted = {"gpus": gpus, "began_at": began, "ended_at": began + lasted_s, "exit_code": exit_code}
    (run_dir / COST).write_text(json.dumps(noted), encoding="utf-8")
    return NvidiaSmi().measurements(run_dir)[0], [caveat.detail for caveat in NvidiaSmi().warnings(run_dir)]


def seconds(*moments, devices=(0, 1)):
    return [(second, index, 1000 if second == 0 else 50_000) for second in moments for index in devices]


@pytest.mark.parametrize("other_zone_h", [0, 8, -3])
def test_readings_until_the_end_are_a_number(tmp_path, other_zone_h):
    memory, warnings = watched(tmp_path, seconds(*range(20)), other_zone_h=other_zone_h)
    assert (memory.value, warnings) == (49_000, [])


@pytest.mark.parametrize(
    ("readings", "exit_code", "reason"),
    [
        (seconds(*range(20)), 9, "nvidia-smi ended before the run, with exit code 9"),
        (seconds(*range(20)), -15, "nvidia-smi ended before the run, by signal 15"),
        (seconds(0), None, "0 of the run's 2 GPUs have more than one reading with a time"),
        (seconds(*range(20), devices=[1]), None, "1 of the run's 2 GPUs have more than one reading with a time"),
        ([*seconds(*range(9)), *["[GPU is lost]"] * 9], None, "GPU 0 was not read for 12 s of the run"),
        ([*seconds(*range(6)), *seconds(*range(6, 20), devices=[0])], None, "GPU 1 was not read for 15 s of the run"),
        (
            [*seconds(0, 1, devices=[0]), *seconds(*range(2, 20))],
            None,
            "GPU 1 was first read after the run had started",
        ),
        (
            ["yesterday, NVIDIA H100 80GB HBM3, 0, 9 MiB"] * 20,
            None,
            "0 of the run's 2 GPUs have more than one reading with a time",
        ),
        (
            [*["soon, NVIDIA H100 80GB HBM3, 0, 9 MiB"] * 20, *seconds(*range(20), devices=[1])],
            None,
            "1 of the run's 2 GPUs have more than one reading with a time",
        ),
        (seconds(0, 1, 2, 12, *range(13, 20)), None, "GPU 0 was not read for 10 s of the run"),
    ],
)
def test_readings_that_cannot_show_the_peak_are_a_dash_that_says_why(tmp_path, readings, exit_code, reason):
    memory, warnings = watched(tmp_path, readings, exit_code=exit_code)
    assert (memory.value, memory.why_missing, warnings) == (None, f"{SAMPLES}: {reason}", [])


def test_a_device_without_times_that_the_run_did_not_have_is_not_judged(tmp_path):
    memory, warnings = watched(tmp_path, [*seconds(*range(20)), *["soon, NVIDIA H100 80GB HBM3, 2, 9 MiB"] * 20])
    assert memory.value is not None and not warnings


def test_a_short_pause_and_a_line_that_cannot_be_read_are_warnings(tmp_path):
    memory, warnings = watched(tmp_path, [*seconds(*range(10)), "[N/A]", *seconds(*range(13, 20))], lasted_s=20)
    assert memory.value == 49_000
    pause = "GPU 0 was not read for 4 s, so its peak may be higher"
    assert warnings == [f"{SAMPLES}: 1 line(s) cannot be read and are left out", f"{SAMPLES}: {pause}"]


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
    with pytest.raises(SelectionError, match="hf_memory, hf_memory_native, memory_snapshot, nvidia_smi"):
        monitors.get("nvidia")
    assert monitors.get("hf_memory_native").perturbs and not monitors.get("hf_memory").perturbs


@pytest.mark.parametrize("name", ["nvml", "nvidia_smi"])
def test_samples_that_a_run_without_gpus_wrote_itself_do_not_count(tmp_path: Path, name: str) -> None:
    monitor = monitors.get(name)
    with monitor.watch(tmp_path, ()):
        for file in (SAMPLES, sampler_file.SAMPLES):
            (tmp_path / file).write_text("1")
    own = SAMPLES if name == "nvidia_smi" else sampler_file.SAMPLES
    assert not (tmp_path / own).exists() and len([*tmp_path.glob(f"{own}.*")]) == 1
    assert all(number.value is None for number in monitor.measurements(tmp_path))


@pytest.mark.parametrize("change", [datetime(2026, 3, 29, 2), datetime(2026, 10, 25, 3)], ids=["spring", "autumn"])
def test_a_change_of_daylight_saving_time_is_no_pause(tmp_path, monkeypatch, change):
    """A run of 20 s over the change of the clocks. `nvidia-smi` prints local times."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        began = (change - timedelta(seconds=10)).replace(fold=0).timestamp()
        lines = ["timestamp, name, index, memory.used [MiB]"]
        for second in range(20):
            moment = datetime.fromtimestamp(began + second)
            lines.append(
                f"{moment:%Y/%m/%d %H:%M:%S}.500, NVIDIA H100 80GB HBM3, 0, {1000 if second == 0 else 50_000} MiB"
            )
        (tmp_path / SAMPLES).write_text("\n".join(lines) + "\n", encoding="utf-8")
        noted = {"gpus": 1, "began_at": began, "ended_at": began + 20, "exit_code": None}
        (tmp_path / COST).write_text(json.dumps(noted), encoding="utf-8")
        memory = NvidiaSmi().measurements(tmp_path)[0]
        assert (memory.value, NvidiaSmi().warnings(tmp_path)) == (49_000, [])
    finally:
        monkeypatch.undo()
        time.tzset()

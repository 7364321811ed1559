"""The NVML sampler as the process that it is, over a fake `pynvml` on PYTHONPATH that lives by the clock."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_runs import carried_out, experiment
from test_runs import values as recorded
from trees import lives, wait_for, wait_until

from orchestrator.machine import process
from orchestrator.machine.child_environment import MARKER
from orchestrator.measure.gpu_timeline import Timeline
from orchestrator.measure.gpu_timeline.sampler_file import SAMPLES, parse
from orchestrator.monitors import nvml_sampler
from orchestrator.monitors.nvml import PERIOD_VARIABLE, Nvml
from orchestrator.records import CaveatKind, Device, Gpu, Measurement, RunFolder, Status
from orchestrator.results.store import Store, redact_files

GIB = 2**30
GPUS = (Gpu(index=0, uuid="GPU-a", name="NVIDIA X"), Gpu(index=1, uuid="GPU-b", name="NVIDIA X"))

FAKE = """
import json, os, time
from types import SimpleNamespace

FOLDER = os.path.dirname(os.path.abspath(__file__))
NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN, NVML_ERROR_GPU_IS_LOST = 3, 999, 15
NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, nvmlMemory_v2 = 0, 1, 0x02000028
BEGAN, CALLS = time.monotonic(), []

class NVMLError(Exception):
    def __init__(self, value, text):
        super().__init__(text)
        self.value = value

def now():
    return time.monotonic() - BEGAN

def called(what, device):
    CALLS.append((what, device, now()))

def nvmlInit():
    open(FOLDER + "/pid", "w").write(str(os.getpid()))

def nvmlShutdown():
    json.dump(CALLS, open(FOLDER + "/calls.json", "w"))

def nvmlDeviceGetHandleByUUID(uuid):
    if uuid not in ("GPU-a", "GPU-b"):
        raise NVMLError(6, "Not Found")
    return uuid

def memory(device):
    return 2**30

def nvmlDeviceGetMemoryInfo(device, version=None):
    called("memory", device)
    reserve = 0 if version == nvmlMemory_v2 else 480 * 2**20
    return SimpleNamespace(used=memory(device) + reserve)

def nvmlDeviceGetPowerUsage(device):
    called("power", device)
    return 350_125

def nvmlDeviceGetUtilizationRates(device):
    called("utilization", device)
    return SimpleNamespace(gpu=97)

def nvmlDeviceGetTemperature(device, sensor):
    called("temperature", device)
    return 61

def nvmlDeviceGetClockInfo(device, clock):
    assert clock == NVML_CLOCK_SM
    called("sm_clock", device)
    return 1980

def nvmlDeviceGetCurrentClocksEventReasons(device):
    called("reasons", device)
    return 4

def nvmlDeviceGetTotalEnergyConsumption(device):
    called("energy", device)
    return int(now() * 10) * 35_000 + 5_000_000

def nvmlDeviceGetComputeRunningProcesses(device):
    called("processes", device)
    return []
"""

Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts the fake before every other `pynvml`, with these lines at its end."""

    def put(more: str = "") -> Path:
        folder = tmp_path / "fake"
        folder.mkdir(exist_ok=True)
        (folder / "pynvml.py").write_text(FAKE + more, encoding="utf-8")
        return folder

    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    monkeypatch.delenv(PERIOD_VARIABLE, raising=False)
    return put


def argv(period_s: float, uuids: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", nvml_sampler.__file__, str(period_s), *uuids]


@contextmanager
def sampling(path: Path, *, period_s: float = 0.01, uuids: Sequence[str] = ("GPU-a",)) -> Iterator[None]:
    """From the first readings on."""
    with process.sidecar(argv(period_s, uuids), path) as child:
        wait_for(path)
        assert child.poll() is None, path.read_text()
        yield


def sampled(path: Path, seconds: float, **how: Any) -> Timeline:
    with sampling(path, **how):
        time.sleep(seconds)
    found = parse(path.read_text(encoding="utf-8"))
    assert found.problem is None
    return found


class Clock:
    """In the place of the sampler's `time`: only what sleeps takes time, so that no machine is too busy for what is asserted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.passed: Callable[[float], None] = lambda now: None

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.passed(self.now)


def simulated(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, period_s: float, memory: Callable[[Clock], int]
) -> tuple[Timeline, list[float]]:
    """What the sampler writes in so many seconds of a clock of its own, and when it asked for the memory."""
    clock, asked = Clock(), []

    def used(device: str, version: int | None = None) -> SimpleNamespace:
        asked.append(clock.now)
        return SimpleNamespace(used=memory(clock))

    monkeypatch.setattr(nvml_sampler, "time", clock)
    nvml = SimpleNamespace(
        NVMLError=RuntimeError, nvmlDeviceGetHandleByUUID=lambda uuid: uuid, nvmlDeviceGetMemoryInfo=used
    )
    out = io.StringIO(nvml_sampler.HEADER + "\n")
    out.seek(0, os.SEEK_END)
    sampler = nvml_sampler.Sampler(nvml, ["GPU-a"], period_s=period_s, out=out)
    clock.passed = lambda now: sampler.stop() if now >= seconds else None
    sampler.run()
    out.write(sampler.cost())
    return parse(out.getvalue()), asked


def calls(folder: Path, what: str, device: str = "GPU-a") -> list[float]:
    """When the fake was asked, in seconds since it was loaded."""
    return [at for name, of, at in json.loads((folder / "calls.json").read_text()) if (name, of) == (what, device)]


def lines(path: Path, place: int, what: str) -> list[str]:
    rows = [line.split(",", 3) for line in path.read_text().splitlines()]
    return [row[3] for row in rows if row[1:3] == [str(place), what]]


def test_changes_are_written_and_sameness_once_a_second(install: Install, tmp_path: Path) -> None:
    folder = install("memory = lambda device: 2**30 if device == 'GPU-a' else 2**30 + 4096 * len(CALLS)")
    path = tmp_path / "samples.csv"
    with sampling(path, uuids=("GPU-b", "GPU-a")):
        wait_until(lambda: len(lines(path, 1, "processes")) >= 2 and len(lines(path, 1, "energy")) >= 3)
    found = parse(path.read_text(encoding="utf-8"))
    text = path.read_text().splitlines()
    assert text[0] == nvml_sampler.HEADER
    assert [line.split(",", 1)[1] for line in text[1:3]] == ["0,uuid,GPU-b", "1,uuid,GPU-a"]
    assert [device.uuid for device in found.devices.values()] == ["GPU-b", "GPU-a"]
    changing, asked = lines(path, 0, "memory"), calls(folder, "memory", "GPU-b")
    assert len(changing) == len(set(changing)) == len(asked)
    took_s = asked[-1] - asked[0]
    for what, constant in (("memory", str(GIB)), ("sm_clock", "1980"), ("processes", "")):
        written = lines(path, 1, what)
        assert set(written) == {constant}
        assert 2 <= len(written) <= 1.1 + took_s, "at the beginning and each second later"
    assert (lines(path, 1, "power")[0], lines(path, 1, "utilization")[0]) == ("350.125", "0.97")
    assert 3 <= len(lines(path, 1, "energy")) <= 2 + took_s / 0.5
    times = [moment for moment, _ in found.devices[0].points["memory"]]
    assert times == sorted(times) and abs(times[-1] - path.stat().st_mtime) < 5


def test_it_reads_at_its_period_and_says_what_it_took(install: Install, tmp_path: Path) -> None:
    folder = install()
    found = sampled(tmp_path / "samples.csv", 1.1)
    memory = calls(folder, "memory")
    took_s = memory[-1] - memory[0]
    # What this machine had better to do for five periods and more is no time of the sampler's.
    away = [b - a for a, b in pairwise(memory) if b - a >= 0.05]
    at_it_s = took_s - sum(away)
    assert found.cost["period_s"] == pytest.approx(0.01, rel=0.2)
    assert len(memory) - len(away) == pytest.approx(at_it_s / 0.01, rel=0.2)
    assert len(calls(folder, "power")) == pytest.approx(at_it_s / 0.1, abs=3 + len(away))
    assert 2 <= len(calls(folder, "energy")) <= 2 + took_s / 0.5
    assert 1 <= len(calls(folder, "processes")) <= 1.1 + took_s
    assert 0 < found.cost["cpu_s"] < 2
    assert 2**20 < found.cost["rss_bytes"] < 100 * 2**20


def test_what_is_not_supported_is_asked_for_once_and_what_failed_again(install: Install, tmp_path: Path) -> None:
    folder = install(
        "def nvmlDeviceGetTotalEnergyConsumption(device):\n"
        "    called('energy', device)\n"
        "    raise NVMLError(NVML_ERROR_NOT_SUPPORTED, 'Not Supported')\n"
        "def nvmlDeviceGetPowerUsage(device):\n"
        "    called('power', device)\n"
        "    if len(calls_of('power')) < 4: raise NVMLError(NVML_ERROR_UNKNOWN, 'Unknown Error')\n"
        "    return 350_000\n"
        "def calls_of(what): return [call for call in CALLS if call[0] == what]\n"
        "del nvmlDeviceGetUtilizationRates\n"  # as in an older binding
        "nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons\n"
        "del nvmlDeviceGetCurrentClocksEventReasons\n"
    )
    device = sampled(tmp_path / "samples.csv", 1.0).devices[0]
    assert len(calls(folder, "energy")) == 1
    assert len(calls(folder, "power")) > 4
    assert {value for _, value in device.points["power"]} == {350.0}
    assert {value for _, value in device.points["reasons"]} == {4.0}
    assert device.points.keys().isdisjoint({"energy", "utilization"})
    assert len(calls(folder, "memory")) > 20


def test_memory_is_read_the_old_way_where_the_new_one_is_not_known(install: Install, tmp_path: Path) -> None:
    install(
        "def nvmlDeviceGetMemoryInfo(device, version=None):\n"
        "    if version: raise NVMLError(13, 'Function Not Found')\n"
        "    return SimpleNamespace(used=77)\n"
    )
    assert sampled(tmp_path / "samples.csv", 0.1).devices[0].baseline() == 77


def test_a_failure_of_the_moment_brings_no_reserve_in(install: Install, tmp_path: Path) -> None:
    install(
        "def memory(device):\n"
        "    if len(CALLS) % 3 == 2: raise NVMLError(NVML_ERROR_UNKNOWN, 'Unknown Error')\n"
        "    return 100\n"
    )
    assert {value for _, value in sampled(tmp_path / "samples.csv", 0.2).devices[0].points["memory"]} == {100}


def test_a_gpu_that_falls_off_is_lost_and_the_others_go_on(install: Install, tmp_path: Path) -> None:
    folder = install(
        "def memory(device):\n"
        "    if device == 'GPU-a' and len(CALLS) > 60: raise NVMLError(NVML_ERROR_GPU_IS_LOST, 'GPU is lost, really')\n"
        "    return 4096 * len(CALLS)\n"
    )
    path = tmp_path / "samples.csv"
    with sampling(path, uuids=("GPU-a", "GPU-b")):
        wait_until(lambda: path.read_text().partition(",0,lost,")[2].count(",1,memory,") > 30)
    first, second = parse(path.read_text()).devices.values()
    assert (first.lost, second.lost) == ("GPU is lost; really", None)
    assert len(lines(path, 0, "lost")) == 1
    gone = max(calls(folder, "memory"))
    assert max(calls(folder, "power")) < gone
    assert len([at for at in calls(folder, "memory", "GPU-b") if at > gone]) > 5
    assert second.points["memory"][-1][0] > first.points["memory"][-1][0] + 0.2


@pytest.mark.parametrize(
    ("more", "uuid", "sentence"),
    [
        ("raise ImportError('libnvidia-ml.so.1 is not there')", "GPU-a", "NVML cannot be used: libnvidia-ml.so.1 is"),
        ("def nvmlInit(): raise NVMLError(9, 'Driver Not Loaded')", "GPU-a", "NVML cannot be used: Driver Not Loaded"),
        ("", "GPU-zzz", "NVML does not know the GPUs GPU-zzz: Not Found"),
    ],
)
def test_what_is_missing_is_a_sentence_and_a_dash(
    install: Install, tmp_path: Path, more: str, uuid: str, sentence: str
) -> None:
    install(more)
    began = time.monotonic()
    with Nvml().watch(tmp_path, [Gpu(index=0, uuid=uuid, name="X")]):
        wait_for(tmp_path / SAMPLES)
    assert time.monotonic() - began < 15, "the run was held up"
    (number,) = Nvml().measurements(tmp_path)
    assert number.value is None
    assert sentence in number.why_missing


def test_a_period_that_is_none_does_not_stop_the_run(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install()
    monkeypatch.setenv(PERIOD_VARIABLE, "often")
    with Nvml().watch(tmp_path, GPUS):
        pass
    (number,) = Nvml().measurements(tmp_path)
    assert f"{PERIOD_VARIABLE}=often: the period is invalid" in number.why_missing
    assert not (folder / "pid").exists()


def test_it_ends_with_whoever_started_it(install: Install, tmp_path: Path) -> None:
    """Killed outright, the parent has nobody told; what was seen until then is there, and so is the closing line."""
    folder, path = install(), tmp_path / "samples.csv"
    code = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(60)"
    with path.open("ab") as out:
        parent = subprocess.Popen([sys.executable, "-c", code, *argv(0.01, ["GPU-a"])], stdout=out)
    try:
        wait_for(path)
    finally:
        parent.kill()
        parent.wait()
    pid = int((folder / "pid").read_text())
    wait_until(lambda: not lives(pid))
    assert parse(path.read_text()).cost["cpu_s"] > 0


def test_slow_readings_do_not_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a quarter of the period, and one takes ten periods: those that were missed are not made up for."""
    stalled: list[float] = []

    def memory(clock: Clock) -> int:
        clock.sleep(0.005)
        if clock.now > 0.4 and not stalled:
            stalled.append(clock.now)
            clock.sleep(0.2)
        return 1

    found, times = simulated(monkeypatch, 1.1, period_s=0.02, memory=memory)
    assert found.cost["period_s"] == pytest.approx(0.02)
    assert found.cost["worst_period_s"] >= 0.2
    off_grid = [abs((at - times[0] + 0.01) % 0.02 - 0.01) for at in times]
    assert max(off_grid[-20:]) < 1e-6, "the last readings lie on the grid of the first"
    early = [b - a for a, b in pairwise(times) if b - a < 0.01]
    assert len(early) <= 1, "a burst of readings after the stall"


def test_a_spike_of_30_ms_is_seen_at_a_period_of_10(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the period is kept to, where this machine lets it, is another test's."""

    def memory(clock: Clock) -> int:
        spike = int(clock.now / 0.17)
        return GIB * (spike if 1 <= spike <= 20 and clock.now % 0.17 < 0.03 else 0)

    found, _ = simulated(monkeypatch, 3.7, period_s=0.01, memory=memory)
    seen = {value for _, value in found.devices[0].points["memory"]}
    assert seen == {GIB * spike for spike in range(21)}
    assert found.devices[0].peak() == 20 * GIB


def test_a_whole_run_is_watched_until_its_memory_is_given_back(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline is read before the run, however long the driver takes, and the sampler outlives the run's processes.

    The driver takes a moment to give the memory back. The sampler carries the marker of the run's processes.
    """
    folder = install(
        "time.sleep(0.4)\n"
        "def memory(device):\n"
        "    try: return 2**30 * (3 if time.time() < os.stat(FOLDER + '/training').st_mtime + 0.6 else 1)\n"
        "    except OSError: return 2**30\n"
    )
    monkeypatch.setenv(PERIOD_VARIABLE, "0.005")
    monkeypatch.setattr("orchestrator.machine.provenance.visible_gpus", lambda: GPUS)
    monkeypatch.setattr("orchestrator.run.gpu_access.occupants", lambda gpus: ())
    code = (
        "import json, pathlib, time\n"
        f"pathlib.Path({str(folder / 'training')!r}).touch(); time.sleep(0.4)\n"
        "print(json.dumps({'train_runtime': 1.0}))"
    )
    one = experiment(code, device=Device.CUDA, num_gpus=2, monitors=("nvml",))
    _, record = carried_out(Store.create(tmp_path / "results", {}), one)
    assert record.status is Status.OK, record.cause
    measured = recorded(record)
    assert (measured["device_baseline_bytes"], measured["device_peak_used_bytes"]) == (GIB, 3 * GIB)
    assert measured["device_residue_bytes"] == 0
    assert measured["nvml_period_s"] == pytest.approx(0.005, rel=0.3)
    assert measured["monitor_cpu_s"] > 0
    assert not lives(int((folder / "pid").read_text()))
    assert [row["gpu"] for row in record.devices] == ["GPU-a", "GPU-b"]
    assert not [one for one in record.warnings if "closing line" in one.detail or one.kind is CaveatKind.CONTAMINATED]


def test_a_run_that_fails_leaves_no_sampler(install: Install, tmp_path: Path) -> None:
    folder = install()
    with pytest.raises(ZeroDivisionError), Nvml().watch(tmp_path, GPUS):
        raise ZeroDivisionError
    assert not lives(int((folder / "pid").read_text()))


def test_a_gpu_that_does_not_tell_its_memory_does_not_hold_the_run_up(install: Install, tmp_path: Path) -> None:
    """As where CPU and GPU share theirs."""
    install("def memory(device): raise NVMLError(NVML_ERROR_NOT_SUPPORTED, 'Not Supported')")
    began = time.monotonic()
    with Nvml().watch(tmp_path, GPUS):
        assert time.monotonic() - began < 15
    peak = peak_of(tmp_path)
    assert (peak.value, peak.why_missing) == (None, f"{SAMPLES}: the memory of GPU GPU-a was never read")


def peak_of(run_dir: Path) -> Measurement:
    (peak,) = (number for number in Nvml().measurements(run_dir) if number.name == "device_peak_used_bytes")
    return peak


def test_a_sampler_that_was_stopped_until_the_end_gives_no_peak(install: Install, tmp_path: Path) -> None:
    folder = install()
    with Nvml().watch(tmp_path, GPUS):
        time.sleep(0.5)
        os.kill(int((folder / "pid").read_text()), signal.SIGSTOP)
        time.sleep(2)
    assert peak_of(tmp_path).value is None
    assert "the sampler stood still for" in peak_of(tmp_path).why_missing


def test_memory_that_fails_from_some_moment_gives_no_peak(install: Install, tmp_path: Path) -> None:
    install(
        "def memory(device):\n"
        "    if now() > 0.5: raise NVMLError(NVML_ERROR_UNKNOWN, 'Unknown Error')\n"
        "    return 2**30\n"
    )
    with Nvml().watch(tmp_path, GPUS):
        time.sleep(3.5)
    assert peak_of(tmp_path).value is None
    assert "GPU GPU-a was not read all the time (memory: Unknown Error)" in peak_of(tmp_path).why_missing
    assert len(lines(tmp_path / SAMPLES, 0, "failed")) <= 5


@pytest.mark.parametrize(
    "more",
    [
        "def memory(device): raise NVMLError(NVML_ERROR_UNKNOWN, 'SAID')",
        "raise ImportError('SAID')",
        "print('SAID')",
        "import sys; sys.stdout.write('SAID ')",
    ],
)
def test_the_messages_of_a_library_keep_no_secret(install: Install, tmp_path: Path, more: str) -> None:
    install(more.replace("SAID", "no access with token=Hn3bW8qLz2Vx9rTk"))
    with Nvml().watch(tmp_path, GPUS):
        time.sleep(0.5)
    redact_files(RunFolder(tmp_path))
    written = (tmp_path / SAMPLES).read_text()
    assert "***" in written and "Hn3bW8qLz2Vx9rTk" not in written
    assert "ImportError" in more or {line.split(",")[-1] for line in lines(tmp_path / SAMPLES, 0, "uuid")} == {"GPU-a"}


@pytest.mark.parametrize("text", ["loading", "loading 10%\r", "\x1b]0;python\x07"])
def test_text_without_a_line_end_that_a_library_prints_at_its_start_hides_nothing(
    text: str, install: Install, tmp_path: Path
) -> None:
    """The run also waited twenty seconds for the first readings."""
    install(f"import sys; sys.stdout.write({text!r})")
    began = time.monotonic()
    with Nvml().watch(tmp_path, GPUS):
        assert time.monotonic() - began < 15
    assert peak_of(tmp_path).value is not None


@pytest.mark.parametrize("said", ["", "import sys; sys.stdout.write('loading')\n"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_sampler_that_a_signal_ends_leaves_what_it_saw(
    number: signal.Signals, said: str, install: Install, tmp_path: Path
) -> None:
    """By TERM, such as from a program that tidies up, it writes its closing line: its peak was taken for that of the run."""
    folder = install(f"{said}memory = lambda device: 2**30 + len(CALLS)")
    with Nvml().watch(tmp_path, GPUS):
        time.sleep(0.5)
        os.kill(int((folder / "pid").read_text()), number)
        time.sleep(0.5)
        with (tmp_path / SAMPLES).open("a") as file:
            file.write("a library's last words\n")
    (baseline,) = (n for n in Nvml().measurements(tmp_path) if n.name == "device_baseline_bytes")
    assert baseline.value > GIB  # type: ignore[operator]
    assert "the sampler ended before the run" in peak_of(tmp_path).why_missing
    assert "the sampler ended before the run" in Nvml().warnings(tmp_path)[0].detail


def test_it_keeps_to_the_last_core_where_there_are_enough() -> None:
    assert nvml_sampler.keep_off({0, 1, 2, 7}) == {7}
    assert nvml_sampler.keep_off({0, 1, 2}) == {0, 1, 2}


# Whose a process is


def seen(*pids: int) -> list[str]:
    """What the sampler writes of these processes; they are real, the list of them is not."""
    running = SimpleNamespace(nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=pid) for pid in pids])
    return nvml_sampler.processes(running, None).split()


@contextmanager
def living(**env: str) -> Iterator[int]:
    child = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **env})
    try:
        # The kernel says that a program has begun a moment before it shows its variables.
        wait_until(lambda: bool(Path(f"/proc/{child.pid}/environ").read_bytes()))
        yield child.pid
    finally:
        child.kill()
        child.wait()


def test_the_runs_own_processes_are_known_by_its_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKER, "abc")
    monkeypatch.setattr(nvml_sampler, "_holds_a_gpu", lambda pid: True)
    with living(**{MARKER: "abc"}) as own, living(**{MARKER: "abcd"}) as other, living() as foreign:
        assert seen(own, other, foreign) == sorted([f"own:{own}", f"foreign:{other}:sleep", f"foreign:{foreign}:sleep"])
        monkeypatch.delenv(MARKER)
        assert seen(own) == [f"foreign:{own}:sleep"]


def test_a_number_of_another_namespace_is_unknown() -> None:
    """Either there is no such process here, or it holds no GPU and is somebody else by chance."""
    with living() as pid:
        assert seen(pid, 2**31 - 1) == sorted([f"unknown:{pid}", f"unknown:{2**31 - 1}"])


def test_a_process_at_its_end_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is gone before its GPU is given back: it must not pass for a stranger."""
    monkeypatch.setenv(MARKER, "abc")
    monkeypatch.setattr(nvml_sampler, "_holds_a_gpu", lambda pid: True)
    child = subprocess.Popen(["true"], env={MARKER: "abc"})
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has collected it
        assert seen(child.pid) == [f"leaving:{child.pid}"]
    finally:
        child.wait()

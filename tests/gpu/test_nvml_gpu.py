"""The NVML sampler on a real GPU: short spikes of memory, energy by counter and by power, and whose a process is.

Each test prints its figures in a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.gpus import visible_gpus
from orchestrator.measure.gpu_timeline import Timeline
from orchestrator.measure.gpu_timeline.sampler_file import SAMPLES, parse
from orchestrator.monitors.nvml import PERIOD_S, PERIOD_VARIABLE, Nvml

GPUS = visible_gpus()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU"),
    pytest.mark.timeout(300),
]

SPIKE_BYTES = 8 * 2**30
SPIKES_S = (0.005, 0.02, 0.05, 0.2)

SPIKES = """
import json, sys, time, torch
context = torch.zeros(1, device="cuda")
torch.cuda.synchronize()
time.sleep(1)
for seconds in json.loads(sys.argv[2]):
    asked = time.time()
    block = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    begun, until = time.time(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    ended = time.time()
    del block
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    print(json.dumps([asked, begun, ended, time.time()]), flush=True)
    time.sleep(0.5)
"""

MATMULS = """
import json, time, torch
a, b, c = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(3))

def work(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(20):
            torch.mm(a, b, out=c)
        torch.cuda.synchronize()

work(2.5)  # power is an average of the last second: it must have arrived
begun = time.time()
work(5.0)
ended = time.time()
work(1.0)  # the counter is read twice a second: once more behind the window
print(json.dumps([begun, ended]), flush=True)
"""

HOLD = """
import sys, torch
context = torch.zeros(1, device="cuda")
torch.cuda.synchronize()
print("there", flush=True)
sys.stdin.read()
"""


def child_env(*, marked: bool = True) -> dict[str, str]:
    """Of a process on the first GPU, by its UUID, as the run's or as somebody else's."""
    settings = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} | (set() if marked else {MARKER})
    kept = {name: value for name, value in os.environ.items() if name not in settings}
    return {**kept, "CUDA_VISIBLE_DEVICES": GPUS[0].uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def watched(folder: Path, code: str, *words: str) -> tuple[Timeline, list[Any]]:
    """The samples beside a program, and what it printed, line by line."""
    with Nvml().watch(folder, GPUS[:1]):
        argv = [sys.executable, "-c", code, *words]
        done = subprocess.run(argv, env=child_env(), capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    found = parse((folder / SAMPLES).read_text(encoding="utf-8"))
    assert found.problem is None
    assert [device.uuid for device in found.devices.values()] == [GPUS[0].uuid]
    return found, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKER, "a-run-of-the-gpu-tests")
    monkeypatch.delenv(PERIOD_VARIABLE, raising=False)


@pytest.mark.skipif(
    bool(GPUS) and (GPUS[0].memory_bytes or 0) < 12 * 2**30, reason="spikes of 8 GiB need a GPU of 12 GiB"
)
@pytest.mark.parametrize(
    ("period_s", "sure"), [pytest.param(0.002, SPIKES_S, id="2ms"), pytest.param(PERIOD_S, SPIKES_S[1:], id="default")]
)
def test_short_spikes_of_memory_are_seen(
    period_s: float,
    sure: tuple[float, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if period_s != PERIOD_S:
        monkeypatch.setenv(PERIOD_VARIABLE, str(period_s))
    found, spikes = watched(tmp_path, SPIKES, str(SPIKE_BYTES), json.dumps(SPIKES_S))
    device = found.devices[0]
    baseline = device.baseline()
    assert baseline is not None and len(spikes) == len(SPIKES_S)
    lengths: dict[float, float] = {}  # of each spike, as the samples have it; 0 is one that went unseen
    for seconds, (asked, _, _, gone) in zip(SPIKES_S, spikes, strict=True):
        held = device.held("memory", (asked - 0.05, gone + 0.2))  # the next one is half a second away
        lengths[seconds] = sum(until - at for at, until, used in held if used >= baseline + 0.99 * SPIKE_BYTES)
    shown = ", ".join(
        f"{seconds * 1000:.0f} ms ({(gone - asked) * 1000:.1f} with its calls): "
        + (f"seen for {lengths[seconds] * 1000:.1f} ms" if lengths[seconds] else "not seen")
        for seconds, (asked, _, _, gone) in zip(SPIKES_S, spikes, strict=True)
    )
    with capsys.disabled():
        print(
            f"\nspikes of 8 GiB at {period_s * 1000:g} ms: {shown}; baseline {baseline / 2**20:.0f} MiB; {found.cost}"
        )
    assert found.cost["period_s"] == pytest.approx(period_s, rel=0.2)
    assert [seconds for seconds in sure if not lengths[seconds]] == []
    numbers = {number.name: number.value for number in Nvml().measurements(tmp_path)}
    assert numbers["device_peak_used_bytes"] >= baseline + SPIKE_BYTES  # type: ignore[operator]
    assert numbers["device_residue_bytes"] < 2**30  # type: ignore[operator]
    assert set(device.strangers()) <= device.processes_before, "the run's own process passes for a stranger"


def test_energy_by_counter_and_by_power_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, ((begun, ended),) = watched(tmp_path, MATMULS)
    device, window = found.devices[0], (begun, ended)
    counted, integrated = device.energy(window), device.integrated_energy(window)
    if "energy" not in device.points or "power" not in device.points:
        pytest.skip("this GPU says nothing of energy or power")
    assert counted is not None and integrated is not None
    utilization, throttled = device.mean("utilization", window), device.throttled(window)
    with capsys.disabled():
        print(
            f"\nenergy over {ended - begun:.2f} s of matrix products: {counted:.1f} J counted, {integrated:.1f} J by power "
            f"({counted / integrated - 1:+.2%}); {device.mean('power', window):.0f} W, SM clock "
            f"{device.mean('sm_clock', window):.0f} MHz, {device.highest('temperature', window):.0f} °C, "
            f"utilization {utilization:.0%}, throttled {throttled}; {found.cost}"
        )
    assert counted == pytest.approx(integrated, rel=0.05)
    assert utilization is not None and utilization > 0.8
    assert set(device.strangers()) <= device.processes_before, "the run's own process passes for a stranger"


@contextmanager
def holding(*, marked: bool) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the GPU until left."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env=child_env(marked=marked),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "there\n"
        yield child
    finally:
        child.communicate(timeout=60)  # its input ends, and so does it, giving the GPU back as a training does


def test_a_process_is_the_runs_or_a_strangers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Nvml().watch(tmp_path, GPUS[:1]), holding(marked=True) as own, holding(marked=False) as other:
        time.sleep(2.5)  # processes are listed once a second
    device = parse((tmp_path / SAMPLES).read_text(encoding="utf-8")).devices[0]
    numbers = {number.name: number.value for number in Nvml().measurements(tmp_path)}
    with capsys.disabled():
        print(
            f"\nown {own.pid}, stranger {other.pid}: before {sorted(device.processes_before)}, "
            f"seen {sorted(device.processes)}, contaminated: {numbers.get('contaminated')}"
        )
    assert not [one for one in device.strangers() if one.split(":")[1] == str(own.pid)]
    if f"own:{own.pid}" not in device.processes:
        assert set(device.strangers()) <= device.processes_before
        pytest.skip(f"NVML's process numbers are not those of this container: {sorted(device.processes)}")
    (stranger,) = [one for one in device.strangers() if one.startswith(f"foreign:{other.pid}:")]
    assert stranger not in device.processes_before
    assert f"process {other.pid} (" in str(numbers["contaminated"])
    assert any(f"process {other.pid} (" in caveat.detail for caveat in Nvml().warnings(tmp_path))

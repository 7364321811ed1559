"""The nvidia-smi sidecar with a real fake `nvidia-smi` on PATH."""

import os
import sys
import time

import pytest
from test_runs import carried_out, experiment, values
from trees import lives, wait_for

from orchestrator.measure.memory_logs import SAMPLES
from orchestrator.monitors.nvidia_smi import NvidiaSmi
from orchestrator.records import Device, Gpu, Status
from orchestrator.results.store import Store

GPUS = (Gpu(index=0, uuid="GPU-0", name="NVIDIA X"), Gpu(index=1, uuid="GPU-1", name="NVIDIA X"))

FAKE = f"""#!{sys.executable}
import os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
open(os.path.join(folder, "argv"), "w").write(" ".join(sys.argv[1:]))
open(os.path.join(folder, "pid"), "w").write(str(os.getpid()))
time.sleep(0.5)  # the driver takes its time; calibration must wait for it
print("timestamp, name, index, memory.used [MiB]", flush=True)
for reading in range(10000):
    for device in (0, 1):
        used = 100 + device if not os.path.exists(os.path.join(folder, "running")) else 4100 + device * 11
        now = time.strftime("%Y/%m/%d %H:%M:%S.000")
        print(f"{{now}}, NVIDIA X, {{device}}, {{used}} MiB", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(FAKE, encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("orchestrator.machine.provenance.visible_gpus", lambda: GPUS)
    return folder


def test_the_first_reading_precedes_the_run_and_the_sidecar_ends_with_it(smi, tmp_path):
    code = (
        "import json, pathlib, sys, time\n"
        f"before = pathlib.Path('..', {SAMPLES!r}).read_text().count('MiB\\n') - 0\n"
        f"pathlib.Path({str(smi / 'running')!r}).touch()\n"
        # Until both devices were read meanwhile, however busy this machine is.
        f"while not all(f', {{used}} MiB' in pathlib.Path('..', {SAMPLES!r}).read_text() for used in (4100, 4111)):\n"
        "    time.sleep(0.05)\n"
        "print(json.dumps({'train_runtime': 1.0, 'train_loss': before}))"
    )
    one = experiment(code, device=Device.CUDA, num_gpus=2, monitors=("nvidia_smi",))
    _, record = carried_out(Store.create(tmp_path / "results", {}), one)
    assert record.status is Status.OK, record.cause
    measured = values(record)
    assert measured["train_loss"] >= 2  # both devices had been read when the run began
    assert measured["mem_nvidia_mem_reserved"] == (4000 + 4010) / 2
    assert measured["gpu_device_name"] == "NVIDIA X"
    assert 0 <= measured["monitor_cpu_s"] < 5  # in ticks of 10 ms
    assert 2**20 < measured["monitor_rss_bytes"] < 2**30
    assert not lives(int((smi / "pid").read_text()))
    assert "--id=GPU-0,GPU-1" in (smi / "argv").read_text() and "--loop=1" in (smi / "argv").read_text()


def test_the_samples_have_no_secret_of_what_the_program_prints(smi, tmp_path):
    """Such as a message about a process, whose name is a token."""
    token = "hf_QwErTyUiOpAsDfGhJkLzXcVb"
    program = (smi / "nvidia-smi").read_text().replace("NVIDIA X,", f"NVIDIA {token},")
    printed = 'print("timestamp, name, index, memory.used [MiB]", flush=True)'
    assert printed in program
    (smi / "nvidia-smi").write_text(
        program.replace(printed, f"{printed}\nprint('WARNING: process {token} (7)', flush=True)")
    )
    code = (
        "import pathlib, time\n"
        # Until both devices were read twice, however busy this machine is.
        f"while pathlib.Path('..', {SAMPLES!r}).read_text().count(' MiB\\n') < 4:\n"
        "    time.sleep(0.05)\n"
        "print('{\"train_runtime\": 1.0}')"
    )
    one = experiment(code, device=Device.CUDA, num_gpus=2, monitors=("nvidia_smi",))
    _, record = carried_out(Store.create(tmp_path / "results", {}), one)
    assert values(record)["mem_nvidia_mem_reserved"] == 0 and values(record)["gpu_device_name"] == "NVIDIA ***"
    folder = tmp_path / "results"
    assert "WARNING: process *** (7)" in next(folder.rglob(SAMPLES)).read_text()
    assert not [path for path in folder.rglob("*") if path.is_file() and token in path.read_text()]


def test_without_nvidia_smi_the_number_is_a_dash_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("orchestrator.machine.provenance.visible_gpus", lambda: GPUS)
    one = experiment(device=Device.CUDA, num_gpus=1, monitors=("nvidia_smi",))
    _, record = carried_out(Store.create(tmp_path / "results", {}), one)
    assert record.status is Status.OK
    assert values(record)["mem_nvidia_mem_reserved"] is None
    assert values(record)["gpu_device_name"] == "NVIDIA X"
    assert any("nvidia-smi: cannot be started" in caveat.detail for caveat in record.warnings)


def test_a_sidecar_that_says_nothing_does_not_hold_the_run_up_for_ever(smi, tmp_path, monkeypatch):
    (smi / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    monkeypatch.setattr("orchestrator.monitors.sampling.FIRST_READING_S", 0.3)
    started = time.monotonic()
    with NvidiaSmi().watch(tmp_path, GPUS):
        pass
    assert time.monotonic() - started < 15


def test_a_sidecar_that_ended_at_once_does_not_hold_the_run_up(smi, tmp_path):
    (smi / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n", encoding="utf-8")
    started = time.monotonic()
    with NvidiaSmi().watch(tmp_path, GPUS):
        wait_for(tmp_path / SAMPLES)
    assert time.monotonic() - started < 15
    memory, _ = NvidiaSmi().measurements(tmp_path)
    assert memory.value is None and "NVIDIA-SMI has failed" in memory.why_missing

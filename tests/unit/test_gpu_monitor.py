"""GPUs under watch without a GPU: a fake NVML's answers as readings, peaks, runs of processes, what gets lost."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases
from fake_pynvml import FakeGpu, FakeNvml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.campaign.gpu_monitor import readings
from orchestrator.campaign.gpu_monitor import view as monitor_view
from orchestrator.campaign.gpu_monitor.readings import Process, Reading, Run, Seen, View, Watch
from orchestrator.errors import SelectionError
from orchestrator.machine.gpus import all_gpus
from orchestrator.measure.gpu_timeline import REASONS
from orchestrator.monitors import nvml_sampler

GIB = 2**30
RUN_DIR = "/r/results/experiments/llama-baseline-0123456789ab/runs/r2-t1"
RUN = Run(folder=RUN_DIR, experiment="llama-baseline-0123456789ab", repeat=2, attempt=1)


def watch(*gpus: FakeGpu) -> Watch:
    nvml = FakeNvml(list(gpus))
    return Watch(nvml, all_gpus(nvml))


def second(**values: Any) -> FakeGpu:
    return FakeGpu(uuid="GPU-bbbb-1", **values)


def test_a_reading_is_in_base_units() -> None:
    (gpu,) = watch(FakeGpu(used=3 * GIB, reasons=0x4 | 0x40)).view().gpus
    assert (gpu.index, gpu.uuid, gpu.name, gpu.lost) == (0, "GPU-aaaa-0", "NVIDIA H100 80GB HBM3", None)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (3 * GIB, 80 * GIB), "without the driver's reserve"
    assert (gpu.gpu_utilization, gpu.power_w, gpu.power_limit_w) == (0.5, 350.5, 700.0)
    assert (gpu.sm_clock_mhz, gpu.temperature_c) == (1980, 61)
    assert gpu.throttle_reasons == ("power cap", "heat (hardware)")
    assert gpu.processes == ()


def test_idle_and_clocks_set_by_the_user_hold_nothing_down() -> None:
    (gpu,) = watch(FakeGpu(reasons=0x1 | 0x2)).view().gpus
    assert gpu.throttle_reasons == ()


def test_a_peak_between_two_views_is_kept() -> None:
    card, other = FakeGpu(), second()
    watched = watch(card, other)
    assert [gpu.memory_peak_used_bytes for gpu in watched.view().gpus] == [GIB, GIB]
    card.used = 40 * GIB
    watched.look()
    card.used = 2 * GIB
    first, beside = watched.view().gpus
    assert (first.memory_used_bytes, first.memory_peak_used_bytes) == (2 * GIB, 40 * GIB)
    assert beside.memory_peak_used_bytes == GIB


def test_energy_is_that_since_the_view_began() -> None:
    card = FakeGpu()
    device = readings.Device(FakeNvml([card]), all_gpus(FakeNvml([card]))[0])
    assert device.read(100.0).energy_j is None, "no time has passed"
    card.energy = 1_000_000_000 + 2_500
    assert device.read(100.5).energy_j is None, "read once a second at most, since a call takes milliseconds"
    assert device.read(101.0).energy_j == 2.5
    card.energy = 10
    assert device.read(102.0).energy_j is None, "a counter that began anew says nothing"


def test_what_a_gpu_does_not_say_is_a_dash_and_is_asked_once() -> None:
    silent = second(power=None, limit=None, energy=None, use=None, clock=None, heat=None, reasons=None, pids=None)
    watched = watch(FakeGpu(), silent)
    silent.asked.clear()
    for _ in range(3):
        _, gpu = watched.view().gpus
    missing = {name for name in Reading.__slots__ if getattr(gpu, name) is None}
    assert missing == {
        *("gpu_utilization", "power_w", "power_limit_w", "energy_j", "sm_clock_mhz", "temperature_c"),
        *("throttle_reasons", "processes", "lost"),
    }
    assert silent.asked.count("power") == 1 and silent.asked.count("used") == 3
    assert watched.view().gpus[0].power_w == 350.5


def test_an_error_that_passes_is_asked_again() -> None:
    card = FakeGpu()
    watched = watch(card)
    card.error = 999
    assert watched.view().gpus[0].power_w is None
    card.error = None
    assert watched.view().gpus[0].power_w == 350.5


def test_a_gpu_that_falls_off_is_lost_and_the_others_go_on() -> None:
    card, other = FakeGpu(used=9 * GIB), second()
    watched = watch(card, other)
    watched.view()
    card.error = 15
    watched.look()
    asked = len(card.asked)
    lost, alive = watched.view().gpus
    assert lost.lost == "GPU is lost"
    assert (lost.memory_used_bytes, lost.memory_peak_used_bytes, lost.energy_j) == (None, 9 * GIB, None)
    assert lost.processes is None
    assert (alive.lost, alive.power_w) == (None, 350.5)
    assert len(card.asked) == asked, "a lost GPU is left alone"


def test_a_gpu_that_was_lost_before_has_a_row_all_the_same() -> None:
    lost, alive = watch(FakeGpu(error=15), second()).view().gpus
    assert (lost.index, lost.uuid, lost.name, lost.lost) == (0, None, None, "GPU is lost")
    assert alive.uuid == "GPU-bbbb-1"


@pytest.mark.parametrize(("asked", "expected"), cases("gpu_monitor/gpus_are_chosen_by_index_and_uuid"))
def test_gpus_are_chosen_by_index_and_uuid(asked: str | None, expected: list[int]) -> None:
    nvml = FakeNvml([FakeGpu(), second()])
    assert [gpu.index for gpu in readings.chosen(nvml, asked)] == expected


def test_a_mig_part_is_chosen_by_its_uuid() -> None:
    part = FakeGpu(uuid="MIG-1", name="NVIDIA H100 MIG 1g.10gb", total=10 * GIB, power=None)
    nvml = FakeNvml([FakeGpu(), part])
    chosen = readings.chosen(nvml, "MIG-1")
    assert [(gpu.index, gpu.uuid) for gpu in chosen] == [(0, "MIG-1")]
    (gpu,) = Watch(nvml, chosen).view().gpus
    assert (gpu.memory_total_bytes, gpu.power_w) == (10 * GIB, None)


@pytest.mark.parametrize("asked", ["3", "-1", "x", "", "0,", "GPU-", "GPU-cccc", "MIG-9"])
def test_an_unknown_gpu_is_a_sentence_with_what_there_is(asked: str) -> None:
    nvml = FakeNvml([FakeGpu(), second(error=15)])
    nvml.gpus.append(FakeGpu(uuid="GPU-dddd-2"))
    with pytest.raises(SelectionError) as said:
        readings.chosen(nvml, asked)
    assert str(said.value).startswith(f"--gpus {asked}: ")
    assert "0 (NVIDIA H100 80GB HBM3, GPU-aaaa-0), 1 (lost, no UUID), 2 (" in str(said.value)


@pytest.mark.parametrize("wrong", [0.0, 0.09, 60.1, -1.0, float("nan"), float("inf")])
def test_an_interval_out_of_bounds_is_a_sentence(wrong: float) -> None:
    with pytest.raises(SelectionError, match=r"write 0\.1 to 60 seconds"):
        readings.pace(wrong)
    assert (readings.pace(0.1), readings.pace(60)) == (0.1, 60)


def fake_process(proc: Path, pid: int, **env: str) -> Path:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "environ").write_bytes(b"\0".join(f"{name}={value}".encode() for name, value in env.items()))
    return proc


def known(name: str | None = None, run: Run | None = None, seen: Seen = Seen.HERE) -> Process:
    return Process(pid=7, name=name, seen=seen, run=run)


def unnamed(folder: str | None) -> Run:
    return Run(folder=folder, experiment=None, repeat=None, attempt=None)


@pytest.mark.parametrize(
    ("seen", "env", "expected"),
    [
        ("foreign:7:python", {"HOME": "/root"}, known("python")),
        ("foreign:7:a:b", {}, known("a:b")),
        ("foreign:7:?", {}, known()),
        ("foreign:7:py", {"TUNEBENCH_RUN_DIR": RUN_DIR}, known("py", RUN)),
        ("own:7", {"TUNEBENCH_RUN_DIR": RUN_DIR}, known(run=RUN)),
        ("foreign:7:py", {"TUNEBENCH_RUN": "abc", "X": "1"}, known("py", unnamed(None))),
        ("foreign:7:py", {"TUNEBENCH_RUN_DIR": "/tmp/by-hand"}, known("py", unnamed("/tmp/by-hand"))),
        ("leaving:7", {"TUNEBENCH_RUN_DIR": RUN_DIR}, known(seen=Seen.ENDING)),
        # our own process of that number is another one
        ("unknown:7", {"TUNEBENCH_RUN_DIR": RUN_DIR}, known(seen=Seen.ELSEWHERE)),
    ],
)
def test_a_process_is_known_by_its_run(seen: str, env: dict[str, str], expected: Process, tmp_path: Path) -> None:
    assert readings.process_of(seen, fake_process(tmp_path, 7, **env)) == expected


def test_a_process_that_has_ended_meanwhile_has_no_run(tmp_path: Path) -> None:
    assert readings.process_of("foreign:7:python", tmp_path).run is None


@pytest.fixture
def training() -> Iterator[subprocess.Popen[str]]:
    """A process with the environment of a run's."""
    code = "print(flush=True); input()"
    env = {**os.environ, "TUNEBENCH_RUN": "marker", "TUNEBENCH_RUN_DIR": RUN_DIR}
    child = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.communicate("\n")


def test_a_real_process_of_a_run_is_named(training: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that it holds a GPU open has to be said for it here."""
    monkeypatch.setitem(nvml_sampler.READERS, "processes", (1.0, lambda nvml, handle: f"foreign:{training.pid}:python"))
    (gpu,) = watch(FakeGpu()).view().gpus
    assert gpu.processes == (Process(pid=training.pid, name="python", seen=Seen.HERE, run=RUN),)


def test_a_process_without_a_gpu_of_ours_is_of_another_container(training: subprocess.Popen[str]) -> None:
    (gpu,) = watch(FakeGpu(pids=[training.pid])).view().gpus
    assert gpu.processes == (Process(pid=training.pid, name=None, seen=Seen.ELSEWHERE, run=None),)


class StandingClock:
    """Goes on by sleeping alone: how fast the machine is, and how busy, moves nothing."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_views_come_until_stopped_with_looks_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "time", StandingClock())
    card = FakeGpu()
    seen: list[View] = []
    for view in readings.views(watch(card), interval_s=0.2, stopped=lambda: len(seen) >= 3):
        seen.append(view)
    assert [view.since_s for view in seen] == [0.0, 0.2, 0.4]
    looks = card.asked.count("used") - 3
    assert 8 <= looks <= 12, "memory is read every 50 ms"
    assert card.asked.count("power") == 3


def test_one_view_takes_no_time() -> None:
    (view,) = islice(readings.views(watch(FakeGpu()), interval_s=60, stopped=lambda: False), 1)
    assert view.since_s < 5


# Views of GPUs as a table, live, and as JSON.


Golden = Callable[[str, str], None]
READING = Reading(
    index=0,
    uuid="GPU-aaaa-0",
    name="NVIDIA H100 80GB HBM3",
    memory_used_bytes=61 * GIB,
    memory_total_bytes=80 * GIB,
    memory_peak_used_bytes=72 * GIB + GIB // 2,
    gpu_utilization=0.97,
    power_w=684.21,
    power_limit_w=700.0,
    energy_j=213_480.4,
    sm_clock_mhz=1755.0,
    temperature_c=66.0,
    throttle_reasons=("power cap", "heat (software)"),
    processes=(Process(pid=4711, name="python", seen=Seen.HERE, run=RUN),),
    lost=None,
)
NOTHING = dict.fromkeys(Reading.__slots__)
STRANGERS = (
    Process(pid=900, name=None, seen=Seen.ENDING, run=None),
    Process(pid=1200, name="python", seen=Seen.HERE, run=None),
    Process(pid=1201, name=None, seen=Seen.HERE, run=None),
    Process(pid=812, name=None, seen=Seen.ELSEWHERE, run=None),
    Process(
        pid=77, name="py", seen=Seen.HERE, run=Run(folder="/tmp/by-hand", experiment=None, repeat=None, attempt=None)
    ),
    Process(pid=78, name="py", seen=Seen.HERE, run=Run(folder=None, experiment=None, repeat=None, attempt=None)),
)
VIEW = View(
    time=1_800_000_000.25,
    since_s=3723.5,
    gpus=(
        READING,
        replace(READING, index=1, throttle_reasons=(), energy_j=812.0, processes=STRANGERS, gpu_utilization=0.0),
        replace(READING, index=2, uuid="GPU-c", power_w=None, power_limit_w=None, energy_j=None, processes=None),
        Reading(
            **{**NOTHING, "index": 3, "memory_peak_used_bytes": GIB, "memory_total_bytes": GIB, "lost": "GPU is lost"}
        ),
    ),
)


def text_of(view: View, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(monitor_view.as_table(view, width=width))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 160])
def test_the_view_as_a_table(golden: Golden, width: int) -> None:
    golden(f"cli/monitor-{width}.txt", text_of(VIEW, width))


def test_the_view_as_json(golden: Golden) -> None:
    line = monitor_view.as_json(VIEW)
    assert line.count("\n") == 1 and line.endswith("\n")
    golden("cli/monitor.json", json.dumps(json.loads(line), indent=1) + "\n")


quantities = st.none() | st.floats(0, 1e12)
sizes = st.none() | st.integers(0, 2**50)


@given(
    st.builds(
        Reading,
        index=st.integers(0, 15),
        uuid=st.none() | st.text(),
        name=st.none() | st.text(),
        memory_used_bytes=sizes,
        memory_total_bytes=sizes,
        memory_peak_used_bytes=sizes,
        gpu_utilization=st.none() | st.floats(0, 1),
        power_w=quantities,
        power_limit_w=quantities,
        energy_j=quantities,
        sm_clock_mhz=quantities,
        temperature_c=quantities,
        throttle_reasons=st.none() | st.lists(st.sampled_from(list(REASONS.values())), unique=True).map(tuple),
        processes=st.none() | st.lists(st.sampled_from(STRANGERS), unique=True).map(tuple),
        lost=st.none() | st.text(min_size=1),
    ),
    st.sampled_from([80, 129, 130, 240]),
)
def test_any_reading_can_be_shown(reading: Reading, width: int) -> None:
    """Also a name that looks like rich's markup; and JSON has no NaN."""
    view = View(time=0.0, since_s=1.0, gpus=(reading,))
    shown = text_of(view, width)
    assert "None" not in shown.replace(reading.name or "", "") and "nan" not in shown.replace(reading.name or "", "")
    (gpu,) = json.loads(monitor_view.as_json(view))["gpus"]
    assert gpu["memory_used_bytes"] == reading.memory_used_bytes


def test_off_a_terminal_views_come_one_below_the_other() -> None:
    console = Console(width=160, file=io.StringIO(), color_system=None)
    monitor_view.follow([VIEW, replace(VIEW, since_s=3724.5)], console)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "1:02:03" in said and "1:02:04" in said
    assert said.count("llama-baseline-0123456789ab r2") == 2
    assert "\x1b" not in said


def test_on_a_terminal_the_last_view_stays() -> None:
    console = Console(width=160, file=io.StringIO(), force_terminal=True)
    monitor_view.follow([replace(VIEW, since_s=3722.5), VIEW], console)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "1:02:02" in said
    assert said.rstrip().endswith("\x1b[?25h"), "the cursor is shown again"
    last = said[said.rindex("1:02:03") :]
    assert "lost" in last and "\x1b[2K" not in last, "nothing is wiped after the last view"

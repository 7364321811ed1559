"""Views of GPUs as a table, live, and as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.campaign.gpu_monitor import view as monitor_view
from orchestrator.campaign.gpu_monitor.readings import Process, Reading, Run, Seen, View
from orchestrator.measure.gpu_timeline import REASONS

Golden = Callable[[str, str], None]
GIB = 2**30
RUN_DIR = "/r/results/experiments/llama-baseline-0123456789ab/runs/r2-t1"
RUN = Run(folder=RUN_DIR, experiment="llama-baseline-0123456789ab", repeat=2, attempt=1)
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

"""The monitor `nvml` over a run's folder: numbers of the steady state, dashes that say why, and sentences beside them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from factories.cases import document
from factories.results import experiment
from factories.run_folders import BEGAN, worker, write_steps, write_worker
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import LaunchError
from orchestrator.measure import memory_logs, throughput
from orchestrator.measure.gpu_timeline.sampler_file import HEADER, SAMPLES, parse
from orchestrator.measure.metrics import METRICS
from orchestrator.monitors import MONITORS, nvidia_smi
from orchestrator.monitors.nvml import PERIOD_S, PERIOD_VARIABLE, Nvml, period
from orchestrator.records import Caveat, CaveatKind, Device, Gpu, Measurement
from orchestrator.run import collect

COST = {"cpu_s": 0.75, "rss_bytes": 20_000_000, "period_s": 0.01, "worst_period_s": 0.02}
SLOW_HEAD = [4.0, *[0.1] * 60]  # the steady state is from 4 to 10 s
GIB = 2**30
STEADY = {
    *("energy_j", "integrated_energy_j", "energy_per_real_token_j", "mean_power_w", "gpu_utilization"),
    *("sm_clock_mhz", "temperature_c", "throttled_share"),
}


def gpu(
    place: int, *, peak: int = 40 * GIB, power_w: float = 600, without: Iterable[str] = (), **over: Any
) -> list[str]:
    """Samples of a run of 10 s; in its first 4, the warm-up, everything is 10 % of, or hotter than, what comes then."""
    lines = [f"{BEGAN - 1:.4f},{place},uuid,GPU-{place}", f"{BEGAN - 1:.4f},{place},memory,{GIB + place}"]
    lines.append(f"{BEGAN - 1:.4f},{place},processes,{over.pop('before', '')}")
    joules = 5e6
    for tenth in range(-10, 111):
        moment, warm = BEGAN + tenth / 10, 40 <= tenth <= 100
        watts = power_w if warm else power_w / 10
        joules += watts * 0.1
        values = {
            "power": watts, "utilization": 0.9 if warm else 0.1, "temperature": 60 if warm else 88,
            "sm_clock": 1800 if warm else 300, "reasons": 0 if warm else 4, "energy": round(joules, 3),
        } | (over if warm else {})  # fmt: skip
        lines += [f"{moment:.4f},{place},{what},{value}" for what, value in values.items() if what not in without]
    memory = {0: GIB + place, 1: GIB + place, **dict.fromkeys(range(2, 11), peak), 10.5: GIB + place + 2000}
    lines += [f"{BEGAN + moment:.4f},{place},memory,{used}" for moment, used in memory.items()]
    return sorted(lines, key=lambda line: float(line.partition(",")[0]))


def sampled(run_dir: Path, *lines: str, cost: Mapping[str, Any] | None = COST) -> Path:
    closing = [f"# {json.dumps(cost)}"] if cost else []
    (run_dir / SAMPLES).write_text("\n".join([HEADER, *lines, *closing]) + "\n", encoding="utf-8")
    return run_dir


def trained(run_dir: Path, seconds: list[float] | None = None) -> Path:
    write_steps(run_dir, 0, SLOW_HEAD if seconds is None else seconds)
    write_worker(run_dir, worker(steps=len(SLOW_HEAD)))
    return run_dir


def found(run_dir: Path) -> dict[str, Measurement]:
    numbers = Nvml().measurements(run_dir)
    named = {number.name: number for number in numbers}
    assert len(named) == len(numbers), "a number is there twice"
    assert named.keys() <= METRICS.keys()
    return named


def values(run_dir: Path) -> dict[str, Any]:
    return {name: number.value for name, number in found(run_dir).items()}


def test_a_run_on_one_gpu(tmp_path: Path) -> None:
    numbers = values(trained(sampled(tmp_path, *gpu(0))))
    assert throughput.steady_window(tmp_path) == pytest.approx((BEGAN + 4, BEGAN + 10))
    assert numbers.pop("energy_per_real_token_j") == pytest.approx(numbers["energy_j"] / (800 * 60))
    assert numbers == pytest.approx(document("nvml_monitor/one_gpu"), rel=1e-3)
    assert {number.source for number in found(tmp_path).values()} == {SAMPLES}
    assert Nvml().warnings(tmp_path) == []


def test_over_two_gpus(tmp_path: Path) -> None:
    trained(sampled(tmp_path, *gpu(1, peak=20 * GIB, power_w=300, temperature=71), *gpu(0, peak=40 * GIB)))
    numbers = values(tmp_path)
    assert (numbers["device_peak_used_bytes"], numbers["device_mean_peak_used_bytes"]) == (40 * GIB, 30 * GIB)
    assert numbers["device_peak_imbalance"] == pytest.approx(1 / 3)
    assert numbers["energy_j"] == pytest.approx(5400, rel=1e-3)
    assert numbers["mean_power_w"] == pytest.approx(450, rel=1e-3)
    assert numbers["temperature_c"] == 71
    rows = Nvml().devices(tmp_path)
    assert [row["gpu"] for row in rows] == ["GPU-0", "GPU-1"]
    assert [row["device_peak_used_bytes"] for row in rows] == [40 * GIB, 20 * GIB]
    assert [row["device_baseline_bytes"] for row in rows] == [GIB, GIB + 1]
    assert [row["energy_j"] for row in rows] == pytest.approx([3600, 1800], rel=1e-3)
    assert sum(row["integrated_energy_j"] for row in rows) == pytest.approx(numbers["integrated_energy_j"])
    assert all(row.keys() - {"gpu"} <= METRICS.keys() for row in rows)
    assert not any(value is None for row in rows for value in row.values())


def test_without_a_steady_state_memory_stays_and_the_rest_says_so(tmp_path: Path) -> None:
    numbers = found(trained(sampled(tmp_path, *gpu(0)), [4.0, 0.1]))
    assert numbers["device_peak_used_bytes"].value == 40 * GIB
    assert {name for name, number in numbers.items() if number.value is None} == STEADY
    assert {numbers[name].why_missing for name in STEADY} == {"the run had no steady state, or its time is unknown"}
    assert Nvml().devices(tmp_path)[0].keys() == {
        "gpu",
        "device_peak_used_bytes",
        "device_baseline_bytes",
        "device_residue_bytes",
    }
    assert Nvml().warnings(tmp_path) == []


def test_a_step_without_a_count_of_real_tokens_is_no_fault_of_the_driver(tmp_path: Path) -> None:
    sampled(tmp_path, *gpu(0))
    rows = [{"step": n + 1, "t": BEGAN + n * 0.1, "s": 0.1, "processed": 100} for n in range(100)]
    (tmp_path / "steps-rank0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_worker(tmp_path, worker(steps=100))
    numbers = found(tmp_path)
    assert numbers["energy_j"].value is not None
    why = numbers["energy_per_real_token_j"].why_missing
    assert why == "no tokens without padding were counted in the steps"


@pytest.mark.parametrize("edge", [4, 10])
@pytest.mark.parametrize("what", ["energy", ""])
@pytest.mark.parametrize(
    ("stood_s", "shift_s", "certain"), [(1.2, 0, True), (3, 0, False), (3, 1.2, False), (3, -1.2, False)]
)
def test_a_sampler_that_stood_still_at_an_edge_of_the_steady_state_knows_no_energy(
    tmp_path: Path, stood_s: float, shift_s: float, what: str, edge: float, *, certain: bool
) -> None:
    """The sampler did not read at all, or only the energy counter answered with errors."""
    lines = [
        line
        for line in gpu(0)
        if abs(float(line.partition(",")[0]) - BEGAN - edge - shift_s) > stood_s / 2
        or what not in line
        or "memory" in line
    ]
    lines += [f"{BEGAN + edge + second:.4f},0,energy,{5e6 + 6000}" for second in range(3, 6) if edge == 10]
    energy = found(trained(sampled(tmp_path, *lines)))["energy_j"]
    if certain:
        assert energy.value == pytest.approx(3600, rel=0.11)
    else:
        assert energy.value is None and "it was not read all the time" in str(energy.why_missing)


def lines_while_the_clock_is_set(when: float, by_s: float) -> list[str]:
    """The model loads for 30 s at 100 W, and trains for 14 s at 600 W. Then the GPU is idle for 26 s.

    The clock is set by `by_s` seconds at `when`, in seconds after the first step began. As the instrument does, steps use the
    clock of the time when the first step began, and the seconds that passed since then.
    """
    lines, joules = [f"{BEGAN - 30:.4f},0,uuid,GPU-0"], 5e6
    for tenth in range(-300, 400):
        moment = tenth / 10
        clock = BEGAN + moment + by_s * ((moment >= when) - (when <= 0))
        watts = 600 if 0 <= moment <= 14 else 100
        joules += watts * 0.1
        values = {"power": watts, "utilization": watts / 1000, "energy": round(joules, 3), "memory": 40 * GIB}
        lines += [f"{clock:.4f},0,{what},{value}" for what, value in values.items()]
    return lines


@pytest.mark.parametrize(
    ("when", "by_s", "certain"),
    [
        (-15, -3600, True), (-15, -0.3, True), (-15, 0.3, True), (-2, 3600, False), (-15, -10, False), (-2, -20, False),
        (1, -0.3, True), (1, -3, False), (1, -20, False), (1, 5, False), (1, 3600, False), (7, -2, False), (7, -0.3, True),
        (12, -1, True), (12, 5, True), (12, -5, False), (12, -3600, True), (20, -3, True), (20, -50, True), (20, -15, False),
    ],
)  # fmt: skip
def test_a_clock_that_was_set_mixes_nothing_into_the_steady_state(
    tmp_path: Path, when: float, by_s: float, *, certain: bool
) -> None:
    lines = lines_while_the_clock_is_set(when, by_s)
    numbers = found(trained(sampled(tmp_path, *lines)))
    if certain:
        assert numbers["mean_power_w"].value == pytest.approx(600, rel=0.03)
        assert numbers["integrated_energy_j"].value == pytest.approx(3600, rel=0.03)
        assert numbers["energy_j"].value in (None, pytest.approx(3600, rel=0.06))
    else:
        assert {name for name, number in numbers.items() if number.value is None} == STEADY
        assert "mean_power_w" not in Nvml().devices(tmp_path)[0]
    assert numbers["device_peak_used_bytes"].value == 40 * GIB


@given(st.floats(-29, 39), st.floats(-60, 60))
def test_whenever_a_clock_was_set_the_power_is_right_or_missing(when: float, by_s: float) -> None:
    timeline = parse("\n".join([HEADER, *lines_while_the_clock_is_set(when, by_s), f"# {json.dumps(COST)}"]) + "\n")
    device, window = timeline.devices[0], (BEGAN + 4, BEGAN + 10)
    power = device.mean("power", window) if device.is_certain(window) else None
    assert power is None or power == pytest.approx(600, rel=0.1) or 0 < by_s < 3.5


def test_a_mig_part_has_dashes_that_say_why(tmp_path: Path) -> None:
    kinds = ("power", "utilization", "temperature", "sm_clock", "reasons", "energy")
    numbers = found(trained(sampled(tmp_path, *gpu(0, without=kinds))))
    assert numbers["device_peak_used_bytes"].value == 40 * GIB
    assert {name for name, number in numbers.items() if number.value is None} == STEADY
    assert all("NVML does not report it for every GPU" in numbers[name].why_missing for name in STEADY)


def test_one_device_that_does_not_say_makes_the_sum_a_dash(tmp_path: Path) -> None:
    trained(sampled(tmp_path, *gpu(0), *gpu(1, without=["energy"])))
    numbers = values(tmp_path)
    assert numbers["energy_j"] is numbers["energy_per_real_token_j"] is None
    assert numbers["integrated_energy_j"] == pytest.approx(7200, rel=1e-3)
    first, second = Nvml().devices(tmp_path)
    assert "energy_j" in first and "energy_j" not in second


def test_a_short_steady_state_has_power_but_no_energy(tmp_path: Path) -> None:
    numbers = found(trained(sampled(tmp_path, *gpu(0)), [4.0, *[0.05] * 30]))
    assert numbers["mean_power_w"].value == pytest.approx(600, rel=1e-2)
    assert numbers["energy_j"].value is numbers["integrated_energy_j"].value is None
    assert "shorter than 2 s" in numbers["energy_j"].why_missing


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no GPU was watched"),
        ("", "the sampler wrote nothing"),
        ("NVML cannot be used: Driver Not Loaded\n", "NVML cannot be used: Driver Not Loaded"),
    ],
)
def test_no_samples_are_one_dash_that_says_why(tmp_path: Path, text: str | None, reason: str) -> None:
    trained(tmp_path)
    if text is not None:
        (tmp_path / SAMPLES).write_text(text, encoding="utf-8")
    (number,) = Nvml().measurements(tmp_path)
    assert (number.name, number.value) == ("device_peak_used_bytes", None)
    assert reason in number.why_missing
    assert Nvml().devices(tmp_path) == [] == Nvml().warnings(tmp_path)


def test_a_lost_gpu_is_said(tmp_path: Path) -> None:
    lost = [line for line in gpu(0) if float(line.split(",")[0]) < BEGAN + 6]
    sampled(tmp_path, *lost, f"{BEGAN + 6:.4f},0,lost,GPU is lost", *gpu(1))
    assert Nvml().warnings(trained(tmp_path)) == [Caveat(detail="GPU GPU-0 was lost during the run: GPU is lost")]
    numbers = values(tmp_path)
    assert numbers["device_peak_used_bytes"] == 40 * GIB
    assert numbers["energy_j"] is numbers["integrated_energy_j"] is None
    assert "device_residue_bytes" not in numbers


def test_a_killed_sampler_is_said(tmp_path: Path) -> None:
    (caveat,) = Nvml().warnings(trained(sampled(tmp_path, *gpu(0), cost=None)))
    assert caveat.detail.startswith(f"{SAMPLES}: the sampler ended before the run")
    assert {"device_residue_bytes", "monitor_cpu_s", "nvml_period_s"}.isdisjoint(values(tmp_path))
    assert {"device_residue_bytes", "device_peak_used_bytes"}.isdisjoint(Nvml().devices(tmp_path)[0])
    assert found(tmp_path)["device_peak_used_bytes"].why_missing == (
        f"{SAMPLES}: the sampler ended before the run, so the memory after its last reading is unknown"
    )


@pytest.mark.parametrize(("worst_s", "is_number"), [(0.9, True), (1.5, True), (5.0, False)])
def test_a_sampler_that_stood_still(tmp_path: Path, worst_s: float, is_number: bool) -> None:
    sampled(trained(tmp_path), *gpu(0), *gpu(1), cost=COST | {"worst_period_s": worst_s})
    numbers, sentence = found(tmp_path), f"{SAMPLES}: the sampler stood still for {worst_s:g} s"
    assert (numbers["device_peak_used_bytes"].value is not None) is is_number
    if is_number:
        warned = [Caveat(detail=f"{sentence}, so the peak may be higher")] if worst_s > 1 else []
        assert Nvml().warnings(tmp_path) == warned
    else:
        peaks = [name for name, number in numbers.items() if number.value is None]
        assert peaks == ["device_peak_used_bytes", "device_mean_peak_used_bytes", "device_peak_imbalance"]
        assert {numbers[name].why_missing for name in peaks} == {f"{sentence}, 42% of the time"}
        assert Nvml().warnings(tmp_path) == []


@pytest.mark.parametrize(("since", "is_number"), [(4.2, False), (9.9, True)])
def test_memory_that_could_not_be_read_from_some_moment(tmp_path: Path, since: float, is_number: bool) -> None:
    lines = [line for line in gpu(0) if ",memory," not in line or float(line.split(",")[0]) < BEGAN + since]
    sampled(trained(tmp_path), *lines, f"{BEGAN + since:.4f},0,failed,memory: Unknown Error", *gpu(1))
    peak, why = found(tmp_path)["device_peak_used_bytes"], "GPU GPU-0 was not read all the time (memory: Unknown Error)"
    assert peak.value == (40 * GIB if is_number else None)
    if is_number:
        assert Nvml().warnings(tmp_path) == [Caveat(detail=f"{SAMPLES}: {why}, so the peak may be higher")]
    else:
        assert peak.why_missing == f"{SAMPLES}: {why}, 58% of the time"
        assert "device_peak_used_bytes" not in Nvml().devices(tmp_path)[0]


def test_memory_that_was_never_read_is_a_dash_that_says_why(tmp_path: Path) -> None:
    sampled(trained(tmp_path), *gpu(0), *(line for line in gpu(1) if ",memory," not in line))
    peak = found(tmp_path)["device_peak_used_bytes"]
    assert (peak.value, peak.why_missing) == (None, f"{SAMPLES}: the memory of GPU GPU-1 was never read")


def throttled(by: str) -> Caveat:
    return Caveat(kind=CaveatKind.THROTTLED, detail=by)


def test_throttling_of_more_than_a_twentieth_is_said(tmp_path: Path) -> None:
    cap = f"{BEGAN + 5:.4f},1,reasons,68"
    free = f"{BEGAN + 6:.4f},1,reasons,0"
    quiet = gpu(1, without=["reasons"])
    first = f"{BEGAN - 1:.4f},1,reasons,4"
    steady = f"{BEGAN + 4:.4f},1,reasons,0"
    lines = [*gpu(0), *quiet, first, steady, cap, *_again(cap, 1.0), free, *_again(free, 4.5)]
    trained(sampled(tmp_path, *sorted(lines, key=lambda line: float(line.partition(",")[0]))))
    numbers = values(tmp_path)
    assert numbers["throttled_share"] == pytest.approx(1 / 6, rel=1e-3)
    assert numbers["throttle_reasons"] == "power cap 17%, heat (hardware) 17%"
    assert Nvml().warnings(tmp_path) == [throttled("heat (hardware) 17%")], "a power cap is daily life"
    rows = Nvml().devices(tmp_path)
    assert (rows[0]["throttled_share"], "throttle_reasons" in rows[0]) == (0.0, False)
    assert rows[1]["throttled_share"] == pytest.approx(1 / 6, rel=1e-3)


def _again(line: str, seconds: float) -> list[str]:
    moment, rest = line.split(",", 1)
    return [f"{float(moment) + tenth / 10:.4f},{rest}" for tenth in range(1, round(seconds * 10))]


def test_a_little_throttling_is_a_number_and_no_sentence(tmp_path: Path) -> None:
    lines = gpu(0)
    after = next(place for place, line in enumerate(lines) if float(line.partition(",")[0]) > BEGAN + 5.05)
    trained(sampled(tmp_path, *lines[:after], f"{BEGAN + 5.05:.4f},0,reasons,64", *lines[after:]))
    assert 0 < values(tmp_path)["throttled_share"] < 0.05
    assert Nvml().warnings(tmp_path) == []


def test_a_power_cap_is_a_number_and_no_sentence(tmp_path: Path) -> None:
    trained(sampled(tmp_path, *gpu(0, reasons=4)))
    assert values(tmp_path)["throttled_share"] == pytest.approx(1)
    assert values(tmp_path)["throttle_reasons"] == "power cap 100%"
    assert Nvml().warnings(tmp_path) == []


def test_each_reason_is_told_by_the_device_that_it_held_longest(tmp_path: Path) -> None:
    trained(sampled(tmp_path, *gpu(0, reasons=0x20), *gpu(1, reasons=0x80 | 0x20)))
    assert set(Nvml().warnings(tmp_path)) == {throttled("heat (software) 100%"), throttled("power brake 100%")}


def test_who_else_was_there_is_said(tmp_path: Path) -> None:
    later = f"{BEGAN + 3:.4f},1,processes,foreign:77:python own:5 unknown:9"
    trained(sampled(tmp_path, *gpu(0, before="foreign:12:Xorg"), *gpu(1), later))
    words = "process 12 (Xorg), process 77 (python)"
    assert values(tmp_path)["contaminated"] == words
    assert Nvml().warnings(tmp_path) == [Caveat(kind=CaveatKind.CONTAMINATED, detail=words)]
    assert [row["contaminated"] for row in Nvml().devices(tmp_path)] == ["process 12 (Xorg)", "process 77 (python)"]


# The period


def test_the_period_is_10_ms_until_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PERIOD_VARIABLE, raising=False)
    assert period() == PERIOD_S == 0.01
    monkeypatch.setenv(PERIOD_VARIABLE, "0.002")
    assert period() == 0.002


@pytest.mark.parametrize("text", ["", "10ms", "0", "-1", "0.0001", "60", "nan", "inf"])
def test_a_period_that_is_none_is_a_sentence(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(PERIOD_VARIABLE, text)
    with pytest.raises(
        LaunchError, match=rf"{PERIOD_VARIABLE}={text}: the period is invalid; give 0\.001 to 1 seconds"
    ):
        period()


# What the monitors took, added up


def test_the_cost_of_all_monitors_is_one_number(tmp_path: Path) -> None:
    trained(sampled(tmp_path, *gpu(0)))
    (tmp_path / nvidia_smi.COST).write_text('{"cpu_s": 2.25, "rss_bytes": 5000000}')
    watching = [(name, MONITORS[name]) for name in ("nvidia_smi", "nvml")]
    read = collect.read(experiment(device=Device.CUDA), tmp_path, watching=watching, gpus=())
    numbers: dict[str, list[Measurement]] = {}
    for number in read.measurements:
        numbers.setdefault(number.name, []).append(number)
    (cpu,), (rss,) = numbers["monitor_cpu_s"], numbers["monitor_rss_bytes"]
    assert (cpu.value, rss.value) == (3.0, 25_000_000)
    assert cpu.source == f"{nvidia_smi.COST} + {SAMPLES}"
    assert [row["gpu"] for row in read.devices] == ["GPU-0"]
    assert numbers["device_peak_used_bytes"][0].value == 40 * GIB
    assert not any(isinstance(n.value, float) and not math.isfinite(n.value) for n in read.measurements)


@pytest.mark.parametrize("text", [None, "", "{", "{}", "[]", '{"cpu_s": "much", "rss_bytes": null}', "[" * 100_000])
def test_a_monitor_whose_cost_is_not_known_adds_nothing(tmp_path: Path, text: str | None) -> None:
    trained(sampled(tmp_path, *gpu(0)))
    if text is not None:
        (tmp_path / nvidia_smi.COST).write_text(text)
    watching = [(name, MONITORS[name]) for name in ("nvidia_smi", "nvml")]
    read = collect.read(experiment(device=Device.CUDA), tmp_path, watching=watching, gpus=())
    assert [number.value for number in read.measurements if number.name == "monitor_cpu_s"] == [0.75]


def test_dashes_become_one_warning_for_each_reason(tmp_path: Path) -> None:
    trained(sampled(tmp_path, *gpu(0)), [4.0, 0.1])
    read = collect.read(experiment(device=Device.CUDA), tmp_path, watching=[("nvml", Nvml())], gpus=())
    (missing,) = [caveat for caveat in read.warnings if caveat.kind is CaveatKind.MISSING]
    assert missing.detail.startswith("energy_j, ") and missing.detail.endswith(
        " (the run had no steady state, or its time is unknown)"
    )


def judged(run_dir: Path) -> tuple[dict[str, Measurement], collect.Findings]:
    gpus = [Gpu(index=place, uuid=f"GPU-{place}", name="H100", memory_bytes=80 * GIB) for place in (0, 1)]
    read = collect.read(experiment(device=Device.CUDA), run_dir, watching=[("nvml", Nvml())], gpus=gpus, wall_s=10.0)
    return {number.name: number for number in read.measurements}, read


def test_a_peak_above_the_memory_of_the_gpu_is_missing_with_its_reason(tmp_path: Path) -> None:
    trained(sampled(tmp_path, *gpu(0, peak=2**60), *gpu(1)))
    numbers, read = judged(tmp_path)
    why = "device_peak_used_bytes is 1.15292e+18, and must be at most the 80 GiB of the GPU"
    peak = numbers["device_peak_used_bytes"]
    assert (peak.value, peak.why_missing) == (None, f"{SAMPLES}: {why}")
    assert numbers["device_mean_peak_used_bytes"].value is None and "device_peak_imbalance" not in numbers
    assert ["device_peak_used_bytes" in row for row in read.devices] == [False, True]
    assert any(why in caveat.detail for caveat in read.warnings if caveat.kind is CaveatKind.MISSING)
    assert numbers["energy_j"].value and read.contradiction is None


@pytest.mark.parametrize(
    ("reading", "name", "why"),
    [
        ({"energy": 5e6}, "energy_j", "energy_j is 0, and must be above 0, because a GPU uses energy all the time"),
        ({"power": 0}, "mean_power_w", "mean_power_w is 0, and must be above 0, because"),
        ({"power": -5}, "mean_power_w", "mean_power_w is -5, and "),
        ({"utilization": 1.4}, "gpu_utilization", "gpu_utilization is 1.4, and must be at most 1"),
        (
            {"sm_clock": 0},
            "sm_clock_mhz",
            "sm_clock_mhz is 0, and must be above 0, because a GPU that works has a clock",
        ),
        ({"sm_clock": -1}, "sm_clock_mhz", "sm_clock_mhz is -1, and cannot be below 0"),
    ],
)
def test_an_impossible_reading_is_missing_with_its_reason(
    tmp_path: Path, reading: dict[str, float], name: str, why: str
) -> None:
    trained(sampled(tmp_path, *gpu(0, **reading)))
    numbers, read = judged(tmp_path)
    assert numbers[name].value is None
    assert numbers[name].why_missing.startswith(f"{SAMPLES}: {why}")
    assert all(name not in row for row in read.devices)
    assert numbers["device_peak_used_bytes"].value == 40 * GIB


def empty_giant(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (empty_giant, "the file exceeds the limit of {limit} MiB"),
        (os.mkfifo, "it is not a regular file; links are not followed"),
    ],
    ids=["giant", "pipe"],
)
@pytest.mark.parametrize(
    ("name", "file", "limit"),
    [("nvml", SAMPLES, 256), ("nvidia_smi", memory_logs.SAMPLES, 64), ("hf_memory", "worker-rank0.json", 16)],
)
def test_a_file_that_is_not_read_is_a_warning_and_no_lost_run(
    name: str, file: str, limit: int, make: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    """The training process may write what it likes into its folder."""
    make(tmp_path / file)
    read = collect.read(experiment(device=Device.CUDA), tmp_path, watching=[(name, MONITORS[name])], gpus=())
    (missing,) = [caveat for caveat in read.warnings if file in caveat.detail]
    assert missing.detail.endswith(f"{file}: {why.format(limit=limit)})")

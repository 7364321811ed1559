"""Samples of an NVML sampler as values: peaks, energy and throttling in a window, from texts such as one writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from factories.cases import cases, document
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measure.gpu_timeline import REASONS, Device, Timeline, Window, highest, mean, total
from orchestrator.measure.gpu_timeline.sampler_file import HEADER, parse
from orchestrator.measure.metrics import METRICS
from orchestrator.monitors import nvml_sampler

T0 = 1_700_000_000.0
COST = '# {"cpu_s": 1.5, "rss_bytes": 20000000, "period_s": 0.010002, "worst_period_s": 0.03}'


def at(seconds: float, place: int, what: str, value: Any) -> str:
    return f"{T0 + seconds:.4f},{place},{what},{value}"


def sampled(*lines: str, cost: str | None = COST) -> Timeline:
    return parse("\n".join([HEADER, *lines, *([cost] if cost else [])]) + "\n")


def window(begin: float, end: float) -> Window:
    return T0 + begin, T0 + end


def only(*lines: str, cost: str | None = COST) -> Device:
    (device,) = sampled(*lines, cost=cost).devices.values()
    return device


def every(step_s: float, until_s: float, what: str, value: Callable[[float], Any]) -> Iterable[str]:
    return (at(i * step_s, 0, what, value(i * step_s)) for i in range(round(until_s / step_s) + 1))


def test_both_ends_agree_on_the_format() -> None:
    assert HEADER == nvml_sampler.HEADER
    assert {"memory", "power", "energy", "reasons", "processes", "utilization", "sm_clock", "temperature"} == {
        *nvml_sampler.READERS
    }
    assert {"monitor_cpu_s", "monitor_rss_bytes", "nvml_period_s"} <= METRICS.keys()


def test_less_memory_than_before_is_no_negative_residue() -> None:
    assert only(at(0, 0, "memory", 500), at(1, 0, "memory", 100)).residue() == 0


@pytest.mark.parametrize("back_s", [1, 30, 3600])
@pytest.mark.parametrize("when", [5, 10, 19])
def test_a_clock_that_goes_back_moves_no_reading_before_the_run(when: int, back_s: int) -> None:
    """1 GiB before and after the run, and 60 GiB in it."""
    used = [1 if second < 2 or second > 18 else 60 for second in range(21)]
    lines = [at(s - (back_s if s >= when else 0), 0, "memory", value * 2**30) for s, value in enumerate(used)]
    device = only(*lines)
    assert device.baseline() == 2**30 and device.residue() in (0, None)


@pytest.mark.parametrize("value", ["N/A", "[N/A]", "", "None", "nan", "inf", "-inf", "1e999"])
def test_what_is_no_number_is_no_reading(value: str) -> None:
    device = only(at(0, 0, "memory", 10), at(1, 0, "memory", value), at(1, 0, "power", value), at(2, 0, "memory", 20))
    assert list(device.points["memory"]) == [(T0, 10), (T0 + 2, 20)]
    assert device.mean("power", window(0, 2)) is None


def test_over_devices_one_that_does_not_say_takes_the_number_away() -> None:
    assert (mean([1.0, 3.0]), highest([1.0, 3.0]), total([1.0, 3.0])) == (2.0, 3.0, 4.0)
    for over in (mean, highest, total):
        assert over([1.0, None]) is over([]) is over([None]) is None
    assert (mean([0.0, 0.0]), highest([0.0]), total([0.0])) == (0.0, 0.0, 0.0)


def test_a_foreign_process_is_a_stranger_whenever_it_comes() -> None:
    device = only(
        at(0, 0, "processes", ""),
        at(1, 0, "processes", "own:10"),
        at(2, 0, "processes", "foreign:77:python own:10 own:11"),
        at(3, 0, "processes", "own:10"),
    )
    assert device.strangers() == ("foreign:77:python",)


def test_processes_of_other_namespaces_are_strangers_only_if_they_were_there_before() -> None:
    """In a container the run's own processes carry numbers that say nothing."""
    later = only(at(0, 0, "processes", ""), at(1, 0, "processes", "unknown:4242 leaving:9"))
    assert later.strangers() == ()
    before = only(at(0, 0, "processes", "unknown:1000"), at(1, 0, "processes", "unknown:1000 unknown:4242"))
    assert before.strangers() == ("unknown:1000",)


def test_a_process_of_the_run_is_never_a_stranger() -> None:
    assert only(at(0, 0, "processes", "own:1 leaving:2")).strangers() == ("leaving:2",)


def test_throttling_is_a_share_of_the_window_and_of_each_reason() -> None:
    idle, user, cap, heat, slowdown, brake = 0x1, 0x2, 0x4, 0x40, 0x8, 0x80
    changes = {0: cap, 10: idle | user, 12: cap, 14: cap | heat | slowdown, 15: 0, 20: brake}  # the window is 10 to 20
    device = only(
        *every(1, 25, "reasons", lambda t: [bits for since, bits in changes.items() if since <= t][-1]),
    )
    found = device.throttled(window(10, 20))
    assert found is not None
    share, reasons = found
    assert share == pytest.approx(0.3)
    assert reasons == pytest.approx({"power cap": 0.3, "heat (hardware)": 0.1, "hardware slowdown": 0.1})


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x2, 0x3, 0x10, 0x100])
def test_idle_and_set_clocks_are_no_throttling(bits: int) -> None:
    assert only(at(0, 0, "reasons", bits), at(1, 0, "reasons", bits)).throttled(window(0, 1)) == (0.0, {})


@pytest.mark.parametrize("bit", REASONS)
def test_each_reason_has_a_name(bit: int) -> None:
    assert only(at(0, 0, "reasons", bit | 0x1)).throttled(window(0, 1)) == (1.0, {REASONS[bit]: 1.0})


def stepped(power_w: float, phase_s: float) -> Iterable[str]:
    """A counter that moves ten times a second, read twice a second, and the power that moves it."""
    yield from every(0.5, 20, "energy", lambda t: f"{math.floor((t + phase_s) * 10) / 10 * power_w:.3f}")
    yield from every(0.1, 20, "power", lambda _: power_w)


@pytest.mark.parametrize("phase_s", [0.0, 0.03, 0.099])
@pytest.mark.parametrize(("length_s", "within"), [(2.0, 0.05), (5.0, 0.02), (15.0, 0.007)])
def test_the_stepped_counter_and_integrated_power_agree(phase_s: float, length_s: float, within: float) -> None:
    device = only(*stepped(650.0, phase_s))
    for begin in (1.0, 1.07, 2.26, 3.499):
        inside = window(begin, begin + length_s)
        assert device.integrated_energy(inside) == pytest.approx(650 * length_s, rel=1e-6)
        assert device.energy(inside) == pytest.approx(650 * length_s, rel=within)


def test_a_window_too_short_for_the_counter_gives_no_energy() -> None:
    device = only(*stepped(650.0, 0.0))
    assert device.energy(window(3, 4.9)) is device.integrated_energy(window(3, 4.9)) is None
    assert device.mean("power", window(3, 4.9)) == pytest.approx(650)


@pytest.mark.parametrize("reset_at", [3.25, 5.0, 7.75])
def test_a_counter_that_begins_anew_gives_no_energy(reset_at: float) -> None:
    """Also where it ends above its first value, and where the edge itself lies between the two."""
    restarted = every(0.5, 10, "energy", lambda t: 100 * t if t < reset_at else 300 * (t - reset_at))
    device = only(*restarted)
    assert device.energy(window(3.1, 7.9)) is None
    assert device.energy(window(0, 2.5)) == pytest.approx(250)


def test_energy_needs_readings_at_both_edges() -> None:
    device = only(*every(0.5, 10, "energy", lambda t: 100 * t), *every(0.1, 10, "power", lambda _: 100))
    assert device.energy(window(4, 10.4)) == pytest.approx(600)
    assert device.energy(window(4, 11)) is device.energy(window(-1, 4)) is None
    assert device.integrated_energy(window(4, 10.4)) == pytest.approx(640)
    assert device.integrated_energy(window(4, 12)) is device.integrated_energy(window(-1, 4)) is None


def test_a_gpu_that_fell_off_says_so_and_the_others_go_on() -> None:
    readings = [line for t in range(11) for line in (at(t, 1, "memory", 10 + t), at(t, 1, "power", 300))]
    found = sampled(
        at(0, 0, "memory", 10),
        *(at(t, 0, "power", 500) for t in range(4)),
        at(3, 0, "memory", 70_000),
        at(3.1, 0, "lost", "GPU is lost; reset it"),
        *readings,
    )
    gone, other = found.devices.values()
    assert (gone.lost, other.lost) == ("GPU is lost; reset it", None)
    assert (gone.peak(), gone.residue()) == (70_000, None)
    assert other.residue() == 10
    assert gone.mean("power", window(0, 4)) == pytest.approx(500)
    assert gone.mean("power", window(0, 10)) is None
    assert gone.integrated_energy(window(0, 10)) is None, "its last power would stand for the seven seconds after it"
    assert gone.mean("power", window(6, 10)) is None
    assert other.integrated_energy(window(0, 10)) == pytest.approx(3000)


def test_a_last_line_that_was_cut_off_is_left_out() -> None:
    text = "\n".join([HEADER, at(0, 0, "memory", 100), at(1, 0, "memory", 123_456)])
    assert parse(text + "\n").devices[0].peak() == 123_456
    for cut in range(1, len(at(1, 0, "memory", 123_456))):
        assert parse(text[:-cut]).devices[0].peak() == 100


@pytest.mark.parametrize("cut", [1, 10, len(COST) - 1])
def test_a_closing_line_that_was_cut_off_is_no_cost(cut: int) -> None:
    found = parse("\n".join([HEADER, at(0, 0, "memory", 1), COST])[:-cut])
    assert (found.cost, found.problem) == ({}, None)


@pytest.mark.parametrize("garbage", document("gpu_timeline/garbage_between_the_lines_is_left_out"))
def test_garbage_between_the_lines_is_left_out(garbage: str) -> None:
    found = sampled(at(0, 0, "memory", 1), garbage, at(1, 0, "memory", 2))
    assert (found.devices[0].peak(), found.devices[0].uuid, found.cost["cpu_s"]) == (2, None, 1.5)


def test_what_a_library_says_before_and_after_does_no_harm() -> None:
    """Warnings go to the same file, such as that of the package `pynvml` beside nvidia-ml-py."""
    said = "/x/pynvml.py:1: FutureWarning: The pynvml package is deprecated.\n  import pynvml\n"
    found = parse(said + "\n".join([HEADER, at(0, 0, "memory", 7), COST]) + "\nbye\n")
    assert (found.problem, found.devices[0].peak(), found.cost["cpu_s"]) == (None, 7, 1.5)
    assert parse(said + "NVML cannot be used: no driver\n").problem == "NVML cannot be used: no driver"


@pytest.mark.parametrize(
    "said", ["loading", "\x1b]0;python\x07", "bar 10%\r", "a\nb", "\0", "0,0,memory,9", "# {}", HEADER]
)
def test_text_without_a_line_end_before_the_header_hides_no_sample(said: str) -> None:
    found = parse(said + "\n".join([HEADER, at(0, 0, "memory", 7), COST]) + "\n")
    assert (found.problem, found.devices[0].peak(), found.cost["cpu_s"]) == (None, 7, 1.5)


@pytest.mark.parametrize(("text", "problem"), cases("gpu_timeline/a_file_without_a_reading_says_why"))
def test_a_file_without_a_reading_says_why(text: str, problem: str) -> None:
    found = parse(text)
    assert found.problem == problem
    assert not any(device.points for device in found.devices.values())


def test_a_clock_that_was_set_back_keeps_time_in_order() -> None:
    device = only(at(0, 0, "power", 100), at(2, 0, "power", 300), at(1, 0, "power", 200), at(3, 0, "power", 300))
    assert device.mean("power", window(0, 3)) == pytest.approx(200)


def test_a_value_holds_into_the_window_from_before_it() -> None:
    device = only(*every(1, 11, "power", lambda t: 300 if t >= 10 else 100))
    assert device.mean("power", window(4.5, 11)) == pytest.approx((5.5 * 100 + 300) / 6.5)
    assert device.highest("power", window(4.5, 9.5)) == 100


def test_a_sampler_that_stood_still_is_no_number_for_what_it_did_not_see() -> None:
    """A hole of eighty seconds, and an end before the window's: neither is filled with the last value."""
    for what in ("power", "reasons", "temperature"):
        device = only(*every(0.5, 10, what, lambda _: 4), *(at(90 + t, 0, what, 4) for t in range(11)))
        assert device.mean(what, window(5, 95)) is device.highest(what, window(5, 95)) is None
        assert device.mean(what, window(0, 10)) == 4
        assert device.mean(what, window(92, 150)) is None
    assert device.throttled(window(5, 95)) is None
    assert device.integrated_energy(window(5, 95)) is None


# Properties

gaps = st.floats(min_value=0.001, max_value=5)
values = st.one_of(st.just(0.0), st.floats(min_value=1e-6, max_value=1e12))
series = st.lists(st.tuples(gaps, values), min_size=1, max_size=30)
moments = st.floats(min_value=-10, max_value=160)


def as_lines(what: str, steps: list[tuple[float, float]]) -> list[str]:
    now, lines = 0.0, []
    for gap, value in steps:
        lines.append(at(now, 0, what, value))
        now += gap
    return lines


@given(series, moments, moments)
def test_a_mean_lies_between_the_lowest_and_the_highest(steps: list[tuple[float, float]], a: float, b: float) -> None:
    inside = window(min(a, b), max(a, b))
    device = only(*as_lines("power", steps))
    found = device.mean("power", inside)
    held = [value for _, _, value in device.held("power", inside)]
    known = sum(until - start for start, until, _ in device.held("power", inside))
    if found is None:
        assert known == 0 or inside[1] - inside[0] - known > 0.5 * 0.999
    else:
        slack = 1e-9 * max(held)
        assert min(held) - slack <= found <= max(held) + slack
        assert device.highest("power", inside) == max(held)


@given(series, moments, moments)
def test_what_held_lies_inside_the_window_and_never_overlaps(
    steps: list[tuple[float, float]], a: float, b: float
) -> None:
    inside = window(min(a, b), max(a, b))
    spans = list(only(*as_lines("power", steps)).held("power", inside))
    edges = [edge for start, until, _ in spans for edge in (start, until)]
    assert edges == sorted(edges)
    assert all(inside[0] <= edge <= inside[1] for edge in edges)


@given(st.lists(st.tuples(st.floats(0.1, 0.9), st.floats(0, 1e4)), min_size=20, max_size=60), st.data())
def test_energy_is_additive_over_adjacent_windows(steps: list[tuple[float, float]], data: st.DataObject) -> None:
    counter, rising = 0.0, []
    for gap, joules in steps:
        rising.append((gap, counter))
        counter += joules
    length = sum(gap for gap, _ in steps[:-1])
    if length < 4.5:
        return
    begin = data.draw(st.floats(0, length - 4.5))
    end = data.draw(st.floats(begin + 4.5, length))
    middle = data.draw(st.floats(begin + 2.1, end - 2.1))
    device = only(*as_lines("energy", rising))
    whole, first, second = (device.energy(window(*edges)) for edges in ((begin, end), (begin, middle), (middle, end)))
    assert whole is not None and first is not None and second is not None
    assert min(first, second) >= 0
    assert first + second == pytest.approx(whole, rel=1e-6, abs=1e-3)


@given(st.lists(st.tuples(gaps, st.integers(0, 0x3FF)), min_size=1, max_size=30), moments, moments)
def test_shares_lie_between_0_and_1(steps: list[tuple[float, int]], a: float, b: float) -> None:
    found = only(*as_lines("reasons", steps)).throttled(window(min(a, b), max(a, b)))
    if found is not None:
        share, reasons = found
        assert 0 <= share <= 1
        assert all(0 < part <= share for part in reasons.values())
        assert share <= sum(reasons.values()) + 1e-9


fields = st.one_of(
    st.sampled_from(
        ["0", "1", "1.5", "-1", "nan", "1e999", "9" * 500, "memory", "energy", "reasons", "uuid", "processes"]
    ),
    st.text(max_size=8),
)
files = st.one_of(
    st.text(),
    st.lists(st.one_of(st.lists(fields, max_size=6).map(",".join), st.text(max_size=12).map("# {".__add__))).map(
        lambda lines: "\n".join([HEADER, *lines])
    ),
)


@given(files, st.booleans())
def test_no_text_makes_it_fail(text: str, whole: bool) -> None:
    found = parse(text + ("\n" if whole else ""))
    inside = (0.0, 10.0)
    for device in found.devices.values():
        device.strangers()
        for what in device.points:
            device.mean(what, inside)
        numbers = [device.peak(), device.baseline(), device.residue(), device.energy(inside)]
        assert all(number is None or math.isfinite(number) for number in numbers)
        device.throttled(inside)
        device.integrated_energy(inside)

"""What is drawn of a run over time: thinned without losing a low or a high, true to the run's own numbers, safe with any file."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from factories import campaigns as made_campaigns
from factories.run_folders import BEGAN, worker, write_steps, write_worker
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measure import throughput
from orchestrator.report import series
from orchestrator.report.export.series import of_run

numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
points = st.lists(st.tuples(numbers, numbers), max_size=600)
limits = st.integers(4, 60)
EXPERIMENT = next(made_campaigns.experiments(gpus=(2,)))


@given(points, limits)
def test_a_thinned_series_is_a_part_of_it_in_its_order(whole: list[series.Point], limit: int) -> None:
    thin = series.thin(whole, limit=limit)
    rest = iter(whole)
    assert len(thin) <= limit
    assert all(point in rest for point in thin)  # `in` moves the iterator on: a subsequence


@given(points, limits)
def test_ends_lows_and_highs_are_kept(whole: list[series.Point], limit: int) -> None:
    thin = series.thin(whole, limit=limit)
    if not whole:
        assert thin == ()
        return
    values, kept = [y for _, y in whole], [y for _, y in thin]
    assert (min(kept), max(kept)) == (min(values), max(values))
    assert (thin[0], thin[-1]) == (whole[0], whole[-1])


@given(points)
def test_a_short_series_stays_as_it_is(whole: list[series.Point]) -> None:
    assert series.thin(whole, limit=max(4, len(whole))) == tuple(whole)


@given(st.integers(300, 2000), st.data())
def test_a_single_spike_survives_wherever_it_is(length: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, length - 1))
    whole = [(float(n), 9.0 if n == at else 1.0) for n in range(length)]
    assert (float(at), 9.0) in series.thin(whole)


def test_fewer_than_four_points_hold_no_series() -> None:
    with pytest.raises(ValueError, match="4 points or more"):
        series.thin([(0.0, 0.0)], limit=3)


def test_the_window_is_the_one_that_numbers_are_of(tmp_path: Path) -> None:
    chance = random.Random(1)
    made_campaigns.write_series(tmp_path, EXPERIMENT, chance)
    for rank in (0, 1):
        write_worker(tmp_path, worker(rank, world_size=2))
    window = throughput.steady_window(tmp_path)
    found = series.read(tmp_path, discarded_steps=1)
    assert window is not None
    assert found.window == pytest.approx([moment - BEGAN for moment in window], abs=0.01)
    assert found.steps is not None
    assert found.steps.cut == 1
    assert found.problem is None


def test_the_clock_of_the_gpus_starts_with_the_first_step(tmp_path: Path) -> None:
    made_campaigns.write_series(tmp_path, EXPERIMENT, random.Random(1))
    first = steps_of(tmp_path)[0]
    found = series.read(tmp_path, discarded_steps=1)
    assert found.from_first_step
    for device in found.devices:
        before = [point for point in device.power_w if point[0] < 0]
        assert before[0][0] == pytest.approx(BEGAN - 12 - (first["t"] - first["s"]), abs=0.01)
        assert len(before) <= series.POINTS_BEFORE
        assert len(before) < len(device.power_w) <= series.POINTS_BEFORE + series.POINTS


@pytest.mark.parametrize("shift_s", [-3600.0, 3600.0, None])
def test_without_a_first_step_among_the_readings_the_clock_starts_with_them(
    tmp_path: Path, shift_s: float | None
) -> None:
    """The clock of another host may be an hour off, and a run may have no steps."""
    made_campaigns.write_series(tmp_path, EXPERIMENT, random.Random(1))
    lines = [] if shift_s is None else [{**step, "t": step["t"] + shift_s} for step in steps_of(tmp_path)]
    (tmp_path / "steps-rank0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "steps-rank1.jsonl").unlink()
    found = series.read(tmp_path, discarded_steps=1)
    assert not found.from_first_step
    assert {device.power_w[0][0] for device in found.devices} == {0.0}


def steps_of(run_dir: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run_dir / "steps-rank0.jsonl").read_text().splitlines()]


def test_the_steps_of_all_ranks_their_warm_up_and_their_spikes(tmp_path: Path) -> None:
    plain = [0.30 + 0.001 * (n % 3) for n in range(40)]
    slow = [seconds * 1.1 for seconds in plain]
    plain[0] = slow[0] = 2.0
    slow[25] = 0.9
    write_steps(tmp_path, 0, plain)
    write_steps(tmp_path, 1, slow)
    found = series.read(tmp_path, discarded_steps=1).steps
    assert found is not None
    assert (found.ranks, found.steps, found.cut) == (2, 40, 1)
    assert found.first == pytest.approx((1.0, 2.0))
    assert found.spikes == (pytest.approx((26.0, 0.9)),)
    assert found.median_s == pytest.approx(0.331, abs=0.002)


def test_a_trackers_charts_show_the_same_steps(tmp_path: Path) -> None:
    """Of two ranks that take turns in being late, and of a third that has left nothing."""
    ranks = [[0.30, 0.33, 0.30, 0.27] * 10, [0.32, 0.28, 0.32, 0.28] * 10]
    for rank, seconds in enumerate(ranks):
        write_steps(tmp_path, rank, seconds, wait_s=0.1 * rank)
    (tmp_path / "steps-rank2.jsonl").touch()
    found, shown = series.read(tmp_path, discarded_steps=1).steps, of_run(tmp_path)
    assert found is not None
    assert [(point.step, point.value) for point in shown["steps/step_time_s"]] == [*found.points]
    assert [point.value for point in shown["steps/data_wait_s"]][:3] == pytest.approx([0.1, 0.1, 0.07], abs=1e-6)
    assert [value for _, value in found.points] == pytest.approx([0.32, 0.31, 0.30, 0.27] * 10, abs=1e-6)
    assert found.ranks == 2


def test_without_a_steady_state_there_are_only_the_steps(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, [0.3] * 5)
    for discarded in (None, -1, 5, 10**9):
        found = series.read(tmp_path, discarded_steps=discarded)
        assert found.steps is not None
        assert (found.steps.cut, found.steps.median_s, found.steps.spikes, found.window) == (None, None, (), None)


def test_an_empty_folder_has_no_series(tmp_path: Path) -> None:
    found = series.read(tmp_path, discarded_steps=1)
    assert (found.steps, found.devices, found.problem) == (None, (), "no GPU was watched")
    assert series.size(tmp_path) == 0


@pytest.mark.parametrize("size", [series.MAX_BYTES + 1, 2**40])
def test_what_is_too_large_is_not_read(tmp_path: Path, size: int) -> None:
    write_steps(tmp_path, 0, [0.3] * 20)
    with (tmp_path / "samples-nvml.csv").open("wb") as file:
        file.truncate(size)  # a hole: it takes no disk
    found = series.read(tmp_path, discarded_steps=1)
    assert found.steps is None
    assert "24 MiB" in (found.problem or "")


def test_no_pipe_and_no_link_is_followed(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere.csv"
    made_campaigns.write_samples(tmp_path, EXPERIMENT, random.Random(0))
    (tmp_path / "samples-nvml.csv").rename(secret)
    (tmp_path / "samples-nvml.csv").symlink_to(secret)
    os.mkfifo(tmp_path / "steps-rank0.jsonl")
    found = series.read(tmp_path, discarded_steps=1)
    assert (found.steps, found.devices) == (None, ())
    assert "not a regular file" in (found.problem or "")


HOSTILE = st.one_of(st.floats(), st.integers(-(10**400), 10**400), st.text(max_size=8), st.none(), st.just([[]]))


@given(st.lists(st.fixed_dictionaries({"step": HOSTILE, "t": HOSTILE, "s": HOSTILE, "wait_s": HOSTILE}), max_size=30))
def test_whatever_the_steps_say_can_be_drawn_or_is_left_out(tmp_path_factory, lines: list[dict[str, object]]) -> None:
    folder = tmp_path_factory.mktemp("run")
    text = "\n".join(json.dumps(line) if not isinstance(line["s"], int) else repr(line) for line in lines)
    (folder / "steps-rank0.jsonl").write_text(text, encoding="utf-8", errors="replace")
    samples = "\n".join(f"{line['t']},0,power,{line['s']}" for line in lines)
    (folder / "samples-nvml.csv").write_text(f"time,gpu,what,value\n{samples}\n", encoding="utf-8", errors="replace")
    found = series.read(folder, discarded_steps=0)
    drawn = [found.window, *(device.power_w for device in found.devices)]
    drawn += [(found.steps.points, found.steps.spikes, found.steps.median_s)] if found.steps else []
    json.dumps(drawn, allow_nan=False)


@pytest.mark.parametrize("absurd", [1e308, -1e308, 1e-300])
def test_steps_that_no_sum_can_hold_are_left_out(tmp_path: Path, absurd: float) -> None:
    write_steps(tmp_path, 0, [0.3] * 10 + [absurd] * 20 + [0.3] * 10)
    found = series.read(tmp_path, discarded_steps=1).steps
    assert found is not None
    assert found.steps == (20 if absurd == 1e-300 else 10)
    assert {seconds for _, seconds in found.points} == {0.3}

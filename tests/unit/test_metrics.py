"""The registry: values for people, and the page that is made of it."""

from __future__ import annotations

import pytest
import settings
from factories.cases import cases

from orchestrator.measure.metrics import FACTS, METRICS, SETTINGS, Show, Where, metric, show
from orchestrator.measure.metrics.limits import broken_limit, longer_than_the_run
from orchestrator.report.tables.metrics_page import page


@pytest.mark.parametrize(("name", "value", "text"), cases("metrics/values_are_shown_with_their_unit"))
def test_values_are_shown_with_their_unit(name: str, value: object, text: str) -> None:
    assert show(name, value) == text


def test_every_column_says_what_it_is() -> None:
    for entry in (*METRICS.values(), *FACTS.values()):
        assert entry.label and entry.description.endswith("."), entry.name
    assert all(text.endswith(".") for _, text in SETTINGS.values())
    assert not METRICS.keys() & FACTS.keys()


def test_every_bit_of_the_places_has_a_name() -> None:
    """Python 3.11.2, which Debian 12 has, forgets the others: no column was shown anywhere."""
    assert all(any(place.value == 2**bit for place in Where.__members__.values()) for bit in range(7))


def test_parts_of_a_step_are_seconds_or_shares_and_each_has_its_own_name() -> None:
    parts = [metric for metric in METRICS.values() if metric.step_part]
    assert all(metric.unit == "s" or metric.show is Show.SHARE for metric in parts)
    assert len({metric.step_part for metric in parts} | {"GPU idle", "the rest", ""}) == len(parts) + 3


def test_every_setting_that_the_instrument_reads_has_its_column() -> None:
    """What else is written, tests/integration/conftest.py looks at after the runs of its tests."""
    assert {*settings.BUILT, *settings.PREPARED} - SETTINGS.keys() == set()


def test_an_unknown_name_is_allowed() -> None:
    assert metric("my_metric").label == "my_metric"
    assert metric("my_metric").unit is None


def test_the_page_in_docs_is_the_registry(golden) -> None:
    golden("../../docs/metrics.md", page())


@pytest.mark.parametrize(
    ("name", "value", "possible"),
    [
        ("core_wait_share", 1.08, True),  # several threads of a rank waited at the same time
        ("core_wait_share", -0.1, False),
        ("data_wait_share", 1.08, False),
        ("tokens_per_s", 0.0, False),
        ("train_loss", -1.0, True),
        ("train_runtime", 12.0, False),  # longer than the run
        ("mean_power_w", 700.0, True),
        ("mean_power_w", 1e30, False),
        ("energy_per_real_token_j", 0.004, True),
        ("energy_per_real_token_j", 1e-12, False),
        ("peak_allocated_bytes", 0.001, False),
        ("sm_clock_mhz", 1980.0, True),
        ("sm_clock_mhz", 1e9, False),
        ("temperature_c", -40.0, True),
        ("temperature_c", -273.0, False),
        ("temperature_c", 65535.0, False),
        ("round_time_s", 1e-8, True),
        ("round_time_s", 1e-15, False),
        ("call_time_s", 1e-12, False),
    ],
)
def test_limits_of_values(name: str, value: float, possible: bool) -> None:
    assert (broken_limit(metric(name), value, wall_s=4.0) is None) == possible


def of_rounds(median: object, rounds: object = 5) -> dict[str, object]:
    return {"fullname": "b.py::test_a[1]", "round_time_s": median, "rounds": rounds}


@pytest.mark.parametrize(
    ("median", "rounds"),
    [(20.1, 5), (20.1, 1), (20.1, None), (9.2, 5), (3600, 5), (1.7e-7, 10**15), (1e308, 2**52), (4.0, 100)],
)
def test_a_benchmark_that_took_longer_than_its_run_is_named(
    median: float, rounds: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    said = longer_than_the_run([of_rounds(1e-6), of_rounds(median, rounds)], 4.0)
    assert said is not None and said.startswith("round_time_s of 'b.py::test_a[1]' is ")
    assert said.endswith(" must fit into the 4 s of the whole run")
    assert longer_than_the_run([of_rounds(median, rounds)], None) is None


@pytest.mark.parametrize(
    ("median", "rounds"),
    [
        *((1e-6, 5), (0.8, 5), (4.0, 1), (1e-7, 10_000_000), (9.0, 1), (2e-8, 2**26)),
        (4.0, 8),  # eight processes measured one round each, all at once
        *((0.5, 64), (4.0, 16), (None, 5), ("20", 5), (True, True), (1.0, "x"), (1.0, -7), (1.0, 0), (1.0, 2.5)),
        *((0.5, float("nan")), (float("nan"), 5), (float("inf"), 5), (10**400, 5), (1.0, 10**400)),
    ],
)
def test_a_benchmark_within_its_run_is_possible(
    median: object, rounds: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert longer_than_the_run([{}, of_rounds(median, rounds)], 4.0) is None


@pytest.mark.parametrize("name", METRICS)
def test_every_speed_amount_and_memory_has_an_upper_limit(name: str) -> None:
    unit = METRICS[name].unit or ""
    is_change = name.endswith("_delta") or name == "device_residue_bytes"
    is_limited = "/s" in unit or unit.split(" ")[0] in ("tokens,", "samples,", "steps", "bytes", "MiB")
    if is_limited and not is_change and unit != "samples/step":
        assert broken_limit(METRICS[name], 1e18, wall_s=4.0)


@pytest.mark.parametrize(("name", "possible"), [("operator_bytes_per_s", 2e12), ("operator_tflops_per_s", 20)])
def test_the_cores_of_a_cpu_limit_its_speed(name: str, possible: float) -> None:
    """A core with a matrix unit makes 2,048 operations per cycle, and its first cache moves 192 bytes."""
    assert broken_limit(METRICS[name], possible, wall_s=4.0, cores=2) is None
    assert "because 2 cores cannot reach more" in str(broken_limit(METRICS[name], 2 * possible, wall_s=4.0, cores=2))
    assert broken_limit(METRICS[name], 2 * possible, wall_s=4.0, cores=4) is None
    assert broken_limit(METRICS[name], 2 * possible, wall_s=4.0) is None, "a GPU"


def test_limits_grow_with_devices_and_time() -> None:
    of_all, of_one, count = (METRICS[name] for name in ("tokens_per_s", "tokens_per_s_per_gpu", "tokens_processed"))
    assert broken_limit(of_all, 3e10, wall_s=4.0, devices=4) is None
    assert "4 devices cannot" in str(broken_limit(of_all, 5e10, wall_s=4.0, devices=4))
    assert broken_limit(of_one, 3e10, wall_s=4.0, devices=4) is not None
    assert broken_limit(count, 3e12, wall_s=4.0) is not None
    assert broken_limit(count, 3e12, wall_s=400.0) is None
    assert broken_limit(count, 3e12, wall_s=None) is None

"""Prices: how they are written, and the costs that they give runs, experiments and reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import ended, experiment, stored
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan.config.site_file import site_price
from orchestrator.records import Device
from orchestrator.records.price import Per, Price, parse_price
from orchestrator.results.store import Store
from orchestrator.results.table.load import load

Call = Callable[..., tuple[int, str, str]]

GPU_HOUR = Price(amount=3.6, currency="USD")
DATES = st.none() | st.dates().map(str)


@given(
    st.builds(
        Price,
        amount=st.integers(0, 10**9).map(lambda cents: cents / 100),
        per=st.sampled_from(Per),
        currency=st.sampled_from(["USD", "EUR", ""]),
        date=DATES,
    )
)
def test_a_price_is_written_as_it_is_read(price: Price) -> None:
    assert parse_price(str(price)) == price


def test_a_plain_number_is_the_price_of_a_gpu_hour() -> None:
    assert parse_price("2.50") == Price(amount=2.5) == parse_price("2.5/GPUh")
    assert parse_price(" 20 USD / nodeh @ 2026-11-01") == Price(
        amount=20, per=Per.NODE_HOUR, currency="USD", date="2026-11-01"
    )


@pytest.mark.parametrize("text", ["", "-1", "nan", "1e9", "2.5USD", "2.5usd/GPUh", "$2/GPUh", "2USD/h", True, None, {}])
def test_other_texts_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a price; write an amount, such as 2\.50USD/GPUh"):
        parse_price(text)


def test_a_date_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="'2026-02-30' is not a date"):
        parse_price("2USD/GPUh@2026-02-30")


def campaign(folder: Path, price: Price | None = GPU_HOUR, **fields: Any) -> Path:
    """Make a results folder of an experiment with two runs. A second costs 0.001 for each GPU at the price GPU_HOUR."""
    one = experiment(**{"device": Device.CUDA, "num_gpus": 2, **fields})
    runs = [ended(one, n, real_tokens_per_s=speed, steps_per_s=speed / 1e6) for n, speed in ((1, 1e6), (2, 4e6))]
    settings = {"train_rows": 100, "global_batch": 4}
    root = stored(folder, (one, [replace(run, settings=settings) for run in runs]))
    if price:
        Store.resume(root).note_price(price)
    return root


def costs_of(root: Path, *, price: Price | None = None) -> dict[str, Any]:
    row = load([root], price=price).experiments.iloc[0].dropna()
    return {name: value for name, value in row.items() if str(name).startswith("cost_")}


def test_costs_follow_from_speed_time_and_gpus(tmp_path: Path) -> None:
    found = costs_of(campaign(tmp_path / "r"))
    assert found["cost_of_run"] == pytest.approx(12.5 * 2 * 0.001)
    assert found["cost_per_billion_tokens"] == pytest.approx(500 * 2 * 0.001)  # 1000 s and 250 s: geometric mean 500 s
    assert found["cost_to_finish"] == pytest.approx(25 / 2 * 2 * 0.001)  # 25 steps at 1 and 4 steps/s
    for name in ("cost_per_billion_tokens", "cost_to_finish"):
        assert found[f"{name}_low"] * found[f"{name}_high"] == pytest.approx(found[name] ** 2)


@pytest.mark.parametrize(("times", "cost"), [((10.0, 40.0), 20.0 * 2 * 0.001), ((10.0, None), None)])
def test_the_way_to_a_target_has_a_cost_if_all_runs_reach_it(
    tmp_path: Path, times: tuple[float | None, ...], cost: float | None
) -> None:
    one = experiment(device=Device.CUDA, num_gpus=2)
    runs = [
        ended(one, number, time_to_target_s=time, steps_to_target=time and 7, steps=30)
        for number, time in enumerate(times, start=1)
    ]
    root = stored(tmp_path / "r", (one, runs))
    assert costs_of(root, price=GPU_HOUR).get("cost_to_target") == (cost and pytest.approx(cost))


def test_a_node_costs_the_same_however_many_of_its_gpus_are_used(tmp_path: Path) -> None:
    node = replace(GPU_HOUR, per=Per.NODE_HOUR)
    one, all_of_two = campaign(tmp_path / "1", node), campaign(tmp_path / "8", node, num_gpus=8, num_nodes=2)
    assert costs_of(one)["cost_of_run"] == pytest.approx(12.5 * 0.001)
    assert costs_of(all_of_two)["cost_of_run"] == pytest.approx(12.5 * 2 * 0.001)


def test_cpus_have_no_price_per_gpu_hour_but_one_per_node_hour(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", device=Device.CPU)
    assert costs_of(root) == {}
    assert costs_of(root, price=replace(GPU_HOUR, per=Per.NODE_HOUR))["cost_of_run"] == pytest.approx(12.5 * 0.001)


@pytest.mark.parametrize(("epochs", "factor"), [("3", 3), ("0.5", 0.5), ("-1", None), ("many", None)])
def test_all_epochs_of_the_data_count(tmp_path: Path, epochs: str, factor: float | None) -> None:
    once = costs_of(campaign(tmp_path / "once"))["cost_to_finish"]
    found = costs_of(campaign(tmp_path / "r", arguments={"num_train_epochs": epochs})).get("cost_to_finish")
    assert found == (pytest.approx(factor * once) if factor else None)


def test_without_a_price_a_report_has_no_costs_and_a_given_price_comes_first(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", None)
    assert costs_of(root) == {}
    (root / "suite.json").write_text(json.dumps({**Store.resume(root).suite(), "price": ["2USD/GPUh"]}))
    assert costs_of(root) == {}
    Store.resume(root).note_price(GPU_HOUR)
    twice = costs_of(root, price=replace(GPU_HOUR, amount=2 * GPU_HOUR.amount))
    assert twice["cost_of_run"] == pytest.approx(2 * costs_of(root)["cost_of_run"])
    assert load([root]).experiments["provenance_price"].tolist() == ["3.6USD/GPUh"]


def test_the_report_takes_a_price_and_refuses_other_words(in_process: Call, tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", None)
    code, out, _ = in_process("report", root, "--price", "7.2USD/GPUh", "--format", "csv")
    assert code == 0 and {"cost_per_billion_tokens", "provenance_price"} < {*out.splitlines()[0].split(",")}
    code, _, err = in_process("report", root, "--price", "cheap")
    assert code == 2 and err.startswith("error: --price 'cheap' is not a price; write an amount")
    assert "price" not in Store.resume(root).suite(), "a report writes no price"


def test_the_price_of_a_site_file_counts_for_every_executor(in_process: Call, tmp_path: Path) -> None:
    file, site = tmp_path / "s.yaml", tmp_path / "site.yaml"
    file.write_text(
        "executor: local\nscenarios:\n- name: a\n  device: cpu\n  arguments: {model_name_or_path: config:tiny-llama}\n"
    )
    assert site_price(file, {}) is None
    for content, price in (
        ("price: 2.50 USD/GPUh\n", Price(amount=2.5, currency="USD")),
        ("price: 2.50\npartition: [of another program]\n", Price(amount=2.5)),
        ("price:\n", None),
        ("- hosts: all\n", None),
        ("{% broken %}\n", None),
    ):
        site.write_text(content, encoding="utf-8")
        assert site_price(file, {}) == price
        assert in_process("run", file, "--dry-run")[0] == 0
    site.write_text("node: 4xH100\nprice: [2.50]\n", encoding="utf-8")
    code, _, err = in_process("run", file, "--dry-run")
    assert code == 2 and err.startswith(f"error: {site}:2:1: price: '[2.5]' is not a price; write an amount, such as")

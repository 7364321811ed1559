"""The best of each model: the fastest and the cheapest experiment that ended ok, over all numbers of GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from factories.results import BASE, ended, stored
from factories.tables import Made, made_table, speeds

from orchestrator.records import Caveat, CaveatKind, Repeats
from orchestrator.records.price import Price, parse_price
from orchestrator.report.highlights import HighlightKind, highlights
from orchestrator.report.highlights.answers import answers
from orchestrator.report.highlights.best import MOST_MODELS, cheapest
from orchestrator.report.page import report_page
from orchestrator.results.table.baseline import with_baseline
from orchestrator.results.table.load import ResultsTable, load

ONE, TWO = (100.0, 101.0, 99.0), (180.0, 181.0, 179.0)
SMALL, LARGE = Made(runs=speeds(*ONE)), Made(num_gpus=2, runs=speeds(*TWO))
PRICE = parse_price("3.6USD/GPUh")


def table_of(*cells: Made, price: Price | None = None) -> ResultsTable:
    return with_baseline(made_table(*(replace(one, price=one.price or price) for one in cells)))


def said(*cells: Made, price: Price | None = None) -> list[str]:
    return [one.text for one in highlights(table_of(*cells, price=price)) if one.kind is HighlightKind.BEST]


def test_the_fastest_of_all_numbers_of_gpus_is_named() -> None:
    assert said(SMALL, LARGE) == ["llama-1b: the fastest experiment that ended ok is baseline on 2 GPUs, 180 tokens/s"]


def test_a_speed_of_some_of_the_runs_says_so() -> None:
    """Of an experiment whose second run failed, it looked as if it had ended ok."""
    half = replace(LARGE, runs=speeds(180.0), kinds=["stalled"])
    assert said(SMALL, half) == [
        "llama-1b: the fastest experiment that ended ok is baseline on 2 GPUs, 180 tokens/s in 1 of 2 runs"
    ]


def test_a_slow_first_run_that_is_left_out_has_not_failed(tmp_path: Path) -> None:
    fast = replace(BASE, repeats=5, adaptive=Repeats(min=5, max=5, discard_first="auto"))
    slow = replace(BASE, id="slow-1", arguments={"optim": "sgd"})
    measured = (900.0, 1000.0, 1010.0, 990.0, 1005.0, 995.0)
    records = [ended(fast, repeat, tokens_per_s=speed) for repeat, speed in enumerate(measured, start=1)]
    table = load(
        [stored(tmp_path / "r", (fast, records), (slow, [ended(slow, n, tokens_per_s=500.0 + n) for n in (1, 2)]))]
    )
    (text,) = [one.text for one in highlights(with_baseline(table)) if one.kind is HighlightKind.BEST]
    assert text.endswith("1000 tokens/s"), text


def test_the_cheapest_is_another_one_if_gpus_scale_badly() -> None:
    assert said(SMALL, LARGE, price=PRICE) == [
        "llama-1b: the fastest experiment that ended ok is baseline on 2 GPUs, 180 tokens/s; the cheapest is baseline on 1 GPU, "
        "10,000.33 USD per billion tokens (9,754.96 to 10,251.88) at 3.6USD/GPUh"
    ]


def test_a_node_costs_the_same_for_both_so_the_fastest_is_the_cheapest() -> None:
    (text,) = said(SMALL, LARGE, price=parse_price("3.6USD/nodeh@2026-11-01"))
    assert text.startswith(
        "llama-1b: the fastest and cheapest experiment that ended ok is baseline on 2 GPUs, 180 tokens/s, 5,555.61 USD per"
    )
    assert text.endswith(" at 3.6USD/nodeh@2026-11-01")


def test_without_a_clear_difference_both_are_named() -> None:
    (text,) = said(SMALL, Made(framework="x", runs=speeds(100.4, 101.2, 99.1)))
    assert "is x or baseline (no clear difference, 1.00" in text


def rows_of(length: int, *numbers: float, metric: str = "samples_per_s", **more: Any) -> Made:
    runs = [{metric: number} for number in numbers]
    return Made(arguments={"max_seq_len": str(length)}, runs=runs, **more)


def test_samples_of_longer_rows_are_other_work() -> None:
    """Shorter rows give more samples per second, and were the fastest."""
    for metric in ("samples_per_s", "train_samples_per_second", "tokens_per_s"):
        cells = [rows_of(length, *(100 * 128 / length for _ in range(3)), metric=metric) for length in (128, 256, 512)]
        assert not said(*cells) and not answers(table_of(*cells)), metric
    cells = [
        rows_of(length, *numbers, framework=name) for length in (128, 256) for name, numbers in (("x", ONE), ("y", TWO))
    ]
    assert said(*cells) == [
        f"llama-1b (full, max_seq_len {length}): the fastest experiment that ended ok is y, 180 samples/s"
        for length in (128, 256)
    ]
    places = [(answer.place, answer.text.partition(",")[0]) for answer in answers(table_of(*cells))]
    assert places == [(f"llama-1b at 1 GPU, max_seq_len {length}", "y is fastest") for length in (128, 256)]


def test_rows_without_padding_are_compared_over_lengths() -> None:
    runs = [{"tokens_per_s": 200.0, "real_tokens_per_s": number} for number in ONE]
    cells = [replace(rows_of(length), runs=runs) for length in (128, 256)]
    assert len(said(*cells)) == len(answers(table_of(*cells))) == 1


def test_speeds_per_gpu_are_not_compared_over_numbers_of_gpus() -> None:
    """Of 1 GPU with 100 tokens/s and 2 GPUs with 90 each, 1 GPU was called the fastest."""
    runs = [[{"train_tokens_per_second": factor * number} for number in ONE] for factor in (1.0, 0.9)]
    cells = [Made(num_gpus=count, runs=some) for count, some in enumerate(runs, start=1)]
    assert not said(*cells)
    cells += [Made(framework="x", num_gpus=count, runs=some) for count, some in enumerate(runs[::-1], start=1)]
    assert [text.partition(":")[0] for text in said(*cells)] == ["llama-1b (full, 1 GPU)", "llama-1b (full, 2 GPUs)"]


def alike(digest: str, *numbers: float, processes: int = 1, **more: Any) -> Made:
    """An experiment that no column tells apart from one with another script. Its id ends with the digest."""
    return Made(framework=None, sources={"train.py": digest}, num_gpus=processes, runs=speeds(*numbers), **more)


def test_experiments_that_no_column_tells_apart_are_named_by_their_ids() -> None:
    """As with two values of a variable in `env:`, or another script: both names were `no framework`."""
    assert said(alike("11aa11", *ONE), alike("22bb22", *TWO), alike("33cc33", 170.0, model="config:other")) == [
        "llama-1b: the fastest experiment that ended ok is experiment 22bb22, 180 tokens/s"
    ]
    table = table_of(*(alike(digest, kinds=["oom_cuda"]) for digest in ("11aa11", "22bb22")))
    (failures,) = [one.text for one in highlights(table) if one.kind is HighlightKind.FAILURE]
    assert "at 1 GPU, experiment 11aa11; " in failures and "experiment 22bb22" in failures


def test_the_ids_of_one_experiment_on_several_gpus_are_not_named() -> None:
    """The id depends on the number of GPUs, so both names would have another one."""
    cells = [alike(digest, *ONE) for digest in ("11aa11", "22bb22")]
    cells += [alike(digest, *TWO, processes=2) for digest in ("11aa11", "22bb22")]
    per_gpu = [
        replace(cell, runs=[{**run, "tokens_per_s_per_gpu": run["tokens_per_s"] / cell.num_gpus} for run in cell.runs])
        for cell in cells
    ]
    texts = [one.text for one in highlights(table_of(*per_gpu)) if "of ideal scaling" in one.text]
    assert texts == ["no framework on llama-1b: 2 GPUs 90.0 % (88.2 to 91.9) of ideal scaling from 1 GPU"] * 2


def test_what_did_not_fit_or_is_in_doubt_is_counted() -> None:
    doubt = (Caveat(kind=CaveatKind.NOT_LEVEL, detail="it swings"),)
    cells = [
        Made(runs=speeds(100.0)),
        Made(framework="x", runs=speeds(*TWO), warnings=doubt),
        Made(framework="y", kinds=["oom_cuda"]),
    ]
    (note,) = [
        one.text for one in highlights(table_of(*cells)) if "counts" in one.text and one.kind is HighlightKind.NOTE
    ]
    assert said(*cells) == [], "it was the fastest, although no other speed counts"
    assert (
        note
        == "llama-1b: only baseline has a speed that counts, 100 tokens/s in one run; 1 did not fit; 1 in doubt left out"
    )
    cells += [Made(framework="z", num_gpus=2, kinds=["oom_cuda"]), Made(framework="z", runs=speeds(80.0))]
    assert said(*cells) == [
        "llama-1b: the fastest experiment that ended ok is baseline on 1 GPU, 100 tokens/s in one run; 2 did not fit; 1 in doubt "
        "left out"
    ]


def test_one_experiment_that_ended_ok_is_not_called_the_fastest() -> None:
    others = [Made(framework="x", kinds=["oom_cuda"]), Made(framework="y", kinds=["oom_cuda"])]
    (text,) = said(SMALL, *others)
    assert text == "llama-1b: the only experiment that ended ok is baseline, 100 tokens/s; 2 did not fit"
    (text,) = said(SMALL, *others, price=PRICE)
    assert text.startswith("llama-1b: the only experiment that ended ok is baseline, 100 tokens/s, 10,000.33 USD per")
    assert not [*cheapest(table_of(SMALL, *others, price=PRICE))]


def test_one_experiment_with_a_speed_is_not_called_the_only_one_that_ended_ok() -> None:
    others = [Made(framework="x", runs=[{"wall_s": 10.0}]), Made(framework="y", runs=[{"samples_per_s": 10.0}])]
    for other in others:
        assert said(SMALL, other) == ["llama-1b: the only experiment with tok/s is baseline, 100 tokens/s"]


def test_the_cheapest_are_two_if_they_are_not_clearly_different() -> None:
    third = Made(framework="x", runs=speeds(100.4, 101.2, 99.1))
    (both,) = cheapest(table_of(SMALL, LARGE, third, price=PRICE))
    assert both.text.startswith("llama-1b: the cheapest is x on 1 GPU or baseline on 1 GPU (no clear difference, ")
    assert (len(both.ids), len(both.best)) == (3, 2)
    (one,) = cheapest(table_of(SMALL, LARGE, price=PRICE))
    assert len(one.best) == 1 and not [*cheapest(table_of(SMALL, LARGE))]


def test_a_single_experiment_and_one_without_a_speed_are_no_choice() -> None:
    assert said(SMALL) == []
    assert said(Made(kinds=["oom_cuda"]), Made(framework="x", kinds=["nccl"])) == []


def test_each_model_has_a_sentence_and_scenarios_are_named_if_a_model_is_in_several() -> None:
    cells = [replace(one, scenario=name) for one in (SMALL, LARGE) for name in ("full", "lora")]
    assert [text.partition(":")[0] for text in said(*cells)] == ["llama-1b (full)", "llama-1b (lora)"]
    many = [replace(one, model=f"org/m{n}") for n in range(MOST_MODELS + 2) for one in (SMALL, LARGE)]
    assert said(*many)[MOST_MODELS:] == ["2 more models have several experiments"]


def test_prices_in_two_currencies_are_not_compared() -> None:
    (text,) = said(SMALL, replace(LARGE, price=parse_price("3EUR/GPUh")), price=PRICE)
    assert "cheapest" not in text


def test_an_answer_has_the_cost_of_each_candidate_if_a_price_is_known() -> None:
    cells = [SMALL, Made(framework="liger", runs=speeds(*TWO))]
    (answer,) = answers(table_of(*cells))
    assert not answer.has_costs and "cost" not in answer.text
    (answer,) = answers(table_of(*cells, price=PRICE))
    assert answer.has_costs and [one.cost for one in answer.candidates] == ["5,555.61 USD", "10,000.33 USD"]
    assert answer.text.startswith("liger is fastest, for 5,555.61 USD per billion tokens, 80 % faster (1.80×")


def test_the_page_shows_the_best_of_a_model_only_if_it_has_several_answers(tmp_path: Path) -> None:
    one_place = [SMALL, Made(framework="x", runs=speeds(*TWO))]
    for cells, shown in ((one_place, False), ([*one_place, *(replace(one, num_gpus=2) for one in one_place)], True)):
        table = table_of(*cells, price=PRICE)
        page = report_page(table, roots=[tmp_path], highlights=highlights(table))
        assert ("the fastest and cheapest experiment that ended ok" in page) is shown
        assert "cost/B tok" in page
        assert '"cost":"5,555.61 USD per billion tokens at 3.6USD/GPUh"' in page, "what the card of the page shows"

"""What several rows say of each other: repeats, scaling, a loss beside the baseline's."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.results.table.aggregate import Cell, compared, over_repeats


def cell(framework: str = "none", gpus: int = 1, *, arguments: dict[str, Any] | None = None, **numbers: Any) -> Cell:
    facts = {"id": f"{framework}-{gpus}-{arguments}", "scenario": "s", "framework_config": framework, "num_gpus": gpus}
    return Cell(facts=facts, arguments=arguments or {}, numbers=numbers)


def test_repeats_have_a_mean_of_logs_with_interval_and_spread() -> None:
    found = over_repeats("tokens_per_s", [100.0, 110.0, 90.0])
    assert found["tokens_per_s"] == pytest.approx(math.exp(sum(map(math.log, (100, 110, 90))) / 3))
    assert found["tokens_per_s_low"] < 90 and found["tokens_per_s_high"] > 110  # type: ignore[operator]
    assert 0.09 < found["tokens_per_s_spread"] < 0.11  # type: ignore[operator]
    assert found["tokens_per_s_runs"] == 3


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("real_tokens_per_s", "real_tokens_per_s_low", "real_tokens_per_s_high"),
        ("step_time_s", "step_time_low_s", "step_time_high_s"),
    ],
)
def test_what_rows_are_chosen_by_has_an_interval(name: str, low: str, high: str) -> None:
    found = over_repeats(name, [1.0, 4.0])
    assert found.keys() == {name, low, high}
    assert found[low] * found[high] == pytest.approx(found[name] ** 2) == pytest.approx(4.0)  # type: ignore[operator]
    assert found[low] < 1.0  # type: ignore[operator]


def test_other_numbers_have_their_mean_alone() -> None:
    assert over_repeats("samples_per_s", [1.0, 4.0]) == {"samples_per_s": pytest.approx(2.0)}


def test_an_operator_is_as_wrong_as_in_its_worst_run() -> None:
    assert over_repeats("relative_error", [1e-7, 1.0, 1e-7]) == {"relative_error": 1.0}


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=8), st.floats(0.1, 10))
def test_a_mean_of_repeats_scales_with_them(values: list[float], factor: float) -> None:
    once, scaled = over_repeats("tokens_per_s", values), over_repeats("tokens_per_s", [v * factor for v in values])
    assert scaled["tokens_per_s"] == pytest.approx(once["tokens_per_s"] * factor)  # type: ignore[operator]
    assert once["tokens_per_s_low"] <= once["tokens_per_s"] * (1 + 1e-9)  # type: ignore[operator]


def test_scaling_is_beside_the_smallest_gpu_count_of_the_same_cell() -> None:
    rows = [cell(gpus=n, tokens_per_s_per_gpu=100.0 / n**0.1) for n in (2, 4)]
    other = cell("ddp", 1, tokens_per_s_per_gpu=300.0)
    found = list(compared([*rows, other]))
    assert found[0] == {"scaling_efficiency": 1.0}
    assert found[1]["scaling_efficiency"] == pytest.approx(0.5**0.1)
    assert found[2] == {}


def test_without_the_smallest_cells_speed_there_is_no_efficiency() -> None:
    """Another base would be another number, under the same name and beside rows that have the right one."""
    rows = [cell(gpus=1), *(cell(gpus=n, tokens_per_s_per_gpu=100.0 / n) for n in (2, 4))]
    assert list(compared(rows)) == [{}, {}, {}]


def test_strong_scaling_is_found_by_the_global_batch() -> None:
    def row(gpus: int, batch: str) -> Cell:
        one = cell(gpus=gpus, arguments={"per_device_train_batch_size": batch}, tokens_per_s_per_gpu=100.0 / gpus)
        return Cell(facts={**one.facts, "global_batch": 8}, arguments=one.arguments, numbers=one.numbers)

    assert [found["scaling_efficiency"] for found in compared([row(1, "8"), row(2, "4")])] == [1.0, 0.5]


def test_other_arguments_are_another_cell() -> None:
    rows = [cell(gpus=n, arguments={"max_seq_len": str(n)}, tokens_per_s_per_gpu=1.0) for n in (1, 2)]
    assert list(compared(rows)) == [{}, {}]


@pytest.mark.parametrize(
    ("loss", "speed", "doubt"),
    [(2.0, 150.0, None), (2.09, 150.0, None), (3.0, 150.0, "faster but wrong"), (3.0, 50.0, "other loss")],
)
def test_a_loss_that_leaves_the_baselines_is_marked(loss: float, speed: float, doubt: str | None) -> None:
    base = cell("baseline", train_loss=2.0, steps=10, tokens_per_s_per_gpu=100.0)
    found = list(compared([base, cell("liger", train_loss=loss, steps=10, tokens_per_s_per_gpu=speed)]))
    assert found[0] == {}
    assert found[1].get("doubt") == doubt
    assert found[1]["loss_difference"] == pytest.approx(loss / 2 - 1)


def trained(framework: str, loss: float | None, steps: int | None, logged: str | None = None, **more: Any) -> Cell:
    """One that was to make 40 steps."""
    numbers = {"train_loss": loss, "steps": steps, "logged_losses": logged, "effective_max_steps": steps and 40, **more}
    arguments = numbers.pop("arguments", None)
    return cell(framework, arguments=arguments, **{name: value for name, value in numbers.items() if value is not None})


def test_a_training_that_ended_early_is_compared_over_the_steps_that_both_made() -> None:
    """The baseline's loss fell for longer: that its mean is lower is no fault of the other."""
    base = trained("baseline", 1.5, 40, "10:3 20:2 30:1 40:0", tokens_per_s_per_gpu=9.0)
    right = trained("liger", 2.4, 25, "10:3.01 20:2.04", tokens_per_s_per_gpu=10.0)
    wrong = trained("fused", 3.0, 25, "10:3 20:3", tokens_per_s_per_gpu=10.0)
    assert list(compared([base, right, wrong])) == [
        {},
        {"loss_difference": pytest.approx(5.05 / 5 - 1)},
        {"loss_difference": pytest.approx(6 / 5 - 1), "doubt": "faster but wrong"},
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [trained("baseline", 2.0, 40), trained("liger", 9.0, 25)],  # nothing was logged
        [trained("baseline", 2.0, 40, "7:2 40:2"), trained("liger", 9.0, 25, "10:9 25:9")],  # not at the same steps
        [trained("baseline", 0.0, 40), trained("liger", 9.0, 40)],
        [trained("baseline", None, None), trained("liger", 9.0, 40)],  # it failed
        [
            trained("baseline", None, None, arguments={"layers": "2"}),
            trained("liger", 9.0, 40, arguments={"layers": "2"}),
        ],
    ],
)
def test_where_losses_cannot_be_compared_the_row_says_so(rows: list[Cell]) -> None:
    """Whatever a baseline of other arguments learned."""
    other = trained("baseline", 5.0, 40, arguments={"layers": "4"})
    assert list(compared([*rows, trained("pending", None, None), other])) == [
        {},
        {"doubt": "loss not compared"},
        {},
        {},
    ]


def test_trainings_that_were_to_make_other_numbers_of_steps_are_not_compared() -> None:
    """An epoch of packed rows has fewer steps; of older records it is not known what they were to make."""
    packed = cell("packing", train_loss=9.0, steps=10, logged_losses="10:9", effective_max_steps=10)
    older = [
        cell(name, train_loss=loss, steps=steps) for name, loss, steps in (("baseline", 2.0, 10), ("liger", 9.0, 5))
    ]
    assert list(compared([trained("baseline", 2.0, 40, "10:2 40:2"), packed])) == [{}, {}]
    assert list(compared(older)) == [{}, {}]


def test_as_many_steps_of_a_longer_schedule_are_another_training() -> None:
    """Nor is a failed baseline missed that nothing would have been held against."""
    longer = trained("baseline", 3.0, 20, effective_max_steps=80)
    failed = cell("baseline", effective_max_steps=80)
    for base in (longer, failed):
        assert list(compared([base, trained("liger", 2.0, 20, tokens_per_s_per_gpu=9.0)])) == [{}, {}]


def test_as_many_steps_on_the_average_are_not_as_many_in_each_run() -> None:
    """One of 15 and one of 35 steps, as right as the baseline."""
    base = trained("baseline", 1.5, 25, "5:3 15:2 25:0", stopped_early="within")
    both = trained("liger", 1.9, 25, "5:3 15:2, 5:3 15:2 25:0 35:0", stopped_early="within", tokens_per_s_per_gpu=9.0)
    assert list(compared([base, both]))[1] == {"loss_difference": 0.0}


@pytest.mark.parametrize("off", ["False", "false", "no", "0"])
def test_packed_rows_are_another_batch(off: str) -> None:
    rows = [trained(name, loss, 40, arguments={"packing": text}) for name, loss, text in (
        ("baseline", 2.0, off), ("packing", 9.0, "True"), ("liger", 2.0, None)
    )]  # fmt: skip
    assert [found.get("loss_difference") for found in compared(rows)] == [None, None, 0.0]


def test_without_a_framework_called_baseline_the_first_that_learned_is_it() -> None:
    rows = [trained(name, loss, 5) for name, loss in (("ddp", None), ("fsdp", 2.0), ("fused", 3.0), ("liger", 2.0))]
    differences = [found.get("loss_difference") for found in compared(rows)]
    assert differences == [None, None, pytest.approx(0.5), 0.0]
    named = [found.get("loss_difference") for found in compared([*rows, trained("none", 4.0, 5)])]
    assert named == [None, -0.5, -0.25, -0.5, None]


@pytest.mark.parametrize("other", [{"peft_method": "none"}, {"learning_rate": "1e-3"}, {"max_seq_len": "512"}])
def test_a_loss_is_not_compared_with_that_of_another_training(other: dict[str, str]) -> None:
    """The right baseline failed; full fine-tuning's loss is no measure of LoRA's."""
    given_arguments = {"peft_method": "lora", "learning_rate": "1e-4", "max_seq_len": "256"}
    rows = [
        cell("baseline", arguments={**given_arguments, **other}, train_loss=2.0, steps=10),
        cell("liger", arguments=given_arguments, train_loss=3.0, steps=10, tokens_per_s_per_gpu=9.0),
    ]
    assert list(compared(rows)) == [{}, {}]


def test_thousands_of_cells_that_differ_in_an_argument_are_compared_at_once() -> None:
    """By look-up, not each with each: 4,000 × 4,000 would take minutes."""
    rows = [
        cell(
            name,
            gpus,
            arguments={"logging_steps": str(n), **extra},
            train_loss=2.0 + n,
            steps=1,
            tokens_per_s_per_gpu=8.0,
        )
        for name, extra in (("baseline", {}), ("liger", {"use_liger_kernel": "True"}))
        for gpus in (1, 2)
        for n in range(2000)
    ]
    start = time.process_time()
    found = list(compared(rows))
    assert time.process_time() - start < 10
    assert all(one["scaling_efficiency"] == 1.0 for one in found)
    assert [one.get("loss_difference") for one in found] == [None] * 4000 + [0.0] * 4000


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")), min_size=1, max_size=6, unique_by=str))
def test_the_nearest_of_several_differs_in_the_fewest_arguments(given_to: list[dict[str, str]]) -> None:
    bases = [cell("baseline", arguments=one, train_loss=2.0 + n, steps=1) for n, one in enumerate(given_to)]
    for asked in ({}, {"a": "x"}, {"a": "x", "b": "y", "c": "x"}, {"d": "x"}):
        *_, found = compared([*bases, cell("liger", arguments=asked, train_loss=1.0, steps=1)])
        fewest = min(len(one.items() ^ asked.items()) for one in given_to)
        losses = {2.0 + n for n, one in enumerate(given_to) if len(one.items() ^ asked.items()) == fewest}
        assert min(abs(found["loss_difference"] - (1 / loss - 1)) for loss in losses) < 1e-12  # type: ignore[operator]

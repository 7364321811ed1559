"""Experiments of one folder that ran on other GPUs, hosts or packages: what a report compares, and what it says about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from factories.tables import Made, made_table, speeds

from orchestrator.records import Device
from orchestrator.report.highlights import HighlightKind, highlights
from orchestrator.report.highlights.answers import answers
from orchestrator.report.page import overview, report_page
from orchestrator.results.table.baseline import pairs_of
from orchestrator.results.table.column_choice import column
from orchestrator.results.table.load import ResultsTable

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
FAST, SLOW = (100.0, 101.0, 99.0), (80.0, 81.0, 79.0)


def on(gpu: str | None, *values: float, framework: str = "baseline", num_gpus: int = 1, **more: float) -> Made:
    runs = speeds(*values, **more, **({"gpu_device_name": gpu} if gpu else {}))
    for run in runs:
        run["tokens_per_s_per_gpu"] = float(run["tokens_per_s"] or 0) / num_gpus
    return Made(framework=framework, num_gpus=num_gpus, runs=runs)


def said(table: ResultsTable, *kinds: HighlightKind) -> list[str]:
    return [one.text for one in highlights(table) if one.kind in kinds]


def claims(table: ResultsTable) -> list[str]:
    return [*said(table, HighlightKind.BEST, HighlightKind.GAIN), *(one.text for one in answers(table))]


def test_experiments_on_other_gpus_are_not_compared() -> None:
    """No speed-up, answer or best experiment was claimed by the GPU: this was `20 % slower`."""
    table = made_table(on(H100, *FAST), on(A100, *SLOW, framework="x"))
    assert not pairs_of(table) and not claims(table)
    assert said(table, HighlightKind.WARNING) == [
        "the experiments ran on several GPU models (H100 80GB HBM3: 1 experiment; A100-SXM4-80GB: 1 experiment), and are "
        "compared only with those on the same model"
    ]


def test_an_unknown_gpu_is_not_another_one() -> None:
    assert len(pairs_of(made_table(on(H100, *FAST), on(None, *SLOW, framework="x")))) == 1
    assert len(claims(made_table(on(H100, *FAST), on(None, *SLOW, framework="x")))) == 3


def test_places_on_several_gpus_name_their_gpu() -> None:
    cells = [on(gpu, *values, framework=name) for gpu in (H100,) for name, values in (("baseline", SLOW), ("x", FAST))]
    cells += [replace(cell, scenario="other", runs=on(A100, *FAST).runs) for cell in cells]
    places = [answer.place for answer in answers(made_table(*cells))]
    assert places == ["llama-1b at 1 GPU (H100 80GB HBM3)", "llama-1b at 1 GPU (A100-SXM4-80GB)"]


def test_the_best_of_a_scenario_is_named_for_each_gpu() -> None:
    cells = [
        on(gpu, *values, framework=f"{name}{number}")
        for number, gpu in enumerate((H100, A100))
        for name, values in (("fast", FAST), ("slow", SLOW))
    ]
    best = said(made_table(*cells), HighlightKind.BEST)
    assert [text.partition(":")[0] for text in best] == [
        "llama-1b (full, H100 80GB HBM3)",
        "llama-1b (full, A100-SXM4-80GB)",
    ]


def test_runs_of_one_experiment_on_several_gpus_are_in_doubt() -> None:
    mixed = [on(H100, 100.0, 101.0), on(A100, 60.0)]
    cells = [
        replace(mixed[0], framework=name, runs=[*mixed[0].runs, *mixed[1].runs][::step])
        for name, step in (("baseline", 1), ("x", -1))
    ]
    table = made_table(*cells)
    assert [pair.in_doubt for pair in pairs_of(table)] == [True]
    assert said(table, HighlightKind.WARNING) == [
        f"2 experiments had runs on different GPUs ({A100} and {H100}), so no speed is claimed: baseline on llama-1b at 1 GPU; "
        "x on llama-1b at 1 GPU"
    ]
    assert [answer.text for answer in answers(table)] == ["no answer: every speed is in doubt"]


def test_scaling_is_on_one_gpu_model() -> None:
    apart = made_table(on(H100, *FAST), on(A100, 160.0, num_gpus=2))
    assert not claims(apart) and set(column(apart.experiments, "scaling_efficiency")) == {None}
    alike = made_table(on(H100, *FAST), on(H100, 160.0, num_gpus=2))
    assert any("of ideal scaling" in text for text in claims(alike))


@pytest.mark.parametrize(
    ("name", "device", "what"),
    [
        ("provenance_torch", Device.CUDA, "torch"),
        ("provenance_python_version", Device.CUDA, "Python"),
        ("provenance_driver_driver", Device.CUDA, "driver"),
        ("provenance_host_cpu", Device.CPU, "CPU"),
        ("provenance_host_name", Device.CPU, "host"),
        ("provenance_host_name", Device.CUDA, ""),
    ],
)
def test_other_software_of_compared_experiments_is_a_warning(name: str, device: Device, what: str) -> None:
    cells = [replace(on(None, *FAST, framework=one), device=device) for one in ("baseline", "x", "y")]
    table = with_column(made_table(*cells), name, ["2.11", "2.13", "2.13"])
    words = (
        f"experiments that are compared differ in {what} (2.11: 1 experiment; 2.13: 2 experiments), which may be why"
    )
    warned = said(table, HighlightKind.WARNING)
    assert [text.removesuffix(" their speeds differ") for text in warned] == ([words] if what else [])
    assert not said(with_column(table, name, ["2.11", None, None]), HighlightKind.WARNING), "it is unknown"


def test_other_software_of_experiments_that_are_not_compared_is_no_warning() -> None:
    cells = [
        replace(on(None, *FAST, framework=one), scenario=scenario) for scenario in "ab" for one in ("baseline", "x")
    ]
    table = made_table(*cells)
    assert not said(with_column(table, "provenance_torch", ["1", "1", "2", "2"]), HighlightKind.WARNING)
    chosen = with_column(with_column(table, "provenance_torch", ["1", "2", "1", "2"]), "environment", ["a", "b"] * 2)
    assert not said(chosen, HighlightKind.WARNING), "these environments are what is compared"


def with_column(table: ResultsTable, name: str, values: Sequence[str | None]) -> ResultsTable:
    return replace(table, experiments=table.experiments.assign(**{name: values}))


def test_the_header_names_no_gpu_of_several(tmp_path: Path) -> None:
    table = made_table(on(H100, *FAST), on(A100, *SLOW, framework="x"))
    facts = overview.of(table, (), gpu_bytes=())
    assert overview.in_one_line(facts).startswith("2 experiments, 6 runs, 2 GPU models")
    (tile,) = [tile for tile in facts.tiles if tile.label == "GPU models"]
    assert tile.note == f"{H100}, {A100}; one at a time"
    assert "2 GPU models" in report_page(table, roots=(tmp_path,), highlights=())


def test_an_unknown_gpu_is_compared_with_none_of_several() -> None:
    """It was compared with the first of them, and the warning said that only the same model is compared."""
    table = made_table(on(H100, *FAST), on(None, *SLOW, framework="x"), on(A100, *SLOW, framework="y"))
    assert not pairs_of(table) and not claims(table)


@pytest.mark.parametrize(
    ("name", "why"), [("tokens_per_s", "counts padding"), ("samples_per_s", "measures other work")]
)
def test_a_speed_that_lengths_make_incomparable_is_named(name: str, why: str) -> None:
    """The report had no speed-up and no answer, and did not say why."""
    cells = [
        Made(arguments={"max_seq_len": length}, runs=[{name: value} for value in FAST]) for length in ("512", "1024")
    ]
    (text,) = said(made_table(*cells), HighlightKind.WARNING)
    assert text.startswith("experiments with different values of max_seq_len are not compared: ") and why in text

"""What changed in sentences: each fact once, experiments that differ only in their GPUs together, the worst first."""

from __future__ import annotations

from dataclasses import replace

from factories.comparisons import compared, entry, paired
from test_compare_view import everything

from orchestrator.compare.comparison import Comparison, Verdict
from orchestrator.compare.rules import Rules
from orchestrator.compare.view.in_words import MOST_ENTRIES, sentences

SPEED, STEP, PEAK = "tokens_per_s", "step_time_s", "peak_allocated_bytes"
BASE = (1000.0, 1001.0, 999.0, 1000.5, 999.5)


def said(comparison: Comparison) -> dict[str, str]:
    return {one.head: one.text for one in sentences(comparison)}


def slower(label: str, factor: float) -> object:
    base = {SPEED: list(BASE), STEP: [400 / value for value in BASE]}
    new = {SPEED: [value * factor for value in BASE], STEP: [400 / value / factor for value in BASE]}
    return paired(entry(label, base), entry(label, new))


def test_every_kind_of_change_has_its_sentence_the_worst_first() -> None:
    heads = [one.head for one in sentences(everything())]
    worse = ["Failed", "Slower", "More memory", "Missing", "Not comparable", "Not certain"]
    assert heads == [*worse, "Faster", "Lower loss", "New"]
    found = said(everything())
    assert found["Slower"] == "llama-1b · none -5.0% tok/s (-5.4% to -4.6%) at 1 GPU", "the step time is the same fact"
    assert found["Not certain"].endswith("; about 15 more runs per side would settle it")


def test_numbers_of_gpus_are_one_entry_and_mirrors_count_once() -> None:
    rules = Rules(metrics=(SPEED, STEP))
    both = compared(slower("llama · none · 1 GPU", 0.95), slower("llama · none · 2 GPUs", 0.97), rules=rules)
    assert said(both) == {"Slower": "llama · none -5.0% to -3.0% tok/s (-5.1% to -2.9%) at 1 and 2 GPUs"}


def test_the_number_of_runs_is_that_of_the_rows_that_more_runs_would_settle() -> None:
    """With another number of processes, even 100 more runs would hardly settle it."""
    open_rows = [row for row in everything().rows if row.verdict is Verdict.INCONCLUSIVE and row.needs == 15]
    rows = [replace(open_rows[0], label="a · 1 GPU"), replace(open_rows[0], label="a · 2 GPUs", needs=None)]
    text = said(replace(everything(), rows=tuple(rows)))["Not certain"]
    assert text.endswith("at 1 and 2 GPUs; about 15 more runs per side would settle 1 of 2")


def test_the_error_of_an_operator_is_neither_memory_nor_hidden_by_it() -> None:
    base, new = (entry("a", {PEAK: [1000.0 * 1.1**end], "relative_error": [0.001 * 400**end]}) for end in (0, 1))
    assert said(compared(paired(base, new))).keys() == {"More memory", "Less exact"}
    assert said(compared(paired(new, base))).keys() == {"Less memory", "More exact"}


def test_many_experiments_are_counted() -> None:
    many = [slower(f"model-{number} · none · 1 GPU", 0.9) for number in range(MOST_ENTRIES + 2)]
    assert said(compared(*many))["Slower"].endswith("; and 2 more")


def test_no_change_is_said() -> None:
    assert said(compared(slower("a", 1.0))) == {"No change": "2 same"}


def test_a_change_in_doubt_says_why_it_is_not_certain() -> None:
    base, new = entry("a", {SPEED: BASE}), entry("a", {SPEED: [value * 0.9 for value in BASE]})
    busy = replace(new, runs=tuple(replace(run, doubt="on a busy host", slowed=2.5) for run in new.runs))
    text = "a -10.0% tok/s (-10.1% to -9.9%); most runs of new were on a busy host"
    assert said(compared(paired(base, busy))) == {"Not certain": text}

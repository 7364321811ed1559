"""A comparison as text: goldens of every form, the way back from JSON, and names that would steer a reader's terminal or page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from factories.cases import cases
from factories.comparisons import FIRST, LOSS, MEMORY, NOISY, SPEED, STEP, compared, entry, paired
from rich.cells import cell_len

from orchestrator.compare import gate
from orchestrator.compare.comparison import Comparison, Difference, Verdict
from orchestrator.compare.view import as_csv, as_json, as_markdown, as_svg, files, terminal, wording
from orchestrator.compare.view.wording import Which
from orchestrator.errors import OrchestratorError, ResultsError
from orchestrator.files.printable_text import is_printable

Golden = Callable[[str, str], None]

DRIVER = Difference(name="driver", base="570.86", new="580.12")
TORCH = Difference(name="torch", base="2.12.0", new="2.13.0")
CARD = Difference(name="gpu", base="NVIDIA H100", new="NVIDIA H200")


def times(factor: float) -> list[float]:
    return [value * factor for value in reversed(NOISY)]


def everything() -> Comparison:
    """A pair of each kind."""
    whole = {SPEED: NOISY, STEP: [0.4, 0.401, 0.399, 0.4, 0.4], MEMORY: [41.59 * 2**30] * 5, LOSS: [2.5] * 5}
    slower = {SPEED: times(0.95), STEP: [0.42, 0.421, 0.42, 0.419, 0.42], MEMORY: [45 * 2**30] * 5, LOSS: [2.2] * 5}
    wide = (970.0, 1030.0, 1000.0)
    around = {"environment": (DRIVER, TORCH)}
    learning = (Difference(name="learning_rate", base="2e-5", new="1e-5"),)
    turns = entry("llama-1b · liger · 1 GPU", {SPEED: NOISY}, started_at=range(0, 10, 2))
    faster = entry("llama-1b · liger · 1 GPU", {SPEED: times(1.06)}, started_at=range(1, 10, 2))
    return compared(
        paired(
            entry("llama-1b · none · 1 GPU", whole),
            entry("llama-1b · none · 1 GPU", slower),
            **around,
            arguments=learning,
        ),
        paired(turns, faster, **around),
        paired(entry("noisy", {SPEED: wide}), entry("noisy", {SPEED: [one * 0.97 for one in wide]}), **around),
        paired(entry("as before", whole), entry("as before", whole), **around),
        paired(entry("one run", {FIRST: [1.5]}), entry("one run", {FIRST: [2.0]}), **around),
        paired(entry("gone", whole), None),
        paired(None, entry("added", whole)),
        paired(entry("broken", whole), entry("broken"), **around),
        paired(entry("never ran"), entry("never ran"), **around),
        paired(entry("moved", whole), entry("moved", whole), environment=(CARD, DRIVER, TORCH), disqualifying=("gpu",)),
    )


def rounded(text: str) -> str:
    """The text with six digits of each number: the last ones hang on a machine's logarithm."""
    return re.sub(r"\b\d+\.\d{6,}(e-\d+)?\b", lambda found: f"{float(found[0]):.6g}", text)


def said(comparison: Comparison) -> str:
    return wording.conclusion(comparison, gate.DEFAULT)


@pytest.mark.parametrize("width", [80, 140])
def test_the_terminal(golden: Golden, width: int) -> None:
    text = terminal.text(everything(), width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    golden(f"compare/terminal-{width}.txt", text)


def test_the_terminal_with_everything(golden: Golden) -> None:
    golden("compare/terminal-all.txt", terminal.text(everything(), width=80, everything=True))


def test_the_card(golden: Golden) -> None:
    comparison = everything()
    golden("compare/card.svg", as_svg.text(comparison, conclusion=said(comparison)))


def test_a_card_is_whole_and_hostile_names_are_text_in_it() -> None:
    card = ElementTree.fromstring(as_svg.text(hostile(), conclusion=HOSTILE))
    tags = {element.tag.rpartition("}")[2] for element in card.iter()}
    assert tags <= {"svg", "title", "rect", "text", "line", "circle", "path"}
    assert not [name for element in card.iter() for name in element.attrib if name.startswith("on") or "href" in name]


def test_markdown(golden: Golden) -> None:
    comparison = everything()
    golden("compare/comment.md", as_markdown.text(comparison, conclusion=said(comparison), everything=True))


def test_csv(golden: Golden) -> None:
    golden("compare/rows.csv", rounded(as_csv.text(everything(), everything=True)))


def test_json(golden: Golden) -> None:
    one = everything()
    small = replace(one, pairs=one.pairs[2:3], rows=tuple(row for row in one.rows if row.label == "noisy"))
    golden("compare/comparison.json", rounded(as_json.text(small)))


def test_the_worst_comes_first_and_no_news_last() -> None:
    labels = [block.pair.label for block in wording.blocks(everything(), Which.ALL)]
    assert labels[:2] == ["broken", "llama-1b · none · 1 GPU"]
    assert labels[-1] == "never ran"
    shown = [row.verdict for block in wording.blocks(everything(), Which.NOTABLE) for row in block.rows]
    assert Verdict.SAME not in shown and Verdict.UNTESTED not in shown
    folded = wording.blocks(everything(), Which.UNCHANGED)
    both = sum(len(block.rows) for block in (*wording.blocks(everything(), Which.NOTABLE), *folded))
    assert both == len(everything().rows)


def test_every_row_is_counted_once() -> None:
    counts = re.findall(r"(\d+) [a-z]", wording.counted(everything()))
    assert sum(map(int, counts)) == len(everything().rows)


@pytest.mark.parametrize(("ratio", "text"), cases("compare_view/a_change_in_percent"))
def test_a_change_in_percent(ratio: float, text: str) -> None:
    assert wording.percent(ratio) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.969, 1.02, "-3.1% to +2.0%"),
        (0.969, 12.0, "×0.969 to ×12"),
        (0.05, 1.0, "×0.05 to ×1"),
        (0.05, 20.0, "×0.05 to ×20"),
    ],
)
def test_both_ends_of_an_interval_have_one_unit(low: float, high: float, text: str) -> None:
    assert wording.span(low, high) == text
    assert wording.range_of(low, high) == text and wording.range_of(low, low) == wording.percent(low)


# Back from JSON


def test_long_values_that_begin_alike_are_shown_from_their_difference() -> None:
    start = "python train.py " + "--option value " * 10
    differing = Difference(name="custom.command", base=f"{start}--kind x", new=f"{start}--kind y")
    assert wording.difference(differing) == "custom.command: …option value --kind x → …option value --kind y"


def test_a_comparison_comes_back_from_its_own_text(tmp_path: Path) -> None:
    file = tmp_path / "comparison.json"
    file.write_text(as_json.text(everything()))
    assert as_json.load(file) == everything()


def test_the_pairs_hold_what_was_compared_alone() -> None:
    numbers = {SPEED: NOISY, "of no interest": NOISY}
    (pair,) = compared(paired(entry("a", numbers), entry("a", numbers))).pairs
    assert pair.base is not None and set(pair.base.runs[0].numbers) == {SPEED}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{}",
        '{"kind": "tunebench comparison"}',
        '{"kind": "tunebench comparison", "schema_version": 99}',
        '{"kind": "tunebench comparison", "schema_version": 1, "base": "a", "new": "b", "pairs": 5, "rows": [], "fleet": []}',
        '{"kind": "tunebench comparison", "schema_version": 1, "base": "a", "new": "b", "pairs": [], "fleet": [], "rows": '
        '[{"label": "a", "metric": "m", "verdict": "better"}]}',
        '{"kind": "tunebench comparison", "schema_version": 1, "base": "a", "new": "b", "pairs": [], "fleet": [], "rows": '
        '[{"label": "a", "metric": "m", "verdict": "same", "base": 1e999}]}',
        '{"kind": "tunebench comparison", "schema_version": 1, "base": "a", "new": "b", "pairs": [], "rows": [], "fleet": '
        '[{"metric": "m", "verdict": "same", "pairs": 2, "ratio": {"value": 0, "interval": null, "p": null, "n_base": 1, '
        '"n_new": 1}}]}',
        "[" * 100_000,
        '{"kind": "tunebench comparison", "schema_version": NaN}',
    ],
)
def test_what_is_no_comparison_is_refused_in_a_sentence(tmp_path: Path, document: str) -> None:
    file = tmp_path / "comparison.json"
    file.write_text(document)
    with pytest.raises(ResultsError) as refused:
        as_json.load(file)
    assert str(refused.value).startswith(f"{file}: this is not a comparison: ")
    assert len(str(refused.value)) < 1000


def test_a_missing_file_says_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="--output"):
        as_json.load(tmp_path / "comparison.json")


# Names from anywhere

HOSTILE = (
    "</details><script>alert(1)</script>| [x](javascript:alert(1)) `~ *a* _b_ @team https://evil.example &lt; # =1+1 "
    "\x1b]0;t\x07 \u202e \r\n- x"
)


def hostile() -> Comparison:
    one = entry(HOSTILE, {SPEED: NOISY, f"{HOSTILE}_s": NOISY}, arguments={HOSTILE: HOSTILE})
    other = entry(HOSTILE, {SPEED: times(0.9), f"{HOSTILE}_s": NOISY})
    around = Difference(name=HOSTILE, base=HOSTILE, new=None)
    pairs = (
        paired(one, other, environment=(around,), arguments=(around,)),
        paired(one, entry(HOSTILE, failure=HOSTILE)),
        paired(one, other, environment=(around,), disqualifying=(HOSTILE,)),
    )
    found = compared(*pairs)
    return replace(found, base=HOSTILE, new=HOSTILE, warnings=(HOSTILE,), environment=(around,))


def test_hostile_names_steer_no_terminal() -> None:
    for text in (
        terminal.text(hostile(), everything=True),
        as_markdown.text(hostile(), conclusion=HOSTILE, everything=True),
    ):
        assert all(is_printable(line) for line in text.split("\n"))
    assert is_printable(as_json.text(hostile()).replace("\n", ""))


def test_hostile_names_are_no_markdown() -> None:
    text = as_markdown.text(hostile(), conclusion=HOSTILE, everything=True)
    ours = re.sub(r"</?(details|summary|sub)>|<!-- (tunebench compare )?-->", "", text)
    assert "<" not in ours and ">" not in ours
    assert text.count("<details>") == text.count("</details>") > 0
    assert "](" not in text.replace("\\[x](", "") and "@team" not in text and "https://evil" not in text
    assert not re.search(r"(?<!\\)[`*~]", ours.replace("**", ""))
    widths = {
        len(re.findall(r"(?<!\\)\|", line))
        for line in text.splitlines()
        if line.startswith("| ") and "javascript" in line
    }
    assert widths <= {5, 6, 8}, "no cell of a name becomes two"


def test_hostile_names_come_back_from_json_as_they_were() -> None:
    assert as_json.parse(json.loads(as_json.text(hostile()))) == hostile()


def test_a_comment_stays_within_what_github_takes() -> None:
    pairs = [
        paired(entry(f"{n} {HOSTILE}", {SPEED: NOISY}), entry(f"{n} {HOSTILE}", {SPEED: times(0.9)}))
        for n in range(3000)
    ]
    comparison = compared(*pairs)
    text = as_markdown.text(comparison, conclusion=said(comparison), everything=True)
    assert len(text) < 65_536
    assert re.search(r"and \d+ more rows", text)


def test_a_terminal_shows_the_worst_of_thousands() -> None:
    pairs = [
        paired(entry(str(n), {SPEED: NOISY}), entry(str(n), {SPEED: times(0.9 - n / 10_000)})) for n in range(3000)
    ]
    text = terminal.text(compared(*pairs))
    assert "and 2900 more experiments" in text
    assert "\n2999\n" in text and "\n0\n" not in text


# Files


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target.json"
    target.write_text(as_json.text(everything()))
    (tmp_path / "link.json").symlink_to(target)
    with pytest.raises(OrchestratorError, match="another file"):
        files.write(tmp_path / "link.json", "{}")

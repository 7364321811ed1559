"""A text is masked before it is cut: a cut leaves half a secret, which nothing recognises any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.files.printable_text import one_line, quoted
from orchestrator.measure.gpu_timeline import sampler_file
from orchestrator.measure.steps.printed import StepLines
from orchestrator.plan.config.argument_text import shown
from orchestrator.records import CustomCommand, MetricSource
from orchestrator.trainers.external import custom
from orchestrator.workers.instrument.instrument import LONGEST_TEXT, whole_lines, whole_words

SECRET = "Tr0ub4dor-and-3xtra-Horse9"
BEFORE = range(30, 81, 5)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", SECRET)


def assert_hidden(text: str | None) -> None:
    assert text and SECRET[:8] not in text, text


@pytest.mark.parametrize("before", BEFORE)
def test_no_cut_text_has_half_a_secret(tmp_path: Path, before: int) -> None:
    text = "x" * before + SECRET + "y" * 200
    for form in (one_line(text), quoted(text), shown(text), sampler_file.parse(text).problem):
        assert_hidden(form)
    lines = StepLines()
    lines.feed(json.dumps({"step": 1, "seconds": text}).encode() + b"\n")
    assert_hidden(lines.note)
    (tmp_path / "stdout.log").write_text(json.dumps({"train_loss": text}))
    command = CustomCommand(command=("x",), results="stdout", metrics={"train_loss": MetricSource(key="train_loss")})
    (found,) = custom.read_metrics(command, tmp_path)
    assert found.missing is not None
    assert_hidden(found.missing.detail)


def test_the_error_of_a_rank_is_cut_between_words_and_lines() -> None:
    """A rank does not mask. Its file is masked later, and so it must not contain half a secret."""
    text = "word " * (LONGEST_TEXT // 5 - 2) + SECRET + "\nline" * LONGEST_TEXT
    assert whole_words(text) == ("word " * (LONGEST_TEXT // 5 - 2)).strip()
    assert set(whole_lines(text).split("\n")) == {"line"} and whole_lines("short") == whole_words("short") == "short"

"""docs/failures.md, made from the table of failure kinds; a test compares the page in the repository with it."""

from __future__ import annotations

from orchestrator.measure.failure_kinds import KINDS, FailureKind
from orchestrator.measure.metrics import DASH

_INTRODUCTION = """# Kinds of failure

Made from `orchestrator/measure/failure_kinds.py`; a test holds the two together (`pytest --accept` writes this page anew).

`kind` in a run's `record.json` is one of these words, and so is `failure_kind` in the CSV files; `--retry-failed` takes them.
`hint` in the record is the advice below, or advice that was made from the error.
The rows are in the order in which an error is searched.

| kind | what happened | what to do | note |
|---|---|---|---|
"""
_RETRIED, _FOLLOWS = "tried again by itself", "counts only where no rank failed with another kind"


def page() -> str:
    """Return the text of docs/failures.md."""
    return _INTRODUCTION + "".join(map(_row, KINDS.values()))


def _row(kind: FailureKind) -> str:
    advice = "made from the error" if callable(kind.hint) else kind.hint or DASH
    note = _RETRIED if kind.retried else _FOLLOWS if kind.follows else DASH
    return f"| `{kind.word}` | {kind.meaning} | {advice} | {note} |\n"

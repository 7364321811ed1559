"""The text of docs/failures.md, made from the table of failure kinds. A test compares it with the page in the repository."""

from __future__ import annotations

from orchestrator.measure.failure_kinds import KINDS, FailureKind
from orchestrator.measure.metrics import DASH

_INTRODUCTION = """# Kinds of failure

Made from `orchestrator/measure/failure_kinds.py`. A test compares this page with that file, and `pytest --accept` writes the
page again.

`kind` in a run's `record.json` is one of these words, and so is `failure_kind` in the CSV files. `--retry-failed` accepts them.
`hint` in the record is the advice below, or advice that was made from the error.
An error is compared with the kinds in this order.

| kind | what happened | what to do | note |
|---|---|---|---|
"""
_RETRIED, _FOLLOWS = "retried automatically", "counts only if no rank failed with another kind"


def page() -> str:
    """Return the text of docs/failures.md."""
    return _INTRODUCTION + "".join(map(_row, KINDS.values()))


def _row(kind: FailureKind) -> str:
    advice = "made from the error" if callable(kind.hint) else kind.hint or DASH
    note = _RETRIED if kind.retried else _FOLLOWS if kind.follows else DASH
    return f"| `{kind.word}` | {kind.meaning} | {advice} | {note} |\n"

"""Values with commas, and the question before a long campaign, for several sub-commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import typer

from orchestrator.errors import OrchestratorError


def words(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the words of an option that may be repeated and may contain commas."""
    return tuple(word for text in texts or () for word in text.split(",") if word)


def confirm(gpu_hours: float, *, above: float, yes: bool) -> None:
    """Ask before a long campaign. Raises OrchestratorError where the answer is no, or nobody can answer."""
    if yes or gpu_hours <= above:
        return
    question = f"This may take {gpu_hours:.1f} GPU-hours (more than --confirm-above {above:g}). Start it?"
    if not sys.stdin.isatty():
        raise OrchestratorError(f"{question} Nobody is here to answer: add --yes.")
    if not typer.confirm(question, err=True):
        raise OrchestratorError("Not started.")

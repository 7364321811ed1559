"""What several sub-commands make of what they were given: words between commas, and the question before a long campaign."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import typer

from orchestrator.errors import OrchestratorError


def words(texts: Iterable[str] | None) -> tuple[str, ...]:
    """The words of an option that may be repeated and may hold several with commas."""
    return tuple(word for text in texts or () for word in text.split(",") if word)


def confirm(gpu_hours: float, *, above: float, yes: bool) -> None:
    """Asks before much is run. Raises OrchestratorError where the answer is no, or nobody is there to give one."""
    if yes or gpu_hours <= above:
        return
    question = f"This may take {gpu_hours:.1f} GPU-hours (more than --confirm-above {above:g}). Start it?"
    if not sys.stdin.isatty():
        raise OrchestratorError(f"{question} Nobody is here to answer: add --yes.")
    if not typer.confirm(question, err=True):
        raise OrchestratorError("Not started.")

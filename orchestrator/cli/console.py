"""Input and output of the command: two consoles, plain text for other programs, the question before a long campaign.

Only `cli` prints, and it prints here. Names and logs may contain codes that steer a terminal; only rich's own codes reach it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.errors import OrchestratorError
from orchestrator.files.printable_text import printable


class _Output(Console):
    """A console that becomes silent when its reader leaves early (`| head`). The campaign and its report go on."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


out = _Output(highlight=False)
err = _Output(stderr=True, highlight=False)


def say(text: str) -> None:
    """Print a line on stdout, unwrapped."""
    out.print(text, markup=False, soft_wrap=True)


def tell(text: str) -> None:
    """Print a line on stderr, unwrapped."""
    err.print(text, markup=False, soft_wrap=True)


def print_raw(pieces: Iterable[str]) -> None:
    """Print text for another program, unchanged. On a terminal, show its control characters instead of sending them."""
    on_terminal = sys.stdout.isatty()
    try:
        for piece in pieces:
            sys.stdout.write(printable(piece) if on_terminal else piece)
        sys.stdout.flush()
    except BrokenPipeError:
        out.on_broken_pipe()


def words(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the words of an option that may be repeated and may contain commas."""
    return tuple(word for text in texts or () for word in text.split(",") if word)


def confirm(gpu_hours: float, *, above: float, yes: bool) -> None:
    """Ask before a long campaign. Raise OrchestratorError if the answer is no, or if there is no terminal to ask on."""
    if yes or gpu_hours <= above:
        return
    question = f"This may take {gpu_hours:.1f} GPU-hours (more than --confirm-above {above:g}). Start it?"
    if not sys.stdin.isatty():
        raise OrchestratorError(f"{question} Without a terminal, add --yes.")
    if not typer.confirm(question, err=True):
        raise OrchestratorError("Not started.")

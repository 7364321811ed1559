"""The two consoles of the command, and plain text for other programs.

Only `cli` prints, and it prints here. Names and logs may contain codes that steer a terminal; only rich's own codes reach it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.files.printable_text import printable


class _Output(Console):
    """A console that goes on in silence when its reader leaves early (`| head`), so that the campaign and its report go on."""

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

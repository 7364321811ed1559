"""What the command prints with: the two consoles, and plain text for other programs.

Beside `cli` itself the only place from which anything is printed. Names and logs may hold what steers a terminal: of all that is
printed, only rich's own codes do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.printable import printable


class _Output(Console):
    """A reader who leaves early (`| head`) ends neither a campaign nor its report: what follows goes nowhere."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


out = _Output(highlight=False)
err = _Output(stderr=True, highlight=False)


def say(text: str) -> None:
    """A line on stdout, in full length."""
    out.print(text, markup=False, soft_wrap=True)


def tell(text: str) -> None:
    """A line on stderr, in full length."""
    err.print(text, markup=False, soft_wrap=True)


def print_raw(pieces: Iterable[str]) -> None:
    """Text for another program: as it is, unwrapped; on a terminal, what steers it is made visible."""
    on_terminal = sys.stdout.isatty()
    try:
        for piece in pieces:
            sys.stdout.write(printable(piece) if on_terminal else piece)
        sys.stdout.flush()
    except BrokenPipeError:
        out.on_broken_pipe()

"""Input and output of the command: two consoles, plain text for other programs, and the question before a long campaign.

Only the package `cli` prints, and it prints with this module. Names and logs may contain control codes of terminals. These codes
are shown as visible characters. Only rich's own codes control the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import typer

from orchestrator.errors import OrchestratorError
from orchestrator.files.printable_text import printable, without_numbers
from orchestrator.files.redaction import redact_values, secret_variables

if TYPE_CHECKING:
    from rich.table import Table

    from orchestrator.cli.terminal.output import Output


_MOST_ALIKE = 3
# Nothing is wrapped at this width.
_WIDE = 10_000


@cache
def out() -> Output:
    """Return the console on stdout. rich is imported inside the function, because `--help` does not need it."""
    from orchestrator.cli.terminal.output import Output

    return Output()


@cache
def err() -> Output:
    """Return the console on stderr."""
    from orchestrator.cli.terminal.output import Output

    return Output(stderr=True)


def say(text: str) -> None:
    """Print a line on stdout without wrapping it."""
    out().print(text, markup=False, soft_wrap=True)


def tell(text: str) -> None:
    """Print a line on stderr without wrapping it."""
    err().print(text, markup=False, soft_wrap=True)


def width() -> int:
    """Return the width of the terminal, or that of COLUMNS. For a file or another program, return a width that wraps nothing."""
    has_width = out().is_terminal or os.environ.get("COLUMNS", "").strip("0")
    return out().width if has_width else _WIDE


def print_table(table: Table) -> None:
    """Print a table on stdout, at most as wide as `width`."""
    options = out().options.update(width=width())
    table.width = out().measure(table, options=options).maximum
    out().print(table, crop=False)


def tell_warnings(sentences: Iterable[str]) -> None:
    """Print warnings on stderr. Of many warnings that differ only in their subject and their numbers, print the first.

    The subject is the text before the first colon, such as an experiment's id.
    """
    alike: dict[str, list[str]] = {}
    for sentence in sentences:
        _, colon, rest = sentence.partition(": ")
        alike.setdefault(without_numbers(rest if colon else sentence), []).append(sentence)
    for group in alike.values():
        shown = group if len(group) <= _MOST_ALIKE else group[:1]
        for sentence in shown:
            more = f" (and {len(group) - 1} more like this)" if shown != group else ""
            tell(f"warning: {sentence}{more}")


def print_raw(pieces: Iterable[str]) -> None:
    """Print text that another program may read, with the values of secret variables masked.

    For a terminal, show control characters as visible text.
    """
    on_terminal, variables = sys.stdout.isatty(), secret_variables(os.environ)
    for piece in pieces:
        masked = redact_values(piece, variables)
        sys.stdout.write(printable(masked) if on_terminal else masked)
    sys.stdout.flush()


def words(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the values of an option. The user may repeat the option, or give several values, separated by commas."""
    return tuple(word for text in texts or () for word in text.split(",") if word)


def confirm(gpu_hours: float, *, above: float, yes: bool) -> None:
    """Ask before a long campaign. Raise OrchestratorError if the answer is no, or if there is no terminal for the question."""
    if yes or gpu_hours <= above:
        return
    fact = f"this may take {gpu_hours:.1f} GPU-hours (more than --confirm-above {above:g})"
    if not sys.stdin.isatty():
        raise OrchestratorError(f"{fact}, and there is no terminal for a question; to start it, add --yes")
    if not typer.confirm(f"T{fact[1:]}. Start it?", err=True):
        raise OrchestratorError("not started, as you answered; to start it, repeat the command")

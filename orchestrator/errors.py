"""The errors that a user can see, as exceptions. `cli` catches them, prints their sentences and exits with code 2.

A failed experiment is not an exception: it is a record (see `records.RunRecord`).
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path


class OrchestratorError(Exception):
    """An error whose text says what is wrong and what to do. The subclass says what kind of mistake it is."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One mistake in a file. `line` and `column` count from 1; line 0 means the whole file."""

    file: Path | str
    line: int = 0
    column: int = 0
    message: str

    def __str__(self) -> str:
        place = str(self.file)
        if self.line:
            place += f":{self.line}" + (f":{self.column}" if self.column else "")
        return f"{place}: {self.message}"


class ConfigError(OrchestratorError):
    """Mistakes in the YAML files, reported together, each with its file, line and column. The text lists at most MOST mistakes."""

    MOST = 100

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in problems[: self.MOST]]
        more = len(problems) - len(lines)
        super().__init__("\n".join(lines + [f"and {more:,} more mistakes; correct these first"] * bool(more)))


class SelectionError(OrchestratorError):
    """A choice on the command line that matches nothing: a scenario, an axis, a GPU, `--set`."""


class ResultsError(OrchestratorError):
    """A results folder that is missing, is not Tunebench's, or belongs to another campaign."""


class LaunchError(OrchestratorError):
    """A program that could not be started, for example because its interpreter is missing or no port is free."""


class NoAnswer(LaunchError):
    """A program was killed, or gave no answer in time. What it was asked to do may have been done."""


class PreparationError(OrchestratorError):
    """Training data that could not be prepared."""


class BuildError(OrchestratorError):
    """A software environment that could not be built or removed, or that is missing."""


REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable and readable"),
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def remedy(error: OSError) -> str:
    """Return the advice for a file that the system refused to read or write."""
    return REMEDIES.get(error.errno or 0, "check the path and its disk")


_MEANT_BY = {"gpu": "cuda"}  # `gpu` means `cuda`, but is spelled more like `cpu`


def similar(word: object, allowed: Iterable[str]) -> str | None:
    """Return the allowed word that a user probably meant, or None."""
    names = [str(name) for name in allowed]
    meant = [name for name in names if name == _MEANT_BY.get(str(word).lower())]
    return next(iter(meant or get_close_matches(str(word), names, n=1, cutoff=0.6)), None)


def suggestion(word: object, allowed: Iterable[str]) -> str:
    """Return the end of an error's text.

    It asks `did you mean 'x'?` if an allowed word is similar. Then it lists the allowed words.
    """
    names = sorted(str(name) for name in allowed)
    near = similar(word, names)
    hint = f"; did you mean {near!r}?" if near else "."
    shown = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    return f"{hint} Allowed: {shown}" if names else "; none is defined"

"""The mistakes of a user, as exceptions; caught once, in `cli`.

    OrchestratorError            exit code 2, one or more sentences, never a traceback
    ├── ConfigError              a YAML file: each problem with file:line:column, what is allowed, what to do
    ├── SelectionError           a command-line choice that matches nothing (scenario, axis, `--set`)
    ├── ResultsError             a results folder that is not ours, is missing, or does not match
    ├── LaunchError              a run that can't be started: no interpreter, no free port
    └── PreparationError         the training data could not be prepared

A failed experiment is not an exception: it is a record (see `records.RunRecord`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path


class OrchestratorError(Exception):
    """A sentence for the user, with the next action in it."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One mistake in a file. `line` and `column` count from 1; 0 means the whole file."""

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
    """One or more mistakes in the YAML files, reported together."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class SelectionError(OrchestratorError):
    """A choice on the command line that nothing in the files answers to."""


class ResultsError(OrchestratorError):
    """A results folder that is missing, is not ours, or holds other work."""


class LaunchError(OrchestratorError):
    """A run that could not be started at all."""


class PreparationError(OrchestratorError):
    """The training data could not be prepared."""


_MEANT_BY = {"gpu": "cuda"}  # the letters say cpu


def suggestion(word: object, allowed: Iterable[str]) -> str:
    """`; did you mean 'x'?` where something allowed is near, and what is allowed in any case."""
    names = sorted(str(name) for name in allowed)
    near = [name for name in names if name == _MEANT_BY.get(str(word).lower())]
    near = near or get_close_matches(str(word), names, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    shown = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    return f"{hint} Allowed: {shown}" if names else "; none is defined"

"""The interface of trackers: the values that they receive and return, and checks of a tracker's package and output folder.

Numbers have the names and base units of `measure.metrics`; times are seconds since the epoch. Texts contain no secrets.
`reading` makes the values, and each target's module sends them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from orchestrator.errors import OrchestratorError
from orchestrator.files.reading import resolved
from orchestrator.results import folder as results_folder


class Status(StrEnum):
    """The outcome of a run in the words of trackers. The tag `status` has Tunebench's own word."""

    OK = "ok"
    FAILED = "failed"
    KILLED = "killed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A value at a moment. `step` is the optimizer step. For monitors, `step` counts milliseconds since the first reading."""

    step: int
    at: float
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackerRun:
    """One run in the form that trackers expect.

    `key` is unique over all campaigns, and is the same in each export. `name` is unique too, because it ends with the first
    digits of the key. `params` are the user's choices, and `tags` are other facts. `metrics` are single numbers, and `series`
    are numbers over time. `texts` are files.
    """

    key: str
    name: str
    experiment: str
    status: Status
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    started_at: float | None = None
    ended_at: float | None = None
    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.experiment} {self.name}"


class Tracker(Protocol):
    """A place that receives runs, open during one export."""

    # The place of the runs, as a text to show. It contains no secrets.
    place: str

    def has(self, run: TrackerRun) -> bool:
        """Return whether the tracker has the complete run."""
        ...

    def add(self, run: TrackerRun) -> list[str]:
        """Send the run, or send it again after an interrupted export.

        Return sentences about values that the tracker cannot store.
        """
        ...


class Open(Protocol):
    """A function that opens a tracker. If it waits for another export, it gives `say` one sentence.

    It raises OrchestratorError if the package is missing, or if the tracker's folder or server is not available.
    """

    def __call__(
        self, destination: str | None, *, project: str, say: Callable[[str], None]
    ) -> AbstractContextManager[Tracker]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """The result of an export: how many runs are new, how many the tracker had before (`already`), and warnings."""

    place: str
    new: int
    already: int
    warnings: tuple[str, ...] = ()


@contextmanager
def package_of(target: str) -> Iterator[None]:
    """Run the imports of a target's module inside a `with` block.

    If a package is missing, raise OrchestratorError with the name of the extra to install.
    """
    try:
        yield
    except ImportError as error:
        raise OrchestratorError(
            f"--to {target}: a package is missing ({error}); install it with pip install 'tunebench[{target}]'"
        ) from error


def outside_of_results(folder: Path) -> Path:
    """Return the folder. Raise OrchestratorError if it is an address, or in a results folder, which contains only results."""
    if re.match(r"[a-z][a-z0-9+.-]*:/", str(folder)):
        address = str(folder).replace(":/", "://", 1)
        raise OrchestratorError(f"--dest {address}: an address needs --to mlflow; name a folder")
    absolute = resolved(folder)
    around = next((parent for parent in (absolute, *absolute.parents) if results_folder.is_ours(parent)), None)
    if around is not None:
        raise OrchestratorError(f"{folder}: this is in the results folder {around}; name another folder with --dest")
    return folder


def as_code(text: str) -> str:
    """Return the text as a code block of Markdown, indented, so that no line of the text can end the block."""
    return "\n".join(f"    {line}" for line in text.splitlines())

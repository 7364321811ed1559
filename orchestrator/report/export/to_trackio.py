"""Runs as Trackio's, in a local folder; `trackio show` or `trackio sync` take them from there.

A run of ours is known again by its name, which its key is part of. Trackio drops what it dislikes with a warning: those are said.

What it leaves out: Trackio stamps points with the time of the export, and has one axis of steps: what monitors saw has `time_s`
beside it. An export that was killed amid a run leaves a part of it, which counts as there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from orchestrator.errors import OrchestratorError
from orchestrator.report.export.to_wandb import rows
from orchestrator.report.export.tracker import Tracker, TrackerRun, outside_of_results, package_of

FOLDER_VARIABLE, ELSEWHERE = "TRACKIO_DIR", ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


@contextmanager
def opened(destination: str | None, *, project: str) -> Iterator[Tracker]:
    """Open the folder of Trackio's databases: `destination`, else TRACKIO_DIR, else Trackio's own."""
    for name in ELSEWHERE:
        if os.environ.get(name):
            raise OrchestratorError(
                f"{name} is set: Tunebench hands runs to Trackio in a local folder, where it can see which are there; "
                "unset it, export, then send the project on with `trackio sync`"
            )
    if destination is not None:
        os.environ[FOLDER_VARIABLE] = str(outside_of_results(Path(destination)))  # read once, at import
    with package_of("trackio"):
        import trackio
    with redirect_stdout(StringIO()):  # it says hints there
        yield _Project(trackio, name=project)


class _Project:
    def __init__(self, trackio: Any, *, name: str) -> None:
        self.place = f"project {name} in {trackio.TRACKIO_DIR}"
        self._trackio, self._name = trackio, name
        try:
            self._there = {str(run.name) for run in trackio.Api().runs(name)}
        except ValueError:  # there is no such project yet
            self._there = set()

    def has(self, run: TrackerRun) -> bool:
        return _name(run) in self._there

    def add(self, run: TrackerRun) -> list[str]:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            handed = self._trackio.init(
                project=self._name,
                name=_name(run),
                group=run.experiment,
                config={**run.params, "tags": dict(run.tags)},
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
            for number, row in enumerate(rows(run.series)):
                handed.log(row, step=int(row.get("optimizer_step", number)))
            texts = {name: self._trackio.Markdown(_as_code(text)) for name, text in run.texts.items()}
            handed.log({**run.metrics, **texts}, step=0)
            self._trackio.finish()
        return [str(one.message) for one in said]


def _name(run: TrackerRun) -> str:
    return f"{run.experiment} {run.name}"


def _as_code(text: str) -> str:
    """An indented block, which no line of the text can end."""
    return "\n".join(f"    {line}" for line in text.splitlines())

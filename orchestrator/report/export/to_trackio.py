"""Runs in Trackio, in a local folder. `trackio show` and `trackio sync` read them there.

A run is recognised by its name, which contains its key. Trackio drops some values with a warning. The export repeats this warning.

What it leaves out: in Trackio, the time of a point is the time of the export, and there is only one axis of steps. So the
series of monitors also have a column `time_s`. If an export is killed during a run, Trackio keeps a part of the run. The next
export takes this part for the whole run.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from orchestrator.errors import OrchestratorError
from orchestrator.report.export.to_wandb import rows
from orchestrator.report.export.tracker import Tracker, TrackerRun, as_code, outside_of_results, package_of

# Words of a warning of Trackio 0.43.
_NOT_STORED = "could not be persisted"
FOLDER_VARIABLE, ELSEWHERE = "TRACKIO_DIR", ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


@contextmanager
def opened(destination: str | None, *, project: str, say: Callable[[str], None]) -> Iterator[Tracker]:
    """Open the folder of Trackio's databases: `destination`, or else TRACKIO_DIR, or else Trackio's default."""
    for name in ELSEWHERE:
        if os.environ.get(name):
            raise OrchestratorError(
                f"{name} is set, but Tunebench exports to Trackio only into a local folder, where it can see which runs exist; "
                f"unset {name}, export, then upload the project with `trackio sync`"
            )
    if destination is not None:
        os.environ[FOLDER_VARIABLE] = str(outside_of_results(Path(destination)))  # the import reads it, and only once
    with package_of("trackio"):
        import trackio
    with redirect_stdout(StringIO()):  # Trackio prints hints
        yield _Project(trackio, name=project)


class _Project:
    def __init__(self, trackio: Any, *, name: str) -> None:
        self.place = f"project {name} in {trackio.TRACKIO_DIR}"
        self._trackio, self._name = trackio, name
        try:
            self._known = {str(run.name) for run in trackio.Api().runs(name)}
        except ValueError:  # the project does not exist yet
            self._known = set()

    def has(self, run: TrackerRun) -> bool:
        return run.full_name in self._known

    def add(self, run: TrackerRun) -> list[str]:
        """Send the run. Raise OrchestratorError if it was not stored: Trackio only warns of that."""
        reserved = [name for name in run.params if name.startswith("_")]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            session = self._trackio.init(
                project=self._name,
                name=run.full_name,
                group=run.experiment,
                config={
                    **{name: run.params[name] for name in run.params if name not in reserved},
                    "tags": dict(run.tags),
                },
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
            for number, row in enumerate(rows(run.series)):
                session.log(row, step=int(row.get("optimizer_step", number)))
            texts = {name: self._trackio.Markdown(as_code(text)) for name, text in run.texts.items()}
            session.log({**run.metrics, **texts}, step=0)
            self._trackio.finish()
        said = [str(warning.message) for warning in caught]
        lost = next((sentence for sentence in said if _NOT_STORED in sentence), None)
        if lost:
            why = lost.partition(". User code")[0]
            raise OrchestratorError(f"trackio did not store {run.full_name}: {why}; name another folder with --dest")
        return [
            *said,
            *([f"Trackio reserves names that begin with _, so it has no {', '.join(reserved)}"] if reserved else []),
        ]

"""Runs in Weights & Biases: on the server that you are logged in to. With WANDB_MODE=offline they are in a local folder.

The id of a run is its key. A completed export leaves a marker with the project's name in the run's local folder, and the next
export looks for this marker. If it finds none and is not offline, it asks the server for the run.

What it leaves out: in W&B, the time of a point is the time of the export. The columns `time_s` and `optimizer_step` have the run's
times and steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.errors import OrchestratorError
from orchestrator.report.export.tracker import Point, Status, Tracker, TrackerRun, outside_of_results, package_of

WHOLE = "handed-over-by-tunebench"
STEP, TIME = "optimizer_step", "time_s"


@contextmanager
def opened(destination: str | None, *, project: str, say: Callable[[str], None]) -> Iterator[Tracker]:
    """Open W&B. Its folder `wandb/` is in `destination`, or else in the working folder."""
    with package_of("wandb"):
        import wandb
    folder = outside_of_results(Path(destination or "."))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OrchestratorError(
            f"--dest {destination}: the folder cannot be made ({error.strerror}); name another folder"
        ) from error
    yield _Project(wandb, folder, name=project)


class _Project:
    def __init__(self, wandb: Any, folder: Path, *, name: str) -> None:
        self.place = f"project {name} (local files in {folder / 'wandb'})"
        self._wandb, self._folder, self._name = wandb, folder, name

    def has(self, run: TrackerRun) -> bool:
        markers = self._folder.glob(f"wandb/*run-*-{run.key}/{WHOLE}")
        # Markers of older versions are empty.
        if {marker.read_text(encoding="utf-8") for marker in markers} & {self._name, ""}:
            return True
        return os.environ.get("WANDB_MODE") not in ("offline", "disabled", "dryrun") and self._is_on_the_server(run)

    def _is_on_the_server(self, run: TrackerRun) -> bool:
        try:
            return str(self._wandb.Api().run(f"{self._name}/{run.key}").state) != "running"
        except (self._wandb.errors.CommError, ValueError):  # no run has this id
            return False

    def add(self, run: TrackerRun) -> list[str]:
        settings = self._wandb.Settings(
            console="off", silent=True, disable_git=True, save_code=False,
            x_disable_stats=True, x_disable_meta=True, x_save_requirements=False,  # they describe this process, not the run
        )  # fmt: skip
        session = self._wandb.init(
            project=self._name,
            dir=str(self._folder),
            id=run.key,
            name=run.full_name[:128],
            group=run.experiment[:128],
            config={**run.params, "tags": dict(run.tags)},
            reinit="create_new",
            settings=settings,
        )
        for prefix, axis in (("steps/*", STEP), ("gpu*", TIME)):
            session.define_metric(axis, hidden=True)
            session.define_metric(prefix, step_metric=axis)
        for row in rows(run.series):
            session.log(row)
        session.summary.update(dict(run.metrics))
        for name, text in run.texts.items():
            path = Path(session.dir, name)
            path.write_text(text, encoding="utf-8")
            session.save(str(path), base_path=session.dir, policy="end")
        session.finish(exit_code=0 if run.status is Status.OK else 1)
        (Path(session.dir).parent / WHOLE).write_text(self._name, encoding="utf-8")
        return []


def rows(series: Mapping[str, tuple[Point, ...]]) -> Iterator[dict[str, float]]:
    """Yield the series as rows: one row for each step, then one row for each moment of a monitor."""
    by_place: dict[tuple[str, int], dict[str, float]] = {}
    for name, points in series.items():
        of_steps = name.startswith("steps/")
        for point in points:
            axis = {STEP: float(point.step)} if of_steps else {TIME: point.step / 1000}
            by_place.setdefault((*axis, point.step), axis)[name] = point.value  # type: ignore[arg-type]
    yield from (by_place[place] for place in sorted(by_place))

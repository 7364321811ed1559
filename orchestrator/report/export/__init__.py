"""Exports the runs of a results folder to a tracker: TensorBoard, MLflow, Weights & Biases or Trackio.

TARGETS has a module for each tracker. Such a module imports the tracker's package only when the tracker is opened. The module
`reading` converts each run. A run that the tracker already has is not sent again. Nothing is written into a results folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from orchestrator.errors import OrchestratorError
from orchestrator.files.printable_text import refusal
from orchestrator.files.reading import resolved
from orchestrator.files.redaction import redact
from orchestrator.report.export import to_mlflow, to_tensorboard, to_trackio, to_wandb
from orchestrator.report.export.reading import read
from orchestrator.report.export.tracker import Exported, Open

__all__ = ["TARGETS", "Exported", "export"]

TARGETS: Mapping[str, Open] = {
    "tensorboard": to_tensorboard.opened,
    "mlflow": to_mlflow.opened,
    "wandb": to_wandb.opened,
    "trackio": to_trackio.opened,
}


def export(
    folder: Path,
    *,
    to: str,
    destination: str | None = None,
    project: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Send every ended run of a results folder to a tracker. `project` is the folder's name by default, with secrets masked.

    `say` gets a sentence if the export waits for another one. Raise OrchestratorError if the folder contains no results, if the
    tracker is not installed, or if it refuses a run.
    """
    reading = read(folder)
    notes: list[str] = []
    new = already = 0
    project = project or redact(resolved(folder).name)
    with (
        _plain_errors(to),
        TARGETS[to](destination, project=project, say=lambda sentence: say(redact(sentence))) as tracker,
    ):
        for run in reading.runs:
            if tracker.has(run):
                already += 1
                continue
            notes += [f"{run.experiment} {run.name}: {sentence}" for sentence in tracker.add(run)]
            new += 1
        place = tracker.place
    return Exported(place=redact(place), new=new, already=already, warnings=(*reading.warnings, *notes))


def _packages(error: Exception) -> set[str]:
    """Return the packages whose code the error went through."""
    return {str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}


@contextmanager
def _plain_errors(to: str) -> Iterator[None]:
    """Raise each error of a tracker as OrchestratorError. Such errors are: no network, no login, a database of another version.

    A file or folder that cannot be read or written is named as the other commands name it.
    """
    try:
        yield
    except OrchestratorError:
        raise
    except Exception as error:  # each package has its own exceptions, which are not defects of Tunebench
        if isinstance(error, OSError) and type(error).__module__ == "builtins" and error.filename and error.strerror:
            raise OrchestratorError(refusal(error)) from error  # a file or a folder here, not the tracker
        is_own = type(error).__module__.partition(".")[0] in ("builtins", "orchestrator")
        if is_own and not isinstance(error, OSError) and to not in _packages(error):
            raise
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise OrchestratorError(
            f"{to} refused: {why[0]:.500}; runs that were sent stay in the tracker, and the same command sends the rest"
        ) from error

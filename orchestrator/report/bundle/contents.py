"""Chooses by name which files of a results folder go into a bundle. Every other file is left out, with a reason.

Only files with listed names are taken. Checkpoints, files of the trainer and all other files are left out, and the manifest
names them. `experiments/` may be a link, since users move this folder to another disk. No other link is followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.files import reading
from orchestrator.files.redaction import LONGEST_SECRET, redact
from orchestrator.records import JobState
from orchestrator.records.experiment import SAFE_ID
from orchestrator.records.run_folder import MODULES
from orchestrator.report.bundle.archive import PACKED
from orchestrator.report.profile import trace
from orchestrator.report.profile.places import RUN_FOLDER as PROFILE
from orchestrator.results.claims import state
from orchestrator.trainers import instrumented

LOG_END_BYTES = 64 * 1024
_LARGEST_LOG = reading.LOG_BYTES
_LARGEST_FILE = reading.SUITE_BYTES

_OF_THE_CAMPAIGN = re.compile(
    r"(suite|race)\.json|([\w.+=-]+\.)?requirements\.txt|(benchmarks|raw_summary|ranks|devices|report|pivot|groups)\.(csv|json|md|html)"
)
_LOGS = re.compile(r"std(out|err)\.log|run-one\.log|stacks\.txt")
_OF_A_RUN = re.compile(
    r"(record|job|owner|worker-rank\d+|cost-[\w-]+)\.json|(steps|blocks)-rank\d+\.jsonl|samples-[\w-]+\.csv"
    r"|accelerate\.yaml|command\.sh|(neighbours|pids)\.txt|heartbeat"
)
_TRACE = re.compile(r"rank\d{1,6}\.json(\.gz)?", re.ASCII)
_RUN = re.compile(r"r[1-9]\d*-t[1-9]\d*")
_REQUEST = re.compile(r"[0-9a-f]+\.json")
_SCREEN = re.compile(r"\d{14}-[0-9a-f]{6}\.json", re.ASCII)
_EXPERIMENT = re.compile(r"experiment\.json")
# Results folders inside the results folder of a campaign.
_INSIDE = ("probes", "batches", "searches")  # `batches` is the older name of `searches`


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A file for the bundle: its path in the bundle, its source, and whether it is a log. Logs may be cut."""

    path: str
    source: Path
    is_log: bool = False

    @property
    def is_a_result(self) -> bool:
        """Return whether nothing ever removes this file: it is a record, an experiment or the campaign's own file."""
        return self.source.name in ("suite.json", "experiment.json", "record.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A file or folder that is left out, and the reason."""

    path: str
    why: str


def survey(root: Path, *, above: str = "") -> Iterator[Piece | LeftOut]:
    """Yield the files of a results folder, sorted by name. Each file is a Piece or LeftOut."""
    for path in sorted(root.iterdir()):
        name = f"{above}{path.name}"
        if path.is_symlink() and path.name != "experiments":
            yield LeftOut(path=name, why=_LINK)
        elif _OF_THE_CAMPAIGN.fullmatch(path.name):
            yield Piece(path=name, source=path)
        elif path.name == "asked" and path.is_dir():
            yield from (_judged(file, f"{name}/{file.name}", _REQUEST) for file in sorted(path.iterdir()))
        elif path.name == "screens" and path.is_dir():
            yield from (_judged(file, f"{name}/{file.name}", _SCREEN) for file in sorted(path.iterdir()))
        elif path.name == "experiments" and path.is_dir():
            for experiment in sorted(path.iterdir()):
                yield from _of_experiment(experiment, f"{name}/{experiment.name}")
        elif path.name in _INSIDE and not above and path.is_dir():
            yield from survey(path, above=f"{name}/")
        else:
            yield LeftOut(path=name, why=_PACKED if path.suffix == ".parquet" else _STRANGE)


_STRANGE = "not a file that Tunebench makes"
_LINK = "it is not a regular file; links are not followed"
PICKLE = "a pickle can run code when it is opened, and names in it cannot be hidden"
_PACKED = "not a text, so names in it cannot be hidden; `tunebench report --format parquet` makes it again"


def _of_experiment(folder: Path, name: str) -> Iterator[Piece | LeftOut]:
    if not SAFE_ID.fullmatch(folder.name) or not folder.is_dir():
        yield LeftOut(path=name, why="its name is not the id of an experiment")
        return
    if redact(folder.name) != folder.name:
        yield LeftOut(path="experiments/***", why="its name contains a secret")
        return
    if folder.is_symlink():
        yield LeftOut(path=name, why=_LINK)
        return
    for path in sorted(folder.iterdir()):
        if path.name == "runs" and path.is_dir() and not path.is_symlink():
            for run in sorted(path.iterdir()):
                yield from _of_run(run, f"{name}/runs/{run.name}")
        else:
            yield _judged(path, f"{name}/{path.name}", _EXPERIMENT)


def _of_run(folder: Path, name: str) -> Iterator[Piece | LeftOut]:
    if folder.is_symlink():
        yield LeftOut(path=name, why=_LINK)
    elif not _RUN.fullmatch(folder.name) or not folder.is_dir():
        yield LeftOut(path=name, why=_STRANGE)
    elif state(folder) is JobState.RUNNING:
        yield LeftOut(path=name, why="it is still running")
    else:
        # The programs that Tunebench puts into a run's folder are left out. They are not results, and hiding a name would break
        # them.
        kept = (path for path in sorted(folder.iterdir()) if path.name not in (instrumented.FILE_NAME, MODULES))
        for path in kept:
            if path.name == PROFILE and path.is_dir() and not path.is_symlink():
                yield from (_judged(file, f"{name}/{PROFILE}/{file.name}", _TRACE) for file in sorted(path.iterdir()))
            else:
                yield _judged(path, f"{name}/{path.name}", _OF_A_RUN)


def _judged(path: Path, name: str, taken: re.Pattern[str]) -> Piece | LeftOut:
    if _LOGS.fullmatch(path.name) and taken is _OF_A_RUN:
        return Piece(path=name, source=path, is_log=True)
    if taken.fullmatch(path.name):
        return Piece(path=name, source=path)
    return LeftOut(path=name, why=PICKLE if path.suffix == ".pickle" else _STRANGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """A file's text.

    If `cut` is true, `text` is only the end of the file. Then the first LONGEST_SECRET characters of `text` must be left out.
    """

    text: str
    cut: bool = False


def content(piece: Piece, *, whole_logs: bool) -> Content:
    """Return the content of a file. Raise OSError or Unreadable if the file cannot be read."""
    if piece.source.suffix == PACKED:
        return Content(text=_unpacked(piece.source))
    if not piece.is_log:
        return Content(text=reading.read_text(piece.source, limit=_LARGEST_FILE))
    limit = _log_limit(whole_logs)
    cut = piece.source.lstat().st_size > limit
    return Content(text=reading.read_tail(piece.source, limit=limit), cut=cut)


def _unpacked(path: Path) -> str:
    try:
        return trace.text(path, limit=_LARGEST_FILE).decode("utf-8", "replace")
    except ValueError as error:
        raise reading.Unreadable(str(error)) from None


def size(piece: Piece, *, whole_logs: bool) -> int:
    """Return how many bytes of a file go into the bundle, or 0 if the file cannot be read."""
    try:
        found = piece.source.lstat().st_size
    except OSError:
        return 0
    return min(found, _log_limit(whole_logs) if piece.is_log else _LARGEST_FILE)


def _log_limit(whole_logs: bool) -> int:
    return _LARGEST_LOG if whole_logs else LOG_END_BYTES + LONGEST_SECRET

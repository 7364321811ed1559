"""The run folders of a table's rows: the links to their files, and the parts of these files that the page shows.

The page of one results folder is a file in that results folder. Its links are relative, so they still work when the folder is
moved or sent.
Only files with the usual names of a run's files are linked, since a folder from other people may contain any other file.
Reading is limited (`files.reading`), and secrets are masked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from orchestrator.files import reading
from orchestrator.files.printable_text import printable
from orchestrator.files.redaction import redact, secret_variables
from orchestrator.records import RunFolder
from orchestrator.records.experiment import experiment_of
from orchestrator.report.logs import log_end
from orchestrator.results.table.load import names_of

MOST_FILES = 24

_RUN_FILES = re.compile(
    r"command\.sh|job\.json|owner\.json|record\.json|accelerate\.yaml|std(out|err)\.log|run-one\.log"
    r"|steps-rank\d{1,6}\.jsonl|worker-rank\d{1,6}\.json|samples-[a-z][a-z-]{0,30}\.csv|profile"
)
_TAIL_BYTES = 16 * 1024
_COMMAND_BYTES = 64 * 1024
_LINES, _LONGEST_LINE = 20, 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    """The results folders of a table. Their keys are the names in the column `results` (None: there is only one folder)."""

    roots: Mapping[str | None, Path]
    # The variables whose values are secrets (`redact`). They are selected once, for thousands of texts.
    environ: Mapping[str, str] = field(default_factory=lambda: secret_variables(os.environ))

    @staticmethod
    def of(roots: Sequence[Path]) -> Folders:
        """Return the folders of a table that was made of these folders."""
        if len(roots) == 1:
            return Folders(roots={None: roots[0]})
        return Folders(roots=dict(zip(names_of(roots), roots, strict=True)))

    @property
    def linked(self) -> bool:
        """Return whether the page covers only one folder. Then the page is in this folder, and has links to its files."""
        return None in self.roots

    def run_dir(self, results: str | None, experiment: str, name: str) -> Path | None:
        """Return the folder of a run; None if its results folder is unknown."""
        root = self.roots.get(results)
        return None if root is None else root.joinpath("experiments", experiment_of(experiment), "runs", name)


def link(experiment: str, run: str, file: str = "") -> str:
    """Return a path relative to the page, as an escaped URL."""
    return "/".join(
        ["experiments", quote(experiment_of(experiment), safe=""), "runs", quote(run, safe=""), quote(file, safe="")]
    )


def files(run_dir: Path) -> tuple[str, ...]:
    """Return at most MOST_FILES names of files that Tunebench made in a run's folder."""
    try:
        return tuple(sorted(filter(_is_run_file, os.listdir(run_dir)))[:MOST_FILES])
    except OSError:
        return ()


@lru_cache(maxsize=1024)
def _is_run_file(name: str) -> bool:
    """Return whether Tunebench makes files of this name. Cache the answers, because thousands of runs have the same few names."""
    return _RUN_FILES.fullmatch(name) is not None


def command(run_dir: Path, environ: Mapping[str, str]) -> str | None:
    """Return the script that repeats the run, without secrets."""
    try:
        return printable(redact(reading.read_text(RunFolder(run_dir).script, limit=_COMMAND_BYTES), environ))
    except (OSError, ValueError):
        return None


def log_ends(run_dir: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the last lines of each log that is not empty, without secrets and colours."""
    for path in (RunFolder(run_dir).stdout, RunFolder(run_dir).stderr):
        try:
            text = printable(log_end(path, limit=_TAIL_BYTES, environ=environ))
        except (OSError, ValueError):
            continue
        if text.strip():
            yield path.name, "\n".join(line[:_LONGEST_LINE] for line in text.splitlines()[-_LINES:]).strip("\n")


def gpus(run_dir: Path) -> list[Mapping[str, Any]]:
    """Return the GPUs in the run's record. Return no GPUs if the record is missing or has another form."""
    try:
        devices = reading.read_json(RunFolder(run_dir).record, limit=reading.RECORD_BYTES)["provenance"]["gpus"]
        return [device for device in devices if isinstance(device, dict)]
    except (OSError, ValueError, TypeError, LookupError):
        return []

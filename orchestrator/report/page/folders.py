"""The files of a table's rows: run folders, the links to them, and the parts that the page shows.

A page about one results folder is in that folder. Its links are relative, and still work when the folder is moved or sent.
Only files with the names of a run's files are linked, since a folder from elsewhere may contain anything under other names.
Reading is bounded (`untrusted`), and secrets are masked.
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
from orchestrator.files.printable_text import printable, without_styles
from orchestrator.files.redaction import held, redact, redact_end
from orchestrator.records import RunFolder

MOST_FILES = 24

_OURS = re.compile(
    r"command\.sh|job\.json|owner\.json|record\.json|accelerate\.yaml|std(out|err)\.log|run-one\.log"
    r"|steps-rank\d{1,6}\.jsonl|worker-rank\d{1,6}\.json|samples-[a-z][a-z-]{0,30}\.csv|profile"
)
_TAIL_BYTES = 16 * 1024
_COMMAND_BYTES = 64 * 1024
_LINES, _LONGEST_LINE = 20, 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    """The results folders of a table by their name in the column `results` (None: there is one folder)."""

    roots: Mapping[str | None, Path]
    # The variables whose values are secrets (`redact`), selected once for thousands of texts.
    environ: Mapping[str, str] = field(default_factory=lambda: held(os.environ))

    @staticmethod
    def of(roots: Sequence[Path], names: Sequence[str]) -> Folders:
        """Return the folders; `names` are the values of the column `results`: the ends of their paths."""
        if len(roots) == 1:
            return Folders(roots={None: roots[0]})
        ends = {name: tuple(name.split("/")) for name in names}
        paths = [(root, root.resolve().parts) for root in roots]
        found: dict[str | None, Path] = {
            name: root for name, end in ends.items() for root, parts in paths if parts[-len(end) :] == end
        }
        return Folders(roots=found)

    @property
    def linked(self) -> bool:
        """Return whether the page is in the only folder that it covers."""
        return None in self.roots

    def run_dir(self, results: str | None, experiment: str, name: str) -> Path | None:
        """Return the folder of a run; None if its results folder is unknown."""
        root = self.roots.get(results)
        return None if root is None else root.joinpath("experiments", experiment, "runs", name)


def run_name(repeat: object, attempt: object) -> str:
    return f"r{repeat}-t{attempt}"


def link(experiment: str, run: str, file: str = "") -> str:
    """Return a path relative to the page, as an escaped URL."""
    return "/".join(["experiments", quote(experiment, safe=""), "runs", quote(run, safe=""), quote(file, safe="")])


def files(run_dir: Path) -> tuple[str, ...]:
    """Return the names of a run's files that Tunebench makes, at most MOST_FILES."""
    try:
        with os.scandir(run_dir) as found:
            names = sorted(entry.name for entry in found if _is_ours(entry.name))
    except OSError:
        return ()
    return tuple(names[:MOST_FILES])


@lru_cache(maxsize=1024)
def _is_ours(name: str) -> bool:
    """Return whether Tunebench makes files of this name. Ten thousand runs have the same few names."""
    return _OURS.fullmatch(name) is not None


def command(run_dir: Path, environ: Mapping[str, str]) -> str | None:
    """Return the script that repeats the run, without secrets."""
    try:
        return printable(redact(reading.read_text(RunFolder(run_dir).script, limit=_COMMAND_BYTES), environ))
    except (OSError, ValueError):
        return None


def log_ends(run_dir: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and last lines of each log that is not empty, without secrets and colours."""
    folder = RunFolder(run_dir)
    for path in (folder.stdout, folder.stderr):
        try:
            size = path.lstat().st_size
            text = without_styles(reading.read_tail(path, limit=_TAIL_BYTES)) if size else ""
        except (OSError, ValueError):
            continue
        if text.strip():
            whole = printable(redact_end(text, cut=size > _TAIL_BYTES, environ=environ))
            yield path.name, "\n".join(line[:_LONGEST_LINE] for line in whole.splitlines()[-_LINES:]).strip("\n")


def gpus(run_dir: Path) -> list[Mapping[str, Any]]:
    """Return the GPUs in the run's record."""
    try:
        record = reading.read_json(RunFolder(run_dir).record, limit=reading.RECORD_BYTES)
    except (OSError, ValueError):
        return []
    provenance = record.get("provenance") if isinstance(record, dict) else None
    found = provenance.get("gpus") if isinstance(provenance, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

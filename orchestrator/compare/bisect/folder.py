"""The folder of a bisection. `bisect.json` says what is searched, so that a repeated call goes on with the same search.

BISECT/bisect.json · BISECT/.gitignore · BISECT/<commit>/ (a results folder) · BISECT/worktrees/<commit>/ · BISECT/comparison.html
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import ResultsError, remedy
from orchestrator.files import writing
from orchestrator.files.redaction import masker
from orchestrator.results.folder import TOOL, read_ours

FILE, WORKTREES, PAGE = "bisect.json", "worktrees", "comparison.html"


@contextmanager
def opened(root: Path, searched: Mapping[str, str]) -> Iterator[None]:
    """Make the folder of a bisection, or open the folder of the same bisection. No other call can open it at the same time.

    Raise ResultsError if the folder has other content, or is used by another call.
    """
    searched = masker()(dict(searched))
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not (root / FILE).exists():
            if any(root.iterdir()):
                raise ResultsError(f"{root}: the folder has other content; name a new folder with --results")
            writing.place_once(root / ".gitignore", "*\n")  # often the folder is inside the repository that is searched
            writing.place_once(root / FILE, json.dumps({"tool": TOOL, "bisect": searched}, indent=2) + "\n")
        with (root / FILE).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultsError(f"{root}: another tunebench bisects in this folder; wait until it ends") from None
            _refuse_other(root, searched)
            yield
    except OSError as error:
        raise ResultsError(f"{error.filename or root}: {error.strerror}; {remedy(error)}") from error


def _refuse_other(root: Path, searched: Mapping[str, str]) -> None:
    known = (read_ours(root / FILE) or {}).get("bisect")
    if not isinstance(known, dict):
        raise ResultsError(f"{root / FILE}: this is not a file of a bisection; name a new folder with --results")
    for name, value in searched.items():
        if known.get(name) != value:
            raise ResultsError(
                f"{root}: the folder has a bisection with another {name}: {known.get(name)}, not {value}; name a new folder "
                "with --results"
            )

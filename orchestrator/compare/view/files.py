"""Write a comparison's texts into files: find a file's form, and refuse to overwrite foreign files.

An existing file is replaced only if it is an older comparison in the same form. Any other file belongs to the user and stays.
"""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.compare.view import as_json, as_markdown, page
from orchestrator.errors import OrchestratorError
from orchestrator.files import reading, writing

# Ending of a file → its form.
FORMS = {
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".csv": "csv",
    ".html": "html",
    ".txt": "terminal",
}

_BEGINS = {"json": f'{{\n "kind": "{as_json.KIND}"', "markdown": as_markdown.MARK}
_IN_HEADER = {"csv": "reference,metric,new,verdict,ratio,"}
_MOST_HEADER = 64 * 2**10
# A text for a terminal has no mark: it is known by how it begins and how it ends.
_TERMINAL = re.compile(rb"base  .*\(exit code \d\)\n", re.DOTALL)


def form(path: Path) -> str:
    """Return the form that a file's ending requests. Raises OrchestratorError for an unknown ending."""
    found = FORMS.get(path.suffix.lower())
    if found is None:
        raise OrchestratorError(f"--output {path}: unknown ending; use one of {', '.join(FORMS)}.")
    return found


def refuse_foreign(path: Path) -> None:
    """Raise OrchestratorError if a file cannot be written: no folder, no known ending, or a foreign file in its place."""
    form(path)
    if not path.parent.is_dir():
        raise OrchestratorError(f"--output {path}: there is no folder {path.parent}; make it first.")
    if (path.exists() or path.is_symlink()) and not _is_ours(path):
        raise OrchestratorError(f"--output {path}: another file is there; give another name, or move it.")


def write(path: Path, text: str) -> None:
    """Write the text, whole or not at all. Raises OrchestratorError as `refuse_foreign` does, and if the disk refuses."""
    refuse_foreign(path)
    try:
        if path.exists():
            writing.replace(path, text)
        elif not writing.place_once(path, text):
            refuse_foreign(path)
            writing.replace(path, text)
    except OSError as error:
        raise OrchestratorError(f"--output {path}: {error.strerror or error}.") from None


def _is_ours(path: Path) -> bool:
    """Return whether a file begins like one of ours in its form."""
    wanted = form(path)
    try:
        if wanted == "terminal":
            return _TERMINAL.fullmatch(reading.read_bytes(path, limit=reading.LOG_BYTES)) is not None
        with reading.opened(path) as file:
            start = file.read(_MOST_HEADER).decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    if wanted in _BEGINS:
        return start.startswith(_BEGINS[wanted])
    if wanted == "html":
        return page.MARK in start
    return wanted in _IN_HEADER and _IN_HEADER[wanted] in start.partition("\n")[0]

"""Write the texts of a comparison into files: choose the format by the suffix, and refuse to overwrite other files.

An existing file is replaced only if it is an older comparison in the same format. Any other file belongs to the user and is kept.
"""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.compare.view import as_json, as_markdown, as_svg, page
from orchestrator.errors import OrchestratorError, remedy, suggestion
from orchestrator.files import reading, writing

# Suffix of a file → its form.
FORMS = {
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".csv": "csv",
    ".html": "html",
    ".svg": "svg",
    ".txt": "terminal",
}

# Form → a pattern for the beginning of a file that `compare` wrote. A text for a terminal is recognised by its beginning and its
# end.
_PATTERNS = {
    "json": re.escape(f'{{\n "kind": "{as_json.KIND}"'),
    "markdown": re.escape(as_markdown.MARK),
    "csv": r"[^\n]*reference,metric,new,verdict,ratio,",
    "svg": rf"<svg [^>]*>\s*{re.escape(as_svg.MARK)}",
    "html": rf"(?s:.*){re.escape(page.MARK)}",
    "terminal": r"(?s:base  .*\(exit code \d\)\n)\Z",
}
_MOST_HEADER = 64 * 2**10


def form(path: Path) -> str:
    """Return the form that a file's suffix requests. Raise OrchestratorError for an unknown suffix."""
    name = FORMS.get(path.suffix.lower())
    if name is None:
        raise OrchestratorError(f"--output {path}: unknown suffix {path.suffix!r}{suggestion(path.suffix, FORMS)}")
    return name


def refuse_foreign(path: Path) -> None:
    """Raise OrchestratorError if a file cannot be written: no folder, an unknown suffix, or a foreign file in its place."""
    form(path)
    if not path.parent.is_dir():
        raise OrchestratorError(f"--output {path}: there is no folder {path.parent}; make it first")
    if (path.exists() or path.is_symlink()) and not _is_ours(path):
        raise OrchestratorError(f"--output {path}: another file is there; give another name, or move that file")


def write(path: Path, text: str) -> None:
    """Write the complete text or nothing. Raise OrchestratorError as `refuse_foreign` does, or if writing fails."""
    refuse_foreign(path)
    try:
        if path.exists() or not writing.place_new(path, text):
            refuse_foreign(path)
            writing.replace(path, text)
    except OSError as error:
        raise OrchestratorError(f"--output {path}: {error.strerror or error}; {remedy(error)}") from None


def _is_ours(path: Path) -> bool:
    """Return whether a file looks like an older comparison in the form of its suffix."""
    try:
        if form(path) == "terminal":
            start = reading.read_bytes(path, limit=reading.LOG_BYTES).decode("utf-8", "replace")
        else:
            with reading.opened(path) as file:
                start = file.read(_MOST_HEADER).decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    return re.match(_PATTERNS[form(path)], start) is not None

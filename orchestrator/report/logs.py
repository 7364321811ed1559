"""The end of a run's log in a form that may be shown or sent: limited in size, without terminal styles and secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.files import reading
from orchestrator.files.printable_text import without_styles
from orchestrator.files.redaction import redact_end


def log_end(path: Path, *, limit: int, environ: Mapping[str, str] = os.environ) -> str:
    """Return the last `limit` bytes of a log, redacted. Raise OSError or ValueError if the file cannot be read.

    The text is redacted before it is cut into lines, because half a secret is not recognised.
    """
    cut = path.lstat().st_size > limit
    return redact_end(without_styles(reading.read_tail(path, limit=limit)), cut=cut, environ=environ)

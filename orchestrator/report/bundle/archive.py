"""A compressed tar file. The same names and texts give the same bytes. An existing file is never replaced."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.errors import OrchestratorError
from orchestrator.files import writing

Add = Callable[[str, str], dict[str, Any]]
# The end of the name of a file whose text is compressed.
PACKED = ".gz"


@contextmanager
def archive(file: BinaryIO, *, folder: str) -> Iterator[Add]:
    """Write a tar file whose entries are in one folder. Yield a function that adds a text.

    The function takes the path and the text. The entry has no owner, time or execute bit. The function returns the text's size
    and digest for the manifest.
    """
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.TarFile(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):

        def add(path: str, text: str) -> dict[str, Any]:
            content = text.encode("utf-8", "replace")
            if path.endswith(PACKED):
                content = gzip.compress(content, 6, mtime=0)
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, BytesIO(content))
            return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

        yield add


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file, which gets its name only when it is complete. Raise OrchestratorError if a file of that name exists."""
    refusal = OrchestratorError(f"{path}: the file exists, and nothing is overwritten; name another file with --output")
    if os.path.lexists(path):
        raise refusal
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not writing.name_new(aside, path):  # another process has made the file meanwhile
            raise refusal
    except OSError as error:
        raise OrchestratorError(
            f"{path}: cannot be written: {error.strerror}; name another file with --output"
        ) from error
    finally:
        writing.remove_aside(aside)

"""A compressed tar file. The same names and texts give the same bytes, and an existing file is never replaced."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from orchestrator.errors import OrchestratorError


class Archive:
    """A tar file of texts in one folder, without owners, times and anything that can be run."""

    def __init__(self, file: BinaryIO, *, folder: str) -> None:
        self._folder = folder
        self._packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        self._tar = tarfile.TarFile(fileobj=self._packed, mode="w", format=tarfile.PAX_FORMAT)

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()
        self._packed.close()

    def add(self, path: str, text: str) -> dict[str, Any]:
        """Add a text. Return its size and digest, for the manifest."""
        content = text.encode("utf-8", "replace")
        entry = tarfile.TarInfo(f"{self._folder}/{path}")
        entry.size, entry.mode = len(content), 0o644
        self._tar.addfile(entry, BytesIO(content))
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name once it is whole. Raise OrchestratorError if a file of that name exists."""
    refusal = OrchestratorError(f"{path} exists, and nothing is overwritten: name another file with --output")
    if os.path.lexists(path):
        raise refusal
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, path)  # refused where somebody made one meanwhile
    except FileExistsError:
        raise refusal from None
    except OSError as error:
        raise OrchestratorError(
            f"{path}: cannot be written: {error.strerror}; name another file with --output"
        ) from error
    finally:
        aside.unlink(missing_ok=True)

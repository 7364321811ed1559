"""Makes a fingerprint of local files: a digest over their names, sizes and content. Of a large file, it covers only parts.

The plan makes the fingerprint of the data before the preparation. The preparation makes it again after it has read the data. If the
two differ, the data changed in between. The orchestrator runs this file to use its functions.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MAX_FILES = 10_000
MIB = 2**20
WHOLE_FILE_BYTES = 64 * MIB


def fingerprint(path: str) -> str:
    """Return the fingerprint of a file, or of all files below a folder. Raise OSError if a file cannot be read."""
    digest = hashlib.sha256()
    for file in files_of(Path(path)):
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        name = "" if file == Path(path) else file.relative_to(path)
        digest.update(f"{name}:{status.st_size}:".encode(errors="surrogateescape"))
        for piece in pieces(file, status.st_size):
            digest.update(piece)
    return digest.hexdigest()[:16]


def files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = list(islice((file for file in path.rglob("*") if file.is_file()), MAX_FILES + 1))
    if len(files) > MAX_FILES:
        raise OSError(f"the folder contains more than {MAX_FILES:,} files; name a file or a smaller folder")
    return sorted(files)


def pieces(file: Path, size: int) -> Iterator[bytes]:
    """Yield the content of a file that has `size` bytes. For a large file, yield only the first 64 MiB and the last MiB."""
    left = WHOLE_FILE_BYTES
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:  # a pipe may have replaced the file
        while left > 0:
            piece = stream.read(min(left, MIB))
            if not piece:
                break
            left -= len(piece)
            yield piece
        if size > WHOLE_FILE_BYTES:
            stream.seek(-MIB, os.SEEK_END)
            yield stream.read()

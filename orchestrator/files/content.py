"""The parts of a file that a digest covers: all of a small file, or the beginning and the end of a large file.

A data file may be larger than the memory. Reading all of such a file would take minutes in every plan. A change between the first
64 MiB and the last MiB of a large file is not seen if the file keeps its size.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from orchestrator.files import reading

MIB = 2**20
WHOLE_FILE_BYTES = 64 * MIB
_PIECE_BYTES = MIB


def _pieces(file: Path, size: int) -> Iterator[bytes]:
    """Yield the content of a file that has `size` bytes. For a large file, yield only the first 64 MiB and the last MiB.

    Raise OSError, or Unreadable for a pipe or a device.
    """
    left = WHOLE_FILE_BYTES
    with reading.opened(Path(os.path.realpath(file))) as stream:
        while left > 0 and (piece := stream.read(min(left, _PIECE_BYTES))):
            left -= len(piece)
            yield piece
        if size > WHOLE_FILE_BYTES:
            stream.seek(-MIB, os.SEEK_END)
            yield stream.read()


def digest(file: Path) -> str:
    """Return the first twelve hexadecimal digits of the content's SHA-256. For a large file, hash the size and these parts.

    Raise OSError or Unreadable if the file cannot be read.
    """
    size = file.stat().st_size
    total = hashlib.sha256(f"{size}:".encode() if size > WHOLE_FILE_BYTES else b"")
    for piece in _pieces(file, size):
        total.update(piece)
    return total.hexdigest()[:12]

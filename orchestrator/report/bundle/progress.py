"""Sentences about the progress of a bundle. A single file of a million steps takes a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from orchestrator.files.reading import MIB
from orchestrator.report.bundle.contents import Piece, size

Say = Callable[[str], object]
EVERY_S, LARGE_BYTES = 5.0, 16 * MIB


def announced(pieces: Sequence[Piece], work: str, *, whole_logs: bool, say: Say) -> Iterator[Piece]:
    """Yield the files of a bundle. Before a large file, and every few seconds, say how much of the work is done."""
    sizes = [size(piece, whole_logs=whole_logs) for piece in pieces]
    done, said_at = 0, time.monotonic()
    for number, (piece, bytes_) in enumerate(zip(pieces, sizes, strict=True)):
        if bytes_ >= LARGE_BYTES or time.monotonic() - said_at >= EVERY_S:
            said_at = time.monotonic()
            next_one = f"; the next file has {bytes_ / MIB:.0f} MiB" if bytes_ >= LARGE_BYTES else ""
            say(f"{work}: {number} of {len(pieces)} files, {done / MIB:.0f} of {sum(sizes) / MIB:.0f} MiB{next_one}")
        yield piece
        done += bytes_

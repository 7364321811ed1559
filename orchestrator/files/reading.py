"""Read files so that none of them can do harm: a results folder may come from another person.

Only regular files are read. Pipes, terminals, devices, and paths that are symbolic links are refused. A read never waits, and
it stops at a limit. The depth of JSON is limited, too. A refused file raises `Unreadable`, a ValueError; a missing file raises
FileNotFoundError. Functions that read a results folder catch `(OSError, ValueError)`, name the file in a warning, and go on.
Content is never run: there is no pickle and no eval.

This module does not judge the content. `results/table/foreign_rows.py` checks that a run's record belongs to the folder that
contains it. A folder in a file's path may be a symbolic link, since people move `experiments/` to another disk.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

MIB: Final = 2**20

# Limits for the sizes of files.
RECORD_BYTES: Final = (
    16 * MIB
)  # `record.json`, `experiment.json`, worker files; a record of 1,000 GPUs takes about 1 MiB
SUITE_BYTES: Final = (
    256 * MIB
)  # `suite.json`, which lists every id; a million ids, twice a plan's limit, takes 180 MB at most
CLAIM_BYTES: Final = 1 * MIB  # `job.json`, `owner.json` and other small files
LOG_BYTES: Final = 64 * MIB  # a text that is read whole

# The limit for the depth of JSON; a record has five levels.
DEEPEST: Final = 64

# The largest number that is accepted. Sums, squares and quotients of accepted numbers are finite.
LARGEST: Final = 1e150

_NUMBER: Final = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf(inity)?)", re.ASCII | re.IGNORECASE)

# Most files fit into one piece. A reader allocates the whole piece before it knows the size of the file.
_PIECE_BYTES = 64 * 1024


class Unreadable(ValueError):
    """An error for a file that this module refuses to read. Its message completes a sentence that begins with the file's path."""


def reason(error: OSError | ValueError) -> str:
    """Return the reason why a file could not be read, without its path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file for reading bytes, without waiting. Raise Unreadable or OSError."""
    # Check before opening, since opening a device may have an effect. Check again afterwards: the file may have been replaced.
    _require_regular(path.lstat().st_mode)
    flags = os.O_RDONLY
    for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):  # some systems lack some flags
        flags |= getattr(os, name, 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        _require_regular(os.fstat(file.fileno()).st_mode)
        yield file


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise Unreadable("it is not a regular file; links are not followed")


def read_bytes(path: Path, *, limit: int) -> bytes:
    """Return the whole file. Raise Unreadable if it has more than `limit` bytes."""
    with opened(path) as file:
        too_large = os.fstat(file.fileno()).st_size > limit
        content = (
            b"" if too_large else _read(file, limit + 1)
        )  # the file may have grown, and the kernel's own files show no size
    if too_large or len(content) > limit:
        raise Unreadable(f"the file exceeds the limit of {limit / MIB:g} MiB")
    return content


def read_text(path: Path, *, limit: int) -> str:
    """Return the whole file as text, with replacement characters for bytes that are not UTF-8."""
    return read_bytes(path, limit=limit).decode("utf-8", "replace")


def sound_number(value: float | int) -> float | int | None:
    """Return the number if it is 0, or if its absolute value is between 1 / LARGEST and LARGEST.

    Return None for every other value, such as 1e400 or NaN. A whole number of 64 bits stays whole; a larger one becomes the
    nearest float.
    """
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if value == 0 or 1 / LARGEST <= abs(value) <= LARGEST:
        return float(value)
    return None


def number_in(text: str) -> float | None:
    """Return the number if the whole text is one, else None.

    Python's float() also accepts digits of other scripts, and underscores between digits. This function refuses both.
    """
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def read_head(path: Path, *, limit: int) -> str:
    """Return the first `limit` bytes as text."""
    with opened(path) as file:
        return _read(file, limit).decode("utf-8", "replace")


def read_tail(path: Path, *, limit: int) -> str:
    """Return the last `limit` bytes as text."""
    with opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
        return _read(file, limit).decode("utf-8", "replace")


def _read(file: BufferedReader, limit: int) -> bytes:
    """Return at most `limit` bytes, read in pieces: a single read would make Python allocate `limit` bytes."""
    pieces: list[bytes] = []
    while limit > 0 and (piece := file.read(min(limit, _PIECE_BYTES))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def read_lines(path: Path, *, limit: int, longest: int) -> Iterator[bytes]:
    """Yield the lines of the first `limit` bytes. Skip lines longer than `longest` without loading them whole."""
    with opened(path) as file:
        whole = True
        while limit > 0:
            line = file.readline(min(longest, limit))
            limit -= len(line)
            ended = line.endswith(b"\n")
            if not line:
                return
            if whole and (ended or len(line) < longest):
                yield line
            whole = ended


def resolved(path: Path) -> Path:
    """Return the absolute path without links. Keep a loop of links unchanged.

    For a loop, `Path.resolve` raises RuntimeError before Python 3.13.
    """
    return Path(os.path.realpath(path))


def read_json(path: Path, *, limit: int, finite: bool = True) -> Any:
    """Return the JSON value in a file. Raise Unreadable if the JSON is invalid, too deep, or contains half characters.

    Refuse NaN and Infinity unless `finite` is False: they are not JSON, but Python writes them.
    """
    return parse_json(read_bytes(path, limit=limit), finite=finite)


def parse_json(content: bytes, *, finite: bool = True) -> Any:
    """Return the JSON value in these bytes, checked as in `read_json`. A byte-order mark may precede it."""
    try:
        value = json.loads(content.decode("utf-8-sig"), parse_constant=_no_number if finite else float)
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8") from None
    except RecursionError:
        raise Unreadable(f"it nests deeper than {DEEPEST} levels") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    except ValueError as error:  # a number of more than 4,300 digits
        raise Unreadable(str(error)) from None
    _refuse_content(value, "\\ud" in content.decode("ascii", "replace").lower())
    return value


def _no_number(word: str) -> None:
    raise Unreadable(f"it contains {word}, which is not a number in JSON")


def _refuse_content(root: Any, escapes: bool) -> None:
    """Raise Unreadable for deep nesting and half characters. Work level by level: recursion would fail on deep nesting."""
    level = [root]
    for _ in range(DEEPEST):
        if escapes and any(_is_half(value) for value in level):
            raise Unreadable("it contains half of a surrogate pair, which is not a character")
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise Unreadable(f"it nests deeper than {DEEPEST} levels")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else []


def _is_half(value: Any) -> bool:
    return isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value)

"""File systems that are mounted in a folder. What is behind a mount belongs to someone else, so it must not be removed with it."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
# A mount point in this file has some characters as octal numbers, such as \040 for a space.
_POINT, _ESCAPED = 4, re.compile(r"\\([0-7]{3})")


def mounted_in(folder: Path) -> list[Path]:
    """Return the mount points in a folder, and the folder itself if it is one."""
    top = Path(os.path.realpath(folder))
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).split("\n")
    except OSError:  # not Linux
        return [Path(path) for path, _, _ in os.walk(top) if os.path.ismount(path)]
    names = (words[_POINT] for line in lines if len(words := line.split(" ")) > _POINT)
    points = [_ESCAPED.sub(lambda code: chr(int(code[1], 8)), name) for name in names]
    return [point for point in map(Path, points) if point == top or top in point.parents]

"""Find the steps that compiled in a running run, and estimate the time that its remaining steps take.

A recompilation may have happened hundreds of steps ago, so it is not enough to read the end of a step file. The first look searches
the whole file, and each further look searches only the added lines. Only lines that name a compilation are parsed. If a file has
more than MOST_STEPS such lines, the later lines are left out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from orchestrator.files import reading
from orchestrator.measure import steps
from orchestrator.measure.steps import Step

MOST_STEPS = 1000
_MARK, _PIECE_BYTES = b'compiled"', 4 * 2**20


@dataclass(slots=True)
class _Search:
    """The search through one file, up to the position `place`. `found` are the steps that compiled."""

    place: int = 0
    found: list[Step] = field(default_factory=list)

    def look(self, path: Path) -> None:
        """Search the complete lines that were added since the last look."""
        with reading.opened(path) as file:
            end = os.fstat(file.fileno()).st_size
            if end < self.place:  # another file has replaced this file
                self.place, self.found = 0, []
            while self.place < min(end, steps.MAX_BYTES) and len(self.found) < MOST_STEPS:
                file.seek(self.place)
                piece = file.read(min(_PIECE_BYTES, end - self.place))
                whole = piece.rfind(b"\n") + 1
                if not whole and len(piece) < _PIECE_BYTES:
                    return  # half a line
                self._search(piece[:whole])
                self.place += whole or len(piece)

    def _search(self, lines: bytes) -> None:
        if _MARK in lines:
            found = (steps.parse(line) for line in lines.split(b"\n") if _MARK in line)
            self.found += [step for step in found if step is not None and (step.compiled or step.recompiled)]


@lru_cache(maxsize=256)
def _search(path: Path, inode: int) -> _Search:
    return _Search()


def read(files: Iterable[Path]) -> dict[int, Step]:
    """Return a dict from step number to step, for the steps that compiled on any rank. `files` are the ranks' step files."""
    by_number: dict[int, list[Step]] = {}
    for path in files:
        try:
            search = _search(path, os.stat(path).st_ino)
            search.look(path)
        except (OSError, ValueError):  # a file that does not exist yet, or that cannot be read
            continue
        for step in search.found:
            by_number.setdefault(step.number, []).append(step)
    return {number: _joined(by_number[number]) for number in sorted(by_number)}


def _joined(parts: Sequence[Step]) -> Step:
    """Return one step for all ranks: the longest of `parts`. If some ranks recompiled, only their parts count."""
    return max(parts, key=lambda step: (bool(step.recompiled), step.seconds))


def left_s(last: Sequence[Mapping[str, Any]], compiled: Mapping[int, Step], *, of: int | None) -> float | None:
    """Estimate the seconds until step number `of` has ended. `last` are the latest ended steps. Return None if the time is unknown.

    A step is expected to take the mean time of the steps in `last` that did not compile. Recompilations become rarer, because torch
    stops after 8 recompilations of a function. So future recompilations are expected to cost the same time per step as the earlier
    ones, but not more in total.
    """
    if of is None or not last:
        return None
    step = int(last[-1]["step"])
    plain = [line["s"] for line in last if line["step"] not in compiled]
    if not plain and compiled and step <= len(compiled):
        return None  # every step so far has compiled
    pace_s = fmean(plain or [line["s"] for line in last])
    lost_s = math.fsum(max(0.0, one.seconds - pace_s) for one in compiled.values() if one.recompiled)
    left = max(0, of - step)
    return left * pace_s + lost_s * min(1.0, left / max(1, step))

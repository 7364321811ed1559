"""The figures that one process measured, in a JSON file. The file is written anew after each figure, so a crash keeps them.

The file also says how long the process's main thread waited for a core. Without Linux's counters, this is missing. Other threads
are left out: those of a library may only wait for each other.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

SAMPLES = 5
LONGEST_CAUSE = 300


class Figures:
    """Collects figures. A figure has five samples, or the reason why it is missing."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: Dict[str, Any] = {"figures": []}
        self.began, self.waited_before_s = time.monotonic(), waited_s()

    def measure(self, name: str, ranks: Sequence[int], samples: Callable[[], List[float]]) -> Optional[List[float]]:
        """Measure one figure and keep it. `ranks` are the processes whose GPUs it is about."""
        figure: Dict[str, Any] = {"name": name, "ranks": list(ranks)}
        try:
            figure["samples"] = samples()
        except Exception as error:
            figure["missing"] = in_words(error)
        self.found["figures"].append(figure)
        self._write()
        samples_found: Optional[List[float]] = figure.get("samples")
        return samples_found

    def note(self, **facts: Any) -> None:
        """Keep facts, such as the version of torch, or the problem that ended the process."""
        self.found.update(facts)
        self._write()

    def _write(self) -> None:
        waited = waited_s()
        if waited is not None and self.waited_before_s is not None:
            wall_s = time.monotonic() - self.began
            self.found["core_wait"] = {"waited_s": waited - self.waited_before_s, "wall_s": wall_s}
        aside = f"{self.file}.part"
        with open(aside, "w", encoding="utf-8") as written:
            json.dump(self.found, written)
        os.replace(aside, self.file)


def waited_s() -> Optional[float]:
    """Return the seconds for which the main thread was ready to run, but had no core."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def in_words(error: BaseException) -> str:
    """Return an error as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'without a message'}"[:LONGEST_CAUSE]

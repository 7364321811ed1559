"""The figures that one process measured, in a JSON file. The file is written anew after each figure, so a crash keeps them."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, Optional, Sequence

SAMPLES = 5
LONGEST_CAUSE = 300


class Figures:
    """Collects figures. A figure has five samples, or the reason why it is missing."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: Dict[str, Any] = {"figures": []}

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
        aside = f"{self.file}.part"
        with open(aside, "w", encoding="utf-8") as written:
            json.dump(self.found, written)
        os.replace(aside, self.file)


def in_words(error: BaseException) -> str:
    """Return an error as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'without a message'}"[:LONGEST_CAUSE]

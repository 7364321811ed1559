"""The campaign on four H200 that an older version of Tunebench made: two frameworks, two models, 1 and 2 GPUs, three runs."""

from __future__ import annotations

import tarfile
from pathlib import Path

FOUR_H200 = Path(__file__).parents[1] / "samples" / "four-h200.tar.gz"


def four_h200(folder: Path) -> Path:
    """Unpack the campaign into a folder, and return its results folder."""
    with tarfile.open(FOUR_H200) as archive:
        archive.extractall(folder, filter="data")
    return folder / "four-h200"

"""Charts of points and lines: scaling over GPU counts, throughput against memory. Pure: cells in, charts out."""

from __future__ import annotations

from typing import Any

HEIGHT_PX = 420


def thin(colour: str, dash: str) -> dict[str, Any]:
    """Return the style of a thin line that helps to read a drawing."""
    return {"color": colour, "dash": dash, "width": 1.5}

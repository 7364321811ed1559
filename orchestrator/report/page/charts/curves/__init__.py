"""Charts of points and lines: scaling over GPU counts, throughput against memory. Pure: cells in, charts out."""

from __future__ import annotations

from math import floor, log10
from typing import Any

HEIGHT_PX = 420


def thin(colour: str, dash: str) -> dict[str, Any]:
    """Return the style of a thin line that helps to read a drawing."""
    return {"color": colour, "dash": dash, "width": 1.5}


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two values for a logarithmic axis; close to each other if the values are."""
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8) if high < 8 * low else (1, 2, 5) if high < 1000 * low else (1,)
    tens = range(floor(log10(low)), floor(log10(high)) + 1)
    return [tick for ten in tens for step in steps if low <= (tick := step * 10**ten) <= high]

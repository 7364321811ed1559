"""Colours, symbols, dashes and patterns for the first, second and further series of a chart.

A colour is the name of a custom property of page.css: `@series-0` is `--series-0`. charts.js inserts the theme's colours, so
one figure serves the light and the dark theme. The eight colours are from Okabe and Ito. People with colour-blindness can
distinguish them. Some were made darker or lighter, for a contrast of 3 : 1 with the background. Each series also has its own
symbol, dash or pattern. The ninth series has the colour of the first, and another symbol, dash or pattern.
"""

from __future__ import annotations

from collections.abc import Sequence

COLOURS = 8

SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "star", "hexagon", "pentagon"),
    *("bowtie", "x"),
)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
PATTERNS = ("", "/", ".", "\\", "x", "-", "|")

# The opacity of the lightest of several series of one colour.
_LIGHTEST = 0.45

# The tones of the stages of a run. They are grey, because colours are for configurations.
TONES = ("@stage-0", "@stage-1", "@stage-2")

INK, MUTED, GRID, PAPER, SHADE, BAD = "@ink", "@muted", "@grid", "@paper", "@shade", "@bad"


def colour(place: int) -> str:
    return f"@series-{place % COLOURS}"


def lightness(count: int) -> list[float]:
    """Return the opacities of several series of one colour; the first is opaque."""
    return [round(1 - (1 - _LIGHTEST) * at / max(1, count - 1), 2) for at in range(count)]


def symbol(place: int) -> str:
    return SYMBOLS[place % len(SYMBOLS)]


def dash(place: int) -> str:
    return DASHES[place % len(DASHES)]


def pattern(place: int) -> dict[str, str | float]:
    """Return the pattern over a bar's colour, for Plotly's `marker`."""
    shape = PATTERNS[place % len(PATTERNS)]
    return {"shape": shape, "fillmode": "overlay", "fgcolor": PAPER, "fgopacity": 0.45, "size": 6, "solidity": 0.3}


def in_doubt(doubts: Sequence[bool]) -> dict[str, object]:
    """Return the pattern of bars, for Plotly's `marker`: a bar in doubt is hatched."""
    shapes = ["/" if doubt else "" for doubt in doubts]
    return {"shape": shapes, "fillmode": "overlay", "fgcolor": PAPER, "fgopacity": 0.75, "size": 7, "solidity": 0.45}


def stage(tone: int, pattern_place: int) -> dict[str, object]:
    """Return the marker of the bars of one stage: a grey tone with a pattern, so that two tones are enough for neighbours."""
    return {"color": TONES[tone], "pattern": pattern(pattern_place), "line": {"width": 1, "color": PAPER}}

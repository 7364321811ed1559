"""Turns a figure of the report's charts into a Plotly figure, in the light colours and the font of the page's style sheet.

In a page, charts.js does the same in the browser, for both themes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from orchestrator.report.page.charts.chart import Figure
from orchestrator.report.page.shell import TEMPLATES

_FONT_PX, _HOVER_PX = 13, 12


def painted(figure: Figure) -> Any:
    """Return the figure as a `plotly.graph_objects.Figure`, in the colours of the light theme."""
    from plotly.graph_objects import Figure as PlotlyFigure

    theme = _theme()
    font = {"family": theme["font"], "size": _FONT_PX, "color": theme["ink"]}
    hover = {
        "bgcolor": theme["raised"],
        "bordercolor": theme["line"],
        "font": font | {"size": _HOVER_PX},
        "align": "left",
    }
    paper = {"paper_bgcolor": theme["paper"], "plot_bgcolor": theme["paper"], "template": "none"}
    layout = _coloured(figure["layout"], "", theme)
    return PlotlyFigure(
        data=_coloured(figure["data"], "", theme), layout=layout | paper | {"font": font, "hoverlabel": hover}
    )


def _coloured(value: Any, key: str, theme: dict[str, str]) -> Any:
    """Return a part of a figure in which each colour such as `@ink` is replaced. `key` is the name of the part."""
    if isinstance(value, dict):
        return {name: _coloured(inner, name, theme) for name, inner in value.items()}
    if isinstance(value, list):
        return [_coloured(item, key, theme) for item in value]
    is_colour = isinstance(value, str) and value.startswith("@") and key.endswith("color")
    return theme[value[1:]] if is_colour else value


@cache
def _theme() -> dict[str, str]:
    """Return the custom properties of the light theme, which is the first rule of the style sheet."""
    rule, _, _ = (TEMPLATES / "page.css").read_text(encoding="utf-8").partition("}")
    return dict(re.findall(r"--([\w-]+):\s*([^;]+);", rule))

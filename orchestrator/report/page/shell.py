"""The HTML file of a page, with its sections, its charts and their data, its style and its scripts. The file loads nothing.

The file needs no network and no other file. So it can be opened from a disk, sent by mail and kept for years. A policy in the
file's head (Content-Security-Policy) forbids everything remote. It allows only the page's own scripts, and identifies them by their
digests. So text in a name or a log could not run as a script, even if it were not escaped. The templates escape all values, and the
data is JSON that cannot end a script element.

document(title=…, sections=[Section(id="charts", title="Charts", body=charts_body(charts)), …], data=page_data(charts,
table))
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from orchestrator.files.printable_text import printable
from orchestrator.report.page.charts.chart import Absent, Chart, as_data

TEMPLATES = Path(__file__).with_name("templates")
SCRIPTS = ("page.js", "table.js", "chooser.js")


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of a page. Its heading is also in the page's navigation. `body` is markup from a template."""

    id: str
    title: str
    body: Markup


def document(
    *, title: str, sections: Sequence[Section], data: Mapping[str, Any], lead: str = "", with_charts: bool = True
) -> str:
    """Return the whole page. The scripts read `data` (`page_data`). Without charts, plotly.js (5 MB) is left out.

    The table is filled first. plotly.js is a text that charts.js runs before it draws, because a browser needs a second for it.
    """
    scripts, for_charts = [*map(_template, SCRIPTS)], [_plotly(), _template("charts.js")] if with_charts else ["", ""]
    text = render(
        "document.html",
        title=title,
        lead=lead,
        sections=sections,
        policy=_policy([*scripts, *filter(None, for_charts)]),
        style=Markup(_template("page.css")),
        data=Markup(as_script_json(data)),
        scripts=[*map(Markup, scripts)],
        plotly=Markup(for_charts[0]),
        charts=Markup(for_charts[1]),
    )
    return str(text)


def render(template: str, **values: Any) -> Markup:
    """Return a filled template. Values are escaped, and characters that hide text or reverse its direction become visible signs."""
    return Markup(_environment().get_template(template).render(**values))


def charts_body(charts: Sequence[Chart | Absent]) -> Markup:
    """Return the body of a section of charts. A chart without numbers becomes one line."""
    absent = [chart for chart in charts if isinstance(chart, Absent)]
    return render("charts.html", charts=[chart for chart in charts if isinstance(chart, Chart)], absent=absent)


def table_body(*, calls: bool = False, **values: Any) -> Markup:
    """Return the body of a section with the table, which table.js fills from the data.

    `calls`: rows are calls of operators, so what is the same in every row is open.
    """
    return render("table.html", calls=calls, **values)


def page_data(charts: Sequence[Chart | Absent], table: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the data of the scripts: the charts by their id, and the table."""
    return {"charts": {chart.id: as_data(chart) for chart in charts if isinstance(chart, Chart)}, "table": table}


def as_script_json(value: Any) -> str:
    """Return ASCII JSON for a script element. It contains nothing that ends the element or opens a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: Sequence[str]) -> str:
    digests = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["with_code"] = _with_code
    return environment


def _with_code(text: str) -> Markup:
    """Return a sentence as HTML. What it has in backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(printable(text)))))


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Return the plotly.js of the installed package. Escape every `</script`, because it would end the script element."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")

"""Pages for people. Each page is one HTML file, which contains everything and loads nothing.

`report_page` makes the report of results folders. `shell` makes the document of any page from sections, charts and data.
`charts.chart` defines a chart. All functions turn values into text.
"""

from __future__ import annotations

from orchestrator.report.page.report_page import report_page

__all__ = ["report_page"]

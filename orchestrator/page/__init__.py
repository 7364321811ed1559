"""Pages that people look at: one HTML file each, with everything in it, and nothing from anywhere else.

`report_page` makes the report of results folders. `shell` makes one document of sections, charts and data for any page of
ours, and `chart` is what a chart is. Values in, text out: nothing here writes a file; `store` does.
"""

from __future__ import annotations

from orchestrator.page.report_page import report_page

__all__ = ["report_page"]

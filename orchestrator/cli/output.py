"""A rich console that shows control characters in printed text as visible characters."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.files.printable_text import printable


class Output(Console):
    """A console on which names and logs cannot control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_clean = segment.control or segment.text.isprintable()
            yield segment if is_clean else segment._replace(text=printable(segment.text))

"""A console of rich that shows foreign control characters as visible text, and becomes silent when its reader leaves."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.files.printable_text import printable


class Output(Console):
    """A console that becomes silent when its reader leaves early (`| head`). The campaign and its report go on."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_clean = segment.control or segment.text.isprintable()
            yield segment if is_clean else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

"""A rich console that masks secrets, and shows control characters in printed text as visible characters."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from orchestrator.files.printable_text import printable
from orchestrator.files.redaction import Redactor, redactor


class Output(Console):
    """A console on which names and logs cannot control the terminal, and no secret of the environment is shown."""

    @cached_property
    def _masked(self) -> Redactor:
        return redactor()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(self._without_secrets(renderable), options):
            is_clean = segment.control or segment.text.isprintable()
            yield segment if is_clean else segment._replace(text=printable(segment.text))

    def _without_secrets(self, renderable: RenderableType) -> RenderableType:
        """Return what is rendered with its secrets masked. Only a whole text shows them: rich cuts and wraps it afterwards."""
        if isinstance(renderable, str):
            return self._masked(renderable)
        if isinstance(renderable, Text) and (masked := self._masked(renderable.plain)) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = masked
        return renderable

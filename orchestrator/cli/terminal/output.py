"""A rich console that masks secrets, and shows control characters in printed text as visible characters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from orchestrator.files.printable_text import printable
from orchestrator.files.redaction import Redactor, redactor


class Output(Console):
    """A console on which names and logs cannot control the terminal, and no secret of the environment is shown."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, highlight=False, emoji=False, _environ=_without_zeros(os.environ))

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


def _without_zeros(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without a width or height of 0, which some programs set if they do not know the terminal."""
    return {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES") or value.strip("0")}

"""`schema` and `init`: the commands about scenario files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from orchestrator.cli.console import print_raw, say


def schema() -> None:
    """Print the JSON Schema of the scenario file."""
    from orchestrator.plan.config import schema_text

    print_raw([schema_text()])


def init(
    file: Annotated[Path, Argument(help="File to write; it must not exist.")] = Path("scenarios.yaml"),
    script: Annotated[
        Path | None, Option(help="Write a scenario file that benchmarks this training script.", show_default=False)
    ] = None,
) -> None:
    """Write a first scenario file. Comments in the file explain its keys."""
    from orchestrator.plan.config.starter_file import write_starter

    write_starter(file, script=script)
    say(f"Wrote {file}. Next: {shlex.join(['tunebench', 'plan', str(file)])}")

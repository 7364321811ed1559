"""`schema`, `init` and `list`: the commands about what a scenario file may contain."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.options import AsJson
from orchestrator.cli.terminal.console import print_raw, say, tell, width
from orchestrator.errors import ConfigError, Problem

Rows = list[dict[str, Any]]
GAP, DESCRIPTION, LEAST_ROOM = "  ", "description", 40


class Kind(StrEnum):
    """The kinds of names that can be listed."""

    FRAMEWORKS = "frameworks"
    MODELS = "models"
    TRAINERS = "trainers"
    METRICS = "metrics"


def schema() -> None:
    """Print the JSON Schema of the scenario file."""
    from orchestrator.plan.config import schema_text

    print_raw([schema_text()])


def init(
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist.")] = Path("scenarios.yaml"),
    script: Annotated[
        Path | None,
        typer.Option(help="Write a scenario file that benchmarks this training script.", show_default=False),
    ] = None,
) -> None:
    """Write a first scenario file. Comments in the file explain its keys."""
    from orchestrator.plan.config.starter_file import write_starter

    write_starter(file, script=script)
    say(f"Wrote {file}. Next: {shlex.join(['tunebench', 'plan', str(file)])}")


def list_names(
    kind: Annotated[Kind, typer.Argument(help="The kind of names.", show_default=False)],
    scenarios: Annotated[
        Path, typer.Argument(help="List the framework configurations that this scenario file can use.")
    ] = Path("scenarios.yaml"),
    frameworks: Annotated[Path | None, typer.Option(help="Folder of framework configurations.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the names that a scenario file may use, each with its meaning."""
    if kind is Kind.FRAMEWORKS:
        rows = _frameworks(scenarios, frameworks)
    else:
        rows = {Kind.MODELS: _models, Kind.TRAINERS: _trainers, Kind.METRICS: _metrics}[kind]()
    if as_json:
        print_raw([json.dumps(rows, indent=2) + "\n"])
    else:
        print_rows(rows)


def _frameworks(scenarios: Path, given: Path | None) -> Rows:
    """Return the framework configurations in the folder that a plan would use. Raise ConfigError for mistakes in their files."""
    from orchestrator.plan.config.frameworks import load_frameworks
    from orchestrator.plan.config.suite import frameworks_folder

    folder, problems = given or frameworks_folder(scenarios), list[Problem]()
    known = load_frameworks(folder, problems)
    if problems:
        raise ConfigError(problems)
    tell(f"framework configurations of {folder}")
    return [
        {"name": name, "trainers": list(source.trainers or ()) or ["all"], "description": source.description}
        for name, source in known.items()
    ]


def _models() -> Rows:
    from orchestrator.plan.data import published_models
    from orchestrator.plan.forecast.memory_fit.shapes import hub_folder, read_shape

    names = [f"config:{name}" for name in published_models()]
    shapes = {name: read_shape(name, {}, revision=None, hub=hub_folder({})) for name in names}
    return [
        {"name": name, "architecture": shape.family, "parameters": shape.parameters, "layers": shape.layers}
        for name, shape in shapes.items()
    ]


def _trainers() -> Rows:
    from orchestrator import trainers

    for problem in trainers.load_problems():
        tell(f"warning: {problem}")
    sentences = {name: (type(trainers.get(name)).__doc__ or "").strip() for name in trainers.known()}
    return [{"name": name, "description": text.partition("\n")[0]} for name, text in sentences.items()]


def _metrics() -> Rows:
    from orchestrator.measure.metrics import METRICS

    return [
        {"name": one.name, "unit": one.unit, "better": one.direction.value, "description": one.description}
        for one in METRICS.values()
    ]


def print_rows(rows: Rows) -> None:
    """Print a table that is as wide as the terminal. If stdout is not a terminal, print one line for each row.

    On a narrow terminal, each description is below its row.
    """
    if not rows:
        return
    names = [name for name in rows[0] if name != DESCRIPTION]
    lines = [{name: name for name in rows[0]}, *map(_texts, rows)]
    widths = {name: max(len(line[name]) for line in lines) for name in names}
    used = sum(widths.values()) + len(GAP) * len(names)
    for line in lines:
        row = "".join(_cell(line[name], widths[name], right=isinstance(rows[0][name], int)) for name in names)
        description = line.get(DESCRIPTION, "")
        first, others = row, " " * used
        if not description or width() - used < LEAST_ROOM:
            say(row.rstrip())
            first = others = GAP
        if description:
            wrapped = textwrap.wrap(
                description, width(), initial_indent=first, subsequent_indent=others, break_on_hyphens=False
            )
            say("\n".join(wrapped))


def _cell(text: str, width: int, *, right: bool) -> str:
    return (text.rjust(width) if right else text.ljust(width)) + GAP


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of a row's cells. A description is cut to its first sentence. A missing value is an empty text."""
    texts = {}
    for name, value in row.items():
        if isinstance(value, int):
            texts[name] = f"{value:,}"
        elif isinstance(value, list):
            texts[name] = ", ".join(value)
        else:
            texts[name] = (value or "").partition(". ")[0] if name == DESCRIPTION else value or ""
    return texts

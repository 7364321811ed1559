"""`compare`: is it slower than before? Two sides in, a verdict a row and an exit code out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.console import out, print_raw, say, tell
from orchestrator.cli.given import words
from orchestrator.errors import SelectionError

if TYPE_CHECKING:
    from orchestrator.compare.gate import Cause
    from orchestrator.compare.values import Comparison, Side


class View(StrEnum):
    """How a comparison is printed."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


class Correction(StrEnum):
    """What is done about many rows."""

    BH = "bh"
    NONE = "none"


Sides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="BASE NEW",
        help="Results folders, CSV files (also the reference's), pytest-benchmark's JSON; several a side with commas.",
    ),
]
AgainstItself = Annotated[
    Path | None, typer.Option("--aa", help="In place of BASE and NEW: odd against even repeats, what noise alone does.")
]
By = Annotated[list[str] | None, typer.Option("--by", help="Names that make an experiment; commas or repeated.")]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", help="Facts of the environment that may differ (gpu, data…), or all.")
]
Metrics = Annotated[
    list[str] | None, typer.Option("--metrics", help="Metrics to judge: NAME or NAME:higher; commas or repeated.")
]
MinEffect = Annotated[
    list[str] | None,
    typer.Option(
        "--min-effect", metavar="[METRIC=]SHARE", help="Smallest change that matters: 0.02, METRIC=5%, fleet=1%."
    ),
]
Threshold = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold", metavar="[METRIC=]SHARE", help="Change that counts with one run a side. [default: 0.1]"
    ),
]
Level = Annotated[
    float | None, typer.Option("--level", help="Largest p, after correction, of a change. [default: 0.035]")
]
Corrected = Annotated[Correction, typer.Option("--correction", help="For many rows: Benjamini-Hochberg, or none.")]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        help="What makes the exit code: regressed, failed, missing, fleet, guard, inconclusive (all of these when left out), "
        "not_comparable; or none.",
    ),
]
Form = Annotated[View, typer.Option("--format", help="What is printed.")]
Output = Annotated[
    list[Path] | None,
    typer.Option("--output", help="Write a file, its form by its ending: .json, .md, .csv, .html, .txt; repeatable."),
]
Everything = Annotated[
    bool, typer.Option("--all", help="Show what is no news, too: the same, untested, failed on both sides.")
]


def compare(
    sides: Sides = None,
    aa: AgainstItself = None,
    by: By = None,
    ignore: Ignore = None,
    metrics: Metrics = None,
    min_effect: MinEffect = None,
    threshold: Threshold = None,
    level: Level = None,
    correction: Corrected = Correction.BH,
    fail_on: FailOn = None,
    form: Form = View.TERMINAL,
    output: Output = None,
    everything: Everything = False,
) -> None:
    """Compare two sides: what is faster, slower, the same, or not known yet.

    Exit codes: 0 nothing worse, 1 worse, 3 inconclusive, 4 nothing comparable.
    """
    from orchestrator.compare import gate, pairing, rules, verdicts
    from orchestrator.compare_view import files

    for path in output or ():
        files.form(path)
        files.refuse_foreign(path)
    judged_by = rules.parse(
        metrics=words(metrics),
        min_effect=words(min_effect),
        threshold=words(threshold),
        level=rules.LEVEL if level is None else level,
        correction=rules.Correction(correction.value),
    )
    causes = gate.parse_causes(words(fail_on)) if fail_on else gate.DEFAULT
    base, new = _sides(sides or [], aa, by=words(by))
    pairs = pairing.pair(base, new, by=words(by), ignore=words(ignore))
    comparison = verdicts.compare(base, new, pairs=pairs, rules=judged_by)
    for warning in comparison.warnings:
        tell(f"warning: {warning}")
    for path, as_ in ((path, files.form(path)) for path in output or ()):
        files.write(path, _text(comparison, as_, causes=causes, everything=everything))
        tell(f"wrote {path}")
    written = form.value in map(files.form, output or ())
    _show(comparison, form, causes=causes, everything=everything, written=written)
    raise typer.Exit(gate.exit_code(comparison, fail_on=causes))


def _sides(places: list[str], aa: Path | None, *, by: tuple[str, ...]) -> tuple[Side, Side]:
    from orchestrator.compare import sides

    if aa is not None:
        if places:
            raise SelectionError("--aa and two sides: give one of them; `--aa DIR` splits one folder by its repeats.")
        return sides.halves(aa, by=by)
    if len(places) != 2:
        raise SelectionError(
            f"compare takes two sides, BASE and NEW, not {len(places)}; several places make one side with commas (a,b), and "
            "`--aa DIR` compares a folder with itself."
        )
    base, new = (sides.read(_places(one), by=by) for one in places)
    return base, new


def _places(text: str) -> list[Path]:
    """The places of one side; a comma may be part of a name that exists."""
    whole = Path(text)
    return [whole] if whole.exists() else [Path(word) for word in text.split(",") if word] or [whole]


def _conclusion(comparison: Comparison, causes: tuple[Cause, ...]) -> str:
    from orchestrator.compare import gate
    from orchestrator.compare_view import wording

    return wording.conclusion(gate.exit_code(comparison, fail_on=causes), gate.causes(comparison), causes)


def _show(comparison: Comparison, form: View, *, causes: tuple[Cause, ...], everything: bool, written: bool) -> None:
    """What stdout gets: the table, or the form that is asked for unless it was `written` to a file."""
    from orchestrator.compare_view import terminal

    if form is not View.TERMINAL:
        if not written:
            print_raw([_text(comparison, form.value, causes=causes, everything=everything)])
        return tell(_conclusion(comparison, causes))
    out.print(terminal.view(comparison, width=out.width, everything=everything))
    say(_conclusion(comparison, causes))


def _text(comparison: Comparison, form: str, *, causes: tuple[Cause, ...], everything: bool) -> str:
    """A comparison in one of its forms. A page and a JSON document always hold everything."""
    from orchestrator.compare_view import as_csv, as_json, as_markdown, as_page, terminal

    if form == View.JSON:
        return as_json.text(comparison)
    if form == View.CSV:
        return as_csv.text(comparison, everything=everything)
    if form == View.HTML:
        return as_page.page(comparison, fail_on=causes)
    conclusion = _conclusion(comparison, causes)
    if form == View.MARKDOWN:
        return as_markdown.text(comparison, conclusion=conclusion, everything=everything)
    return terminal.text(comparison, everything=everything) + conclusion + "\n"

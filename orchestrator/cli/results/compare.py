"""The command `compare`: it reads the two sides of a comparison, prints a verdict for each row, and exits with a code for CI."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from orchestrator.cli.options import By, takes
from orchestrator.cli.terminal.console import out, print_raw, say, tell, tell_warnings, words
from orchestrator.errors import SelectionError

if TYPE_CHECKING:
    from orchestrator.compare.comparison import Comparison, Side
    from orchestrator.compare.gate import Cause


class View(StrEnum):
    """The formats of a printed comparison."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"
    HTML = "html"
    SVG = "svg"


class Correction(StrEnum):
    """The ways to correct p values if there are many rows."""

    BH = "bh"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareOptions:
    """The options of `compare`."""

    sides: Annotated[
        list[str] | None,
        Argument(
            metavar="BASE NEW",
            help="Results folders, databases of runs, CSV files of Tunebench or of the reference system, or JSON files of "
            "pytest-benchmark. Separate several folders or files of one side by commas.",
        ),
    ] = None
    aa: Annotated[
        Path | None,
        Option(
            help="Instead of BASE and NEW: compare the odd repeats of this folder with its even repeats, to see the noise."
        ),
    ] = None
    by: By = None
    ignore: Annotated[
        list[str] | None, Option(help="Facts of the environment that are allowed to differ, such as gpu,data, or all.")
    ] = None
    metrics: Annotated[list[str] | None, Option(help="Metrics to judge, separated by commas: NAME or NAME:higher.")] = (
        None
    )
    min_effect: Annotated[
        list[str] | None,
        Option(
            metavar="[METRIC=]SHARE",
            help="Smallest change that matters: 0.02, METRIC=5%, or fleet=1% (fleet: all experiments together).",
        ),
    ] = None
    threshold: Annotated[
        list[str] | None,
        Option(metavar="[METRIC=]SHARE", help="Smallest change that counts if a side has only one run. [default: 0.1]"),
    ] = None
    rule_out: Annotated[
        list[str] | None,
        Option(
            metavar="[METRIC=]SHARE",
            help="Exit code 3 if an inconclusive row may be so much worse; verdicts stay. [default: 2.5 × --min-effect]",
        ),
    ] = None
    level: Annotated[
        float | None, Option(help="Largest corrected p value at which a change counts. [default: 0.035]")
    ] = None
    correction: Annotated[Correction, Option(help="Correction of p values for many rows. bh: Benjamini-Hochberg.")] = (
        Correction.BH
    )
    fail_on: Annotated[
        list[str] | None,
        Option(
            help="Verdicts that set the exit code: regressed, failed, missing, fleet (all experiments together), guard (the loss), "
            "inconclusive, not_comparable; or none. [default: all but not_comparable]"
        ),
    ] = None
    form: Annotated[View, Option("--format", help="Format of the output.")] = View.TERMINAL
    output: Annotated[
        list[Path] | None,
        Option(
            help="Write the comparison to this file. Its suffix sets the format: .json, .md, .csv, .html, .svg, .txt; repeatable."
        ),
    ] = None
    everything: Annotated[
        bool, Option("--all", help="Include rows that are unchanged, untested, or failed on both sides.")
    ] = False


@takes(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Compare two sides. Each row is improved, regressed, same, or inconclusive.

    Exit codes: 0 nothing is worse, 1 something is worse, 3 a slowdown is not ruled out, 4 nothing is comparable.
    """
    from orchestrator.compare import gate, rules, verdicts
    from orchestrator.compare.sides import pairing
    from orchestrator.compare.view import files

    outputs = options.output or ()
    for path in outputs:
        files.form(path)
        files.refuse_foreign(path)
    judged_by = rules.parse(
        metrics=words(options.metrics),
        min_effect=words(options.min_effect),
        threshold=words(options.threshold),
        rule_out=words(options.rule_out),
        level=rules.LEVEL if options.level is None else options.level,
        correction=rules.Correction(options.correction.value),
    )
    causes = gate.parse_causes(words(options.fail_on)) if options.fail_on else gate.DEFAULT
    base, new = _sides(options.sides or [], options.aa, by=words(options.by))
    pairs = pairing.pair(base, new, by=words(options.by), ignore=words(options.ignore))
    unpaired = () if options.by else pairing.on_other_scenarios(pairs)
    base = replace(base, warnings=(*base.warnings, *unpaired))
    comparison = verdicts.compare(base, new, pairs=pairs, rules=judged_by)
    tell_warnings(comparison.warnings)
    for path in outputs:
        files.write(path, _text(comparison, files.form(path), causes=causes, everything=options.everything))
        tell(f"wrote {path}")
    written = options.form.value in map(files.form, outputs)
    _show(comparison, options.form, causes=causes, everything=options.everything, written=written)
    raise typer.Exit(gate.exit_code(comparison, fail_on=causes))


def _sides(places: list[str], aa: Path | None, *, by: tuple[str, ...]) -> tuple[Side, Side]:
    from orchestrator.compare.sides import read as sides

    if aa is not None:
        if places:
            raise SelectionError(
                "--aa makes both sides from one folder, so BASE and NEW are not allowed; leave out either --aa or BASE and NEW"
            )
        return sides.halves(aa, by=by)
    if len(places) != 2:
        raise SelectionError(
            f"compare takes two sides, BASE and NEW, not {len(places)}; join several folders or files of a side with "
            "commas (a,b), or compare the repeats of one folder with --aa FOLDER"
        )
    base, new = sides.several([_places(place) for place in places], by=by)
    return base, new


def _places(text: str) -> list[Path]:
    """Return the folders and files of one side, which are separated by commas in `text`.

    If the whole text is the path of an existing folder or file, its commas are a part of this path.
    """
    whole = Path(text)
    return [whole] if whole.exists() else [Path(word) for word in text.split(",") if word] or [whole]


def _show(comparison: Comparison, form: View, *, causes: tuple[Cause, ...], everything: bool, written: bool) -> None:
    """Print the comparison in the chosen format, and its conclusion.

    `written` says that the comparison was already written to a file in this format. Then only the view for a terminal and
    the conclusion are printed.
    """
    from orchestrator.compare.view import terminal, wording

    if form is not View.TERMINAL:
        if not written:
            print_raw([_text(comparison, form.value, causes=causes, everything=everything)])
        return tell(wording.conclusion(comparison, causes))
    out().print(terminal.view(comparison, width=out().width, everything=everything))
    say(wording.conclusion(comparison, causes))


def _text(comparison: Comparison, form: str, *, causes: tuple[Cause, ...], everything: bool) -> str:
    """Return a comparison as text in one format. A page and a JSON document always contain all rows."""
    from orchestrator.compare.sides import profiles
    from orchestrator.compare.view import as_csv, as_json, as_markdown, as_svg, page, terminal, wording

    if form == View.JSON:
        return as_json.text(comparison)
    if form == View.CSV:
        return as_csv.text(comparison, everything=everything)
    if form == View.HTML:
        return page.page(comparison, fail_on=causes, profiles=profiles.of(comparison, most=page.MOST_OPERATIONS))
    conclusion = wording.conclusion(comparison, causes)
    if form == View.MARKDOWN:
        return as_markdown.text(comparison, conclusion=conclusion, everything=everything)
    if form == View.SVG:
        return as_svg.text(comparison, conclusion=conclusion)
    return terminal.text(comparison, everything=everything) + conclusion + "\n"

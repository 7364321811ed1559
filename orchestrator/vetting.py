"""Rows of a results folder that may be somebody else's: what of them can be believed, and held in a table.

What a record says is held against the folder that it lies in, numbers that no arithmetic can be done with are missing, and
there is an end to how many columns a table has. Whatever is left out is named in a sentence, and the rest goes on. Pure: the files
were read by `store`, as `untrusted` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator import rows, untrusted
from orchestrator.identity import TAME
from orchestrator.metrics import FACTS, METRICS, Show
from orchestrator.metrics.work import BESIDE
from orchestrator.records import Experiment, Job, RunRecord
from orchestrator.rows import Row, Value

MAX_COLUMNS = 5000
"""A run has about 200; a table of more columns than this is somebody's joke, and would take all memory."""

_OF_THE_TABLE = (frozenset(FACTS) - {*rows.ARGUMENT_FACTS}) | {metric.name for metric in BESIDE}
_SMALLEST = 1 / untrusted.LARGEST
_NUMBERS = frozenset(name for name, metric in METRICS.items() if metric.show is not Show.TEXT)


def foreign_experiment(experiment: Experiment, jobs: Iterable[Job]) -> str | None:
    """Why an experiment is not the one of its folder; None where all is well."""
    if TAME.fullmatch(experiment.id) and {job.experiment_id for job in jobs} <= {experiment.id}:
        return None
    return f"an experiment that calls itself {experiment.id!r:.200} is left out: that is not its folder's name"


def run_row(experiment: Experiment, job: Job, record: RunRecord) -> tuple[Row | None, str | None]:
    """The row of a run that ended, or None with a sentence where its record is not to be believed."""
    wrong = _not_its_own(job, record)
    if wrong is None:
        try:
            row = _numbers_alone(sound(rows.of_run(experiment, record)))
        except (ValueError, OverflowError, OSError) as error:  # a date beyond all calendars, too many digits
            wrong = str(error)
        else:
            given = {one.name: one.value for one in record.measurements}
            missing = ", ".join([*_unsound(given), *_words(given)])
            said = (f"{missing[:200]}: no number that can be reckoned with, left out",) if missing else ()
            return replace(row, warnings=(*row.warnings, *said)), None
    return None, f"{experiment.id} {job.name}: its record is left out: {wrong}"


def _numbers_alone(row: Row) -> Row:
    """The row without words where numbers belong: one of them would make a text of its whole column, and of other runs' numbers."""
    wrong = _words(row.measured)
    return replace(row, measured={**row.measured, **dict.fromkeys(wrong)}) if wrong else row


def _words(measured: Mapping[str, Value]) -> list[str]:
    return [name for name, value in measured.items() if type(value) is str and name in _NUMBERS]


def _not_its_own(job: Job, record: RunRecord) -> str | None:
    """Why a record cannot be the one of this run."""
    if (record.experiment_id, record.repeat, record.attempt) != (job.experiment_id, job.repeat, job.attempt):
        return "it says that it is another run's"
    if _unsound({"started_at": record.started_at, "wall_s": record.wall_s}):
        return "its times are no times"
    return None


def sound(row: Row) -> Row:
    """The row with cells that a frame can hold; a measured number cannot pass for how the run ended."""
    measured = {f"measured_{name}" if name in _OF_THE_TABLE else name: value for name, value in row.measured.items()}
    return replace(
        row,
        facts=_cells(row.facts),
        arguments=_cells(row.arguments),
        outcome=_cells(row.outcome),
        measured=_cells(measured),
        ranks=tuple(map(_cells, row.ranks)),
        devices=tuple(map(_cells, row.devices)),
    )


def _cells(cells: Mapping[str, Value]) -> Mapping[str, Value]:
    wrong = _unsound(cells)
    return {**cells, **dict.fromkeys(wrong)} if wrong else cells


def _unsound(cells: Mapping[str, Value]) -> list[str]:
    """The names of numbers that no arithmetic can be done with. A table asks for millions: nearly all are seen to be sound here."""
    return [
        name
        for name, value in cells.items()
        if (type(value) is float or type(value) is int)
        and not _SMALLEST <= value <= untrusted.LARGEST
        and untrusted.sound_number(value) is None
    ]


def within_width(read: Sequence[Row], *, already: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows whose columns there is room for beside those of the rows before, and a sentence for each other one."""
    known = {name for row in already for part in _parts(row) for name in part}
    kept, said = [], []
    for row in read:
        new = {name for part in _parts(row) if not known.issuperset(part) for name in part} - known
        if len(known) + len(new) > MAX_COLUMNS:
            said.append(f"{row.facts['id']}: a run is left out, for a table has at most {MAX_COLUMNS:,} columns")
            continue
        known |= new
        kept.append(row)
    return kept, said


def _parts(row: Row) -> tuple[Mapping[str, Value], ...]:
    return (row.facts, row.outcome, row.arguments, row.measured, *row.ranks, *row.devices)


_SIGNS = ("=", "+", "@", "-")
_FORMULA = re.compile(r"\s*[=+@-][^\n]*[(|!]")


def formulas(found: Iterable[Row]) -> list[str]:
    """A sentence where a spreadsheet that opens the CSV files would act on a cell: a call, a pipe, another book's name.

    The cells stay as they are (see `report.as_csv`): a report must hold what the trainer was given.
    """
    hits = {
        (name, value): None
        for row in found
        for part in (row.facts, row.outcome, row.arguments, row.measured)
        for name, value in part.items()
        if type(value) is str and (value[:1] in _SIGNS or value[:1].isspace()) and _FORMULA.match(value)
    }
    if not hits:
        return []
    name, text = next(iter(hits))
    cells = "one cell" if len(hits) == 1 else f"{len(hits)} cells"
    return [
        f"{cells} of the CSV files would run as a formula in a spreadsheet, such as {name} {text!r:.80}: "
        "load the files there with all columns as text"
    ]

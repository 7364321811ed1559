"""Check the rows of a results folder, because someone else may have written its files.

A record must belong to the folder that it is in. Numbers that are unfit for arithmetic become missing. The number of a run's
columns is limited. A warning names each row or number that is left out. All remaining rows stay. Pure: `store` has read the
files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain

from orchestrator.files import reading
from orchestrator.files.printable_text import quoted
from orchestrator.files.redaction import Redactor, redact_cells
from orchestrator.measure.metrics import FACTS, METRICS, OVER_REPEATS, Show, limits
from orchestrator.measure.metrics.work import COMPARISON, RELATIVE
from orchestrator.records import Caveat, CaveatKind, Experiment, Job, RunRecord, Status
from orchestrator.records.experiment import SAFE_ID
from orchestrator.results.contents import StoredExperiment
from orchestrator.results.due_runs import without_cold_first
from orchestrator.results.table import rows
from orchestrator.results.table.rows import Row, Value

# A run has about 200 columns. A record with more columns than this limit is left out, since its table would take all memory.
MAX_COLUMNS = 5000

# Columns whose values depend on other runs or experiments. Only the table computes them: if a file or a trainer has such a column,
# it is left out.
COMPUTED = OVER_REPEATS.union(metric.name for metric in (*COMPARISON, *RELATIVE))
_OF_THE_TABLE = (frozenset(FACTS) - {*rows.ARGUMENT_FACTS}) | COMPUTED.union(rows.OF_DATABASES)
_SMALLEST = 1 / reading.LARGEST
_NUMBERS = frozenset(name for name, metric in METRICS.items() if metric.show is not Show.TEXT)


def run_rows(stored: StoredExperiment, warnings: list[str]) -> list[tuple[Job, RunRecord, Row]] | None:
    """Return the runs that ended, with their rows; None if the experiment does not belong to its folder. Add to `warnings`.

    A cold first run has a caveat that leaves it out of the experiment's means.
    """
    if not SAFE_ID.fullmatch(stored.experiment.id) or any(
        run.job.experiment_id != stored.experiment.id for run in stored.runs
    ):
        name = f"{quoted(stored.experiment.id, longest=200)}"
        warnings.append(f"the experiment with the id {name} is left out: its folder has another name")
        return None
    ended = ((run.job, run.record) for run in stored.runs if run.record is not None)
    made = ((job, record, run_row(stored.experiment, job, record, warnings)) for job, record in ended)
    runs = [(job, record, row) for job, record, row in made if row is not None]
    last = {record.repeat: record for _, record, _ in runs}
    kept = {record.repeat for record in without_cold_first(stored.experiment.adaptive, last.values())}
    return [
        (job, record, row if record.repeat in kept or record is not last[record.repeat] else _as_cold(row))
        for job, record, row in runs
    ]


def _as_cold(row: Row) -> Row:
    note = Caveat(kind=CaveatKind.COLD_FIRST_RUN, detail="it is clearly slower than the others")
    warnings = (*row.warnings, note)
    text = "\n".join(caveat.sentence for caveat in warnings)
    return replace(row, warnings=warnings, outcome={**row.outcome, "warnings": text})


def run_row(experiment: Experiment, job: Job, record: RunRecord, warnings: list[str]) -> Row | None:
    """Return the row of a run that ended. If its record is not plausible, return None and add a sentence to `warnings`."""
    try:
        _refuse(record)
        row = _without_wrong(sound(rows.of_run(experiment, record)), experiment, record)
        parts = (row.facts, row.outcome, row.arguments, row.measured, *row.ranks, *row.devices)
        if len({name for part in parts for name in part}) > MAX_COLUMNS:
            raise ValueError(f"it has more than {MAX_COLUMNS:,} columns")
    except (ValueError, OverflowError, OSError) as error:  # a date beyond all calendars, too many digits
        warnings.append(f"{experiment.id} {job.name}: its record is left out: {error}")
        return None
    measured = {measurement.name: measurement.value for measurement in record.measurements}
    missing = ", ".join([*_unsound(measured), *_wrong(measured, experiment, record)])
    note = Caveat(detail=f"{missing[:200]}: not a number that can be used, left out")
    return replace(row, warnings=(*row.warnings, note)) if missing else row


def _without_wrong(row: Row, experiment: Experiment, record: RunRecord) -> Row:
    """Return the row without wrong values in columns of numbers: one word would turn the whole column into text."""
    wrong = _wrong(row.measured, experiment, record)
    return replace(row, measured={**row.measured, **dict.fromkeys(wrong)}) if wrong else row


def _wrong(measured: Mapping[str, Value], experiment: Experiment, record: RunRecord) -> list[str]:
    """Return the names of numbers whose value is a word, and of the impossible numbers if the run ended ok."""
    limit = partial(limits.broken_limit, wall_s=None, devices=experiment.num_gpus, may_be_0=True)
    known = [(name, value) for name, value in measured.items() if name in _NUMBERS and value is not None]
    return [
        name
        for name, value in known
        if isinstance(value, str) or (record.status is Status.OK and limit(METRICS[name], value))
    ]


def _refuse(record: RunRecord) -> None:
    """Raise ValueError if the times of a record are invalid."""
    if _unsound({"started_at": record.started_at, "wall_s": record.wall_s}):
        raise ValueError("its times are invalid")


def sound(row: Row) -> Row:
    """Return the row with cells that a frame can store. A measured number cannot replace the outcome of the run."""
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
    """Return the names of numbers that are unfit for arithmetic, or are truth values. A fast comparison decides for most."""
    return [
        name
        for name, value in cells.items()
        if (
            (type(value) is float or type(value) is int)
            and not _SMALLEST <= value <= reading.LARGEST
            and reading.sound_number(value) is None
        )
        or (type(value) is bool and name in _NUMBERS)
    ]


def without_secrets(row: Row, masked: Redactor) -> Row:
    """Return the row with masked secrets. A record may be edited, and this environment may have other secrets than the run's."""
    return replace(
        row,
        facts=redact_cells(row.facts, masked),
        arguments=redact_cells(row.arguments, masked),
        outcome=redact_cells(row.outcome, masked),
        measured=redact_cells(row.measured, masked),
        ranks=tuple(redact_cells(cells, masked) for cells in row.ranks),
        devices=tuple(redact_cells(cells, masked) for cells in row.devices),
        warnings=tuple(replace(caveat, detail=masked(caveat.detail)) for caveat in row.warnings),
        baseline=redact_cells(row.baseline, masked),
        # The digest of a file `credentials.json` is not a secret, so its name does not count.
        sources={masked(name): masked(digest) for name, digest in row.sources.items()},
        given=redact_cells(row.given, masked),
    )


_FORMULA = re.compile(r"\s*[=+@-][^\n]*[(|!]")


def formulas(all_rows: Iterable[Row]) -> list[str]:
    """Return a warning if a spreadsheet would run a cell of the CSV files: a call, a pipe, or a link to another workbook.

    The cells stay as they are (see `report/tables/as_csv.py`): a report must show the arguments that the trainer got.
    """
    cells = chain.from_iterable(row.flat().values() for row in all_rows)
    formula = next((cell for cell in cells if type(cell) is str and _FORMULA.match(cell)), None)
    if formula is None:
        return []
    return [
        f"a spreadsheet would run some cells of the CSV files as formulas, such as {quoted(formula)}; "
        "when you load the files there, make all columns text"
    ]

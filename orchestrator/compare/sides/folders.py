"""Read a results folder of Tunebench or of the reference as a side.

The files may come from anyone. Rows that `results.table.foreign_rows` rejects are left out, and a warning names them. No data frame
is made, since a comparison reads each number once. Nothing is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.compare.sides import environment
from orchestrator.compare.sides.experiments import UNREADABLE, Origin, Place
from orchestrator.files.reading import resolved
from orchestrator.records import Experiment, Job, JobState, RunRecord
from orchestrator.results.contents import Contents
from orchestrator.results.folder import is_ours
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows, rows
from orchestrator.results.table.rows import Row, Value
from orchestrator.results.table.sources import reference_folder
from orchestrator.results.table.sources.benchmarks import by_benchmark
from orchestrator.results.table.sources.database import DIGEST, VARIABLES
from orchestrator.screen import stored

# The tables that a report writes next to each other, those that say most about the runs first.
TABLES = ("raw_summary.csv", "benchmarks.csv", "devices.csv", "ranks.csv")


def without_own_tables(places: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return two values: the places, with the results of each folder only once, and a warning for each place that is left out.

    The tables of one folder have the same runs. If the folder itself is among the places, all its tables are left out. Otherwise
    the table that says most is kept.
    """
    tables: dict[Path, list[Path]] = defaultdict(list)
    for place in places:
        if place.name in TABLES and place.is_file():
            tables[resolved(place).parent].append(place)
    whole = {resolved(place): place for place in places if place.is_dir()}
    warnings: dict[Path, str] = {}
    for folder, of_folder in tables.items():
        best = min((table.name for table in of_folder), key=TABLES.index)
        kept = f"{whole[folder]} itself" if folder in whole else f"{best} of the same folder"
        for table in of_folder:
            if folder in whole or table.name != best:
                warnings[table] = f"{table}: it is left out, because {kept} has the same runs"
    return [place for place in places if place not in warnings], list(warnings.values())


def holds_results(place: Path) -> bool:
    """Return whether a folder is a results folder of Tunebench or of the reference."""
    return is_ours(place) or reference_folder.find(place) is not None


def read(place: Path) -> Place:
    """Return the experiments of a results folder in the requested order. Raise ResultsError if it is not a results folder."""
    reference = reference_folder.find(place)
    if reference is not None:
        return _read_reference(place, reference)
    warnings: list[str] = []
    groups = list(_stored(place, Store.resume(place).contents(), warnings))
    screens = tuple(stored.read(place / stored.FOLDER))
    return Place(name=str(place), groups=groups, warnings=warnings, screens=screens)


def row_of(experiment: Experiment, job: Job, record: RunRecord) -> Row | None:
    """Return the row of a run that ended, as `read` makes it; None if its record is not plausible."""
    row = foreign_rows.run_row(experiment, job, record, [])
    return None if row is None else _with_more(row, record, experiment)


def _stored(place: Path, contents: Contents, warnings: list[str]) -> Iterator[tuple[list[Row], Origin]]:
    """Yield the rows of each experiment, or of each benchmark of a suite. Implausible rows are left out and named in `warnings`."""
    folder = str(place.absolute())
    warnings += contents.warnings
    if contents.removed:
        warnings.append(f"{len(contents.removed)} experiment(s) that are no longer requested are left out")
    for whole in contents.experiments:
        experiment = whole.experiment
        if experiment.id in contents.removed:
            continue
        stored = whole.without_failed_surplus(warnings)
        ended = foreign_rows.run_rows(stored, warnings)
        if ended is None:
            continue
        state = stored.runs[-1].state if stored.runs else JobState.PENDING
        runs = [_with_more(row, record, experiment) for _, record, row in ended]
        read = {job.name for job, _, _ in ended}
        unread = (run.job for run in stored.runs if run.state is JobState.ENDED and run.job.name not in read)
        runs += [_unreadable(experiment, job) for job in unread]
        for group in by_benchmark(runs or [foreign_rows.sound(rows.of_plan(experiment, state))]):
            yield group, Origin(id=str(group[0].facts["id"]), folder=folder, whole=True)


def _with_more(row: Row, record: RunRecord, experiment: Experiment) -> Row:
    """Return the row with the facts that a comparison needs and a table does not show."""
    more: dict[str, Value] = {
        "neighbours": record.neighbours,
        **environment.gpu_cells(record.provenance.get("gpus")),
        **environment.package_cells(record.provenance.get("packages") if experiment.environment else None),
        **environment.data_cells(experiment.data),
        **environment.source_cells(experiment.sources),
        **environment.key_cells(experiment),
    }
    return replace(
        _with_hidden(row, experiment),
        outcome={**row.outcome, "started_at": record.started_at},
        measured={**row.measured, **more},
    )


def _unreadable(experiment: Experiment, job: Job) -> Row:
    """Return the row of a run whose record cannot be read, or was left out because it is implausible."""
    row = foreign_rows.sound(rows.of_plan(experiment, JobState.ENDED))
    run: dict[str, Value] = {"repeat": job.repeat, "attempt": job.attempt, "failure_kind": UNREADABLE}
    return replace(_with_hidden(row, experiment), outcome={**row.outcome, **run})


def _with_hidden(row: Row, experiment: Experiment) -> Row:
    """Return the row with the facts and arguments of the experiment that a table does not show."""
    return replace(
        row,
        facts={"monitors": "none", **row.facts},
        arguments={**row.arguments, **_hidden_arguments(experiment)},
    )


def _hidden_arguments(experiment: Experiment) -> dict[str, Value]:
    """Return an experiment's environment variables, and the digest of its framework configuration."""
    hidden: dict[str, Value] = {}
    if experiment.framework is not None:
        hidden[DIGEST] = experiment.framework.digest
    if experiment.env:
        hidden[VARIABLES] = " ".join(f"{name}={value}" for name, value in sorted(experiment.env.items()))
    return hidden


def _read_reference(place: Path, folder: Path) -> Place:
    read, warnings = reference_folder.read(folder)
    sound = [foreign_rows.sound(row) for row in read]
    names = dict.fromkeys(name for row in sound for name in row.arguments)
    complete = (replace(row, arguments={**dict.fromkeys(names), **row.arguments}) for row in sound)
    return Place(name=str(place), groups=[([row], Origin()) for row in complete], warnings=warnings)

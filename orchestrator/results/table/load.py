"""Read results folders and CSV files as one table: a frame of runs, and a frame of experiments with their repeats grouped.

A metric of an experiment is the mean over its repeats that ended ok; for rates and step times it is the geometric mean
(`aggregate`). If a repeat failed, `status` says how the last failed repeat ended. `runs` is the number of repeats, and `runs_ok`
is the number of repeats in the mean. So a mean never hides a failure.

A results folder may come from someone else. `foreign_rows` leaves out implausible content, and adds a warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.errors import ResultsError
from orchestrator.files import gc_pause, reading
from orchestrator.files.printable_text import counted
from orchestrator.files.redaction import redact, redactor
from orchestrator.records import Caveat, CaveatKind, JobState, Status
from orchestrator.records.price import Price
from orchestrator.results import folder, neighbour_cost
from orchestrator.results.contents import StoredExperiment
from orchestrator.results.due_runs import shortfall
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows, references, rows
from orchestrator.results.table.aggregate import (
    BY_RATIO,
    LOGGED,
    STEPS_TO_TARGET,
    TO_TARGET,
    Cell,
    compared,
    over_repeats,
)
from orchestrator.results.table.column_choice import varying
from orchestrator.results.table.column_types import frame_of
from orchestrator.results.table.references import Reference
from orchestrator.results.table.rows import Row, Value
from orchestrator.results.table.sources import copies, costs, csv_file, database, reference_folder
from orchestrator.results.table.sources.benchmarks import by_benchmark

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ResultsTable", "load", "varying"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultsTable:
    """The results as frames: `runs` has a row for each run that ended, `experiments` has one for each experiment, ended or not.

    `ranks` has a row for each training process of each run. `devices` has a row for each GPU that was watched. A missing value is
    NA.

    The columns are those of docs/metrics.md in reading order. `warnings` are sentences about runs, and about files that cannot
    be read. With several folders, the column `results` has the folder of the row. `arguments` has the columns that are
    arguments of the trainer. `own_metrics` has the columns of metrics that only scenarios with `custom:` define.
    `framework_arguments` has the columns that each framework configuration sets. For each row of `experiments`, `caveats` has
    the caveats of its repeats that ended ok, and `baselines` has the references of its scenario. `failed` has the outcomes of its
    other repeats. `shortfalls` has its numbers of done and of requested repeats if runs are due, else None. `baseline` has
    the references that `--baseline` names for all experiments. `neighbour_cost` is the slowdown that `--parallel auto` measured,
    as a difference of logarithms. `raced` are the ids of the experiments in races of `tunebench tune`. `of_round` maps those in
    races that are not over to their repeats after the present round.
    """

    runs: pd.DataFrame
    experiments: pd.DataFrame
    ranks: pd.DataFrame
    devices: pd.DataFrame
    warnings: tuple[str, ...] = ()
    caveats: tuple[tuple[Caveat, ...], ...] = ()
    failed: tuple[tuple[Mapping[str, Value], ...], ...] = ()
    baseline: tuple[Reference, ...] = ()
    baselines: tuple[tuple[Reference, ...], ...] = ()
    shortfalls: tuple[tuple[int, int] | None, ...] = ()
    arguments: frozenset[str] = frozenset()
    own_metrics: tuple[str, ...] = ()
    framework_arguments: Mapping[str, frozenset[str]] = field(default_factory=dict)
    neighbour_cost: float | None = None
    raced: frozenset[str] = frozenset()
    of_round: Mapping[str, int] = field(default_factory=dict)


@gc_pause.left_alone()
def load(roots: Sequence[Path], *, price: Price | None = None) -> ResultsTable:
    """Return the table of results folders, CSV files or databases. Raise ResultsError if one is missing or has no results.

    The costs are at this price. If it is None, those of a results folder are at the folder's own price. A run that several of
    them have is in the table once.
    """
    names, masked = names_of(roots), redactor()
    by_root: dict[str, list[Row]] = {}
    warnings: list[str] = []
    framework_arguments: dict[str, frozenset[str]] = {}
    tables = {name for root, name in zip(roots, names, strict=True) if not root.is_dir()}
    for root, name in zip(roots, names, strict=True):
        read, sentences = _read(root, framework_arguments)
        own = price or (costs.price_of(folder.read_suite(root) or {}) if root.is_dir() else None)
        read = [costs.with_costs(foreign_rows.without_secrets(row, masked), own) for row in read]
        if len(roots) > 1:
            read = [replace(row, facts={"results": name, **row.facts}) for row in read]
            sentences = [f"{name}: {sentence}" for sentence in sentences]
        by_root[name] = read
        warnings += map(masked, sentences)
    by_root, left_out = copies.without_copies(by_root, tables=tables)
    warnings += left_out
    all_rows = [row for read in by_root.values() for row in read]
    table = of_rows(all_rows, warnings=warnings, framework_arguments=framework_arguments)
    races = [race for root in roots for race in folder.races(root)]
    raced = frozenset(name for race in races for name in folder.raced(race))
    of_round = {name: repeats for race in races for name, repeats in folder.repeats_of_round(race).items()}
    return replace(table, neighbour_cost=neighbour_cost.read(roots), raced=raced, of_round=of_round)


def of_rows(
    all_rows: Sequence[Row],
    *,
    warnings: Sequence[str] = (),
    framework_arguments: Mapping[str, frozenset[str]] | None = None,
) -> ResultsTable:
    """Return the table of these rows."""
    all_rows = rows.with_usual(rows.with_versions(all_rows))
    several = rows.ambiguous(all_rows)
    all_rows = [rows.in_json(row, several) for row in all_rows] if several else all_rows
    arguments = frozenset(name for row in all_rows for name in row.arguments)
    return ResultsTable(
        runs=frame_of([row.flat() for row in all_rows if "repeat" in row.outcome], arguments),
        experiments=frame_of(_experiments(all_rows), arguments),
        ranks=_parts((row, row.ranks) for row in all_rows),
        devices=_parts((row, row.devices) for row in all_rows),
        warnings=(*warnings, *foreign_rows.formulas(all_rows)),
        caveats=tuple(tuple(c for row in _ok(_last_tries(group)) for c in row.warnings) for group in _groups(all_rows)),
        failed=tuple(tuple(row.outcome for row in _not_ok(_last_tries(group))) for group in _groups(all_rows)),
        baselines=tuple(references.of_scenario(group[0].baseline, arguments) for group in _groups(all_rows)),
        shortfalls=tuple(group[0].shortfall for group in _groups(all_rows)),
        arguments=arguments,
        own_metrics=tuple(dict.fromkeys(name for row in all_rows for name in rows.own_metrics(row))),
        framework_arguments=framework_arguments or {},
    )


def names_of(roots: Sequence[Path]) -> list[str]:
    """Return a name for each folder: the last parts of its path, as few as distinguish all folders, with masked secrets."""
    paths = [reading.resolved(root) for root in roots]
    longest = max((len(path.parts) for path in paths), default=0)
    for depth in range(1, longest + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(paths):
            masked = list(map(redact, names))
            return [f"{name} ({at})" if masked.count(name) > 1 else name for at, name in enumerate(masked, start=1)]
    raise ResultsError("a results folder is named twice; name each folder once")


def _read(root: Path, framework_arguments: dict[str, frozenset[str]]) -> tuple[list[Row], list[str]]:
    """Return the rows and warnings of a folder. Add to `framework_arguments` the columns that each configuration sets."""
    if root.is_file() or database.is_database(root):
        read, warnings = _database(root) if database.is_place(root) else _csv_file(root)
        for name, names in csv_file.set_by_frameworks(read).items():
            framework_arguments[name] = framework_arguments.get(name, frozenset()) | names
        return read, warnings
    if not root.is_dir():
        raise ResultsError(f"{root}: there is no such folder; name a results folder, which `tunebench run` made")
    reference_root = reference_folder.find(root)
    if reference_root is not None:
        read, warnings = reference_folder.read(reference_root)
        return [foreign_rows.sound(row) for row in read], warnings
    contents = Store.resume(root).contents()
    warnings = list(contents.warnings)
    wanted = [stored for stored in contents.experiments if stored.experiment.id not in contents.removed]
    if contents.removed:
        shown = [*sorted(contents.removed)[:REMOVED_SHOWN], *(["…"] if len(contents.removed) > REMOVED_SHOWN else [])]
        warnings.append(
            f"The table leaves out {counted(len(contents.removed), 'experiment')} that a later `tunebench run` of the same "
            f"file did not plan: {', '.join(shown)}; the runs stay in the folder"
        )
    for framework in (stored.experiment.framework for stored in wanted):
        if framework is not None:
            own = frozenset(map(rows.argument_column, framework.arguments))
            framework_arguments[framework.name] = framework_arguments.get(framework.name, frozenset()) | own
    read = [row for stored in wanted for row in _stored_rows(stored, warnings)]
    caveats = dict.fromkeys(f"{row.facts['id']}: {caveat.sentence}" for row in read for caveat in row.warnings)
    return read, [*warnings, *caveats]


def _database(place: Path) -> tuple[list[Row], list[str]]:
    """Return the rows and warnings of a database or a Parquet file. If it has several campaigns, each row names its own."""
    campaigns = database.campaigns(place)
    read = [row for campaign in campaigns for row in database.for_tables(campaign, is_only=len(campaigns) == 1)]
    return read, list(dict.fromkeys(f"{row.facts['id']}: {caveat.sentence}" for row in read for caveat in row.warnings))


def _csv_file(file: Path) -> tuple[list[Row], list[str]]:
    """Return the rows and warnings of a CSV file. An experiment without an id that may be shown gets its position as id."""
    try:
        groups, warnings = csv_file.read(reading.read_bytes(file, limit=reading.LOG_BYTES))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{file}: this is not a CSV file of results: {reading.reason(error)}") from None
    if csv_file.has_means(groups):
        raise ResultsError(
            f"{file}: this file has means over repeats; give raw_summary.csv of the same folder instead, which has the runs"
        )
    read = []
    for number, group in enumerate(groups, start=1):
        for row in group:
            name = str(row.facts.get("id") or "")
            facts = {**row.facts, "id": name if name and redact(name) == name else f"row-{number}"}
            measured = {name: value for name, value in row.measured.items() if name not in foreign_rows.COMPUTED}
            outcome = {"attempt": 1, "status": JobState.PENDING.value, **row.outcome}
            read.append(foreign_rows.sound(replace(row, facts=facts, outcome=outcome, measured=measured)))
    caveats = dict.fromkeys(f"{row.facts['id']}: {caveat.sentence}" for row in read for caveat in row.warnings)
    return read, [*warnings, *caveats]


def _stored_rows(stored: StoredExperiment, warnings: list[str]) -> list[Row]:
    """Return the rows of an experiment. Leave out implausible rows and values, and add a warning."""
    stored = stored.without_failed_surplus(warnings)
    ended = foreign_rows.run_rows(stored, warnings)
    if ended is None:
        return []
    state = stored.runs[-1].state if stored.runs else JobState.PENDING
    found = [row for _, _, row in ended]
    found = found or [foreign_rows.sound(rows.of_plan(stored.experiment, state))]
    short = shortfall(stored)
    return [replace(row, shortfall=short) for rows_of_one in by_benchmark(found) for row in rows_of_one]


REMOVED_SHOWN = 5
OF_THE_RUN = ("results", "id", "repeat", "attempt", "status")
_OUTCOME = ("status", "failure_kind", "failure_cause", "failure_hint")


def _parts(all_rows: Iterable[tuple[Row, Sequence[Mapping[str, Value]]]]) -> pd.DataFrame:
    """Return a frame with a row for each part of each run, such as a rank. Each row also has the columns that identify the run."""
    records: list[dict[str, Value]] = []
    for row, parts in all_rows:
        if parts:
            run = {name: value for name, value in {**row.facts, **row.outcome}.items() if name in OF_THE_RUN}
            records += [{**run, **part} for part in parts]
    return frame_of(records, frozenset(), order=list)


def _groups(all_rows: Iterable[Row]) -> Iterator[list[Row]]:
    groups: dict[tuple[Value, Value], list[Row]] = {}
    for row in all_rows:
        groups.setdefault((row.facts.get("results"), row.facts["id"]), []).append(row)
    yield from groups.values()


def _experiments(all_rows: Sequence[Row]) -> list[dict[str, Value]]:
    """Return a flat row for each experiment, with the numbers that compare it with other experiments."""
    pairs = [_experiment(group) for group in _groups(all_rows)]
    others = compared([cell for cell, _ in pairs])
    return [
        {**cell.facts, **cell.arguments, **outcome, **cell.numbers, **relative}
        for (cell, outcome), relative in zip(pairs, others, strict=True)
    ]


def _experiment(group: Sequence[Row]) -> tuple[Cell, dict[str, Value]]:
    """Return an experiment with the means over its repeats that ended ok, and with the outcome of all its repeats."""
    repeats = _last_tries(group)
    ok = _ok(repeats)
    failed = _not_ok(repeats)
    decisive = (failed or ok)[-1].outcome
    outcome = {name: decisive[name] for name in _OUTCOME if name in decisive}
    outcome |= {"runs": sum("repeat" in row.outcome for row in repeats), "runs_ok": len(ok)}
    warnings = dict.fromkeys(caveat.sentence for row in repeats for caveat in row.warnings)
    if warnings:
        outcome["warnings"] = "\n".join(warnings)
    measured = [row.measured for row in ok] or [_words(row.measured) for row in repeats]
    return Cell(facts=group[0].facts, arguments=group[0].arguments, numbers=_means(measured)), outcome


def _ok(repeats: Iterable[Row]) -> list[Row]:
    """Return the repeats that ended ok, without a cold first run."""
    ok = (row for row in repeats if row.outcome["status"] == Status.OK.value)
    return [row for row in ok if all(caveat.kind is not CaveatKind.COLD_FIRST_RUN for caveat in row.warnings)]


def _not_ok(repeats: Iterable[Row]) -> list[Row]:
    return [row for row in repeats if row.outcome["status"] != Status.OK.value]


def _words(measured: Mapping[str, Value]) -> dict[str, Value]:
    """Return the cells that a failed run keeps: settings, provenance and words, but no numbers."""
    kept = ("effective_", "provenance_")
    return {
        name: value
        for name, value in measured.items()
        if name != LOGGED and (isinstance(value, (str, bool)) or name.startswith(kept))
    }


def _last_tries(group: Sequence[Row]) -> list[Row]:
    """Return the last try of each repeat. Earlier tries failed for other reasons, or were repeated on purpose."""
    tries = sorted(group, key=lambda row: [int(row.outcome.get(name) or 0) for name in ("repeat", "attempt")])
    return list({row.outcome.get("repeat"): row for row in tries}.values())


def _means(measured: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """Return the mean of each metric over repeats. For words, return the common word, or all words separated by commas."""
    if len(measured) == 1:
        return dict(measured[0])
    means: dict[str, Value] = {}
    for name in dict.fromkeys(name for cells in measured for name in cells):
        values = [value for cells in measured if (value := cells.get(name)) is not None]
        if name in TO_TARGET and 0 < len(values) < len(measured):  # a mean of only the fast runs would be too good
            means |= {name: None, **({f"{name}_runs": len(values)} if name == STEPS_TO_TARGET else {})}
        elif name in BY_RATIO and len(values) > 1 and all(type(value) in (int, float) for value in values):
            means |= over_repeats(name, cast(list[float], values))
        elif name == LOGGED:  # the mean loss needs the text of each repeat, even if two are equal
            means[name] = ", ".join(map(str, values)) if len(values) == len(measured) else None
        elif name not in means:  # an interval over repeats replaces the intervals of single runs
            means[name] = _mean(values)
    return means


def _mean(values: Sequence[Value]) -> Value:
    if not values:
        return None
    if values.count(values[0]) == len(values):
        return values[0]
    if any(isinstance(value, (str, bool)) for value in values):
        return ", ".join(map(str, dict.fromkeys(values)))
    numbers = cast(Sequence[float], values)
    if all(isinstance(value, int) for value in numbers) and sum(numbers) % len(numbers) == 0:
        return int(sum(numbers)) // len(numbers)
    return math.fsum(numbers) / len(numbers)

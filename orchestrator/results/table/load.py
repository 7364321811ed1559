"""Results folders as one table: a frame of runs and a frame of experiments with their repeats grouped.

Reads through `store` (ours) or `reference` (a folder of the reference system), and reads only: what is derived is
remade from the records at any time. Does not choose what is shown (`columns`) and writes no text (`report`).

Of an experiment, a metric is the mean over its repeats that ended ok (the mean of logs for rates and step times, `across`);
where some did not, its `status` says how the last such repeat ended, and `runs_ok` of `runs` how many numbers the mean is
of: failures are never averaged away.

A results folder may come from somebody else: `vetting` says what of it is left out, and each time a warning names it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orchestrator.errors import ResultsError
from orchestrator.records import Caveat, JobState, Status
from orchestrator.results.contents import StoredExperiment
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows, gc_pause, reference_folder, rows
from orchestrator.results.table.aggregate import BY_RATIO, LOGGED, Cell, compared, over_repeats
from orchestrator.results.table.columns import for_people, varying
from orchestrator.results.table.rows import Row, Value

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ResultsTable", "load", "varying"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultsTable:
    """`runs`: a row for each run that ended. `experiments`: a row for each experiment, ended or not. Missing is NA.
    `ranks` and `devices`: a row for each training process and for each watched GPU of each run.

    Columns are those of docs/metrics.md in reading order. `warnings` are sentences about what could not be read and
    about single runs. With several folders the column `results` says which one a row comes from. `arguments` names the columns
    that are arguments of the trainer, `framework_arguments` those that a framework configuration sets itself.
    `caveats` are for each row of `experiments` those of its repeats that ended ok.
    """

    runs: pd.DataFrame
    experiments: pd.DataFrame
    ranks: pd.DataFrame
    devices: pd.DataFrame
    warnings: tuple[str, ...] = ()
    caveats: tuple[tuple[Caveat, ...], ...] = ()
    arguments: frozenset[str] = frozenset()
    framework_arguments: Mapping[str, frozenset[str]] = field(default_factory=dict)


@gc_pause.left_alone()
def load(roots: Sequence[Path]) -> ResultsTable:
    """The table of one or more results folders. Raises ResultsError where a folder is missing or holds no results."""
    names = _names(roots)
    found: list[Row] = []
    warnings: list[str] = []
    sets: dict[str, frozenset[str]] = {}
    for root, name in zip(roots, names, strict=True):
        read, said = _read(root, sets)
        warnings += [f"{name}: {sentence}" if len(roots) > 1 else sentence for sentence in said]
        found += [_labelled(row, name) for row in read] if len(roots) > 1 else read
    return of_rows(found, warnings=warnings, framework_arguments=sets)


def of_rows(
    found: Sequence[Row],
    *,
    warnings: Sequence[str] = (),
    framework_arguments: Mapping[str, frozenset[str]] | None = None,
) -> ResultsTable:
    """Rows as a table, their repeats grouped."""
    arguments = frozenset(name for row in found for name in row.arguments)
    return ResultsTable(
        runs=_frame([row.flat() for row in found if "repeat" in row.outcome], arguments),
        experiments=_frame(_experiments(found), arguments),
        ranks=_parts((row, row.ranks) for row in found),
        devices=_parts((row, row.devices) for row in found),
        warnings=(*warnings, *foreign_rows.formulas(found)),
        caveats=tuple(tuple(c for row in _ok(_last_tries(group)) for c in row.warnings) for group in _groups(found)),
        arguments=arguments,
        framework_arguments=framework_arguments or {},
    )


def _names(roots: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell the folders apart."""
    paths = [root.resolve() for root in roots]
    longest = max((len(path.parts) for path in paths), default=0)
    for depth in range(1, longest + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(paths):
            return names
    raise ResultsError("The same results folder is named twice: name each folder once.")


def _read(root: Path, sets: dict[str, frozenset[str]]) -> tuple[list[Row], list[str]]:
    """The rows of a folder and what is to say of it; `sets` learns which arguments each framework configuration sets."""
    if not root.is_dir():
        raise ResultsError(f"There is no folder {root}: name a results folder, which `tunebench run --results` made.")
    theirs = reference_folder.find(root)
    if theirs is not None and not (root / "suite.json").exists():
        read, said = reference_folder.read(theirs)
        return [foreign_rows.sound(row) for row in read], said
    contents = Store.resume(root).contents()
    warnings = list(contents.warnings)
    wanted = [one for one in contents.experiments if one.experiment.id not in contents.removed]
    if contents.removed:
        names = ", ".join(sorted(contents.removed)[:REMOVED_SHOWN]) + (
            ", …" if len(contents.removed) > REMOVED_SHOWN else ""
        )
        warnings.append(
            f"{len(contents.removed)} experiment(s) that no call asks for any more stay in the store, not here: {names}"
        )
    for framework in (one.experiment.framework for one in wanted):
        if framework is not None and framework.arguments:
            own = frozenset(map(rows.argument_column, framework.arguments))
            sets[framework.name] = sets.get(framework.name, frozenset()) | own
    read = [row for one in wanted for row in _stored_rows(one, warnings)]
    said = [f"{row.facts['id']}: {caveat.sentence}" for row in read for caveat in row.warnings]
    return read, [*warnings, *dict.fromkeys(said)]


def _stored_rows(stored: StoredExperiment, warnings: list[str]) -> list[Row]:
    """Return the rows of an experiment. What cannot be believed is left out, and `warnings` says so."""
    ended = foreign_rows.run_rows(stored, warnings)
    if ended is None:
        return []
    state = stored.runs[-1].state if stored.runs else JobState.PENDING
    return [row for _, _, row in ended] or [foreign_rows.sound(rows.of_plan(stored.experiment, state))]


def _labelled(row: Row, name: str) -> Row:
    return replace(row, facts={"results": name, **row.facts})


REMOVED_SHOWN = 5
_OF_THE_RUN = ("results", "id", "repeat", "attempt", "status")


def _parts(found: Iterable[tuple[Row, Sequence[Mapping[str, Value]]]]) -> pd.DataFrame:
    """Rows of a run's parts, each beside the name of its run; columns as they come."""
    records: list[dict[str, Value]] = []
    for row, parts in found:
        run = (
            {name: value for name, value in {**row.facts, **row.outcome}.items() if name in _OF_THE_RUN}
            if parts
            else {}
        )
        records += [{**run, **part} for part in parts]
    return _frame(records, frozenset(), order=list)


def _groups(found: Iterable[Row]) -> Iterator[list[Row]]:
    groups: dict[tuple[Value, Value], list[Row]] = {}
    for row in found:
        groups.setdefault((row.facts.get("results"), row.facts["id"]), []).append(row)
    yield from groups.values()


def _experiments(found: Sequence[Row]) -> list[dict[str, Value]]:
    """A flat row for each experiment, with what the others say of it."""
    ended = [_experiment(group) for group in _groups(found)]
    cells = [cell for cell, _ in ended]
    rest = zip(ended, compared(cells), strict=True)
    return [{**cell.facts, **cell.arguments, **how, **cell.numbers, **beside} for (cell, how), beside in rest]


def _experiment(group: Sequence[Row]) -> tuple[Cell, dict[str, Value]]:
    """One experiment: its facts and means over its repeats that ended ok; and how its repeats ended."""
    repeats = _last_tries(group)
    ok = _ok(repeats)
    others = [row for row in repeats if row.outcome["status"] != Status.OK.value]
    decisive = (others or ok)[-1].outcome
    ended = [row for row in repeats if "repeat" in row.outcome]
    failure = {
        name: decisive[name] for name in ("status", "failure_kind", "failure_cause", "failure_hint") if name in decisive
    }
    warnings = dict.fromkeys(caveat.sentence for row in repeats for caveat in row.warnings)
    said: dict[str, Value] = {"warnings": "\n".join(warnings)} if warnings else {}
    counts: dict[str, Value] = {"runs": len(ended), "runs_ok": len(ok)}
    first = group[0]
    measured = [row.measured for row in ok] or [_words(row.measured) for row in repeats]
    cell = Cell(facts=first.facts, arguments=first.arguments, numbers=_means(measured))
    return cell, {**failure, **counts, **said}


def _ok(repeats: Iterable[Row]) -> list[Row]:
    return [row for row in repeats if row.outcome["status"] == Status.OK.value]


def _words(measured: Mapping[str, Value]) -> dict[str, Value]:
    """What a run that is not ok still says: where it ran and what took effect, but none of its numbers."""
    said = ("effective_", "provenance_")
    words = {name: v for name, v in measured.items() if isinstance(v, (str, bool)) or name.startswith(said)}
    words.pop(LOGGED, None)
    return words


def _last_tries(group: Sequence[Row]) -> list[Row]:
    """The last try at each repeat: an earlier one was not the experiment's fault, or was tried again on purpose."""
    last: dict[Value, Row] = {}
    for row in group:
        repeat = row.outcome.get("repeat")
        if repeat not in last or _attempt(row) > _attempt(last[repeat]):
            last[repeat] = row
    return [last[repeat] for repeat in sorted(last, key=lambda repeat: repeat or 0)]


def _attempt(row: Row) -> int:
    attempt = row.outcome.get("attempt", 0)
    return attempt if isinstance(attempt, int) else 0


def _means(measured: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """Each name's mean where it is a number; a word stands where all agree, else all of them, separated by commas."""
    if len(measured) == 1:
        return dict(measured[0])
    found: dict[str, Value] = {}
    for name in dict.fromkeys(name for cells in measured for name in cells):
        values = [value for cells in measured if (value := cells.get(name)) is not None]
        if name in BY_RATIO and len(values) > 1 and all(type(value) in (int, float) for value in values):
            found |= over_repeats(name, cast(list[float], values))
        elif name == LOGGED:  # a mean over repeats asks for each of them, alike or not
            found[name] = ", ".join(map(str, values)) if len(values) == len(measured) else None
        elif name not in found:  # the interval over repeats stands above those within them
            found[name] = _mean(values)
    return found


def _mean(values: Sequence[Value]) -> Value:
    if not values:
        return None
    if values.count(values[0]) == len(values):
        return values[0]
    if any(isinstance(value, (str, bool)) for value in values):
        return ", ".join(map(str, dict.fromkeys(values)))
    numbers = [value for value in values if value is not None and not isinstance(value, str)]
    whole = all(isinstance(value, int) for value in numbers)
    if whole and sum(numbers) % len(numbers) == 0:
        return int(sum(numbers)) // len(numbers)
    return math.fsum(numbers) / len(numbers)


_WHOLE = re.compile(r"-?[1-9][0-9]{0,17}|0")


def _frame(
    records: Sequence[dict[str, Value]],
    arguments: frozenset[str],
    *,
    order: Callable[[Iterable[str]], list[str]] = for_people,
) -> pd.DataFrame:
    """Flat rows as a frame of nullable columns: a whole number stays whole beside a missing neighbour."""
    import pandas as pd

    names = order(dict.fromkeys(chain.from_iterable(records)))
    columns: dict[str, pd.Series[Any]] = {}
    for name in names:
        kind, values = _typed(list(map(dict.get, records, repeat(name))), is_argument=name in arguments)
        columns[name] = pd.Series(values, dtype=pd.api.types.pandas_dtype(kind))
    return pd.DataFrame(columns, index=range(len(records)), columns=names)


def _typed(values: Sequence[Value], *, is_argument: bool) -> tuple[str, list[Value]]:
    """The pandas type that holds a column's values as they are, and the values in it. Arguments arrive as text."""
    kinds = {*map(type, values)} - {type(None)}
    if is_argument and kinds == {str} and all(value is None or _WHOLE.fullmatch(str(value)) for value in values):
        return "Int64", [None if value is None else int(value) for value in values]
    if kinds == {bool}:
        return "boolean", list(values)
    if kinds == {int} and all(value is None or abs(int(value)) < 2**63 for value in values):
        return "Int64", list(values)
    if kinds and kinds <= {int, float}:
        return "Float64", [None if value is None else float(value) for value in values]
    return "string", [None if value is None else str(value) for value in values]

"""Find pairs of experiments to compare. The two differ in one axis only, and one of them has the reference value of this axis.

Users name the reference values (`references`). Without names, this module chooses them. If framework configurations differ, the
reference is `baseline`, `none`, or the first configuration. Otherwise, the reference of each argument that differs is its first
measured value. An argument belongs to an axis if its value follows from that of the axis. Zipped arguments and additions of
`include:` are examples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import eq
from typing import TYPE_CHECKING

from orchestrator.errors import SelectionError, suggestion
from orchestrator.results.table.aggregate import baseline_of
from orchestrator.results.table.column_choice import BOOKKEEPING, FILE_NAMES, column, for_people
from orchestrator.results.table.references import (
    COLUMN_OF,
    FACTS,
    FRAMEWORK,
    GLOBAL_BATCH,
    Reference,
    is_number,
    reference_to,
)
from orchestrator.results.table.rows import ARGUMENT_FACTS, PREFIX, Value, columns_named

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

_SCENARIO = ("results", "scenario")


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """Two experiments, given by the numbers of their rows in the table. `base` has the `reference` value of the axis.

    `others` are the arguments that change together with the axis. `rank` is the position of the axis among all axes of these
    experiments. `is_chosen` means that no user named the reference.
    """

    new: int
    base: int
    reference: Reference
    others: tuple[str, ...] = ()
    rank: int = 0
    is_chosen: bool = False

    @property
    def axis(self) -> str:
        return self.reference.axis

    @property
    def changed(self) -> tuple[str, ...]:
        """Return all names in which the two experiments differ, that of the axis first."""
        return self.axis, *self.others


def references(table: ResultsTable, named: Iterable[str]) -> tuple[Reference, ...]:
    """Return the references that `--baseline` names. A name is `AXIS=VALUE`, or a framework configuration.

    Raise SelectionError for a value that no experiment has.
    """
    return tuple(_reference(table, text) for text in dict.fromkeys(named))


def _reference(table: ResultsTable, text: str) -> Reference:
    frameworks, axes, known = _values(table, FRAMEWORK), _axes(table), _Known(table)
    names = [name.removeprefix(PREFIX) for name in axes if len({*column(table.experiments, name)}) > 1]
    name, equals, value = text.partition("=")
    if text in frameworks or not equals:
        if text not in frameworks:
            hint = f"; write {text}=VALUE" if text in names else suggestion(text, frameworks)
            raise SelectionError(f"--baseline {text}: no experiment has this framework{hint}")
        return Reference(axis=FRAMEWORK, value=text)
    columns = columns_named(COLUMN_OF.get(name, name), axes, lambda name: len({*known.column(name)}) > 1)
    wanted = [Reference(axis=axis, value=value) for axis in columns]
    if not wanted:
        raise SelectionError(f"--baseline {text}: no experiment has {name!r}{suggestion(name, names)}")
    found = next(filter(None, (_in_table(known, one) for one in wanted)), None)
    if found is None:
        values = _values(table, wanted[0].axis)
        raise SelectionError(f"--baseline {text}: no experiment has {name} {value!r}{suggestion(value, values)}")
    return found


def _in_table(known: _Known, wanted: Reference) -> Reference | None:
    """Return the reference as the table writes its value, or None if it names no cell in any scenario."""
    scenarios = known.grouped(range(len(known.table.experiments)), _place_of(wanted))
    found = {cell for rows in scenarios for cell in known.named(wanted, rows)}
    if len(found) > 1:
        return wanted
    return next((reference_to(wanted.axis, cell) for cell in found), None)


def _axes(table: ResultsTable) -> list[str]:
    names = for_people({*FACTS, GLOBAL_BATCH, FRAMEWORK, *arguments_in(table)})
    return [name for name in names if name in table.experiments]


def _values(table: ResultsTable, name: str) -> list[str]:
    return [str(value) for value in dict.fromkeys(column(table.experiments, name)) if value is not None]


def arguments_in(table: ResultsTable) -> list[str]:
    """Return the columns of a table that are arguments."""
    return [name for name in sorted({*ARGUMENT_FACTS, *table.arguments}) if name in table.experiments]


def arguments_of(table: ResultsTable) -> list[frozenset[tuple[str, Value]]]:
    """Return for each experiment its arguments that are set, as pairs of name and value."""
    names = arguments_in(table)
    columns = [column(table.experiments, name) for name in names]
    rows = zip(*columns, strict=True) if names else [()] * len(table.experiments)
    return [
        frozenset((name, value) for name, value in zip(names, row, strict=True) if value is not None) for row in rows
    ]


def matches(table: ResultsTable, *, measured: frozenset[int]) -> Iterator[Match]:
    """Yield the comparisons of a table. `measured` are the rows that have a speed."""
    known = _Known(table)
    by_references: dict[tuple[Reference, ...], list[int]] = defaultdict(list)
    for row in range(len(table.experiments)):
        by_references[table.baseline or table.baselines[row]].append(row)
    for named, rows in by_references.items():
        for rank, reference in enumerate(named):
            yield from _along(known, reference, rows, rank)
        if not named:
            yield from _chosen(known, rows, measured)


class _Known:
    """The columns of a table's experiments. Each column is converted only once."""

    def __init__(self, table: ResultsTable) -> None:
        self.table, self.arguments = table, arguments_of(table)
        self.names = [name for name in arguments_in(table) if name not in (*BOOKKEEPING, *FILE_NAMES)]
        self._columns: dict[str, list[Value]] = {}

    def column(self, name: str) -> list[Value]:
        if name not in self._columns:
            self._columns[name] = column(self.table.experiments, name)
        return self._columns[name]

    def key(self, row: int, names: Iterable[str]) -> tuple[Value, ...]:
        return tuple(self.column(name)[row] for name in names)

    def grouped(self, rows: Iterable[int], names: Sequence[str]) -> list[list[int]]:
        groups: dict[tuple[Value, ...], list[int]] = defaultdict(list)
        for row in rows:
            groups[self.key(row, names)].append(row)
        return list(groups.values())

    def named(self, reference: Reference, rows: Iterable[int]) -> frozenset[Value]:
        """Return the cell that the reference names in these rows, or no cell."""
        return reference.among(self.column(reference.axis)[row] for row in rows)

    def varying(self, rows: Sequence[int]) -> list[str]:
        """Return the arguments in which these rows differ."""
        return [name for name in self.names if len({self.column(name)[row] for row in rows}) > 1]

    def follows(self, name: str, axis: str, rows: Sequence[int]) -> bool:
        """Return whether the value of the column `name` follows from the value of the column `axis` in these rows."""
        return len({self.key(row, (axis, name)) for row in rows}) == len({self.column(axis)[row] for row in rows})


def _place_of(reference: Reference) -> list[str]:
    """Return the columns of a scenario. A reference names one value of its axis in each scenario."""
    return [name for name in _SCENARIO if name != reference.axis]


def _along(known: _Known, reference: Reference, rows: Sequence[int], rank: int) -> Iterator[Match]:
    if reference.axis == FRAMEWORK:
        yield from (replace(match, rank=rank) for match in _of_frameworks(known, rows, reference.value))
        return
    facts = [name for name in (*FACTS, FRAMEWORK) if name != reference.axis]
    place = _place_of(reference)
    bases = {known.key(some[0], place): known.named(reference, some) for some in known.grouped(rows, place)}
    for group in known.grouped(rows, facts):
        is_base = bases[known.key(group[0], place)].__contains__
        yield from _in_group(known, reference.axis, is_base, group, rank=rank)


def _chosen(known: _Known, rows: Sequence[int], measured: frozenset[int]) -> Iterator[Match]:
    """Yield the comparisons of rows that have no named reference. Rows with the same framework are compared by arguments."""
    frameworks = [replace(match, is_chosen=True) for match in _of_frameworks(known, rows, None)]
    yield from frameworks
    compared = {known.key(match.base, FACTS) for match in frameworks}
    others = [row for row in rows if known.key(row, FACTS) not in compared]
    groups = [(group, _axes_of(known, group)) for group in known.grouped(others, (*FACTS, FRAMEWORK))]
    places: dict[tuple[Value, ...], list[int]] = defaultdict(list)
    for group, axes in groups:
        for axis in axes:
            places[(*known.key(group[0], _SCENARIO), axis)] += group
    for group, axes in groups:
        for rank, axis in enumerate(axes):
            all_rows = places[(*known.key(group[0], _SCENARIO), axis)]
            first = min(measured.intersection(all_rows) or all_rows)
            is_base = partial(eq, known.column(axis)[first])
            yield from _in_group(known, axis, is_base, group, rank=rank, is_chosen=True)


def _axes_of(known: _Known, rows: Sequence[int]) -> list[str]:
    """Return the arguments that are axes of these rows, the outermost first.

    The value of an axis does not follow from another argument. If two arguments follow from each other, the axis is the one that is
    always set. If both or neither are, the axis is the one that has words as values.
    """

    def preference(name: str) -> tuple[bool, bool]:
        values = [known.column(name)[row] for row in rows]
        return None in values, all(is_number(str(value)) for value in values)

    names = sorted(known.varying(rows), key=preference)
    axes = [
        name
        for place, name in enumerate(names)
        if not any(
            known.follows(name, other, rows) and (at < place or not known.follows(other, name, rows))
            for at, other in enumerate(names)
            if at != place
        )
    ]
    return sorted(axes, key=lambda name: [known.column(name)[row] != known.column(name)[rows[0]] for row in rows])


def _in_group(
    known: _Known,
    axis: str,
    is_base: Callable[[Value], bool],
    rows: Sequence[int],
    *,
    rank: int,
    is_chosen: bool = False,
) -> Iterator[Match]:
    """Yield each row with its base. Their arguments are the same, except the axis and the arguments that follow from it."""
    varying = [name for name in known.varying(rows) if name != axis]
    with_it = {name for name in varying if known.follows(name, axis, rows)}
    rest = [name for name in varying if name not in with_it]
    of_base = {row: is_base(known.column(axis)[row]) for row in rows}
    bases: dict[tuple[Value, ...], int] = {}
    for row in rows:
        if of_base[row]:
            bases.setdefault(known.key(row, rest), row)
    for row in rows:
        base = bases.get(known.key(row, rest))
        if base is not None and not of_base[row]:
            others = tuple(name for name in for_people(with_it) if known.key(row, [name]) != known.key(base, [name]))
            reference = reference_to(axis, known.column(axis)[base])
            yield Match(new=row, base=base, reference=reference, others=others, rank=rank, is_chosen=is_chosen)


def _of_frameworks(known: _Known, rows: Sequence[int], named: str | None) -> Iterator[Match]:
    """Yield each row with its partner that has the baseline framework.

    An argument may differ if one of the two framework configurations sets it.
    """
    frameworks, own = known.column(FRAMEWORK), known.table.framework_arguments
    for group in known.grouped(rows, (*FACTS, GLOBAL_BATCH)):
        base = named or baseline_of([frameworks[row] for row in group])
        by_framework: dict[Value, list[int]] = defaultdict(list)
        for row in group:
            by_framework[frameworks[row]].append(row)
        for framework, others in by_framework.items():
            if framework != base:
                without = own.get(str(framework), frozenset()) | own.get(str(base), frozenset())
                for row, partner in _same_but(without, others, by_framework.get(base, []), known.arguments):
                    yield Match(new=row, base=partner, reference=reference_to(FRAMEWORK, base))


def _same_but(
    without: frozenset[str],
    rows: Sequence[int],
    bases: Sequence[int],
    arguments: Sequence[frozenset[tuple[str, Value]]],
) -> Iterator[tuple[int, int]]:
    """Yield each row with the most similar base that has the same arguments. Arguments named in `without` may differ."""
    alike: dict[frozenset[tuple[str, Value]], list[int]] = defaultdict(list)
    for base in bases:
        alike[_less(arguments[base], without)].append(base)
    for row in rows:
        candidates = alike.get(_less(arguments[row], without))
        if candidates:
            yield row, min(candidates, key=lambda base: len(arguments[base] ^ arguments[row]))


def _less(arguments: frozenset[tuple[str, Value]], without: frozenset[str]) -> frozenset[tuple[str, Value]]:
    return frozenset(item for item in arguments if item[0] not in without) if without else arguments

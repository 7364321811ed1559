"""Pair the experiments of two sides, and list the differences in each pair. Keep experiments that are on only one side. Pure.

Experiments with the same id are the same. The others are put into groups by scenario, model and the other core names
(`sides.keys`). Within a group, the entries are paired by other names that distinguish them, such as arguments. If there is no such
name, they are paired in their order. A name that distinguishes the entries of one side may be unknown for an entry of the other
side. Then this pair is not comparable.

`places` finds out whether the runs of the two sides took turns. If they did, a drift can be separated from a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from statistics import fmean

from orchestrator.compare.comparison import Difference, Entry, Pair, Run, Side
from orchestrator.compare.sides import environment, keys
from orchestrator.errors import SelectionError, suggestion
from orchestrator.files.printable_text import counted
from orchestrator.records.experiment import OF_BENCHMARK

# With this word in `ignore`, no difference of environment forbids a comparison.
ALL = "all"
# The fewest runs on each side for which a drift is fitted. Two runs on each side would leave only one degree of freedom.
FEWEST = 3

Places = tuple[list[int], list[int]]

# An entry of base, an entry of new, and the distinguishing names that are known for only one of the two.
Match = tuple[Entry | None, Entry | None, tuple[str, ...]]


def pair(base: Side, new: Side, *, by: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Pair, ...]:
    """Return the pairs of two sides. Every entry of both sides is in one pair.

    Pairs with an entry of base come first, in the order of base. Then come the entries that only the new side has.

    `by` has the names of the key, and replaces the default. `ignore` has the facts of the environment that may differ, or `all`.
    Raise SelectionError for a name that no side has.
    """
    by = keys.named(by, (base.entries, new.entries))
    before, after = _by_benchmark(base.entries, new.entries), _by_benchmark(new.entries, base.entries)
    entries = (*before, *after)
    allowed = {ALL, *environment.DISQUALIFYING, *(name for entry in entries for name in entry.environment)}
    for name in ignore:
        if name not in allowed:
            raise SelectionError(f"--ignore: the environment has no {name!r}{suggestion(name, allowed)}")
    place = {id(entry): number for number, entry in enumerate(entries)}
    matches = sorted(
        _matches(before, after, by),
        key=lambda match: place[id(match[0] if match[0] is not None else match[1])],
    )
    return tuple(_pair(match, ignore) for match in matches)


def _by_benchmark(side: Sequence[Entry], other: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a side. A suite without an ok run gets an entry for each benchmark that the other side has of it.

    Without this, all benchmarks of a suite that failed would be missing, and the suite would be new.
    """
    known = [(entry, keys.distinctive(entry)) for entry in other if keys.FULLNAME in keys.cells(entry)]
    found: list[Entry] = []
    for entry in side:
        own = keys.distinctive(entry) if known and not entry.runs else {keys.FULLNAME: ""}
        alike = [] if keys.FULLNAME in own else [(one, cells) for one, cells in known if own.items() <= cells.items()]
        found += [_like(entry, one, str(cells[keys.FULLNAME])) for one, cells in alike] or [entry]
    return found


def _like(suite: Entry, benchmark: Entry, fullname: str) -> Entry:
    """Return the entry of a suite as that of one of its benchmarks."""
    name = None if suite.id is None else f"{suite.id}{OF_BENCHMARK}{fullname}"
    return replace(suite, id=name, key=benchmark.key, label=benchmark.label, arguments=benchmark.arguments)


def _matches(base: Sequence[Entry], new: Sequence[Entry], by: Sequence[str]) -> Iterator[Match]:
    if not by:
        new_by_id = {entry.id: entry for entry in new if entry.id is not None}
        shared = {entry.id for entry in base if entry.id in new_by_id}
        yield from ((entry, new_by_id[entry.id], ()) for entry in base if entry.id in shared)
        base, new = ([entry for entry in side if entry.id not in shared] for side in (base, new))
    core = tuple(by) or keys.core([base, new])
    if core:
        yield from _by_groups(base, new, core)
    else:  # without a common name, no entry of base matches an entry of new
        yield from ((entry, None, ()) for entry in base)
        yield from ((None, entry, ()) for entry in new)


def _by_groups(
    base: Sequence[Entry], new: Sequence[Entry], names: Sequence[str], form: keys.Form = keys.canonical
) -> Iterator[Match]:
    """Yield the matches between entries that have the same values for these names."""
    groups_base, groups_new = keys.groups(base, names, form), keys.groups(new, names, form)
    for values in dict.fromkeys((*groups_base, *groups_new)):
        yield from _in_group(groups_base.get(values, []), groups_new.get(values, []))


def _in_group(base: list[Entry], new: list[Entry]) -> Iterator[Match]:
    """Yield the matches in a group. The entries of a group have the same values for all names that were compared so far."""
    if not base or not new or len(base) == len(new) == 1:
        yield from ((before, after, ()) for before, after in zip_longest(base, new))
        return
    for form in (keys.canonical, keys.exact):  # values that are equal as numbers may still be different texts
        names = keys.distinguishing(base, new, form=form)
        if names:
            yield from _by_groups(base, new, names, form)
            return
    unlike = tuple(dict.fromkeys((*keys.differing(base), *keys.differing(new))))
    yield from ((before, after, _unstated(before, after, unlike)) for before, after in zip_longest(base, new))


def _unstated(base: Entry | None, new: Entry | None, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that only one of the two entries has. It is unknown whether the entries differ in these names."""
    if base is None or new is None:
        return ()
    before, after = keys.cells(base), keys.cells(new)
    return tuple(name for name in names if keys.is_known(name, base, before) != keys.is_known(name, new, after))


def _pair(match: Match, ignore: Sequence[str]) -> Pair:
    base, new, unstated = match
    if base is None or new is None:
        (only,) = (entry for entry in (base, new) if entry is not None)
        return Pair(label=only.label, base=base, new=new)
    differences = environment.differences(base, new)
    forbidding = (*environment.disqualifying(base, new, differences), *unstated)
    return Pair(
        label=base.label,
        base=base,
        new=new,
        environment=differences,
        arguments=differing_arguments(base, new),
        disqualifying=() if ALL in ignore else tuple(name for name in forbidding if name not in ignore),
    )


def on_other_scenarios(pairs: Iterable[Pair]) -> list[str]:
    """Return a sentence if experiments on only one side differ from those of the other side only in the scenario's name."""
    single = [pair for pair in pairs if pair.base is None or pair.new is None]
    base, new = ([entry for entry in side if entry] for side in ([p.base for p in single], [p.new for p in single]))
    known = {*map(_settings, new)}
    alike = sum(_settings(entry) in known for entry in base)
    names = [name for name in keys.core([base, new]) if name != keys.SCENARIO] if alike else []
    if not names:
        return []
    text = "differs from one on the new side" if alike == 1 else "differ from some on the new side"
    return [
        f"{counted(alike, 'experiment')} on base {text} only in the name of the scenario; "
        f"to pair them, write --by {','.join(names)}"
    ]


def _settings(entry: Entry) -> frozenset[tuple[str, str | float]]:
    """Return the settings that identify an experiment, without its scenario."""
    cells = ((name, keys.canonical(value)) for name, value in keys.distinctive(entry).items())
    return frozenset((name, value) for name, value in cells if name != keys.SCENARIO and value is not None)


def differing_arguments(base: Entry, new: Entry) -> tuple[Difference, ...]:
    """Return the arguments that differ, then the effective settings, which may follow from them.

    Names that one side lacks are left out. An effective setting is left out if there is an argument of the same name.
    """
    before, after = ({**entry.key, **entry.arguments} for entry in (base, new))
    if before == after:
        return ()
    return tuple(
        Difference(name=name, base=before.get(name), new=after.get(name))
        for name in sorted({**before, **after}, key=lambda name: name.startswith(keys.EFFECTIVE))
        if name not in keys.SETTLED
        and not (name.startswith(keys.EFFECTIVE) and name.removeprefix(keys.EFFECTIVE) in {*before, *after})
        and keys.canonical(before.get(name)) != keys.canonical(after.get(name))
        and keys.is_known(name, base, before)
        and keys.is_known(name, new, after)
    )


def places(base: Sequence[Run], new: Sequence[Run]) -> Places | None:
    """Sort all runs by their start, and return the places of each side's runs. Return None if the sides did not take turns.

    Count how often a run follows a run of the other side. The sides took turns if this number is at least the number of runs of the
    smaller side, and if the two sides' mean places differ by at most one. If a run of base and a run of new started at the same
    time, they are the same run, and the sides did not take turns.
    """
    fewest = min(len(base), len(new))
    starts = [run.started_at for run in (*base, *new) if run.started_at is not None]
    is_complete = len(starts) == len(base) + len(new)
    if fewest < FEWEST or not is_complete or not {*starts[: len(base)]}.isdisjoint(starts[len(base) :]):
        return None
    order = sorted(range(len(starts)), key=starts.__getitem__)
    changes = sum((run < len(base)) != (following < len(base)) for run, following in pairwise(order))
    at = sorted(range(len(order)), key=order.__getitem__)
    base_at, new_at = at[: len(base)], at[len(base) :]
    return (base_at, new_at) if changes >= fewest and abs(fmean(base_at) - fmean(new_at)) <= 1 else None

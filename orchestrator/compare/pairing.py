"""Pair two sides, experiment by experiment, in an outer join, and list what differs in each pair. Pure.

Experiments with the same id are the same. The others are paired by `keys`, group by group. Entries that nothing tells apart on
both sides are paired in their order. If one side then differs in something that the other does not state, the pair is not
comparable and says why. Each pair has its differences of environment and of arguments; `verdicts` judges.

`places` orders single runs: where the runs of two sides took turns on a machine, a drift can be told from a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from statistics import fmean

from orchestrator.compare.comparison import Difference, Entry, Pair, Run, Side
from orchestrator.compare.sides import environment, keys
from orchestrator.errors import SelectionError, suggestion

# For `ignore`: nothing of the environment forbids a comparison.
ALL = "all"
# The number of runs on each side from which a drift is fitted: two on each side would leave one degree of freedom.
FEWEST = 3

Places = tuple[list[int], list[int]]

# Base and new, and the names of which only one side says what tells its entries apart.
Match = tuple[Entry | None, Entry | None, tuple[str, ...]]


def pair(base: Side, new: Side, *, by: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Pair, ...]:
    """Return every entry of both sides once: in base's order, then entries that only the new side has.

    `by` names the keys, in place of the default. `ignore` names facts of the environment that may differ, or `all`. Raises
    SelectionError for names that no side has.
    """
    keys.refuse_unknown(by, (base.entries, new.entries))
    _refuse_unknown_facts(ignore, (*base.entries, *new.entries))
    matches = list(_matches(base.entries, new.entries, by))
    place = {id(entry): number for number, entry in enumerate((*base.entries, *new.entries))}
    matches.sort(key=lambda match: place[id(match[0] if match[0] is not None else match[1])])
    return tuple(_pair(match, ignore) for match in matches)


def _refuse_unknown_facts(ignore: Sequence[str], entries: Iterable[Entry]) -> None:
    allowed = {ALL, *environment.DISQUALIFYING, *(name for entry in entries for name in entry.environment)}
    for name in ignore:
        if name not in allowed:
            raise SelectionError(f"--ignore: the environment has no {name!r}{suggestion(name, allowed)}")


def _matches(base: Sequence[Entry], new: Sequence[Entry], by: Sequence[str]) -> Iterator[Match]:
    if not by:
        theirs = {entry.id: entry for entry in new if entry.id is not None}
        same = {entry.id for entry in base if entry.id in theirs}
        yield from ((entry, theirs[entry.id], ()) for entry in base if entry.id in same)
        base, new = ([entry for entry in side if entry.id not in same] for side in (base, new))
    core = tuple(by) or keys.core([base, new])
    if not core:  # no name that both sides know: nothing of one is anything of the other
        yield from ((entry, None, ()) for entry in base)
        yield from ((None, entry, ()) for entry in new)
        return
    groups_base, groups_new = keys.groups(base, core), keys.groups(new, core)
    for values in dict.fromkeys((*groups_base, *groups_new)):
        yield from _in_group(groups_base.get(values, []), groups_new.get(values, []))


def _in_group(base: list[Entry], new: list[Entry]) -> Iterator[Match]:
    """Yield the matches of entries that agree in all names so far."""
    if not base or not new or len(base) == len(new) == 1:
        yield from ((one, other, ()) for one, other in zip_longest(base, new))
        return
    names = keys.telling_apart(base, new)
    if names:
        groups_base, groups_new = keys.groups(base, names), keys.groups(new, names)
        for values in dict.fromkeys((*groups_base, *groups_new)):
            yield from _in_group(groups_base.get(values, []), groups_new.get(values, []))
        return
    unlike = tuple(dict.fromkeys((*keys.unlike(base), *keys.unlike(new))))
    yield from ((one, other, _unsaid(one, other, unlike)) for one, other in zip_longest(base, new))


def _unsaid(base: Entry | None, new: Entry | None, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that distinguish other entries and that only one of these two states; the pair may differ in them."""
    if base is None or new is None:
        return ()
    before, after = keys.cells(base), keys.cells(new)
    return tuple(name for name in names if keys.is_known(name, base, before) != keys.is_known(name, new, after))


def _pair(match: Match, ignore: Sequence[str]) -> Pair:
    base, new, unsaid = match
    if base is None or new is None:
        (only,) = (entry for entry in (base, new) if entry is not None)
        return Pair(label=only.label, base=base, new=new)
    around = environment.differences(base, new)
    forbidding = (*environment.disqualifying(base, new, around), *unsaid)
    return Pair(
        label=base.label,
        base=base,
        new=new,
        environment=around,
        arguments=_arguments(base, new),
        disqualifying=() if ALL in ignore else tuple(name for name in forbidding if name not in ignore),
    )


def _arguments(base: Entry, new: Entry) -> tuple[Difference, ...]:
    """Return the arguments and effective settings that differ. Names that one side does not state are left out. So are settings
    whose argument of the same name is listed."""
    before, after = ({**entry.key, **entry.arguments} for entry in (base, new))
    if before == after:
        return ()
    return tuple(
        Difference(name=name, base=before.get(name), new=after.get(name))
        for name in dict.fromkeys((*before, *after))
        if name not in keys.SETTLED
        and not (name.startswith(keys.EFFECTIVE) and name.removeprefix(keys.EFFECTIVE) in {*before, *after})
        and keys.alike(before.get(name)) != keys.alike(after.get(name))
        and keys.is_known(name, base, before)
        and keys.is_known(name, new, after)
    )


def places(base: Sequence[Run], new: Sequence[Run]) -> Places | None:
    """Return the places of each side's runs in the order in which all started; None where the sides did not take turns.

    They did if the order changes sides at least as often as the smaller side has runs, and the mean places differ by at most one.
    Runs that started at the same time are the same run, seen on both sides.
    """
    fewest = min(len(base), len(new))
    starts = [run.started_at for run in (*base, *new) if run.started_at is not None]
    if (
        fewest < FEWEST
        or len(starts) < len(base) + len(new)
        or not {*starts[: len(base)]}.isdisjoint(starts[len(base) :])
    ):
        return None
    order = sorted(range(len(starts)), key=starts.__getitem__)
    changes = sum((one < len(base)) != (following < len(base)) for one, following in pairwise(order))
    at = sorted(range(len(order)), key=order.__getitem__)
    found = at[: len(base)], at[len(base) :]
    return found if changes >= fewest and abs(fmean(found[0]) - fmean(found[1])) <= 1 else None

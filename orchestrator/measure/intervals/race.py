"""A race finds the fastest of many experiments with few runs: rounds of runs, in which those that are clearly slower leave. Pure.

The rules:

- A round has at most one run of each experiment. The first round has all. The second has only the best few of the first that are
  near each other: they show how much runs differ here. From then on, a round has those that are still in the race, so the leader.
- A round may be faster or slower than another, for example because the GPU is warmer. So the common effect of each round is removed
  before experiments are compared, if several experiments show it.
- An experiment leaves if it is behind the leader by more than three standard errors of the difference. The standard deviation of
  runs is pooled over all experiments, together with what is known beforehand, unless runs differ by more. No experiment leaves
  because of its rank.
- The race ends if one experiment is left, or if all that are left are within 2 % of the leader, also at the ends of the intervals.
- Of experiments that differ in one ordered number only, some run first, and others only where the peak may be (`ordered.py`). The
  race does not end before these have run. All others leave without a run.
- Experiments with slow starts, such as those that compile, join in the second round, and run in every second round.
- A run without a speed that counts decides nothing (`NoSpeed`). Some reasons are certain: the experiment leaves at once. A failure
  may be chance, so it must happen twice. A run in doubt, for example because the host was busy, may happen three times.
- A race makes no more runs than it may (`most`), together with those that its winner still needs.

The state follows from the values only: the first run of an experiment belongs to the first round that has it, and so on. So a race
that was interrupted goes on where it was. What this leaves out: the mean of a
winner is biased upwards, so a winner is measured again before its speed is reported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.measure.intervals.ordered import asked_next, held_back
from orchestrator.measure.intervals.standing import Standing, standing


class NoSpeed(StrEnum):
    """The reason why a run has no speed that counts."""

    NO_MEMORY = "out of memory"
    OVER_LIMIT = "over the limit"
    INEXACT = "less exact"
    FAILED = "failed"
    MISSING = "missing"
    IN_DOUBT = "in doubt"
    NOT_NEEDED = "not needed"


# The number of runs without a speed, for these reasons, after which an experiment leaves.
_MOST = dict.fromkeys((NoSpeed.NO_MEMORY, NoSpeed.OVER_LIMIT, NoSpeed.INEXACT), 1)
_MOST |= {NoSpeed.FAILED: 2, NoSpeed.MISSING: 2, NoSpeed.IN_DOUBT: 3}

# Experiment → the logarithms of the speeds of its runs in their order, or the reason why a run has none.
Runs = Mapping[str, Sequence[float | NoSpeed]]
# Experiment → round → the same.
_Rounds = Mapping[str, Mapping[int, float | NoSpeed]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The numbers of a race. `errors` is the distance, in standard errors, at which an experiment leaves.

    `tie` is the difference that does not matter. `noise` is the standard deviation of runs that is assumed beforehand, with the
    weight of `degrees`. The second round has the best `fewest` experiments, and those of the best `second` that are slower than the
    best by the share `near` at most.
    """

    errors: float = 3.0
    tie: float = 0.02
    noise: float = 0.015
    degrees: int = 5
    fewest: int = 2
    second: int = 4
    near: float = 0.2
    most_rounds: int = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """The round in which an experiment left, and the speed relative to the leader that it has at most, or why it has no speed."""

    round: int
    at_most: float | None = None
    why: NoSpeed | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Race:
    """A race at one time. `due` are the runs of `round` that are missing. The race is over if `due` is empty.

    `racing` are the experiments in the race, the fastest first. `left` says why the others left. If `is_cut`, the race ended
    because the next round would have made more runs than it may. `held` are experiments that no round needed so far. `used` has the
    number of runs of each experiment that the rounds have used, with those of this round that are there already.
    """

    round: int
    due: tuple[str, ...]
    racing: tuple[str, ...]
    left: Mapping[str, Left]
    standing: Standing | None
    is_cut: bool = False
    held: frozenset[str] = frozenset()
    used: Mapping[str, int] = field(default_factory=dict)


def race(
    names: Sequence[str],
    runs: Runs,
    *,
    slow: Collection[str] = (),
    orders: Sequence[Sequence[str]] = (),
    repeats: int = 1,
    most: int | None = None,
    rules: Rules = Rules(),
) -> Race:
    """Return the state of a race of these experiments. `slow` are those with slow starts.

    Each of `orders` has experiments that differ in one number only, in its order. An experiment is in one of them at most. The
    race makes at most `most` runs (None: no limit), together with those that its winner needs to have `repeats` runs.

    An experiment that no round needed may have runs of an earlier campaign. Then it takes part from the start.
    """
    held = frozenset[str]().union(*map(held_back, orders))
    while True:
        state = _race(names, runs, held=held, slow=slow, orders=orders, repeats=repeats, most=most, rules=rules)
        not_asked = state.held | {name for name, left in state.left.items() if left.why is NoSpeed.NOT_NEEDED}
        earlier = {name for name in not_asked & held if runs.get(name)}
        if not earlier:
            return state
        held -= earlier


def _race(
    names: Sequence[str],
    runs: Runs,
    *,
    held: frozenset[str],
    slow: Collection[str],
    orders: Sequence[Sequence[str]],
    repeats: int,
    most: int | None,
    rules: Rules,
) -> Race:
    late = frozenset(slow) if len(set(slow)) < len(names) else frozenset()
    racing, left = [name for name in names if name not in held], dict[str, Left]()
    values: dict[str, dict[int, float | NoSpeed]] = {name: {} for name in names}
    found: Standing | None = None
    number, is_cut = 0, False
    while number < rules.most_rounds:
        turn = _turn(number + 1, racing, late, values, rules)
        if is_cut := number > 0 and most is not None and _runs_with(turn, racing, values, repeats) > most:
            break
        number += 1
        if due := tuple(name for name in turn if len(runs.get(name, ())) <= len(values[name])):
            used = {name: len(values[name]) + (name in turn and name not in due) for name in names}
            order = _in_order(racing, found)
            return Race(round=number, due=due, racing=order, left=left, standing=found, held=held, used=used)
        for name in turn:
            values[name][number] = runs[name][len(values[name])]
        left |= {name: Left(round=number, why=why) for name in racing if (why := _no_speed(values[name]))}
        racing = [name for name in racing if name not in left]
        found = standing(_known(values), noise=rules.noise, degrees=rules.degrees)
        more = [name for order in orders for name in _asked_next(order, held, racing, found, left)]
        held -= {*more}
        if known := [name for name in racing if name in found.speeds and number > 1]:
            leader = max(known, key=found.speeds.__getitem__)
            left |= _behind(found, known, leader, rules, number=number)
            racing = [name for name in racing if name not in left]
        if not more and _is_over(racing, known, found, rules, number=number):
            break
        racing += more
    left |= {name: Left(round=number, why=NoSpeed.NOT_NEEDED) for name in {*held, *racing} if not values[name]}
    racing, used = [name for name in racing if name not in left], {name: len(rounds) for name, rounds in values.items()}
    return Race(
        round=number, due=(), racing=_in_order(racing, found), left=left, standing=found, is_cut=is_cut, used=used
    )


def _known(values: _Rounds) -> dict[str, dict[int, float]]:
    """Return the speeds of each experiment, by round."""
    return {name: {at: value for at, value in of.items() if isinstance(value, float)} for name, of in values.items()}


def _is_over(racing: Sequence[str], known: Sequence[str], found: Standing, rules: Rules, *, number: int) -> bool:
    """Return whether one experiment is left, or none has a speed after two rounds, or all that are left are within the tie.

    The one that is left may not have its speed yet.
    """
    if len(racing) < 2:
        return all(name in found.speeds for name in racing)
    if number == 1:
        return False
    leader = max(known, key=found.speeds.__getitem__, default=None)
    return leader is None or all(_is_tied(found, name, leader, rules) for name in racing)


def _asked_next(
    order: Sequence[str], held: Collection[str], racing: Collection[str], found: Standing, left: Mapping[str, Left]
) -> list[str]:
    """Return the experiments of an order that join the race. None joins as long as another one of the order lacks its speed."""
    if any(name in racing and name not in found.speeds for name in order):
        return []
    too_large = {name for name in order if name in left and left[name].why is NoSpeed.NO_MEMORY}
    return asked_next(order, held, found.speeds, too_large)


def _runs_with(turn: Sequence[str], racing: Sequence[str], values: _Rounds, repeats: int) -> int:
    """Return the number of runs after one more round, with those that a winner needs then. It may have no run in that round."""
    fewest = min((len(values[name]) + (name in turn) for name in racing), default=repeats)
    return sum(len(rounds) for rounds in values.values()) + len(turn) + max(0, repeats - fewest)


def _turn(number: int, racing: Sequence[str], late: frozenset[str], values: _Rounds, rules: Rules) -> list[str]:
    """Return the experiments of a round."""
    if number == 1:
        return [name for name in racing if name not in late]
    if number > 2:
        return [name for name in racing if name not in late or number % 2 == 0]
    first = {name: value for name in racing if isinstance(value := values[name].get(1), float)}
    best = sorted(first, key=lambda name: (-first[name], name))[: rules.second]
    far = [name for name in best[rules.fewest :] if first[name] < first[best[0]] + math.log1p(-rules.near)]
    return [name for name in racing if name not in first or (name in best and name not in far)]


def _no_speed(rounds: Mapping[int, float | NoSpeed]) -> NoSpeed | None:
    """Return why an experiment leaves: the first reason that was met often enough. Return None if it stays.

    Runs in doubt matter only as long as no run has a speed. An experiment that fails again and again leaves, although it has one.
    """
    reasons = [value for value in rounds.values() if isinstance(value, NoSpeed)]
    if len(reasons) < len(rounds):
        reasons = [why for why in reasons if why is not NoSpeed.IN_DOUBT]
    return next((why for why in reasons if reasons.count(why) >= _MOST[why]), None)


def _behind(found: Standing, known: Sequence[str], leader: str, rules: Rules, *, number: int) -> dict[str, Left]:
    """Return the experiments that are clearly behind the leader."""
    left: dict[str, Left] = {}
    for name in known:
        nearest = found.behind(name, leader) - rules.errors * found.error(name, leader)
        if name != leader and nearest > 0:
            left[name] = Left(round=number, at_most=math.exp(-nearest))
    return left


def _is_tied(found: Standing, name: str, leader: str, rules: Rules) -> bool:
    """Return whether the difference to the leader is within the tie, also at the end of its interval of two standard errors."""
    if name == leader:
        return True
    return name in found.speeds and found.behind(name, leader) + 2 * found.error(name, leader) < rules.tie


def _in_order(racing: Sequence[str], found: Standing | None) -> tuple[str, ...]:
    order = {name: place for place, name in enumerate(found.order)} if found else {}
    return tuple(sorted(racing, key=lambda name: order.get(name, len(order))))

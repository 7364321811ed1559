"""The races in words: what they cost at most, who runs in a round, who was dropped and why. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from rich.table import Table

from orchestrator.campaign.race.names import Names
from orchestrator.campaign.race.places import LEAST_REPEATS, Place, fewest_runs, most_repeats, most_runs
from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure.intervals.race import NoSpeed, Race
from orchestrator.measure.metrics.metric import Show
from orchestrator.measure.metrics.shown import text
from orchestrator.records import Experiment

_MOST_LINES, _MOST_NAMES = 40, 6
# The interval of a speed that was not dropped has this number of standard errors on each side.
ERRORS = 2.0
# Said where the repeats of the scenario file are fewer.
_BY_DEFAULT = f" (with at least {LEAST_REPEATS} runs of each)"
_NO_SPEED = {
    NoSpeed.NO_MEMORY: "out of memory",
    NoSpeed.OVER_LIMIT: "over the limit",
    NoSpeed.INEXACT: "wrong, or less exact than eager",
    NoSpeed.FAILED: "it failed",
    NoSpeed.MISSING: "without a number",
    NoSpeed.IN_DOUBT: "each speed was in doubt",
    NoSpeed.NOT_NEEDED: "not run",
}


def before(races: Sequence[Place]) -> Iterator[str]:
    """Yield a sentence that says how many runs the races make at most."""
    most, grid = sum(most_runs(place.experiments) for place in races), sum(map(_grid, races))
    earlier = sum(place.runs for place in races)
    experiments = counted(sum(len(place.experiments) for place in races), "experiment")
    if not any(place.state.due for place in races):
        return
    by_default = _BY_DEFAULT if grid < most else ""
    where = f"{experiments} race" if len(races) == 1 else f"{experiments} in {counted(len(races), 'race')}"
    if not earlier:
        yield f"{where}: at most {counted(most, 'run')}, as many as the full grid{by_default}"
        return
    more = sum(_more(place)[1] for place in races)
    ended = f"{counted(earlier, 'run')} {'has' if earlier == 1 else 'have'} ended already"
    yield f"{where}: at most {more} more {'run' if more == 1 else 'runs'}; {ended}"


def bounds(groups: Sequence[Sequence[Experiment]], races: Sequence[Place] = ()) -> str:
    """Return a line that says how many runs the races make. The fewest are made if the second round decides.

    `races` are the races of these groups in a results folder, where runs may have ended.
    """
    repeats, grid = sum(one.most_repeats for group in groups for one in group), sum(map(most_runs, groups))
    number = len(races or groups)
    count, verb = counted(number, "race"), "makes" if number == 1 else "make"
    if any(place.runs for place in races):
        least, most = (sum(ends) for ends in zip(*map(_more, races), strict=True))
        runs = f"{f'{least} to ' if least < most else ''}{most or 'no'} more {'run' if most == 1 else 'runs'}"
    else:
        runs = f"{sum(map(fewest_runs, groups))} to {counted(grid, 'run')}"
    return f"tunebench tune: {count}, which {verb} {runs}; the full grid has {grid}{_BY_DEFAULT if repeats < grid else ''}."


def _more(place: Place) -> tuple[int, int]:
    """Return the fewest and the most runs that a race still makes. Earlier runs may be more than the rounds have used."""
    made = {name: len(place.values.get(name, records)) for name, records in place.records.items()}
    used = sum(max(place.state.used.get(name, 0), min(1, count)) for name, count in made.items())
    if place.state.due:
        least = max(len(place.state.due), fewest_runs(place.experiments) - place.runs)
        return least, max(least, most_runs(place.experiments) - used)
    winner = next((one for one in place.experiments if one.id == place.winner), None)
    ends = (winner.repeats, winner.most_repeats) if winner else (0, 0)
    least, most = (max(0, repeats - len(place.records[winner.id])) if winner else 0 for repeats in ends)
    return least, most


def of_round(races: Sequence[Place]) -> Iterator[str]:
    """Yield a sentence for each race with runs due: its round, how many run, and who was dropped in the round before."""
    names = Names(races)
    for place in races:
        if due := place.state.due:
            dropped = _dropped(place, names, place.state.round - 1)
            text = f"{names.place(place)}: round {place.state.round}, {counted(len(due), 'run')}{dropped}"
            yield one_line(text, longest=600)


def ends(races: Sequence[Place], before: Sequence[Place] = ()) -> Iterator[str]:
    """Yield a sentence for each race that has ended since `before`, or whose leader still needs runs.

    It says who was dropped in the last round, and how many runs the leader gets.
    """
    names, went_on = Names(races), {one.id for place in before if place.state.due for one in place.experiments}
    for place in races:
        state, (least, most) = place.state, _more(place)
        if state.due or not (most or any(one.id in went_on for one in place.experiments)):
            continue
        is_clear = place.winner is not None and len(state.racing) == 1
        range_of = f"{least} to {most}" if least < most else f"{most}"
        last = f"; the leader gets {range_of} more {'run' if most == 1 else 'runs'}" if most else ""
        text = f"{'decided' if is_clear else 'over'} after round {state.round}"
        yield one_line(f"{names.place(place)}: {text}{_dropped(place, names, state.round)}{last}", longest=600)


def _dropped(place: Place, names: Names, number: int) -> str:
    """Return who was dropped in a round and why, or nothing. The experiments that no round needed were not dropped."""
    left = {name: one for name, one in place.state.left.items() if one.why is not NoSpeed.NOT_NEEDED}
    gone = [name for name in in_order(place.state) if name in left and left[name].round == number]
    words = ", ".join(f"{names.of(name)} ({_why(place, name)})" for name in gone[:_MOST_NAMES])
    more = f" and {len(gone) - _MOST_NAMES} more" if len(gone) > _MOST_NAMES else ""
    return f"; dropped: {words}{more}" if gone else ""


def tables(races: Sequence[Place]) -> Iterator[tuple[str, Table]]:
    """Yield a sentence and a table for each race: its experiments, how many runs they have, and why they were dropped."""
    names = Names(races)
    for place in races:
        yield one_line(f"{names.place(place)}: {in_words(place)}", longest=300), _table(place, names)


def _table(place: Place, names: Names) -> Table:
    state, table = place.state, Table(box=None, pad_edge=False, show_edge=False)
    for heading in ("experiment", "runs", "of the leader", ""):
        table.add_column(heading, justify="right" if heading in ("runs", "of the leader") else "left")
    order = in_order(state)
    for name in order[:_MOST_LINES]:
        share = relative(place, name)
        shown = "-" if share is None else f"{100 * share:.1f} %"
        table.add_row(names.of(name), runs(place, name), shown, what_became(place, name))
    if len(order) > _MOST_LINES:
        table.add_row(f"and {len(order) - _MOST_LINES} more", "", "", "")
    return table


def runs(place: Place, name: str) -> str:
    """Return the number of an experiment's runs, such as `3`, or `1 of 3` if only one of them has a speed that counts."""
    values = place.values.get(name, ())
    made, counting = len(place.records[name]), sum(isinstance(value, float) for value in values)
    return str(made) if counting == made or name not in place.values else f"{counting} of {made}"


def in_order(state: Race) -> list[str]:
    """Return the experiments: those in the race, the fastest first; those not run yet; the others, the last one dropped first."""
    speeds = state.standing.speeds if state.standing else {}
    dropped = sorted(state.left, key=lambda name: (-state.left[name].round, -speeds.get(name, -math.inf), name))
    return [*state.racing, *sorted(state.held), *dropped]


def relative(place: Place, name: str) -> float | None:
    """Return the estimated speed of an experiment, relative to the leader's."""
    known, leader = place.state.standing, place.leader
    if known is None or leader is None or leader not in known.speeds or name not in known.speeds:
        return None
    return math.exp(-known.behind(name, leader))


def interval(place: Place, name: str) -> tuple[float, float, float] | None:
    """Return the estimated speed relative to the leader's, and the ends of its interval. Return None without a speed."""
    share, known, leader = relative(place, name), place.state.standing, place.leader
    if share is None or known is None or leader is None:
        return None
    error = known.error(name, leader) if name != leader else 0.0
    return share, share * math.exp(-ERRORS * error), share * math.exp(ERRORS * error)


def in_words(place: Place) -> str:
    """Return how many experiments were dropped, by how much runs differ (a standard deviation), and what the race took."""
    state = place.state
    if state.due:
        return f"the race is not over; {counted(place.runs, 'run')} so far, and the same command goes on"
    not_run = sum(left.why is NoSpeed.NOT_NEEDED for left in state.left.values())
    others = f", {not_run} not run" if not_run else ""
    dropped = f"{len(state.left) - not_run} of {len(place.experiments)} dropped{others}"
    beyond = "; it ended because another round, with all repeats of a winner, would make more runs than the full grid"
    why = beyond if state.is_cut else ""
    known = state.standing if place.leader else None
    how = "taken" if known and known.degrees else "assumed"
    noise = f"; runs are {how} to differ by {100 * known.noise:.1f} %" if known else ""
    return f"{dropped}{noise}; {_spent(place)}{why}"


def _spent(place: Place) -> str:
    """Return what the race took, and what the full grid would take, by the mean time of each experiment's runs.

    The grid's time is left out if an experiment has no run, and the grid if it has fewer runs than the folder.
    """
    took, most = place.took_s, most_runs(place.experiments)
    is_timed = all(took.get(name) for name, records in place.records.items() if records)
    is_whole = all(took.get(one.id) for one in place.experiments)
    own = math.fsum(seconds for of_one in took.values() for seconds in of_one)
    here = counted(place.runs, "run") + (f" in {text(own, Show.SECONDS)}" if is_timed else "")
    if place.runs > most:
        return here
    repeats = {most_repeats(one) for one in place.experiments}
    of_each = f"{min(repeats)} runs of each" if len(repeats) == 1 else "all repeats"
    grid = f"{here}, where a grid with {of_each} has {most}"
    of_grid = math.fsum(fmean(took[one.id]) * most_repeats(one) for one in place.experiments) if is_whole else 0.0
    return f"{grid}, in about {text(of_grid, Show.SECONDS)}" if is_whole else grid


def _grid(place: Place) -> int:
    return sum(one.most_repeats for one in place.experiments)


def what_became(place: Place, name: str) -> str:
    """Return whether an experiment leads, is in the race, was dropped or not run, and why."""
    state = place.state
    if name in state.held or (name in state.left and state.left[name].why is NoSpeed.NOT_NEEDED):
        if state.due:
            return "not run yet"
        return (
            "not run: the race ended before"
            if place.leader is None or state.is_cut
            else "not run: the fastest value is not next to it"
        )
    if name in state.left:
        return f"dropped in round {state.left[name].round}: {_why(place, name)}"
    if state.due:
        return "in the race"
    if name == place.leader:
        return "leads" if place.winner else "the only one with a run that counts"
    known = state.standing.speeds if state.standing else {}
    return "not clearly slower" if name in known else _without_speed(place, name)


def _why(place: Place, name: str) -> str:
    left = place.state.left[name]
    if left.at_most is not None:
        return f"at most {100 * left.at_most:.{1 if left.at_most < 0.9995 else 3}f} %"
    if left.why is NoSpeed.IN_DOUBT:
        return _without_speed(place, name)
    return _NO_SPEED[left.why or NoSpeed.FAILED]


def _without_speed(place: Place, name: str) -> str:
    """Return why an experiment has no speed, although it did not fail often enough to leave for that."""
    is_doubted = all(value is NoSpeed.IN_DOUBT for value in place.values.get(name, ()))
    return _NO_SPEED[NoSpeed.IN_DOUBT] if is_doubted else "no run has a speed that counts"

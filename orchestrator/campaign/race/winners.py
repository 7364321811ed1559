"""The winners of races in words: how far the next one is behind, runs in doubt, and limits that were not applied. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.campaign.race.aim import Aim
from orchestrator.campaign.race.comparable import REAL
from orchestrator.campaign.race.names import Names
from orchestrator.campaign.race.objective import Objective
from orchestrator.campaign.race.places import Place, most_runs
from orchestrator.campaign.race.view import in_order, interval, relative
from orchestrator.files.printable_text import counted, one_line
from orchestrator.results.table.baseline.other_work import counts_padding

# With as many differences between runs of any experiment, the noise of an experiment with one run is known well enough.
_ENOUGH = 3
# For each objective: words for a winner, and for one that is not clearly better than the next.
_BEST = {
    Objective.SPEED: ("is the fastest", "leads"),
    Objective.COST: ("needs the least money per token", "leads in money per token"),
    Objective.ENERGY: ("needs the least energy per token", "leads in energy per token"),
}


def answer(place: Place, names: Names, aim: Aim) -> str:
    """Return a sentence that names the winner of a race that is over, and how far the next one is behind, with an interval.

    The interval has ERRORS standard errors on each side, as in the drawing of the race.
    """
    known = _with_speeds(place)
    if not known:
        return f"{names.place(place)}: no winner: no experiment is left with a speed that counts; the table says why."
    if place.winner is None and len(place.experiments) > 1:
        only = f"only {names.of(known[0])} has a run that counts, so there is nothing to compare it with"
        return one_line(f"{names.place(place)}: no winner: {only}.", longest=400)
    leader, *others = known
    if len(place.experiments) == 1:
        return f"{names.place(place)}: {names.of(leader)} is the only experiment of its race."
    is_tied = bool(others) and others[0] in place.state.racing
    but = _few_runs_in_words(place, names)
    is_open = is_tied or bool(but) or place.is_doubtful
    best = _BEST[aim.objective][is_open] + (" within the limits" if aim.has_limits else "")
    following = f"; {names.of(others[0])}, the next, {_behind(place, others[0], aim)}{but}" if others else ""
    return one_line(f"{names.place(place)}: {names.of(leader)} {best}{following}.", longest=400)


def with_few_runs(place: Place) -> str | None:
    """Return the winner or the next one if it has only one run that counts, and few others show the noise. Return None otherwise.

    An interval of the race has the noise of all experiments, partly an assumed one. Few runs of a noisy machine differ by chance.
    """
    known, standing = _with_speeds(place), place.state.standing
    is_decided = place.winner is not None and len(known) > 1 and known[1] not in place.state.racing
    if not is_decided or (standing and standing.degrees >= _ENOUGH):
        return None
    return next(
        (name for name in known[:2] if sum(isinstance(one, float) for one in place.values.get(name, ())) < 2), None
    )


def _with_speeds(place: Place) -> list[str]:
    """Return the experiments with a speed that counts and within the limits, in order."""
    beyond = [name for name, left in place.state.left.items() if left.why is not None]
    return [name for name in in_order(place.state) if name not in beyond and relative(place, name) is not None]


def _few_runs_in_words(place: Place, names: Names) -> str:
    few = with_few_runs(place)
    if few is None:
        return ""
    if not place.state.standing or not place.state.standing.degrees:
        return "; no experiment has two runs that count, so it is unknown how much runs differ here"
    return f"; only one run of {names.of(few)} counts"


def _behind(place: Place, name: str, aim: Aim) -> str:
    share, low, high = interval(place, name) or (1.0, 1.0, 1.0)
    is_speed = aim.objective is Objective.SPEED
    value, *ends = (1 - end if is_speed else 1 / end - 1 for end in (share, high, low))
    behind = f"is {100 * value:.1f} % slower" if is_speed else f"needs {100 * value:.1f} % more"
    if not place.state.standing or not place.state.standing.degrees:
        return behind
    text = f"{behind} ({' to '.join(f'{100 * end:.1f}' for end in ends)})"
    return f"{text}, not a clear difference" if name in place.state.racing else text


def remarks(place: Place, names: Names, aim: Aim) -> Iterator[str]:
    """Yield sentences about what was not compared, about runs that did not count, and about limits that were not applied."""
    yield from not_compared(place, names)
    yield from without_doubts(place, names)
    yield from unlimited(place, names, aim)


def not_compared(place: Place, names: Names) -> Iterator[str]:
    """Yield a sentence if other values of an argument have races of their own, and one about runs on another machine."""
    if place.apart:
        which = " and ".join(place.apart)
        each, change = ("value", "it changes") if len(place.apart) == 1 else ("combination", "they change")
        what = f"work that {place.speed} measures"
        if counts_padding(place.speed):
            what = f"padding that {place.speed} counts, and not all experiments report {REAL}"
        scenario = place.first.scenario
        yield one_line(
            f"{scenario}: each {each} of {which} has a race of its own, because {change} the {what}.", longest=400
        )
    if place.elsewhere:
        machines, were = " and ".join(sorted({*place.elsewhere})), "was" if len(place.elsewhere) == 1 else "were"
        count = f"{counted(len(place.elsewhere), 'run')} {were} on another machine ({machines}) than the newest run"
        many = len(place.elsewhere) > most_runs(place.experiments)
        cure = "; the race ended, and needs a new folder and machines of one kind" if many else ""
        yield one_line(f"{names.place(place)}: {count} and did not count{cure}.", longest=400)


def without_doubts(place: Place, names: Names) -> Iterator[str]:
    """Yield a sentence if runs were in doubt. The report distrusts an experiment that has one; the race left it out."""
    if place.in_doubt and not place.state.due:
        were = "was" if place.in_doubt == 1 else "were"
        counts = f"{place.in_doubt} of {counted(place.runs, 'run')} {were} in doubt"
        cure = "; repeat the race in a new folder on a quieter machine" if place.is_doubtful else ""
        yield one_line(f"{names.place(place)}: {counts} and did not count{cure}.", longest=300)


def unlimited(place: Place, names: Names, aim: Aim) -> Iterator[str]:
    """Yield a sentence for each limit that runs of a race could not be held to."""
    for limit in aim.unmeasured(place.records):
        yield f"{names.place(place)}: {_whom(place, aim, limit)}."


def _whom(place: Place, aim: Aim, limit: str) -> str:
    """Return in words that a limit was not applied to an experiment, or to none."""
    one_by_one = [aim.unmeasured({name: records}) for name, records in place.records.items()]
    if all(limit in missing for missing in one_by_one):
        return f"no run reports its {limit}, so --limit {limit} was not applied"
    return f"some experiments do not report their {limit}, so --limit {limit} was not applied to them"

"""Carry out the races of a campaign: ask for the runs of a round, read their speeds from the records, ask for the next round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from orchestrator.campaign.loop import Summary
from orchestrator.campaign.race import as_json, view
from orchestrator.campaign.race.aim import SPEED, Aim
from orchestrator.campaign.race.places import Place, places
from orchestrator.measure.intervals.race import NoSpeed
from orchestrator.records import Experiment, Reason
from orchestrator.results.store import Store

_NOT_NEEDED = Reason(kind="not_needed", text="the race has not needed it")
# Carries out the runs of these experiments that are due.
CarryOut = Callable[[Sequence[Experiment]], Summary]


def tune(
    experiments: Sequence[Experiment],
    *,
    store: Store,
    run: CarryOut,
    say: Callable[[str], None],
    aim: Aim = SPEED,
    retries: bool = False,
) -> Summary:
    """Carry out the races. Then carry out all repeats of each winner, because its mean in the race is biased upwards.

    Return the summary of the last runs. With `retries`, first let `run` try earlier runs again. The races stop if a run of a round
    does not end, for example because it was cancelled. The same command then goes on.
    """
    races = _look(experiments, store, aim)
    if retries and (earlier := [one for one in _with_repeats(experiments, races) if _runs(races).get(one.id)]):
        run(earlier)
        races = _look(experiments, store, aim)
    for sentence in (*view.before(races), *view.ends(races)):
        say(sentence)
    while due := {name for place in races for name in place.state.due}:
        for sentence in view.of_round(races):
            say(sentence)
        before, runs = races, _runs(races)
        now = _of_round(experiments, races, due)
        store.add(now)  # so the status does not count repeats of the others as pending
        summary = run([one for one in now if one.id in due])
        races = _look(experiments, store, aim)
        for sentence in view.ends(races, before):
            say(sentence)
        if any(_runs(races)[name] <= runs[name] for name in due):
            return summary
    last = at_the_end(experiments, races)
    store.add(last)
    summary = run(last)
    _look(experiments, store, aim)
    return summary


def begun(experiments: Sequence[Experiment], store: Store, aim: Aim) -> list[Experiment]:
    """Return the experiments with the repeats that they have in the next round of their races, or at the end of these."""
    races = _look(experiments, store, aim)
    due = {name for place in races for name in place.state.due}
    return _of_round(experiments, races, due) if due else at_the_end(experiments, races)


def _of_round(experiments: Sequence[Experiment], races: Sequence[Place], due: Collection[str]) -> list[Experiment]:
    return _without_those_not_needed(_with_repeats(experiments, races, more=due), races)


def at_the_end(experiments: Sequence[Experiment], races: Sequence[Place]) -> list[Experiment]:
    """Return the experiments with the repeats that they have when their races are over: all for a winner, else those they have.

    Those that the races did not need are marked.
    """
    winners = {place.winner for place in races}
    both = zip(experiments, _without_those_not_needed(_with_repeats(experiments, races), races), strict=True)
    return [_with_all_repeats(one, raced) if one.id in winners else raced for one, raced in both]


def _look(experiments: Sequence[Experiment], store: Store, aim: Aim) -> list[Place]:
    """Return the races now. Keep them in the results folder, for the report."""
    races = [*places(experiments, store, aim)]
    as_json.keep(races, store, aim)
    return races


def _runs(races: Sequence[Place]) -> Mapping[str, int]:
    return {name: len(records) for place in races for name, records in place.records.items()}


def _with_repeats(
    experiments: Sequence[Experiment], races: Sequence[Place], *, more: Collection[str] = ()
) -> list[Experiment]:
    """Return the experiments with as many repeats as they have runs; those in `more` with one more. The others have no run due."""
    done = _runs(races)
    counts = [max(1, done.get(one.id, 0) + (one.id in more)) for one in experiments]
    return [replace(one, adaptive=None, repeats=count) for one, count in zip(experiments, counts, strict=True)]


def _without_those_not_needed(experiments: Sequence[Experiment], races: Sequence[Place]) -> list[Experiment]:
    """Return the experiments. Those that the races have not needed are marked, so that reports say why they have no run."""
    left = {name for place in races for name, left in place.state.left.items() if left.why is NoSpeed.NOT_NEEDED}
    unused, runs = left.union(*(place.state.held for place in races)), _runs(races)
    return [replace(one, skip=_NOT_NEEDED) if one.id in unused and not runs[one.id] else one for one in experiments]


def _with_all_repeats(experiment: Experiment, raced: Experiment) -> Experiment:
    """Return the experiment with the repeats of the scenario file, or with those of the race if these are more."""
    return experiment if experiment.adaptive else replace(experiment, repeats=max(experiment.repeats, raced.repeats))

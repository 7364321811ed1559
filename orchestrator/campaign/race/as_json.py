"""The races as `race.json` in the results folder. The report draws them.

    {"tool", "races": [{"name", "objective", "limits": {"memory_bytes", "loss"}, "is_over", "answer", "winner",
      "is_doubtful", "words", "experiments": [
        {"id", "name", "runs", "runs_shown", "is_due", "speed", "low", "high", "is_dropped", "is_over_limit", "became"}]}]}

`speed` is the estimated speed relative to the leader's, with the ends of its interval; null without a speed. With the objective
`cost` or `energy`, it is the number of tokens for the same money or energy. A limit that is not set is null. `loss` is a share of
the lowest loss. `answer`, `words`, `runs_shown` and `became` are what the terminal shows. `winner` is an id. The answer is null
until the race is over, and the winner is null without one. A race is doubtful if more than half of its runs were in doubt, or if
the winner or the next one has too few runs that count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.campaign.race import winners
from orchestrator.campaign.race.aim import Aim
from orchestrator.campaign.race.names import Names
from orchestrator.campaign.race.objective import Objective
from orchestrator.campaign.race.places import Place
from orchestrator.campaign.race.view import in_order, in_words, interval, runs, what_became
from orchestrator.files.redaction import redact
from orchestrator.measure.intervals.race import NoSpeed
from orchestrator.measure.memory_logs import finite
from orchestrator.records import Experiment
from orchestrator.results import folder
from orchestrator.results.store import Store


def other_aims(root: Path, experiments: Sequence[Experiment], aim: Aim) -> Iterator[str]:
    """Yield a sentence for each other aim of races of these experiments in a results folder that are not over."""
    ids, found = {one.id for one in experiments}, dict[str, None]()
    for race in folder.races(root):
        if race.get("is_over") is False and ids.intersection(folder.raced(race)):
            found[_aim(race).as_options()] = None
    for options in found:
        if options != aim.as_options():
            yield (
                f"{root}: its race that is not over has {options}, and this one has {aim.as_options()}; repeat the earlier "
                "options to go on with that race"
            )


def _aim(race: Mapping[str, Any]) -> Aim:
    """Return the aim of a race. Its file may come from someone else, so unknown values are left out."""
    limits = race.get("limits")
    memory, loss = ((limits.get(name) if isinstance(limits, dict) else None) for name in ("memory_bytes", "loss"))
    return Aim(
        objective=next((one for one in Objective if one == race.get("objective")), Objective.SPEED),
        memory_bytes=_limit(memory),
        loss=_limit(loss),
    )


def _limit(value: object) -> float | None:
    number = finite(value)
    return None if number is None or number < 0 else number


def keep(races: Sequence[Place], store: Store, aim: Aim) -> None:
    """Write the races, also before they are over. Earlier races stay in the file if another experiment took part in them."""
    names, own = Names(races), {one.id for place in races for one in place.experiments}
    earlier = [race for race in folder.races(store.root) if not own.issuperset(folder.raced(race))]
    document = {"tool": folder.TOOL, "races": [*(_race(place, names, aim) for place in races), *earlier]}
    store.write(folder.RACE_FILE, redact(json.dumps(document, indent=1)) + "\n")


def _race(place: Place, names: Names, aim: Aim) -> dict[str, Any]:
    return {
        "name": names.place(place),
        "objective": aim.objective,
        "limits": {"memory_bytes": aim.memory_bytes, "loss": aim.loss},
        "is_over": not place.state.due,
        "answer": None
        if place.state.due
        else " ".join((winners.answer(place, names, aim), *winners.remarks(place, names, aim))),
        "winner": place.winner,
        "is_doubtful": place.is_doubtful or winners.with_few_runs(place) is not None,
        "words": in_words(place),
        "experiments": [_experiment(place, name, names) for name in in_order(place.state)],
    }


def _experiment(place: Place, name: str, names: Names) -> dict[str, Any]:
    speed, low, high = interval(place, name) or (None, None, None)
    return {
        "id": name,
        "name": names.of(name),
        "runs": len(place.records[name]),
        "runs_shown": runs(place, name),
        "is_due": name in place.state.due,
        "speed": speed,
        "low": low,
        "high": high,
        "is_dropped": name in place.state.left,
        "is_over_limit": (left := place.state.left.get(name)) is not None and left.why is NoSpeed.OVER_LIMIT,
        "became": what_became(place, name),
    }

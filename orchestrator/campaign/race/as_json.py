"""The races as `race.json` in the results folder. The report draws them.

    {"tool", "objective", "limits": {"memory_bytes", "loss"}, "races": [{"name", "is_over", "words", "experiments": [
        {"id", "name", "runs", "speed", "low", "high", "is_dropped", "is_over_limit", "became"}]}]}

`speed` is the estimated speed relative to the leader's, with the ends of its interval; null without a speed. With the objective
`cost` or `energy`, it is the number of tokens for the same money or energy. A limit that is not set is null. `loss` is a share of
the lowest loss. `words` and `became` are what the terminal shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.campaign.race.aim import Aim
from orchestrator.campaign.race.places import Place
from orchestrator.campaign.race.view import Names, in_order, in_words, interval, what_became
from orchestrator.files.redaction import redact
from orchestrator.measure.intervals.race import NoSpeed
from orchestrator.results.folder import RACE_FILE, TOOL
from orchestrator.results.store import Store


def keep(races: Sequence[Place], store: Store, aim: Aim) -> None:
    """Write the races. A report then shows them, also before they are over."""
    names = Names(races)
    limits = {"memory_bytes": aim.memory_bytes, "loss": aim.loss}
    about = {"tool": TOOL, "objective": aim.objective, "limits": limits}
    document = {**about, "races": [_race(place, names) for place in races]}
    store.write(RACE_FILE, redact(json.dumps(document, indent=1)) + "\n")


def _race(place: Place, names: Names) -> dict[str, Any]:
    rows = [_experiment(place, name, names) for name in in_order(place.state)]
    return {
        "name": names.place(place),
        "is_over": not place.state.due,
        "words": in_words(place),
        "experiments": rows,
    }


def _experiment(place: Place, name: str, names: Names) -> dict[str, Any]:
    speed, low, high = interval(place, name) or (None, None, None)
    return {
        "id": name,
        "name": names.of(name),
        "runs": len(place.records[name]),
        "speed": speed,
        "low": low,
        "high": high,
        "is_dropped": name in place.state.left,
        "is_over_limit": (left := place.state.left.get(name)) is not None and left.why is NoSpeed.OVER_LIMIT,
        "became": what_became(place, name),
    }

"""Moments at which a submitter is killed. They follow the files of its campaign, so they do not depend on the machine's load."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping

from cluster import Campaign

SEED = 20261125
# A submitter that waits for its runs makes no new files. It is killed after this time.
_LONGEST_S = 15.0
_CALL = "a call of a client"
# A client of Slurm needs more time than this.
_LOOK_AGAIN_S = 0.005

EVENTS: Mapping[str, Callable[[Campaign], int]] = {
    _CALL: lambda one: len(one.calls()),
    "an intent": lambda one: len([*one.results.glob("slurm/*/batch.json")]),
    "a start": lambda one: len([*one.folder.glob("started-*")]),
    "a record": lambda one: len([*one.results.glob("experiments/*/runs/*/record.json")]),
}


def killed(campaign: Campaign, times: int) -> Counter[str]:
    """Kill the campaign's submitter this number of times, at moments of a fixed seed. Count what the kills hit."""
    chance, hit = random.Random(SEED), Counter[str]()
    for _ in range(times):
        called, unknown = len(campaign.calls()), _unnumbered(campaign)
        process = campaign.begin()
        _wait(campaign, process, chance)
        assert process.poll() is None, "the campaign ended before the last kill: it needs more runs"
        process.kill()
        hit[_moment(campaign, called, unknown)] += 1
        process.communicate()
    return hit


def _wait(campaign: Campaign, process: subprocess.Popen[str], chance: random.Random) -> None:
    """Wait for the first, second or third event of a kind, or for nothing; and sometimes a little longer."""
    kind, more = chance.choice([None, *EVENTS]), chance.randint(1, 3)
    delay_s = chance.choice((0.0, chance.uniform(0.0, 0.5)))
    if kind not in (None, _CALL):
        _until(campaign, process, _CALL, 1)  # runs of earlier starts begin and end at any time
    if kind is not None:
        _until(campaign, process, kind, more)
    time.sleep(delay_s)


def _until(campaign: Campaign, process: subprocess.Popen[str], kind: str, more: int) -> None:
    count, deadline = EVENTS[kind], time.monotonic() + _LONGEST_S
    enough = count(campaign) + more
    while process.poll() is None and count(campaign) < enough and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_S)


def _unnumbered(campaign: Campaign) -> set[str]:
    """Return the batches with an intent whose number in Slurm is not known."""
    return {path.name for path in campaign.batches() if not (path / "submitted.json").exists()}


def _moment(campaign: Campaign, called: int, unknown: set[str]) -> str:
    """Say what a kill has hit. Before it, the campaign had this number of calls, and these batches without a number."""
    if _unnumbered(campaign) - unknown:
        return "between an intent and its number"
    if not campaign.batches():
        return "before the first intent"
    if len(campaign.calls()) == called:
        return "before its first call of Slurm"
    return "between a number and the last record"

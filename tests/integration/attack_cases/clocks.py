"""Clocks that jump."""

from __future__ import annotations

import os
from pathlib import Path

from attack_cases._shared import (
    check_complete,
    held,
    killed_in_the_middle,
    reach,
    resumed,
)
from attack_cases.register import case
from attack_cases.scene import Scene

SHIFT = """\
import os, time
_real, _realns = time.time, time.time_ns
_file = os.environ["CLOCK_SHIFT"]
def _shift():
    try:
        return float(open(_file).read() or 0)
    except (OSError, ValueError):
        return 0.0
time.time = lambda: _real() + _shift()
time.time_ns = lambda: _realns() + int(_shift() * 1e9)
"""
JUMPS = {"hour-ahead": 3600, "hour-back": -3600, "year-ahead": 31_536_000, "before-1970": -2e9, "decades-back": -1.5e9,
         "far-future": 2**40}  # fmt: skip


def with_clock(scene: Scene, seconds: float = 0.0) -> Path:
    """Let all Python processes of the scene read a clock that differs by the seconds in the file that is returned."""
    place = scene.folder / "clock"
    place.mkdir()
    (place / "sitecustomize.py").write_text(SHIFT)
    scene.env["PYTHONPATH"] = f"{place}{os.pathsep}{scene.env['PYTHONPATH']}"
    scene.env["CLOCK_SHIFT"] = str(place / "shift")
    (place / "shift").write_text(str(seconds))
    return place / "shift"


@case(jump=JUMPS, moment=("training", "between", "start"))
def clock_jumps(scene: Scene, jump: int, moment: str) -> None:
    """The clock jumps in the middle: numbers are from a clock that does not, and everything goes on."""
    shift = with_clock(scene, jump if moment == "start" else 0)
    scene.scenario("time.sleep(0.5)", numbers=2)
    child = scene.started(begun=None)
    if moment != "start":
        reach(scene, child, moment)
        shift.write_text(str(jump))
    assert scene.call("status", "results" if moment != "start" else ".").code in (0, 2)
    assert scene.ended(child).code == 0
    check_complete(scene, 2)
    took = [record.wall_s for record in scene.records()]
    assert all(0.4 < wall_s < 20 for wall_s in took), took
    for command in ("status", "report", "bundle"):
        assert scene.call(command, "results").code == 0, command


@case(jump=JUMPS)
def cancelled_while_clock_jumps(scene: Scene, jump: int) -> None:
    """The campaign in progress does not start a cancelled run again, also if the clock jumps."""
    shift = with_clock(scene)
    child = held(scene)
    shift.write_text(str(jump))
    assert scene.call("cancel", "results").code == 0
    scene.go()
    scene.ended(child)
    assert scene.statuses() == ["cancelled"], scene.statuses()
    resumed(scene, 1)


@case(jump=JUMPS)
def lost_while_clock_jumps(scene: Scene, jump: int) -> None:
    """The record of a run that was lost has a duration that can be."""
    shift = with_clock(scene)
    killed_in_the_middle(scene)
    shift.write_text(str(jump))
    resumed(scene, 1)
    assert scene.call("status", "results").code == 0


@case(jump=JUMPS, limit=("timeout_s", "startup_timeout_s", "stall_timeout_s"))
def limit_while_clock_jumps(scene: Scene, jump: int, limit: str) -> None:
    """A jump of the clock neither ends a run early nor keeps it alive."""
    shift = with_clock(scene)
    scene.scenario("(here / 'begun').touch(); time.sleep(1.5)", **{limit: 30})
    child = scene.started(begun=None)
    scene.await_file("begun", child)
    shift.write_text(str(jump))
    assert scene.ended(child).code == 0
    (record,) = scene.records()
    assert record.status == "ok" and 1 < record.wall_s < 20

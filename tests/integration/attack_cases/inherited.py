"""Signals that a command inherits as blocked from the program that starts it."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from attack_cases.register import case
from attack_cases.scene import Scene

_BLOCKED = {
    "interrupt": (signal.SIGINT,),
    "terminate": (signal.SIGTERM,),
    "child": (signal.SIGCHLD,),
    "all": tuple(signal.Signals),
}


@case(blocked=_BLOCKED)
def cancelled_with_blocked_signals(scene: Scene, blocked: Sequence[signal.Signals]) -> None:
    """`cancel` ends a run whose campaign was started by a program that blocks signals in its threads."""
    scene.scenario("hold()")
    campaign = scene.started(preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, blocked))
    assert scene.call("cancel", "results").code == 0
    scene.ended(campaign)
    assert scene.statuses() == ["cancelled"]


@case(blocked=_BLOCKED, number=[signal.SIGINT, signal.SIGTERM])
def interrupted_with_blocked_signals(scene: Scene, blocked: Sequence[signal.Signals], number: signal.Signals) -> None:
    scene.scenario("hold()")
    campaign = scene.started(preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, blocked))
    campaign.send_signal(number)
    assert scene.ended(campaign).code == 130
    assert scene.statuses() == ["cancelled"]

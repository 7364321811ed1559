"""A second command in another time namespace: there, /proc shows other start times of the same processes."""

from __future__ import annotations

import subprocess

from attack_cases.register import Skipped, case
from attack_cases.scene import Scene

OFFSETS = {"later": "100000", "earlier": "-30"}


def _shifted(offset_s: str) -> tuple[str, ...]:
    words = ("unshare", "--time", "--boottime", offset_s, "--fork")
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        raise Skipped("a time namespace needs root and a newer kernel")
    return words


@case(offset_s=OFFSETS)
def second_call_in_a_time_namespace(scene: Scene, offset_s: str) -> None:
    """The second call waits for the living run of the first, and neither ends it nor repeats it."""
    prefix = _shifted(offset_s)
    scene.scenario("hold()")
    first = scene.started()
    second = scene.start("run", "scenarios.yaml", "--yes", prefix=prefix)
    scene.await_true(lambda: b"waiting for 1 run" in second.place.with_suffix(".err").read_bytes(), "a wait", second)  # type: ignore[attr-defined]
    scene.go()
    assert (scene.ended(first).code, scene.ended(second).code) == (0, 0)
    assert scene.statuses() == ["ok"]


@case(offset_s=OFFSETS)
def cancelled_from_a_time_namespace(scene: Scene, offset_s: str) -> None:
    prefix = _shifted(offset_s)
    scene.scenario("hold()")
    campaign = scene.started()
    said = scene.ended(scene.start("cancel", "results", prefix=prefix))
    assert said.code == 0 and "cancelled" in said.out, said
    scene.ended(campaign)
    assert scene.statuses() == ["cancelled"]

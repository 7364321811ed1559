"""`status --watch` and `cancel` while things vanish."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

from attack_cases._shared import SIGNALS, check_complete, held, reach, resumed, run_one_of, send, spoil
from attack_cases.register import case
from attack_cases.scene import Scene


@case(how=("rmtree", "rename", "file", "suite", "experiments", "empty", "dangling", "fifo"))
def watched_folder_vanishes(scene: Scene, how: str) -> None:
    """`status --watch` ends with a sentence, or goes on, if the folder that it watches vanishes."""
    scene.scenario("hold()")
    child = scene.started()
    watch = scene.start("status", "results", "--watch")
    shown: Path = watch.place.with_suffix(".out")  # type: ignore[attr-defined]
    scene.await_true(lambda: shown.stat().st_size, "the first view", watch)
    scene.records_may_go = scene.logs_may_trace = True
    spoil(scene.results, how)
    time.sleep(2.5)
    send(watch.pid, signal.SIGINT)
    scene.ended(watch)
    send(child.pid, signal.SIGINT)
    scene.go()
    scene.ended(child)


@case(number=SIGNALS, output=("json", "text"))
def signal_to_watch(scene: Scene, number: signal.Signals, output: str) -> None:
    """A signal ends `status --watch`, and not the campaign."""
    child = held(scene)
    watch = scene.start("status", "results", "--watch", *(["--json"] if output == "json" else []))
    time.sleep(1.5)
    send(watch.pid, number)
    scene.codes.update({-9, -number})
    scene.ended(watch)
    scene.go()
    assert scene.ended(child).code == 0


@case(state=("training", "claim", "owner", "between", "ended"), twice=(1, 2, 5))
def cancel_at(scene: Scene, state: str, twice: int) -> None:
    """`cancel` at any moment, once or several at a time, leaves records and no process."""
    scene.scenario("time.sleep(0.5); (here / 'ended-0').touch()", numbers=2)
    child = scene.started(begun=None)
    reach(scene, child, state)
    for one in [scene.start("cancel", "results") for _ in range(twice)]:
        scene.ended(one)
    scene.ended(child)
    resumed(scene, 2)


@case(victim=("run-one", "orchestrator", "trainer", "cancel", "folder", "owner.json", "job.json", "heartbeat"))
def cancel_while_gone(scene: Scene, victim: str) -> None:
    """`cancel` ends with true words while what it waits for vanishes."""
    scene.scenario(
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN); hold()"
    )
    child = scene.started()
    run, run_one = scene.runs()[0], run_one_of(scene)
    cancel = scene.start("cancel", "results")
    time.sleep(1.0)
    pids = {"run-one": lambda: run_one, "orchestrator": lambda: child.pid, "trainer": lambda: scene.find("trainer.py"),
            "cancel": lambda: cancel.pid}  # fmt: skip
    scene.codes.add(-9)
    if victim in pids:
        send(pids[victim](), signal.SIGKILL)
    elif victim == "folder":
        shutil.rmtree(run, ignore_errors=True)
    else:
        (run / victim).unlink(missing_ok=True)
    scene.ended(cancel)
    scene.go()
    scene.ended(child)
    scene.records_may_go = victim == "folder"
    scene.run("--retry-failed")
    check_complete(scene, 1)

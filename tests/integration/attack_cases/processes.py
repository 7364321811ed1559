"""Signals to every process at every moment."""

from __future__ import annotations

import os
import signal
import time

from attack_cases._shared import SIGNALS, check_complete, held, reach, resumed, run_one_of, send
from attack_cases.register import Skipped, case
from attack_cases.scene import Scene

MOMENTS = ("0.1", "0.25", "0.5", "folder", "claim", "owner", "training", "between", "report")
FATAL = {name: getattr(signal, f"SIG{name}") for name in ("KILL", "SEGV", "ABRT", "TERM", "INT", "HUP", "PIPE", "USR1")}


@case()
def quiet_campaign(scene: Scene) -> None:
    """Nothing is attacked: the scene itself works."""
    scene.scenario(numbers=2)
    assert scene.run().code == 0
    assert scene.statuses() == ["ok", "ok"]
    assert scene.call("status", "results").code == 0


@case(number=SIGNALS, moment=MOMENTS)
def signal_to_orchestrator(scene: Scene, number: signal.Signals, moment: str) -> None:
    """Every end of the orchestrator leaves a campaign that the same command completes."""
    scene.scenario("time.sleep(0.3)", numbers=2)
    child = scene.started(begun=None)
    reach(scene, child, moment)
    child.send_signal(number)
    said = scene.ended(child)
    if "Traceback" in said.text and "orchestrator" not in said.text:
        raise Skipped("Python itself had not started yet")
    if number == signal.SIGKILL or moment == "0.1":
        scene.codes.add(-number)  # a signal may end Python itself while it starts
    resumed(scene, 2)


@case(number=SIGNALS, moment=("claim", "owner", "training"))
def signal_to_group(scene: Scene, number: signal.Signals, moment: str) -> None:
    """A terminal signals the whole group. The runs, in sessions of their own, are ended by the orchestrator."""
    scene.scenario("time.sleep(0.3)", numbers=2)
    child = scene.started(begun=None)
    reach(scene, child, moment)
    os.killpg(child.pid, number)
    if number == signal.SIGKILL:
        scene.codes.add(-9)
    scene.ended(child)
    resumed(scene, 2)


@case(first=("INT", "TERM", "HUP"), pause={"at once": 0.0, "20ms": 0.02, "200ms": 0.2})
def burst_of_signals(scene: Scene, first: str, pause: float) -> None:
    """A user who hits Ctrl-C again and again gets an end, and nothing is left."""
    scene.scenario(
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN); hold()"
    )
    child = scene.started()
    for _ in range(6):
        send(child.pid, SIGNALS[first])
        time.sleep(pause)
    assert scene.ended(child).code == 130
    scene.go()
    resumed(scene, 1)


@case(number=SIGNALS, moment=("claim", "owner", "training", "ended"))
def signal_to_run_one(scene: Scene, number: signal.Signals, moment: str) -> None:
    """A `run-one` that is ended leaves a record, and the campaign goes on."""
    scene.scenario("time.sleep(0.4); (here / 'ended-0').touch()")
    child = scene.started(begun=None)
    reach(scene, child, moment)
    send(run_one_of(scene) if moment != "claim" else scene.find("run-one"), number)
    scene.ended(child)
    resumed(scene, 1)


@case(number=FATAL)
def signal_to_trainer(scene: Scene, number: signal.Signals) -> None:
    """A trainer that dies of a signal has failed, and the record names the signal."""
    child = held(scene)
    send(scene.find("trainer.py"), number)
    assert scene.ended(child).code == 1
    (record,) = scene.records()
    assert record.status == "failed", record.status
    by_python = number == signal.SIGINT
    assert record.signal == number or (by_python and record.exit_code in (130, 1)), (record.signal, record.exit_code)
    scene.go()
    resumed_failed = scene.run("--retry-failed")
    assert resumed_failed.code == 0, resumed_failed.code


@case(who=("orchestrator", "run-one", "trainer"), then=("CONT", "KILL", "TERM"))
def stopped_process(scene: Scene, who: str, then: str) -> None:
    """A laptop's lid, or Ctrl-Z: a process stops for a while, and then goes on or is ended."""
    child = held(scene)
    pid = {"orchestrator": lambda: child.pid, "run-one": lambda: run_one_of(scene)}.get(
        who, lambda: scene.find("trainer.py")
    )()
    send(pid, signal.SIGSTOP)
    time.sleep(0.5)
    scene.go()
    assert scene.call("status", "results").code == 0
    if then != "CONT":
        send(pid, getattr(signal, f"SIG{then}"))
    if then != "KILL":
        send(pid, signal.SIGCONT)
    said = scene.ended(child)
    if who == "orchestrator" and then != "CONT":
        scene.codes.add(-9)
    elif then == "CONT":
        assert said.code == 0, said.code
        return check_complete(scene, 1)
    assert scene.run("--retry-failed").code == 0


@case(who=("orchestrator", "run-one", "both"), children=(1, 3))
def killed_with_children(scene: Scene, who: str, children: int) -> None:
    """The trainer's children are ended by the next call, whoever was killed."""
    body = f"subs = [subprocess.Popen(['sleep', '300']) for _ in range({children})]\nhold()\n[s.kill() for s in subs]"
    scene.scenario(body)
    child = scene.started()
    run_one = run_one_of(scene)
    if who in ("orchestrator", "both"):
        child.kill()
        scene.codes.add(-9)
    if who in ("run-one", "both"):
        send(run_one, signal.SIGKILL)
    if who != "run-one":
        scene.ended(child)
    scene.go()
    if who == "run-one":
        scene.ended(child)
    resumed(scene, 1)


@case(moment=("claim", "training", "between"))
def killed_again_and_again(scene: Scene, moment: str) -> None:
    """Five orchestrators in turn are killed. The sixth completes the campaign."""
    scene.scenario("time.sleep(0.2)", numbers=2)
    scene.codes.add(-9)
    for _ in range(5):
        child = scene.started(begun=None)
        reach(scene, child, moment)
        send(child.pid, signal.SIGKILL)
        scene.ended(child)
    resumed(scene, 2)


@case(parallel=(2, 4), number=SIGNALS)
def signal_to_parallel(scene: Scene, parallel: int, number: signal.Signals) -> None:
    """Runs side by side end with their orchestrator."""
    scene.scenario("hold()", numbers=parallel)
    child = scene.started("--parallel", str(parallel), begun=None)
    scene.await_true(lambda: len(list(scene.folder.glob("begun-*"))) == parallel, "all begun", child)
    child.send_signal(number)
    if number == signal.SIGKILL:
        scene.codes.add(-9)
    scene.ended(child)
    scene.go()
    resumed(scene, parallel)


MIXED = {"hup-int-term": "HUP INT TERM", "int-term": "INT TERM", "term-hup": "TERM HUP", "all": "QUIT INT TERM HUP"}


@case(names=MIXED, parallel=(1, 2), pause={"while stopped": None, "at once": 0.0, "1ms": 0.001})
def signals_at_the_same_time(scene: Scene, names: str, parallel: int, pause: float | None) -> None:
    """A terminal that closes, `timeout` and a batch system may send several signals at once. No run outlives the campaign."""
    scene.scenario("hold()", numbers=parallel)
    child = scene.started("--parallel", str(parallel), begun=None)
    scene.await_true(lambda: len(list(scene.folder.glob("begun-*"))) == parallel, "all begun", child)
    time.sleep(0.3)
    if pause is None:  # after Ctrl-Z, or on a busy machine, all of them arrive at the same moment
        send(child.pid, signal.SIGSTOP)
        time.sleep(0.2)
    for name in names.split():
        send(child.pid, SIGNALS[name])
        time.sleep(pause or 0.0)
    send(child.pid, signal.SIGCONT)
    said = scene.ended(child)
    assert said.code == 130, said.code
    scene.await_true(lambda: not scene.alive(), "the end of all runs")
    assert scene.statuses() == ["cancelled"] * parallel, scene.statuses()
    scene.go()
    resumed(scene, parallel)

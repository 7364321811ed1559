"""Closed terminals and streams, odd environments and limits of the system, status and cancel while things vanish."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time

from attack_cases._shared import check_complete, held, resumed, run_one_of, send, shell
from attack_cases.register import case
from attack_cases.scene import ROOT, Scene

REDIRECTS = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>&1", "| head -c 1", "| true",
             "2>&1 | true")  # fmt: skip
COMMANDS = {
    "run": "run scenarios.yaml --yes",
    "jsonlines": "run scenarios.yaml --yes --json-lines",
    "status": "status results",
    "watch": "status results --watch",
    "report": "report results",
    "cancel": "cancel results",
    "plan": "plan scenarios.yaml",
}


@case(command=COMMANDS, redirect=REDIRECTS)
def redirected(scene: Scene, command: str, redirect: str) -> None:
    """A stream that is closed, full or left by its reader stops no campaign and shows no traceback."""
    scene.scenario(numbers=1)
    if not command.startswith(("run", "plan")):
        assert scene.run().code == 0
    said = scene.ended(shell(scene, f"tunebench {command} {redirect}; exit ${{PIPESTATUS[0]}}"))
    full = redirect.startswith(">/dev/full")
    assert said.code == (2 if full else 0), said.code
    if command.startswith("run"):
        check_complete(scene, 1)


@case(command={"run": COMMANDS["run"], "watch": COMMANDS["watch"]}, width=("80x24", "1x1", "0x0", "1000x2"))
def terminal_closes(scene: Scene, command: str, width: str) -> None:
    """A terminal that closes sends SIGHUP and refuses to be written: the campaign ends in order."""
    scene.scenario("hold()", numbers=2)
    other = held(scene, numbers=2) if "watch" in command else None
    leader, follower = pty.openpty()
    columns, rows = width.split("x")
    env = {"TERM": "xterm", "COLUMNS": columns, "LINES": rows}
    words = ("setsid", "--ctty", "--wait", sys.executable, "-m", "orchestrator", *command.split())
    streams = {"stdin": follower, "stdout": follower, "stderr": follower}
    child = scene.start_any(*words, env=env, **streams)
    os.close(follower)
    scene.await_file("begun-*")
    time.sleep(2.5)
    os.close(leader)
    scene.codes.update({-1, 129, 143})
    scene.ended(child)
    scene.go()
    if other is not None:
        assert scene.ended(other).code == 0
    resumed(scene, 2)


@case()
def nohup(scene: Scene) -> None:
    """With nohup, the end of the terminal does not end a campaign that takes hours."""
    scene.scenario("hold()")
    child = scene.started(prefix=("nohup",))
    send(child.pid, signal.SIGHUP)
    time.sleep(1.5)
    scene.go()
    said = scene.ended(child)
    assert said.code == 0, f"the hangup ended it with exit code {said.code}: {scene.statuses()}"


@case()
def nohup_run_one(scene: Scene) -> None:
    """With nohup, a hangup that reaches `run-one` does not end the training either."""
    scene.scenario("hold()")
    child = scene.started(prefix=("nohup",))
    send(run_one_of(scene), signal.SIGHUP)
    time.sleep(1.5)
    scene.go()
    assert scene.ended(child).code == 0, scene.statuses()


@case()
def ignored_interrupt(scene: Scene) -> None:
    """A shell without job control starts `&` commands with Ctrl-C ignored: then Ctrl-C for the shell is not for them."""
    scene.scenario("hold()")
    child = shell(scene, "tunebench run scenarios.yaml --yes & wait $!")
    scene.await_file("begun-0")
    os.killpg(child.pid, signal.SIGINT)
    time.sleep(1.0)
    scene.codes.update({-2, 130})
    scene.go()
    scene.ended(child)
    scene.await_true(lambda: not scene.alive(), "the end of the campaign")
    check_complete(scene, 1)


@case(number={"TERM": signal.SIGTERM, "INT": signal.SIGINT}, to=("script", "group"))
def signal_to_script(scene: Scene, number: signal.Signals, to: str) -> None:
    """`scancel` and Ctrl-C end the campaign that `run_benchmarks.sh` started."""
    scene.scenario("hold()")
    script = str(ROOT / "scripts" / "run_benchmarks.sh")
    child = scene.start_any("bash", script, "1", "results", str(scene.folder / "scenarios.yaml"), "none",
                            env={"PYTHON": sys.executable})  # fmt: skip
    scene.await_file("begun-0", child)
    (os.killpg if to == "group" else os.kill)(child.pid, number)
    assert scene.ended(child).code == 130
    scene.go()
    resumed(scene, 1)

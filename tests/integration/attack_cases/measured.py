"""Early ends (`measure:`), adaptive repeats and `rerun` under signals, kills and lying programs."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import Any

from attack_cases._shared import SIGNALS, reach, run_one_of, send
from attack_cases.register import case
from attack_cases.scene import Scene

SAY = "def say(line): print(json.dumps(line), flush=True)\n"
STEPS = """\
for at in range(1, 1000):
    time.sleep(%s)
    print(json.dumps({"step": at, "seconds": %s, "tokens": 100}), flush=True)
    if at == 5: (here / 'stepped').touch()
    if (here / 'leave').exists(): break
"""
CALLS = "from tunebench.steps import step\nfor at in range(1000):\n    step(tokens=100)\n    time.sleep(0.01)\n"
IGNORES = "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]\n"
ENDS = {
    "obeys": "",
    "ignores": IGNORES,
    "slow-end": "def slow(*_):\n    time.sleep(2); raise SystemExit(0)\nsignal.signal(2, slow)\n",
    "fails-at-end": "signal.signal(2, lambda *_: os._exit(9))\n",
    "more-steps": "def more(*_):\n    for at in range(2000, 2100): print(json.dumps({'step': at, 'seconds': 9.0, 'tokens': 1}))\n"
    "    raise SystemExit(0)\nsignal.signal(2, more)\n",
    "child-goes-on": "subprocess.Popen(['sleep', '300'], start_new_session=True)\n",
    "stops-itself": "signal.signal(2, lambda *_: os.kill(os.getpid(), 19))\n",
    "prints-result": "def last(*_):\n    say({'train_runtime': 0.1, 'train_loss': 1}); sys.exit()\nsignal.signal(2, last)\n",
}


def _number(scene: Scene, name: str) -> Any:
    (record,) = scene.records()
    return next((one.value for one in record.measurements if one.name == name), None)


@case(
    end=ENDS, source=("stdout", "tunebench.steps"), rule={"at-most": {"at_most_steps": 30}, "within": {"within": "50%"}}
)
def early_end(scene: Scene, end: str, source: str, rule: dict[str, object]) -> None:
    """A run that has made enough steps is ended, whatever the program does then. Its speed is that of its steps."""
    scene.scenario(SAY + end + (STEPS % (0.01, 0.01) if source == "stdout" else CALLS), steps=source, measure=rule)
    scene.run(timeout_s=60)
    assert len(scene.statuses()) == 1
    speed = _number(scene, "tokens_per_s")
    assert speed is None or 2000 < speed < 10500, speed
    assert scene.call("status", "results").code == 0


@case(
    name=("INT", "TERM", "HUP", "KILL"),
    target=("orchestrator", "run-one"),
    moment={"before": 0.0, "at": 0.35, "after": 0.6},
)
def signal_at_early_end(scene: Scene, name: str, target: str, moment: float) -> None:
    """A signal about when `measure:` ends the run: one record, cancelled or ok, and the campaign can be completed."""
    scene.scenario(STEPS % (0.01, 0.01), steps="stdout", measure={"at_most_steps": 30})
    child = scene.started(begun=None)
    scene.await_file("stepped", child)
    run_one = run_one_of(scene)
    time.sleep(moment)
    send(child.pid if target == "orchestrator" else run_one, SIGNALS[name])
    scene.codes.add(-SIGNALS[name])
    scene.ended(child)
    if target == "orchestrator" and name == "KILL":
        scene.run()
    scene.run()
    counts = Counter(scene.statuses())
    assert counts["ok"] == 1 and set(counts) <= {"ok", "cancelled", "lost"}, counts


RULES = {"narrow": {"min": 2, "max": 4, "within": "0.0001%"}, "wide": {"min": 2, "max": 4, "within": "90%"}}


@case(rule=RULES, how=("kill", "int", "two-calls", "cancel", "remove-a-run", "add-a-run", "other-rule"))
def adaptive_repeats(scene: Scene, rule: dict[str, object], how: str) -> None:
    """Adaptive repeats that are disturbed end with at least `min` and at most `max` runs that are ok, each once."""
    body = SAY + "for at in range(1, 31): say({'step': at, 'seconds': 0.005 + os.getpid() % 7 * 1e-4, 'tokens': 9})"
    body += "\ntime.sleep(0.2)"
    scene.scenario(body, steps="stdout", numbers=2, repeats=rule)
    child = scene.started(begun=None)
    others = [scene.start("run", "scenarios.yaml", "--yes") for _ in range(2)] if how == "two-calls" else []
    reach(scene, child, "between")
    _disturb(scene, how, child.pid)
    scene.codes.add(-9)
    for one in (child, *others):
        scene.ended(one)
    if how == "other-rule":
        scene.scenario(body, steps="stdout", numbers=2, repeats={"min": 3, "max": 3, "within": "1%"})
    assert scene.run().code == 0
    good = Counter((one.experiment_id, one.repeat) for one in scene.records() if one.status == "ok")
    assert set(good.values()) == {1}, good
    counts = Counter(name for name, _ in good)
    assert len(counts) == 2 and all(2 <= count <= 4 for count in counts.values()), counts
    said = scene.call("status", "results", "--json")
    assert said.code == 0 and '"over": true' in said.out, said.out[:300]


def _disturb(scene: Scene, how: str, pid: int) -> None:
    if how in ("kill", "int"):
        send(pid, signal.SIGKILL if how == "kill" else signal.SIGINT)
    elif how == "cancel":
        scene.call("cancel", "results")
    elif how == "remove-a-run":
        scene.records_may_go = True
        import shutil

        done = [run for run in scene.runs() if (run / "record.json").exists()]
        shutil.rmtree(done[0])
    elif how == "add-a-run":
        scene.start("run", "scenarios.yaml", "--yes", "--repeats", "3").wait(60)


@case(
    body={
        "endless-zero": "for at in range(1, 400): say({'step': at, 'seconds': 0})",
        "tiny": "for at in range(1, 400): say({'step': at, 'seconds': 1e-300, 'tokens': 100})",
        "huge": "for at in range(1, 400): say({'step': at, 'seconds': 1e9, 'tokens': 100})",
        "mixed": "for at in range(1, 400): say({'step': at, 'seconds': 10.0 ** (at % 19 - 9), 'tokens': 100})",
        "huge-tokens": "for at in range(1, 400): say({'step': at, 'seconds': 0.001, 'tokens': 2**52})",
        "step-numbers-far": "for at in range(1, 400): say({'step': at * 2**40, 'seconds': 0.001, 'tokens': 1})",
    },
    rule={"at-most": {"at_most_steps": 300}, "within": {"within": "1%", "at_least_steps": 20}, "none": None},
)
def absurd_times(scene: Scene, body: str, rule: dict[str, Any] | None) -> None:
    """Step times that cannot be (400 steps in less than a second) give no speed, or an invalid run."""
    more: dict[str, Any] = {"measure": rule} if rule else {}
    scene.scenario(SAY + body + "\ntime.sleep(0.3)", steps="stdout", **more)
    scene.run(timeout_s=60)
    (record,) = scene.records()
    speed, step = (_number(scene, name) for name in ("tokens_per_s", "step_time_s"))
    if record.status == "ok":
        assert step is None or 0 < step < 2, f"step time {step}"
        assert speed is None or 0 < speed < 1e12, f"tokens/s {speed}"
    for command in ("status", "report"):
        assert scene.call(command, "results").code == 0

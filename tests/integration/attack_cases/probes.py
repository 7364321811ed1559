"""`--find` with a program that has room for a known number of samples: damaged probes, kills, lies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from attack_cases._shared import SIGNALS, send
from attack_cases.register import case
from attack_cases.scene import Scene

ROOM = 40
FULL = "sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB')"
FIND = ("--find", "per_device_train_batch_size")
BATCH = "(here / 'begun-0').touch()\nbatch = int(sys.argv[3])\n"


def program(scene: Scene, fits: str = f"batch <= {ROOM}", more: str = "") -> None:
    """Write a program that runs out of memory unless the batch fits."""
    command = ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", "{number}", "{per_device_train_batch_size}"]
    body = f"{BATCH}{more}\nif not ({fits}): {FULL}\n"
    scene.scenario(body, custom={"command": command}, arguments={"per_device_train_batch_size": 32})


def probe_of(scene: Scene, batch: int) -> Path:
    """Return the folder of the probe of a batch."""
    return next(scene.results.glob(f"searches/experiments/*.per_device_train_batch_size{batch}/runs/r1-t1"))


def damaged(path: Path) -> None:
    path.write_text('{"cut short')


def _emptied(run: Path) -> None:
    for path in run.rglob("*"):
        if path.is_file():
            path.unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "damaged": lambda run: damaged(run / "record.json"),
    "record-gone": lambda run: (run / "record.json").unlink(),
    "run-gone": _emptied,
    "empty": lambda run: (run / "record.json").write_text(""),
}


@case(damage=DAMAGES, batch=(32, 40, 64))
def damaged_probe(scene: Scene, damage: Callable[[Path], object], batch: int) -> None:
    """A probe whose record cannot be read is no proof that a batch does not fit, and the result says so."""
    program(scene)
    said = scene.run(*FIND)
    assert f"{ROOM} fits" in said.out, said.text[-400:]
    scene.records_may_go = True
    damage(probe_of(scene, batch))
    said = scene.run(*FIND)
    shown = [line for line in said.out.splitlines() if "fit" in line or "unknown" in line]
    right = any(f"{ROOM} fits, {ROOM + 1} does not" in line for line in shown)
    assert right or any("could not" in line or "unknown" in line or "damaged" in line for line in shown), shown


@case(name=("INT", "TERM", "KILL"), batch=(32, 48, 41))
def ended_search(scene: Scene, name: str, batch: int) -> None:
    """A search that is ended in the middle goes on where it was, and finds the same batch."""
    program(scene, more=f"if batch == {batch}: (here / 'there').touch(); hold()")
    child = scene.start("run", "scenarios.yaml", "--yes", *FIND)
    scene.await_file("there", child)
    send(child.pid, SIGNALS[name])
    scene.codes.add(-signal.SIGKILL)
    time.sleep(0.3)
    scene.go()
    scene.ended(child)
    said = scene.run(*FIND)
    assert f"{ROOM} fits, {ROOM + 1} does not" in said.out, said.text[-400:]


@case(
    fits={
        "nothing": "False",
        "all": "True",
        "odd": "batch % 2",
        "only-1": "batch == 1",
        "only-4096": "batch == 4096",
        "changes": "time.time_ns() % 3",
    }
)
def odd_room(scene: Scene, fits: str) -> None:
    """The search ends, also if the program's memory has no limit, or a limit that changes."""
    program(scene, fits)
    scene.run(*FIND, timeout_s=110)
    assert scene.call("status", "results/searches").code == 0


@case(start=("0", "-1", "many", "1.5", "99999999999", "4097", "[1, 2]", "null"))
def odd_start(scene: Scene, start: str) -> None:
    """A batch from which the search cannot begin is refused in a sentence."""
    program(scene)
    said = scene.run(*FIND, "--set", f"arguments.per_device_train_batch_size={start}", timeout_s=110)
    assert said.code in (0, 1, 2)


@case(how=("two-calls", "cancel", "edited", "parallel"))
def disturbed_search(scene: Scene, how: str) -> None:
    """A search beside another one, or whose run is cancelled or edited, ends with a true sentence."""
    program(scene, more="if batch == 48 and not (here / 'go').exists(): (here / 'there').touch(); hold()")
    words = ("run", "scenarios.yaml", "--yes", *FIND, *(["--parallel", "2"] if how == "parallel" else []))
    child = scene.start(*words)
    others = [scene.start(*words)] if how == "two-calls" else []
    scene.await_file("there", child)
    if how == "cancel":
        scene.call("cancel", "results/searches")
    elif how == "edited":
        path = scene.folder / "trainer.py"
        path.write_text(path.read_text() + "\n")
    time.sleep(1)
    scene.go()
    for one in (child, *others):
        said = scene.ended(one)
        shown = [line for line in said.out.splitlines() if "fits" in line or "fit" in line]
        true = ("40 fits, 41 does not", "could not be tried", "unknown")
        assert said.code != 0 or any(any(part in line for part in true) for line in shown), said.text[-300:]

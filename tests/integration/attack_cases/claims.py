"""Claims of other hosts, damaged claims, owners that are somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import time

from attack_cases._shared import (
    changed,
    check_complete,
    held,
    killed_in_the_middle,
    resumed,
)
from attack_cases.register import case
from attack_cases.scene import Scene

AGES = {"now": 0, "4-minutes": -240, "6-minutes": -360, "a-year": -31_536_000, "epoch": None, "4-minutes-ahead": 240,
        "6-minutes-ahead": 360, "a-day-ahead": 86_400, "year-2100": 4_102_444_800 - int(time.time())}  # fmt: skip


@case(age=AGES, take_over=(False, True))
def claim_of_another_host(scene: Scene, age: int | None, take_over: bool) -> None:
    """A claim of another host is running up to five minutes of silence, then silent; only `--take-over` runs it here."""
    run = killed_in_the_middle(scene)
    moment = 0.0 if age is None else time.time() + age
    for name in ("job.json", "owner.json", "heartbeat"):
        if (run / name).exists():
            changed(run / name, host="elsewhere", boot_id="other") if name != "heartbeat" else None
            os.utime(run / name, (moment, moment))
    status = scene.call("status", "results", "--json")
    alive = age is not None and abs(age) < 300
    state = json.loads(status.out)["experiments"][0]["repeats"][0]["state"]
    assert state == ("running" if alive else "silent"), state
    cancel = scene.call("cancel", "results")
    assert "elsewhere" in cancel.text and cancel.code == 1
    if alive:
        return
    said = scene.run(*(["--take-over"] if take_over else []))
    assert said.code == (0 if take_over else 1), said.code
    assert scene.statuses() == (["lost", "ok"] if take_over else []), scene.statuses()


PIDS = {"0": 0, "1": 1, "negative": -1, "minus-9": -9, "huge": 2**31, "huger": 2**63, "hugest": 10**300, "float": 1.5,
        "word": "1", "true": True, "null": None, "list": [1]}  # fmt: skip


@case(pid=PIDS, file=("owner.json", "job.json"))
def odd_owner(scene: Scene, pid: object, file: str) -> None:
    """A process number that cannot be is damage, and neither a crash nor a signal to somebody."""
    run = killed_in_the_middle(scene)
    if file == "job.json":
        (run / "owner.json").unlink()
    changed(run / file, pid=pid)
    assert scene.call("status", "results").code == 0
    scene.call("cancel", "results")
    resumed(scene, 1)


FIELDS = {"start-text": {"start_time": "x"}, "start-null": {"start_time": None}, "start-nan": {"start_time": float("nan")},
          "namespace-int": {"pid_namespace": 1}, "namespace-empty": {"pid_namespace": ""}, "boot-empty": {"boot_id": ""},
          "host-escape": {"host": "\x1b[31m\n[red]x"}, "host-long": {"host": "h" * 100_000}, "host-empty": {"host": ""},
          "more": {"colour": "red"}}  # fmt: skip


@case(fields=FIELDS)
def odd_owner_fields(scene: Scene, fields: dict[str, object]) -> None:
    """An owner that is damaged in another way does no harm either."""
    run = killed_in_the_middle(scene)
    changed(run / "owner.json", **fields)
    assert scene.call("status", "results").code == 0
    scene.call("cancel", "results")
    scene.run("--take-over")
    check_complete(scene, 1)


@case(victim=("init", "trainer", "sleep"), file=("owner.json", "job.json"))
def owner_is_somebody_else(scene: Scene, victim: str, file: str) -> None:
    """A process that has the number of an ended `run-one` gets no signal."""
    run = killed_in_the_middle(scene)
    other = subprocess.Popen(["sleep", "60"])
    scene.cleanups.append(other.kill)
    if file == "job.json":
        (run / "owner.json").unlink()
    changed(run / file, pid={"init": 1, "trainer": os.getpid(), "sleep": other.pid}[victim])
    scene.call("cancel", "results")
    resumed(scene, 1)
    assert other.poll() is None


@case()
def aside_folders(scene: Scene) -> None:
    """Unfinished claims of the dead are removed; folders of others are left."""
    assert scene.run().code == 0
    runs = scene.runs()[0].parent
    old, mine = runs / ("." + "a" * 32), runs / ".notes"
    old.mkdir()
    mine.mkdir()
    (mine / "x").write_text("x")
    os.utime(old, (1, 1))
    resumed(scene, 1)
    assert not old.exists() and (mine / "x").exists()


CLAIMS = {"time-text": {"claimed_at": "x"}, "time-null": {"claimed_at": None}, "time-1e300": {"claimed_at": 1e300},
          "time-minus-1e300": {"claimed_at": -1e300}, "time-year-9999": {"claimed_at": 253_402_300_799},
          "time-list": {"claimed_at": [1]}, "marker-number": {"marker": 7}, "marker-list": {"marker": []},
          "marker-path": {"marker": "/../../x"}, "details-list": {"details": [1]}, "repeat-text": {"repeat": "x"},
          "experiment-other": {"experiment_id": "../x"}, "marker-zero-byte": {"marker": "a\x00b"}}  # fmt: skip


@case(fields=CLAIMS)
def odd_claim(scene: Scene, fields: dict[str, object]) -> None:
    """A claim that is damaged does no harm: its run is lost and tried again."""
    run = killed_in_the_middle(scene)
    content = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps({**content, **fields}))
    assert scene.call("status", "results").code == 0
    scene.call("cancel", "results")
    resumed(scene, 1)
    for command in ("status", "report", "bundle"):
        assert scene.call(command, "results").code == 0, command


@case(fields=CLAIMS)
def odd_claim_of_living_run(scene: Scene, fields: dict[str, object]) -> None:
    """The claim of a run in progress is damaged: `status` and `cancel` still work."""
    child = held(scene)
    run = scene.runs()[0]
    content = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps({**content, **fields}))
    assert scene.call("status", "results").code == 0
    assert scene.call("status", "results", "--json").code == 0
    assert scene.call("cancel", "results").code == 0
    scene.go()
    scene.ended(child)
    scene.run("--retry-failed")
    assert scene.statuses()[-1] == "ok", scene.statuses()


@case()
def claim_without_marker(scene: Scene) -> None:
    """A claim whose marker is null names no process: nobody is ended for it. (In a container, since it would be everybody.)"""
    run = killed_in_the_middle(scene)
    changed(run / "job.json", pid_namespace="")
    changed(run / "owner.json", pid_namespace="")
    content = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps({**content, "marker": None}))
    script = 'env -i sleep 50 & "$@"; code=$?; kill -0 $! || touch died; kill -9 $!; exit $code'
    words = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script, "sh")
    scene.codes.update({-9, 137, 143})
    scene.ended(scene.started(prefix=words, begun=None))
    assert not (scene.folder / "died").exists(), "a process that has nothing to do with the run was ended"

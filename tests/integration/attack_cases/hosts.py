"""Several orchestrators and hosts, clocks that jump, stale claims, heartbeats of the future."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

from attack_cases._shared import (
    SIGNALS,
    check_complete,
    held,
    killed_in_the_middle,
    reach,
    resumed,
    run_one_of,
    send,
)
from attack_cases.register import case
from attack_cases.scene import Scene

OTHER_HOST = (
    "unshare",
    "--uts",
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child",
    "sh",
    "-c",
    'hostname "$0" && exec "$@"',
)
"""The words before a command that make it run on a host of its own name, with process numbers of its own."""


def on_host(name: str) -> Sequence[str]:
    return (*OTHER_HOST, name)


@case(count=(2, 4), options=("", "--parallel 2", "--retry-failed", "--take-over", "--fail-fast"))
def orchestrators_at_once(scene: Scene, count: int, options: str) -> None:
    """Several calls share the work, and each run is made once."""
    scene.scenario("time.sleep(0.1)", numbers=3)
    for child in [scene.started(*options.split(), begun=None) for _ in range(count)]:
        assert scene.ended(child).code == 0
    check_complete(scene, 3)


def silent(scene: Scene) -> None:
    """Let the last sign of life of every run be long ago."""
    for name in ("owner.json", "job.json", "heartbeat"):
        for path in scene.results.rglob(name):
            os.utime(path, (time.time() - 1000, time.time() - 1000))


@case(names=("same", "different"), number=(*SIGNALS, "none"))
def two_hosts(scene: Scene, names: str, number: str) -> None:
    """Two hosts share a campaign. One of them is ended in the middle; the other does not take its run over at once."""
    scene.scenario("time.sleep(0.5)", numbers=3)
    first = scene.started(prefix=on_host("one"), begun=None)
    second = scene.started(prefix=on_host("one" if names == "same" else "two"), begun=None)
    reach(scene, first, "training")
    if number == "none":
        assert scene.ended(first).code == scene.ended(second).code == 0
        return check_complete(scene, 3)
    scene.codes.update({-9, 1, 137, 143, -SIGNALS[number], 128 + SIGNALS[number]})
    inner = next(
        (pid for pid, line in scene.alive().items() if "-m orchestrator run" in line and "unshare" not in line), 0
    )
    send(inner, SIGNALS[number])
    scene.ended(first)
    if scene.alive():
        silent(scene)
    scene.ended(second)
    said = scene.run("--take-over")
    assert said.code == 0, said.code
    last = {
        record.experiment_id: record.status.value for record in sorted(scene.records(), key=lambda one: one.attempt)
    }
    assert list(last.values()) == ["ok"] * 3, last


@case(command=("run", "cancel", "report", "move-aside", "bundle"))
def copy_of_living_folder(scene: Scene, command: str) -> None:
    """A copy of a folder with a run in progress is a folder of its own: commands on the copy leave the original alone."""
    child = held(scene)
    copy = scene.folder / "copy"
    shutil.copytree(scene.results, copy)
    words = {"run": ["run", "scenarios.yaml", "--yes", "--results", "copy"], "move-aside":
             ["run", "scenarios.yaml", "--yes", "--results", "copy", "--move-aside"]}.get(command, [command, "copy"])  # fmt: skip
    other = scene.start(*words)
    time.sleep(2)
    scene.go()
    scene.ended(other)
    assert scene.ended(child).code == 0, "the original was disturbed"
    check_complete(scene, 1)


@case(way=("copytree", "tar", "hardlinks", "rsync-times"))
def copied_and_resumed(scene: Scene, way: str) -> None:
    """A copy of a results folder, with a killed run in it, can be resumed; the original does not change."""
    killed_in_the_middle(scene)
    copy = scene.folder / "copy"
    commands = {
        "copytree": ["cp", "-r", "results", "copy"],
        "rsync-times": ["cp", "-a", "results", "copy"],
        "hardlinks": ["cp", "-al", "results", "copy"],
        "tar": ["sh", "-c", "mkdir copy && tar -C results -cf - . | tar -C copy -xf -"],
    }
    subprocess.run(commands[way], cwd=scene.folder, check=True)
    before = {path: path.read_bytes() for path in scene.results.rglob("*") if path.is_file()}
    assert scene.run("--results", "copy").code == 0
    assert before == {path: path.read_bytes() for path in scene.results.rglob("*") if path.is_file()}
    assert (copy / "benchmarks.csv").exists()
    resumed(scene, 1)


@case(count=(2, 3))
def move_aside_at_once(scene: Scene, count: int) -> None:
    """Several calls with --move-aside at once lose nothing."""
    assert scene.run().code == 0
    for child in [scene.started("--move-aside", begun=None) for _ in range(count)]:
        scene.ended(child)
    kept = list(scene.folder.glob("results*/experiments/*/runs/*/record.json"))
    assert len(kept) >= 2, kept


@case(count=(2, 3))
def retry_lost_at_once(scene: Scene, count: int) -> None:
    """Several calls repeat a run with a damaged record at once. The damaged file is kept, and each ends well."""
    assert scene.run().code == 0
    scene.records_may_go = True
    (scene.runs()[0] / "record.json").write_text('{"half": ')
    codes = [
        scene.ended(child).code for child in [scene.started("--retry-failed", "lost", begun=None) for _ in range(count)]
    ]
    kept = [path.read_text() for path in scene.results.rglob("record.json.*")]
    assert '{"half": ' in kept, "the damaged file is gone"
    assert codes == [0] * count, codes
    last = sorted(scene.records(), key=lambda one: one.attempt)[-1]
    assert last.status == "ok"


@case(files=("same", "other-file", "other-numbers"))
def two_scenario_files(scene: Scene, files: str) -> None:
    """Two calls with different scenario files share a folder: every experiment of both is there."""
    text = (scene.folder / "scenarios.yaml").read_text()
    other = text if files == "same" else text.replace('"number": [0]', '"number": [0, 1, 2]') if files == "other-numbers" else (
        text.replace('"quick"', '"slow"'))  # fmt: skip
    (scene.folder / "other.yaml").write_text(other)
    children = [
        scene.start("run", name, "--yes") for name in ("scenarios.yaml", "other.yaml", "scenarios.yaml", "other.yaml")
    ]
    for child in children:
        assert scene.ended(child).code == 0
    check_complete(scene, {"same": 1, "other-file": 2, "other-numbers": 3}[files])
    suite = json.loads((scene.results / "suite.json").read_text())
    assert len(suite["experiments"]) == len(list((scene.results / "experiments").iterdir())), (
        "an experiment is not in suite.json"
    )


@case(target=("minus-one", "orchestrators"))
def container_dies(scene: Scene, target: str) -> None:
    """Everything in a container is killed at once; outside, the run is of another container until it is taken over."""
    body = (
        "os.kill(-1, 9)"
        if target == "minus-one"
        else "[os.kill(int(p), 9) for p in os.listdir('/proc') if p.isdigit() and p != '1']"
    )
    scene.scenario(
        f"if not (here / 'once').exists():\n    (here / 'once').touch()\n    assert os.getpid() < 4000\n    {body}"
    )
    words = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", '"$@"; sleep 1; true', "sh")
    scene.codes.update({-9, 137})
    scene.ended(scene.started(prefix=words, begun=None))
    assert scene.call("status", "results").code == 0
    silent(scene)
    said = scene.run("--take-over")
    assert said.code == 0, said.code


@case(when=("running", "ended"))
def hostname_changes(scene: Scene, when: str) -> None:
    """The name of the host changes (DHCP): its runs are still its own."""
    words = ("unshare", "--uts", "sh", "-c", 'hostname before && "$@" & sleep 1.5; hostname after; wait $!', "sh")
    scene.scenario("hold()" if when == "running" else "pass")
    child = scene.started(prefix=words, begun=0)
    time.sleep(2)
    assert "silent" not in scene.call("status", "results").text
    scene.go()
    scene.ended(child)
    resumed(scene, 1)


@case(number={"TERM": signal.SIGTERM, "KILL": signal.SIGKILL})
def attached_call_is_ended(scene: Scene, number: signal.Signals) -> None:
    """A call that only waits for another call's run can be ended; that run goes on."""
    child = held(scene)
    other = scene.started(begun=None)
    time.sleep(2.0)
    send(other.pid, number)
    scene.codes.add(-9)
    scene.ended(other)
    assert run_one_of(scene)
    scene.go()
    assert scene.ended(child).code == 0
    check_complete(scene, 1)


@case(words=("report", "status", "bundle", "compare"))
def readers_at_once(scene: Scene, words: str) -> None:
    """Readers of a folder in which a campaign goes on never fail."""
    scene.scenario("time.sleep(0.2)", numbers=4)
    child = scene.started(begun=None)
    reach(scene, child, "between")
    for number in range(4):
        given = {
            "bundle": ["bundle", "results", "--output", f"b{number}.tgz"],
            "compare": ["compare", "results", "results"],
        }
        said = scene.call(*given.get(words, [words, "results"]))
        assert said.code in ((0,) if words != "compare" else (0, 3, 4)), said.code
    assert scene.ended(child).code == 0
    assert scene.call("report", "results").code == 0

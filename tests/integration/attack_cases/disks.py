"""Disks that are full, read-only, or gone, file systems without links, odd names and permissions, folders that vanish."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from attack_cases._shared import (
    SIGNALS,
    as_root,
    check_complete_or_ok,
    held,
    reach,
    resumed,
    send,
)
from attack_cases.register import case
from attack_cases.scene import Scene

FILLED = {
    "bytes": "try:\n    with open(run_dir / 'ballast', 'wb', 0) as f:\n        while True: f.write(bytes(65536))\n"
    "except OSError: pass",
    "bytes-by-log": "try:\n    while True: os.write(1, bytes(65536))\nexcept OSError: pass",
    "inodes": "try:\n    for n in range(10**6): (run_dir / f'x{n}').touch()\nexcept OSError: pass",
}  # fmt: skip


def tmpfs(scene: Scene, place: Path, options: str) -> None:
    """Mount a small file system in memory, until the case is over."""
    place.mkdir(exist_ok=True)
    as_root(scene, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place))
    scene.cleanups.append(lambda: subprocess.run(["umount", "-l", str(place)], check=False))


def loop_disk(scene: Scene, place: Path, *, mib: int = 96, kind: str = "ext4", options: str = "loop") -> None:
    """Mount a file system in a file, until the case is over."""
    image = scene.folder / "image"
    with image.open("wb") as file:
        file.truncate(mib * 2**20)
    as_root(scene, f"mkfs.{kind}", "-q", str(image))
    place.mkdir(exist_ok=True)
    as_root(scene, "mount", "-o", options, str(image), str(place))
    scene.cleanups.append(lambda: subprocess.run(["umount", "-l", str(place)], check=False))


@case(size=("100k", "1m", "10m", "63m"))
def small_disk(scene: Scene, size: str) -> None:
    """No run starts on a disk that has no room, and a sentence says so."""
    tmpfs(scene, scene.results, f"size={size}")
    said = scene.run()
    assert said.code == 2 and "error:" in said.err, said.code


@case(inodes=(5, 20, 60, 99, 130))
def few_inodes(scene: Scene, inodes: int) -> None:
    """The same for a disk that takes no more files."""
    tmpfs(scene, scene.results, f"size=100m,nr_inodes={inodes}")
    assert scene.run().code == (2 if inodes < 120 else 0)


@case(by=FILLED, then=("ends", "holds", "fails"), disk=("tmpfs", "ext4"))
def trainer_fills_disk(scene: Scene, by: str, then: str, disk: str) -> None:
    """A trainer that fills the disk gets its record, and the campaign goes on when there is room."""
    if disk == "tmpfs":
        tmpfs(scene, scene.results, "size=100m,nr_inodes=1500")
    else:
        loop_disk(scene, scene.results)
        shutil.rmtree(scene.results / "lost+found")
    last = {"ends": "pass", "holds": "hold()", "fails": "raise SystemExit('No space left on device')"}[then]
    body = "".join(f"    {line}\n" for line in f"{by}\n(here / 'full').touch()\n{last}".splitlines())
    scene.scenario(f"if not (here / 'once').exists():\n    (here / 'once').touch()\n{body}", numbers=2)
    child = scene.started(begun=None)
    if then == "holds":
        scene.await_file("full", child)
        scene.call("status", "results")
        scene.call("report", "results")
        send(child.pid, signal.SIGINT)
    scene.ended(child)
    for path in [*scene.results.rglob("ballast"), *scene.results.rglob("x[0-9]*"), *scene.results.rglob("stdout.log")]:
        path.unlink()
    scene.run("--retry-failed")
    check_complete_or_ok(scene, 2)


@case(command=("run", "status", "report", "cancel", "show", "bundle", "compare"), full=("full", "read-only"))
def command_on_bad_disk(scene: Scene, command: str, full: str) -> None:
    """Every command on a disk that is full or read-only ends with a sentence at most, and changes no record."""
    tmpfs(scene, scene.results, "size=100m")
    assert scene.run().code == 0
    if full == "full":
        fill(scene.results, 2**20)
    else:
        as_root(scene, "mount", "-o", "remount,ro", str(scene.results))
    words = {"run": ["run", "scenarios.yaml", "--yes"], "show": ["show", "quick", "--results", "results"],
             "compare": ["compare", "results", "results"], "bundle": ["bundle", "results", "--output", "b.tgz"]}  # fmt: skip
    scene.call(*words.get(command, [command, "results"]))


def fill(place: Path, piece: int) -> None:
    """Fill the disk of this folder with a file `ballast`."""
    with suppress(OSError), (place / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(piece))


@case(moment=("claim", "owner", "training", "between"))
def disk_breaks(scene: Scene, moment: str) -> None:
    """A disk with errors becomes read-only in the middle. The campaign ends with a sentence, and nobody is left."""
    loop_disk(scene, scene.results, options="loop,errors=remount-ro")
    shutil.rmtree(scene.results / "lost+found")
    scene.scenario("time.sleep(0.6)", numbers=3)
    child = scene.started(begun=None)
    reach(scene, child, moment)
    device = as_root(scene, "findmnt", "-no", "SOURCE", str(scene.results))
    scene.logs_may_trace = True
    trigger = Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error")
    trigger.write_text("1")
    assert scene.ended(child).code == 2
    assert scene.call("status", "results").code == 0


@case(moment=("claim", "owner", "training", "between", "report"))
def disk_unmounted(scene: Scene, moment: str) -> None:
    """The disk of the results is taken away (`umount -l`). The campaign ends with a sentence, and nobody is left."""
    tmpfs(scene, scene.results, "size=100m")
    scene.scenario("time.sleep(0.4)", numbers=3)
    child = scene.started(begun=None)
    reach(scene, child, moment)
    scene.records_may_go = True
    as_root(scene, "umount", "-l", str(scene.results))
    assert scene.ended(child).code in ((2,) if moment != "report" else (0, 2))


@case(number=SIGNALS)
def signal_while_disk_full(scene: Scene, number: signal.Signals) -> None:
    """A campaign on a full disk can be ended."""
    tmpfs(scene, scene.results, "size=100m")
    child = held(scene)
    fill(scene.results, 2**18)
    child.send_signal(number)
    if number == signal.SIGKILL:
        scene.codes.add(-9)
    scene.ended(child)
    scene.go()
    (scene.results / "ballast").unlink()
    resumed(scene, 1)

"""Folders and files that vanish, odd names, links, permissions."""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
import time

from attack_cases._shared import (
    check_complete,
    check_complete_or_ok,
    killed_in_the_middle,
    reach,
    resumed,
    spoil,
)
from attack_cases.register import case
from attack_cases.scene import ROOT, Scene


@case(how=("rmtree", "rename", "file", "suite", "experiments", "empty", "dangling", "fifo"),
      moment=("claim", "training", "between", "report"))  # fmt: skip
def results_vanish(scene: Scene, how: str, moment: str) -> None:
    """A colleague with `rm` and `mv`: the campaign ends with a sentence, or goes on."""
    scene.scenario("time.sleep(0.4)", numbers=2)
    child = scene.started(begun=None)
    reach(scene, child, moment)
    scene.records_may_go = scene.logs_may_trace = True
    for _ in range(20):
        try:
            spoil(scene.results, how)
            break
        except OSError:  # a run writes into what is removed
            time.sleep(0.01)
    scene.ended(child)
    scene.call("status", "results")


@case(part=("experiment", "runs", "run", "experiment.json", "asked"), moment=("claim", "training", "between"),
      how=("removed", "renamed", "file"))  # fmt: skip
def part_vanishes(scene: Scene, part: str, moment: str, how: str) -> None:
    """A part of the folder is removed, renamed, or replaced by a file. What is left can be used and completed."""
    scene.scenario("time.sleep(0.4)", numbers=2)
    child = scene.started(begun=None)
    reach(scene, child, moment)
    scene.records_may_go = scene.logs_may_trace = True
    run = scene.runs()[0]
    path = {"experiment": run.parents[1], "runs": run.parent, "run": run, "experiment.json": run.parents[1] / part,
            "asked": scene.results / "asked"}[part]  # fmt: skip
    try:
        if how == "removed":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            path.rename(path.with_name(f"{path.name}-away"))
            if how == "file":
                path.write_text("x")
    except OSError:
        return
    scene.ended(child)
    scene.call("status", "results")
    scene.call("report", "results")
    if how != "file":
        scene.run("--retry-failed")
        scene.run("--retry-failed")
        check_complete_or_ok(scene, 2)


NAMES = {
    "newline": "a\nb",
    "quotes": 'it\'s "x"',
    "dollar": "$HOME `id` $(id)",
    "glob": "[a-z]*?{x}",
    "markup": "[red]x[/red]",
    "percent": "%s %d {x} {{y}}",
    "blank": " ",
    "dash": "-rf",
    "double-dash": "--yes",
    "unicode": "größe-実験-🚀",
    "combining": "e\u0301" * 20,
    "right-to-left": "\u202eevil\u2066",
    "control": "\x1b[31mred\x07\x08",
    "long": "n" * 255,
    "comma": "a,b;c:d=e",
    "backslash": "a\\nb\\",
    "not-utf8": os.fsdecode(b"\xff\xfe"),
    "hash": "#x",
    "tilde": "~",
    "home": "~root",
    "html": "<script>alert(1)</script>".replace("/", "|"),
    "dots": "...",
    "colon": "C:",
    "dated": "results.20261123-120000",
}


@case(name=NAMES, where=("results", "scenarios"))
def odd_name(scene: Scene, name: str, where: str) -> None:
    """Folders may have every name that the system allows."""
    if where == "results":
        scene.results = scene.folder / name
        words = ["run", "scenarios.yaml", "--yes", f"--results=./{name}"]
    else:
        inside = scene.folder / name
        inside.mkdir()
        for file in ("scenarios.yaml", "trainer.py"):
            shutil.move(scene.folder / file, inside / file)
        words = ["run", f"./{name}/scenarios.yaml", "--yes"]
    said = scene.call(*words)
    if name == NAMES["not-utf8"] and said.code == 2:
        return
    assert said.code == 0, said.code
    shown = f"./{scene.results.relative_to(scene.folder)}"
    for words in (["status"], ["report"], ["cancel"], ["bundle", "--output", "b.tar.gz"]):
        assert scene.call(words[0], shown, *words[1:]).code == 0, words
    script = next(scene.results.glob("experiments/*/runs/*/command.sh"))
    assert scene.ended(scene.start_any("bash", str(script))).code == 0
    check_complete(scene, 1)


@case(length=(200, 1000, 3000, 3800, 4000, 4090, 5000))
def deep_path(scene: Scene, length: int) -> None:
    """A path that is too long is a mistake that a sentence explains, before anything has run."""
    here = scene.folder
    while len(str(here)) < length - 60:
        here = here / ("d" * 50)
    said = scene.run("--results", str(here))
    assert said.code in (0, 2), said.code
    scene.call("status", str(here))


PLACES = ("experiments", "asked", "requirements.txt", "benchmarks.csv", "raw_summary.csv", "report.html", "suite.json")
PUT = ("file", "folder", "fifo", "dangling", "loop", "endless")


@case(place=PLACES, put=PUT)
def planted(scene: Scene, place: str, put: str) -> None:
    """Something else has the name of a file of the folder: a sentence, and no harm."""
    assert scene.run().code == 0
    path = scene.results / place
    path.rename(scene.results / "kept-aside")
    scene.records_may_go = True
    if put == "file":
        path.write_text("x")
    elif put == "folder":
        path.mkdir()
    elif put == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to({"dangling": "nowhere", "loop": place, "endless": "/dev/zero"}[put])
    table = (scene.results / "benchmarks.csv").read_bytes() if place == "experiments" else b""
    for command in ("status", "report", "cancel"):
        scene.call(command, "results")
    assert not table or (scene.results / "benchmarks.csv").read_bytes() == table, "an empty report replaced the old one"
    scene.run(timeout_s=120)
    scene.run("--move-aside")


@case(file=("job.json", "owner.json", "heartbeat", "processes.json", ".record.json", "neighbours.txt"),
      put=(*PUT, "gone", "garbage"))  # fmt: skip
def planted_in_lost_run(scene: Scene, file: str, put: str) -> None:
    """A run that was killed has odd files: the next call records it and tries again."""
    run = killed_in_the_middle(scene)
    path = run / file
    path.unlink(missing_ok=True)
    if put in ("file", "garbage"):
        path.write_bytes(b"x" if put == "file" else os.urandom(2000))
    elif put == "folder":
        path.mkdir()
    elif put == "fifo":
        os.mkfifo(path)
    elif put != "gone":
        path.symlink_to({"dangling": "nowhere", "loop": file, "endless": "/dev/zero"}[put])
    assert scene.call("status", "results").code == 0
    scene.call("cancel", "results")
    resumed(scene, 1)


@case(
    mode=("results", "experiments", "experiment", "runs", "suite.json", "record.json"),
    bits={"000": 0, "444": 0o444, "555": 0o555},
)
def no_permission(scene: Scene, mode: str, bits: int) -> None:
    """A user without rights gets sentences."""
    assert scene.run().code == 0
    run = scene.runs()[0]
    path = {"results": scene.results, "experiments": run.parents[2], "experiment": run.parents[1], "runs": run.parent,
            "suite.json": scene.results / mode, "record.json": run / mode}[mode]  # fmt: skip
    path.chmod(bits)
    for words in (["status", "results"], ["report", "results"], ["cancel", "results"], ["run", "scenarios.yaml", "--yes"],
                  ["run", "scenarios.yaml", "--yes", "--move-aside"]):  # fmt: skip
        scene.call(*words, prefix=("setpriv", "--bounding-set=-all", "--inh-caps=-all"))
    path.chmod(0o755)


@case(link=("results", "experiments", "runs", "scenarios"))
def through_a_link(scene: Scene, link: str) -> None:
    """Folders that are links to another disk work as folders."""
    other = scene.folder / "other"
    if link == "results":
        other.mkdir()
        scene.results.symlink_to(other)
    assert scene.run().code == 0
    if link in ("experiments", "runs"):
        path = scene.results / "experiments" if link == "experiments" else scene.runs()[0].parent
        path.rename(other)
        path.symlink_to(other)
    elif link == "scenarios":
        (scene.folder / "scenarios.yaml").rename(scene.folder / "other.yaml")
        (scene.folder / "scenarios.yaml").symlink_to("other.yaml")
    assert scene.run("--repeats", "2").code == 0
    assert scene.statuses() == ["ok", "ok"], scene.statuses()
    assert scene.run("--move-aside").code in (0, 2)


@case(name=("script", "tox"))
def moved_tree(scene: Scene, name: str) -> None:
    """`run_benchmarks.sh` twice: the older results get a dated name and are kept."""
    words = ("bash", str(ROOT / "scripts" / "run_benchmarks.sh"), "1", "results", str(scene.folder / "scenarios.yaml"))
    for _ in range(2):
        said = scene.ended(scene.start_any(*words, "none", env={"PYTHON": sys.executable}))
        assert said.code == 0, said.code
    assert len(list(scene.folder.glob("results*/suite.json"))) == 2


@case(command=("status", "report", "cancel", "run"))
def absurd_repeat(scene: Scene, command: str) -> None:
    """A run with an absurd number makes no command hang."""
    scene.scenario(repeats={"min": 2, "max": 5, "within": 0.01})
    scene.records_may_go = True
    scene.run()
    run = scene.runs()[0]
    other = run.with_name("r100000000-t1")
    shutil.copytree(run, other)
    text = re.sub('"repeat": [0-9]+,', '"repeat": 100000000,', (other / "record.json").read_text())
    (other / "record.json").write_text(text)
    words = ["run", "scenarios.yaml", "--yes"] if command == "run" else [command, "results"]
    scene.call(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32)))

"""`rerun` with comparisons and folders that were changed, and ended in the middle."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_cases._made import BODY, campaign
from attack_cases._preloaded import call
from attack_cases._shared import send
from attack_cases.old_results import each_record
from attack_cases.register import case
from attack_cases.scene import Scene

Content = dict[str, Any]


def compared(scene: Scene, *, own: bool = False) -> Content:
    """Compare the campaign with a copy whose runs are later; write `c.json` in which each row is inconclusive, and return it.

    With `own`, the campaign is run here, so that it can be run again here.
    """
    if own:
        scene.scenario(BODY, numbers=2, repeats=2, steps="stdout")
        assert scene.run().code == 0
        shutil.copytree(scene.results, scene.folder / "good")
    else:
        campaign(scene)
    each_record(scene.folder / "good", lambda content: content.update(started_at=content["started_at"] + 3000))
    scene.seen.clear()
    call(scene, "compare", "results", "good", "--all", "--output", "c.json")
    content: Content = json.loads((scene.folder / "c.json").read_text())
    for row in content["rows"]:
        row.update(verdict="inconclusive", needs=1)
    (scene.folder / "c.json").write_text(json.dumps(content))
    return content


def _each(part: str, **fields: object) -> Callable[[Content], object]:
    return lambda content: [one.update(fields) for one in content[part]]


def _entries(**fields: object) -> Callable[[Content], object]:
    return lambda content: [
        pair[side].update(fields) for pair in content["pairs"] for side in ("base", "new") if pair[side]
    ]


CHANGES: dict[str, Callable[[Content], object]] = {
    "as-it-is": lambda content: None,
    "needs-0": _each("rows", needs=0),
    "needs-negative": _each("rows", needs=-3),
    "needs-huge": _each("rows", needs=10**30),
    "needs-fraction": _each("rows", needs=1.5),
    "needs-nan": _each("rows", needs=float("nan")),
    "needs-word": _each("rows", needs="two"),
    "needs-true": _each("rows", needs=True),
    "folder-gone": _entries(folder="/nowhere/at/all"),
    "folder-relative": _entries(folder="results"),
    "folder-file": _entries(folder="/etc/passwd"),
    "folder-null-byte": _entries(folder="/a\0b"),
    "folder-surrogate": _entries(folder="/a\ud800b"),
    "folder-list": _entries(folder=["results"]),
    "folder-long": _entries(folder="/" + "x" * 5000),
    "id-of-another": _entries(id="quick-none.none.gpus1-000000000000"),
    "id-climbs": _entries(id="../../etc"),
    "id-number": _entries(id=5),
    "no-runs": _entries(runs=[]),
    "runs-odd": _entries(runs=[{"repeat": -1, "started_at": float("inf")}]),
    "run-repeat-huge": _entries(runs=[{"repeat": 10**12, "started_at": 0}]),
    "no-pairs": lambda content: content.update(pairs=[]),
    "pairs-twice": lambda content: content.update(pairs=content["pairs"] * 2),
    "rows-many": lambda content: content.update(rows=content["rows"] * 3000),
    "label-shared": lambda content: [_each(part, label="x")(content) for part in ("rows", "pairs")],
    "label-escapes": lambda content: [
        _each(part, label="x\x1b[31m\u202e\n" * 50)(content) for part in ("rows", "pairs")
    ],
    "schema-99": lambda content: content.update(schema=99),
    "both-sides-one": lambda content: [pair.update(new=pair["base"]) for pair in content["pairs"]],
}


@case(change=CHANGES)
def changed_comparison(scene: Scene, change: Callable[[Content], object]) -> None:
    """A comparison that was changed by hand gives a sentence, and never more runs than its rows and `--max-runs` say."""
    content = compared(scene)
    change(content)
    (scene.folder / "c.json").write_text(json.dumps(content))
    before = len(list(scene.folder.rglob("record.json")))
    said = call(scene, "rerun", "--from", "c.json", "--ignore", "all", "--dry-run", timeout_s=60)
    assert said.code in (0, 1, 2), said.code
    assert len(list(scene.folder.rglob("record.json"))) == before, "--dry-run has run something"


def _repeat_far(scene: Scene) -> None:
    for run in [one for one in scene.runs() if one.name == "r2-t1"]:
        shutil.copytree(run, run.with_name("r100000000-t1"))
        path = run.with_name("r100000000-t1") / "record.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "repeat": 100000000}))


def _linked(scene: Scene, target: str) -> None:
    scene.results.rename(scene.folder / "t")
    scene.results.symlink_to(target)


FOLDERS: dict[str, Callable[[Scene], object]] = {
    "repeat-far": _repeat_far,
    "no-experiment": lambda scene: list(map(Path.unlink, scene.results.glob("experiments/*/experiment.json"))),
    "script-gone": lambda scene: (scene.folder / "trainer.py").unlink(),
    "no-suite": lambda scene: (scene.results / "suite.json").unlink(),
    "seed-odd": lambda scene: (scene.results / "suite.json").write_text(
        json.dumps({**json.loads((scene.results / "suite.json").read_text()), "seed": -(10**40)})
    ),
    "read-only": lambda scene: scene.results.chmod(0o500),
    "link": lambda scene: _linked(scene, "t"),
    "dangling": lambda scene: _linked(scene, "nowhere"),
}


@case(folder=FOLDERS)
def changed_folder(scene: Scene, folder: Callable[[Scene], object]) -> None:
    """`rerun` on a folder that changed since the comparison ends with a sentence, soon."""
    compared(scene, own=True)
    folder(scene)
    said = call(scene, "rerun", "--from", "c.json", "--ignore", "all", "--dry-run", timeout_s=40)
    assert said.code in (0, 1, 2), said.code


@case(how=("twice-at-once", "int", "kill", "with-run", "script-edited"))
def rerun_disturbed(scene: Scene, how: str) -> None:
    """`rerun` that is disturbed and repeated makes each missing run once, and each side gets as many."""
    compared(scene, own=True)
    words = ("rerun", "--from", "c.json", "--ignore", "all", "--yes")
    child = scene.start(*words)
    others = [scene.start(*words)] if how == "twice-at-once" else []
    others += [scene.start("run", "scenarios.yaml", "--yes", "--repeats", "3")] if how == "with-run" else []
    scene.await_true(lambda: [run for run in scene.folder.rglob("r3-t1")], "a new run", child)
    if how in ("int", "kill"):
        send(child.pid, signal.SIGINT if how == "int" else signal.SIGKILL)
    elif how == "script-edited":
        path = scene.folder / "trainer.py"
        path.write_text(path.read_text() + "\n")
    scene.codes.add(-9)
    for one in (child, *others):
        scene.ended(one)
    if how == "script-edited":
        return
    time.sleep(0.2)
    assert scene.call(*words).code == 0
    for side in ("results", "good"):
        good: Counter[tuple[str, int]] = Counter()
        for path in (scene.folder / side).glob("experiments/*/runs/*/record.json"):
            content = json.loads(path.read_text())
            good[content["experiment_id"], content["repeat"]] += content["status"] == "ok"
        assert set(good.values()) == {1} and len(good) == 6, (side, good)

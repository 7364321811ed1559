"""Results of older versions and of other machines: an older campaign, copied, resumed, changed as a colleague would change it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_cases._made import campaign
from attack_cases._preloaded import call
from attack_cases._shared import as_root
from attack_cases.register import case
from attack_cases.scene import ROOT, Scene

READERS: dict[str, tuple[str, ...]] = {
    "report": ("report", "results", "--baseline", "baseline"),
    "status": ("status", "results", "--json"),
    "compare": ("compare", "sample", "results", "--all"),
    "compare-back": ("compare", "results", "sample", "--all"),
    "history": ("history", "results", "sample"),
    "bundle": ("bundle", "results", "--output", "out.tar.gz"),
    "show": ("show", "5343dc8c", "--results", "results"),
}


def sample(scene: Scene) -> Path:
    """Put two copies of the older campaign into the scene, and return the copy that is to be changed."""
    for name in ("results", "sample"):
        shutil.unpack_archive(ROOT / "tests" / "samples" / "four-h200.tar.gz", scene.folder, filter="data")
        (scene.folder / "four-h200").rename(scene.folder / name)
    return scene.results


def each_record(results: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change each record of a folder."""
    for path in results.glob("experiments/*/runs/*/record.json"):
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))


def _without(name: str) -> Callable[[Path], None]:
    return lambda results: each_record(results, lambda content: content.pop(name, None))


def _with(name: str, value: object) -> Callable[[Path], None]:
    return lambda results: each_record(results, lambda content: content.update({name: value}))


def _removed(pattern: str) -> Callable[[Path], None]:
    def remove(results: Path) -> None:
        for path in results.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def _suite(**fields: object) -> Callable[[Path], None]:
    def change(results: Path) -> None:
        content = json.loads((results / "suite.json").read_text())
        (results / "suite.json").write_text(json.dumps({**content, **fields}))

    return change


def _crlf(results: Path) -> None:
    for path in results.rglob("*.json*"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def _upper(results: Path) -> None:
    for path in list(results.glob("experiments/*")):
        path.rename(path.with_name(path.name.upper()))


def _dated(results: Path) -> None:
    for path in results.rglob("*"):
        os.utime(path, (0, 0))


def _mac(results: Path) -> None:
    for path in [*results.rglob("*")]:
        if path.is_dir():
            (path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        else:
            path.with_name("._" + path.name).write_bytes(b"\0\5\26\7")


CHANGES: dict[str, Callable[[Path], None]] = {
    "as-it-is": lambda results: None,
    "suite-schema-1": _suite(schema=1),
    "suite-schema-99": _suite(schema=99),
    "suite-schema-word": _suite(schema="two"),
    "suite-no-seed": _suite(seed=None),
    "suite-no-experiments": _suite(experiments=[]),
    "suite-twice": _suite(experiments=["a"] * 3),
    "record-schema-1": _with("schema", 1),
    "record-schema-99": _with("schema", 99),
    "no-provenance": _without("provenance"),
    "no-started-at": _without("started_at"),
    "no-settings": _without("settings"),
    "no-measurements": _without("measurements"),
    "no-ranks": _without("ranks"),
    "started-in-2100": _with("started_at", 4102444800.0),
    "started-before-1970": _with("started_at", -1e6),
    "started-at-0": _with("started_at", 0),
    "plain-warnings": _with("warnings", ["a plain sentence", "another: with a colon"]),
    "extra-key": _with("of_the_future", {"a": [1]}),
    "no-asked": _removed("asked"),
    "no-requirements": _removed("requirements.txt"),
    "no-workers": _removed("experiments/*/runs/*/worker-*"),
    "no-steps": _removed("experiments/*/runs/*/steps-*"),
    "no-experiment-files": _removed("experiments/*/experiment.json"),
    "no-runs": _removed("experiments/*/runs"),
    "one-run-left": _removed("experiments/*/runs/r[23]-*"),
    "crlf": _crlf,
    "upper-case": _upper,
    "epoch": _dated,
    "mac-files": _mac,
}


@case(change=CHANGES)
def readers_of_changed_sample(scene: Scene, change: Callable[[Path], None]) -> None:
    """All commands that read cope with a folder of another version, or of another operating system, and change no record."""
    change(sample(scene))
    for words in READERS.values():
        call(scene, *words)
    if scene.said[0].code == 0:
        assert (scene.results / "report.html").stat().st_size > 1000


@case(
    change={
        name: CHANGES[name]
        for name in ("as-it-is", "suite-schema-1", "suite-schema-99", "no-asked", "no-experiment-files", "epoch")
    }
)
def sample_is_continued(scene: Scene, change: Callable[[Path], None]) -> None:
    """Another campaign in the sample's folder keeps its records, its experiments and its list."""
    results = sample(scene)
    change(results)
    records = {path: path.read_bytes() for path in results.rglob("record.json")}
    scene.scenario(numbers=2)
    said = scene.run()
    assert said.code in (0, 1, 2), said.text[-300:]
    assert all(path.read_bytes() == content for path, content in records.items())
    if said.code == 0:
        listed = json.loads((results / "suite.json").read_text())["experiments"]
        assert len(listed) == 10, listed
        assert scene.run().code == 0
        assert len(list(results.rglob("record.json"))) == len(records) + 2


PLACES = (
    "renamed",
    "moved-to-other-disk",
    "link",
    "link-to-link",
    "relative-link",
    "read-only-mount",
    "bind-mount",
    "unicode",
    "with-blanks",
)


@case(place=PLACES)
def folder_continues_elsewhere(scene: Scene, place: str) -> None:
    """A results folder that was moved or linked is continued: nothing is run again, and new repeats are added."""
    campaign(scene)
    shutil.rmtree(scene.folder / "good")
    now = _placed(scene, place)
    before = len(list(now.rglob("record.json")))
    said = scene.call("run", "scenarios.yaml", "--yes", "--results", str(now))
    assert said.code == (2 if place == "read-only-mount" else 0), said.text[-400:]
    assert len(list(now.rglob("record.json"))) == before, "runs were made again"
    if place != "read-only-mount":
        assert scene.call("run", "scenarios.yaml", "--yes", "--results", str(now), "--repeats", "3").code == 0
        assert len(list(now.rglob("record.json"))) == before + 2
    for words in (("status", str(now)), ("compare", str(now), str(now)), ("bundle", str(now), "--output", "b.tar.gz")):
        call(scene, *words)


def _placed(scene: Scene, place: str) -> Path:
    results, names = scene.results, {"unicode": "Ergebnisse-ä́-日本-\u202e", "with-blanks": " a  b 'c\" $d"}
    if place in ("renamed", *names):
        return results.rename(results.with_name(names.get(place, "other")))
    target, other = scene.folder / "target", scene.folder / "other"
    if place == "moved-to-other-disk" or place.endswith("mount"):
        other.mkdir()
        kind = (
            ("--bind", str(results)) if place != "moved-to-other-disk" else ("-t", "tmpfs", "-o", "size=200m", "none")
        )
        as_root(scene, "mount", *kind, str(other))
        scene.cleanups.append(lambda: as_root(scene, "umount", "-l", str(other)))
        if place == "moved-to-other-disk":
            shutil.copytree(results, other, dirs_exist_ok=True)
        if place == "read-only-mount":
            as_root(scene, "mount", "-o", "remount,ro,bind", str(other))
        return other
    results.rename(target)
    other.symlink_to("target" if place == "relative-link" else target)
    if place == "link-to-link":
        (scene.folder / "second").symlink_to("other")
        return scene.folder / "second"
    return other

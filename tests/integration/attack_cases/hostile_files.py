"""Files of a results folder that others made, damaged or exchanged, and every command that reads them."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_cases._made import campaign
from attack_cases._preloaded import call
from attack_cases.register import case
from attack_cases.scene import Scene

EXPERIMENT, RUN = "experiments/*", "experiments/*/runs/r1-t1"
FILES = {
    "suite": ("suite.json", ("report", "status", "run")),
    "asked": ("asked/*.json", ("report", "status", "run")),
    "experiment": (f"{EXPERIMENT}/experiment.json", ("report", "status", "run", "rerun")),
    "record": (f"{RUN}/record.json", ("report", "status", "compare", "run")),
    "job": (f"{RUN}/job.json", ("status", "cancel", "show")),
    "owner": (f"{RUN}/owner.json", ("status", "cancel")),
    "steps": (f"{RUN}/steps-rank0.jsonl", ("report", "export")),
    "worker": (f"{RUN}/worker-rank0.json", ("report", "export")),
    "stdout": (f"{RUN}/stdout.log", ("report", "show", "bundle")),
    "script": (f"{RUN}/command.sh", ("report", "show", "bundle")),
    "table": ("raw_summary.csv", ("read-csv", "history-csv", "report")),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "report": ("report", "results"),
    "status": ("status", "results", "--json"),
    "show": ("show", "a", "--results", "results"),
    "compare": ("compare", "good", "results", "--all"),
    "cancel": ("cancel", "results"),
    "export": ("export", "--to", "tensorboard", "results", "--dest", "board"),
    "bundle": ("bundle", "results", "--output", "out.tar.gz"),
    "read-csv": ("compare", "results/raw_summary.csv", "good"),
    "history-csv": ("history", "good", "results/raw_summary.csv", "--output", "history"),
    "run": ("run", "scenarios.yaml", "--yes", "--fail-fast"),
    "rerun": ("rerun", "--from", "comparison.json", "--runs", "1", "--dry-run"),
}


def _exchanged(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def _written(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def _halved(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _recoded(encoding: str) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_text().encode(encoding)) and None


def _sparse(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(3 * 2**30)


def _doubled(path: Path) -> None:
    content = path.read_text()
    path.write_text("{" + content.strip()[1:-1] + "," + content.strip()[1:])


CONTENTS: dict[str, Callable[[Path], None]] = {
    "empty": _written(b""),
    "zeros": _written(bytes(4096)),
    "bytes": _written(bytes(range(256)) * 20),
    "null": _written(b"null"),
    "list": _written(b"[]"),
    "number": _written(b"1e999"),
    "nan": _written(b'{"schema": NaN, "tool": "tunebench"}'),
    "deep": _written(b"[" * 200_000),
    "deep-closed": _written(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "long-number": _written(b'{"tool": "tunebench", "schema": ' + b"9" * 100_000 + b"}"),
    "half-character": _written(b'{"tool": "tunebench", "seed": "\\ud800"}'),
    "long-line": _written(b'{"tool": "' + b"x" * 30_000_000 + b'"}'),
    "half": _halved,
    "utf-16": _recoded("utf-16"),
    "mark-of-utf-8": _recoded("utf-8-sig"),
    "doubled": _doubled,
    "sparse": _sparse,
    "pipe": _exchanged(os.mkfifo),
    "folder": _exchanged(os.mkdir),
    "loop": _exchanged(lambda path: path.symlink_to(path.name)),
    "device": _exchanged(lambda path: path.symlink_to("/dev/zero")),
    "terminal": _exchanged(lambda path: path.symlink_to("/dev/tty")),
    "no-permission": lambda path: path.chmod(0),
    "gone": lambda path: path.unlink(),
}


def _attack(scene: Scene, pattern: str, commands: tuple[str, ...], change: Callable[[Path], None]) -> None:
    campaign(scene)
    if "rerun" in commands:
        call(scene, "compare", "good", "results", "--output", "comparison.json")
    place = sorted(scene.results.glob(pattern))[0]
    change(place)
    scene.records_may_go = True
    scene.seen.clear()
    for name in commands:
        call(scene, *COMMANDS[name])


@case(file=FILES, content=CONTENTS)
def content_of_file(scene: Scene, file: tuple[str, tuple[str, ...]], content: Callable[[Path], None]) -> None:
    """Each file with each content: every command ends, with a message and without a traceback."""
    _attack(scene, file[0], file[1], content)
    scene.codes.update((0, 1, 2, 3, 4))


VALUES: dict[str, Any] = {
    "null": None,
    "text": "x",
    "empty": "",
    "true": True,
    "negative": -1,
    "huge": 10**30,
    "infinite": 1e308,
    "list": [1, "a", None],
    "map": {"a": {"b": [1]}},
    "deep": [[[[[[[["x"]]]]]]]],
    "control": "\x1b]0;x\x07\u202e\x00</script>",
    "path": "../../../../../etc/passwd",
    "long": "y" * 100_000,
}
IN_RECORD, IN_EXPERIMENT = f"{RUN}/record.json", f"{EXPERIMENT}/experiment.json"
PARTS = ("git", "packages", "gpus", "host", "worker_versions", "python", "driver")
FIELDS: dict[str, tuple[str, tuple[tuple[str | int, ...], ...], tuple[str, ...]]] = {
    "record.number": (
        IN_RECORD,
        (("measurements", 5, "value"), ("wall_s",), ("started_at",)),
        ("report", "status", "compare"),
    ),
    "record.facts": (
        IN_RECORD,
        (("provenance",), ("settings",), ("ranks",), ("devices",)),
        ("report", "compare", "export"),
    ),
    "record.parts": (IN_RECORD, tuple(("provenance", name) for name in PARTS), ("report", "compare", "export")),
    "record.words": (IN_RECORD, (("cause",), ("hint",), ("tail",), ("kind",)), ("report", "status", "show")),
    "record.warnings": (IN_RECORD, (("warnings",), ("beside",), ("beside_at_once",)), ("report", "status", "compare")),
    "experiment.custom": (IN_EXPERIMENT, (("custom",), ("arguments",), ("matrix",)), ("report", "status", "rerun")),
    "experiment.custom-parts": (
        IN_EXPERIMENT,
        tuple(("custom", name) for name in ("command", "metrics", "folder", "files")),
        ("report", "rerun", "run"),
    ),
    "experiment.limits": (
        IN_EXPERIMENT,
        (("timeout_s",), ("repeats",), ("num_gpus",), ("adaptive",)),
        ("report", "status", "rerun"),
    ),
    "experiment.names": (
        IN_EXPERIMENT,
        (("id",), ("scenario",), ("trainer",), ("model",)),
        ("report", "status", "rerun"),
    ),
    "suite.fields": (
        "suite.json",
        tuple((name,) for name in ("asked", "seed", "experiments", "schema", "created")),
        ("report", "status", "run"),
    ),
    "suite.asked": ("suite.json", (("asked", "argv"), ("asked", "files")), ("report", "run")),
    "job.fields": (f"{RUN}/job.json", (("owner",), ("details",), ("claimed_at",), ("marker",)), ("status", "cancel")),
    "owner.fields": (f"{RUN}/owner.json", (("pid",), ("start_time",), ("host",), ("boot_id",)), ("status", "cancel")),
}


def put(document: Any, place: tuple[str | int, ...], value: Any) -> None:
    """Set the value at a place of a document, as far as the place exists."""
    *parents, last = place
    for key in parents:
        document = document[key]
    document[last] = value


@case(field=FIELDS, value=VALUES)
def value_of_field(scene: Scene, field: tuple[str, tuple[Any, ...], tuple[str, ...]], value: Any) -> None:
    """Valid JSON whose fields have values of other kinds, all named fields at once and for a run in progress, too."""
    pattern, places, commands = field

    def change(path: Path) -> None:
        document = json.loads(path.read_text())
        for place in places:
            put(document, place, value)
        path.write_text(json.dumps(document))
        if path.name in ("job.json", "owner.json"):
            (path.parent / "record.json").unlink()

    _attack(scene, pattern, commands, change)
    scene.codes.update((0, 1, 2, 3, 4))


@case(kind={"pipe": os.mkfifo, "loop": lambda path: path.symlink_to(path.name), "file": Path.touch})
def folders_that_are_none(scene: Scene, kind: Callable[[Path], object]) -> None:
    """`runs`, a run, `experiments`, `asked` become something else."""
    for name in ("asked", "experiments/*/runs/r2-t1", "experiments/*/runs", "experiments"):
        campaign(scene)
        place = sorted(scene.results.glob(name))[0]
        shutil.rmtree(place)
        kind(place)
        scene.records_may_go = True
        scene.seen.clear()
        for command in ("report", "status", "bundle"):
            call(scene, *COMMANDS[command])
        for folder in ("results", "good"):
            shutil.rmtree(scene.folder / folder)
        (scene.folder / "out.tar.gz").unlink(missing_ok=True)
    scene.codes.update((0, 1, 2))


NAMES = {
    "newline": "r3-t1\nx",
    "long-number": "r" + "9" * 200 + "-t1",
    "huge-number": "r99999999999999999999-t1",
    "other-digits": "r\u0663-t1",
    "zero": "r0-t0",
    "control": "r1-t1\x1b[31m",
    "bytes": b"r1-t\xff".decode("utf-8", "surrogateescape"),
}


@case(name=NAMES)
def odd_names_of_runs(scene: Scene, name: str) -> None:
    """A run's folder with an odd name, and an experiment's."""
    campaign(scene)
    for folder in (sorted(scene.results.glob(RUN))[0], sorted(scene.results.glob(EXPERIMENT))[0]):
        shutil.copytree(folder, folder.with_name(name))
    for command in ("report", "status", "compare", "bundle", "cancel"):
        said = call(scene, *COMMANDS[command])
        assert "\x1b" not in said.text
    scene.codes.update((0, 1, 2, 3, 4))


CELLS = (
    "",
    "x",
    "1.0",
    "-1",
    "1e999",
    "9" * 5000,
    "TRUE",
    "=1+1|'a'!b",
    "\x1b[31m\u202e",
    "a\nb",
    "[]",
    "None",
    "\u0663",
)
COLUMNS = (
    "repeat",
    "attempt",
    "started_at",
    "status",
    "num_gpus",
    "tokens_per_s",
    "id",
    "scenario",
    "results",
    "number",
)


@case(column=COLUMNS)
def cell_of_table(scene: Scene, column: str) -> None:
    """A table of runs in which one cell of a column has each odd value, as after an edit in a spreadsheet."""
    campaign(scene)
    scene.codes.update((0, 1, 2, 3, 4))
    with (scene.results / "raw_summary.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    place = rows[0].index(column) if column in rows[0] else 0
    for cell in CELLS:
        rows[2][place] = cell
        with (scene.folder / "x.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        for words in (("report", "x.csv", "--format", "json"), ("compare", "x.csv", "good", "--all")):
            said = call(scene, *words)
            assert "Traceback" not in said.text, f"{column}={cell!r:.40} with {words[0]}: {said.err[-300:]}"

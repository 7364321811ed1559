"""Numbers at the edges in CSV files and folders: `compare`, `history`, `report` and the page."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attack_cases._preloaded import call
from attack_cases.register import case
from attack_cases.scene import Scene

HEADER = [
    "scenario",
    "framework_config",
    "model_name_or_path",
    "num_gpus",
    "repeat",
    "attempt",
    "status",
    "started_at",
    "tokens_per_s",
    "step_time_s",
    "train_loss",
    "peak_reserved_bytes",
]
NUMBERS = {
    "nan": "nan",
    "inf": "inf",
    "minus-inf": "-inf",
    "zero": "0",
    "minus-zero": "-0.0",
    "negative": "-3",
    "tiny": "5e-324",
    "huge": "1.7e308",
    "overflow": "1e309",
    "long": "1" * 5000,
    "hex": "0x10",
    "underscore": "1_000",
    "comma": "1,5",
    "word": "many",
    "blank": " ",
    "empty": "",
    "arabic": "٣",
    "percent": "5%",
    "formula": "=1+1",
    "plus": "+5",
    "dot": "5.",
    "bool": "True",
}
METRICS = ("tokens_per_s", "step_time_s", "train_loss", "peak_reserved_bytes")


def rows(
    runs: int, value: Callable[[int], str] = lambda at: str(100 + at % 3), changes: Mapping[str, str] | None = None
) -> list[list[str]]:
    """Return the lines of a table with this many runs of two frameworks."""
    made = []
    for framework, at in itertools.product(("none", "liger"), range(1, runs + 1)):
        fields = dict(
            zip(
                HEADER,
                [
                    "s",
                    framework,
                    "m",
                    "1",
                    str(at),
                    "1",
                    "ok",
                    f"2026-01-{at:02}T00:00:00+00:00",
                    value(at),
                    "0.5",
                    "1.5",
                    "1000",
                ],
                strict=True,
            )
        )
        made.append([*{**fields, **(changes or {})}.values()])
    return made


def write(scene: Scene, name: str, lines: Sequence[Sequence[str]]) -> str:
    """Write a table into the scene, and return its name."""
    year = "2026" if name == "a.csv" else "2027"  # runs that start at the same time are the same runs
    own = [[cell.replace("2026-", f"{year}-") for cell in line] for line in lines]
    with (scene.folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *own])
    return name


def check_numbers(scene: Scene) -> None:
    """Check that what was written has no number that is not one, and no interval whose ends are exchanged."""
    for path in scene.folder.rglob("*.json"):
        json.loads(path.read_text(), parse_constant=_refuse)
    for entry in _entries(scene):
        value, ends = entry["ratio"]["value"], entry["ratio"].get("interval") or {}
        assert math.isfinite(value) and value > 0, entry
        assert not ends or (ends["low"] <= value * (1 + 1e-9) and value <= ends["high"] * (1 + 1e-9)), entry


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} in a JSON file")


def _entries(scene: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    path = scene.folder / "c.json"
    waiting = [json.loads(path.read_text())] if path.exists() else []
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            found += [one] if one.get("ratio") else []
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return found


def read_all(scene: Scene, *, quickly: bool = False) -> None:
    """Compare in both directions, follow the history, and make reports. Check the numbers."""
    outputs = ("--output", "c.json", "--output", "c.md", "--output", "c.html", "--output", "c.csv", "--all")
    for sides in (("a.csv", "b.csv"), ("b.csv", "a.csv")):
        said = call(scene, "compare", *sides, *outputs)
        assert said.code in (0, 1, 2, 3, 4), said.text[-300:]
        check_numbers(scene)
    if not quickly:
        call(scene, "history", "a.csv", "b.csv", "a.csv", "b.csv", "b.csv")
        call(scene, "report", "b.csv", "--json")
        check_numbers(scene)


@case(number=NUMBERS, where=("each", "one", "last-of-base"), metric=METRICS[:1] + METRICS[2:3])
def number_of_metric(scene: Scene, number: str, where: str, metric: str) -> None:
    """A number at the edge is left out, or is judged; `compare` says so in every format."""
    bad = rows(4)
    for at, line in enumerate(bad):
        if where == "each" or at == (1 if where == "one" else len(bad) - 1):
            line[HEADER.index(metric)] = number
    write(scene, "a.csv", bad if where == "last-of-base" else rows(4))
    write(scene, "b.csv", rows(4) if where == "last-of-base" else bad)
    read_all(scene, quickly=where != "each")


COUNTS = {"none": 0, "one": 1, "two": 2, "many": 28}


@case(base=COUNTS, new=COUNTS, spread={"equal": lambda at: "100", "spread": lambda at: str(100 * 1.5**at)})
def counts_of_runs(scene: Scene, base: int, new: int, spread: Callable[[int], str]) -> None:
    """Any number of runs on either side, equal or not, gives a verdict with finite numbers."""
    write(scene, "a.csv", rows(base, spread))
    write(scene, "b.csv", rows(new, spread))
    read_all(scene, quickly=True)


FACTS = {
    "repeat-0": {"repeat": "0"},
    "repeat-negative": {"repeat": "-1"},
    "repeat-huge": {"repeat": "9" * 30},
    "gpus-0": {"num_gpus": "0"},
    "gpus-huge": {"num_gpus": "9" * 400},
    "gpus-word": {"num_gpus": "two"},
    "gpus-fraction": {"num_gpus": "1.5"},
    "status-odd": {"status": "fine"},
    "status-upper": {"status": "OK"},
    "date-odd": {"started_at": "yesterday"},
    "date-year-0": {"started_at": "0000-01-01T00:00:00"},
    "date-number": {"started_at": "1e300"},
    "date-epoch": {"started_at": "0"},
    "date-far": {"started_at": "9999-12-31T23:59:59+00:00"},
    "date-no-zone": {"started_at": "2026-01-01T00:00:00"},
    "model-empty": {"model_name_or_path": ""},
    "model-formula": {"model_name_or_path": "=cmd|' /C calc'!A0"},
    "model-html": {"model_name_or_path": "</script><script>alert(1)</script>"},
    "model-line-end": {"model_name_or_path": "a\nb\r\nc"},
    "model-unicode": {"model_name_or_path": "模型\u202e\u2028ä́🚀"},
    "model-long": {"model_name_or_path": "m" * 30000},
    "framework-bar": {"framework_config": "a|b`c*d_"},
    "attempt-word": {"attempt": "x"},
    "attempt-0": {"attempt": "0"},
}


@case(fact=FACTS, side=("both", "new"))
def odd_facts(scene: Scene, fact: dict[str, str], side: str) -> None:
    """An odd fact in a table gives a sentence or a comparison, and is shown as text in the page."""
    write(scene, "a.csv", rows(3, changes=fact if side == "both" else None))
    write(scene, "b.csv", rows(3, changes=fact))
    read_all(scene)
    for page in scene.folder.rglob("*.html"):
        assert "<script>alert" not in page.read_text(), f"a script in {page}"


OPTIONS = (
    "--min-effect nan",
    "--min-effect inf",
    "--min-effect -1",
    "--min-effect 0",
    "--min-effect 1e400%",
    "--min-effect 100%",
    "--min-effect tokens_per_s=nan",
    "--threshold nan",
    "--threshold -0.1",
    "--threshold 0",
    "--level nan",
    "--level 0",
    "--level 1",
    "--level -1",
    "--level inf",
    "--level 1e-320",
    "--min-effect fleet=0",
    "--metrics ,",
    "--metrics tokens_per_s:up",
    "--by ,",
    "--by nothing",
    "--min-effect 1e-320",
    "--threshold 1e308",
    "--min-effect fleet=inf",
    "--metrics status:higher",
    "--metrics repeat:lower",
    "--by tokens_per_s",
)


@case(option=OPTIONS)
def odd_options(scene: Scene, option: str) -> None:
    """An odd threshold is refused in a sentence, or gives finite numbers; a change of 50 % is not `same` by a mistaken option."""
    write(scene, "a.csv", rows(4))
    write(scene, "b.csv", rows(4, lambda at: str(50 + at % 3)))
    said = call(scene, "compare", "a.csv", "b.csv", "--output", "c.json", "--all", *option.split())
    assert said.code in (1, 2, 3, 4) or "1e308" in option or "100%" in option or "metrics" in option, (
        f"{said.code} {said.text[-300:]}"
    )
    check_numbers(scene)
    call(
        scene,
        "history",
        *["a.csv", "b.csv"] * 2,
        *[word for word in option.split() if "threshold" not in option and "level" not in option],
    )

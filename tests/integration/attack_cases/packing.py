"""The measured cost of neighbours (`RESULTS/packing/cost.json`), damaged, in a folder that is reported and compared."""

from __future__ import annotations

import json
import math

from attack_cases._preloaded import call
from attack_cases.old_results import sample
from attack_cases.register import case
from attack_cases.scene import Scene

COSTS = {
    "infinite": '{"single": 1, "packed": Infinity}',
    "nan": '{"single": NaN, "packed": NaN}',
    "overflow": '{"single": 1, "packed": 1e999}',
    "quotient-0": '{"single": 1e308, "packed": 5e-324}',
    "quotient-huge": '{"single": 5e-324, "packed": 1e308}',
    "zero": '{"single": 0, "packed": 0}',
    "negative": '{"single": -1, "packed": -2}',
    "long": f'{{"single": 1{"0" * 400}, "packed": 1}}',
    "list": "[]",
    "null": "null",
    "text": '{"single": "1", "packed": "2"}',
    "true": '{"single": true, "packed": true}',
    "empty": "",
    "deep": "[" * 50000,
    "digits": f'{{"single": {"1" * 5000}, "packed": 1}}',
    "far": '{"single": 1, "packed": 1e300}',
}


@case(cost=COSTS)
def odd_cost(scene: Scene, cost: str) -> None:
    """An absurd cost of neighbours neither ends a report nor gives an interval that is not a number."""
    results = sample(scene)
    (results / "packing").mkdir()
    (results / "packing" / "cost.json").write_text(cost)
    said = call(scene, "report", "results", "--baseline", "baseline", "--format", "json")
    assert said.code == 0, said.text[-400:]
    document = json.loads(said.out[said.out.index(said.out.strip()[0]) :], parse_constant=_refuse)
    for number in _numbers(document):
        assert math.isfinite(number), number
    call(scene, "compare", "sample", "results", "--all")


def _refuse(word: str) -> float:
    raise AssertionError(f"{word} in the JSON of the report")


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for one in value.values() for number in _numbers(one)]
    if isinstance(value, list):
        return [number for one in value for number in _numbers(one)]
    return [value] if isinstance(value, int | float) else []

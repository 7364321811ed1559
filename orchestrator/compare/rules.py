"""Say how two sides are judged: which metrics, which direction is better, how much matters, and how sure one must be.

The registry (`metrics`) knows each metric's direction, its test or tolerance, and the smallest effect that matters. This module
chooses the default metrics, and applies the command's options. It reads no runs and judges nothing; `judging` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from orchestrator.errors import SelectionError
from orchestrator.measure.metrics import METRICS, ONE_RUN_EFFECT, Direction, Judged, Where, columns
from orchestrator.measure.metrics import metric as registered
from orchestrator.results.table.rows import Value

# Speed: of each pair the first that it has. The Trainer's own speeds include warm-up; the last is pytest-benchmark's.
HEADLINES = (*columns(Where.SPEED), "round_time_s")

DEFAULT = (*HEADLINES, *columns(Where.COMPARED))

# The largest adjusted p of a change. Of two sides that are the same, 5 interleaved runs each with 1.5 % between runs,
# 1.7 % of the rows then seem to differ by the 2 % that matter, and 98.3 % of those that are 5 % apart are found; at
# 0.05 it would be 2.2 and 99.1 % (benchmarks/verdicts.py).
LEVEL = 0.035

# What `--min-effect` calls the mean over all experiments.
FLEET = "fleet"


class Correction(StrEnum):
    """What is done about the many rows of a metric: one in twenty would differ by chance."""

    BH = "bh"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """How one metric is judged. The effects are shares: 0.02 is ×1.02 or ÷1.02, in either direction."""

    metric: str
    direction: Direction
    judged: Judged
    min_effect: float
    one_run_effect: float
    fleet_effect: float

    def is_better(self, shift: float) -> bool:
        """Return whether a change of the logarithm (or of the value) is an improvement."""
        return (shift > 0) == (self.direction is Direction.HIGHER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The options. If `metrics` is empty, the default metrics are judged. Names in the mappings are metrics."""

    metrics: tuple[str, ...] = ()
    directions: Mapping[str, Direction] = field(default_factory=dict)
    min_effect: float | None = None
    min_effects: Mapping[str, float] = field(default_factory=dict)
    threshold: float = ONE_RUN_EFFECT
    thresholds: Mapping[str, float] = field(default_factory=dict)
    level: float = LEVEL
    correction: Correction = Correction.BH

    def of(self, name: str) -> Rule:
        """Return the rule of a metric. Raises SelectionError if nobody knows which way it is better."""
        known = registered(name)
        direction = self.directions.get(name, known.direction)
        if direction is Direction.NONE:
            direction = _by_unit(name)
        overall = self.min_effect if self.min_effect is not None and known.judged is Judged.TEST else known.min_effect
        effect = self.min_effects.get(name, overall)
        return Rule(
            metric=name,
            direction=direction,
            judged=known.judged,
            min_effect=effect,
            one_run_effect=self.thresholds.get(name, max(self.threshold, known.one_run_effect)),
            fleet_effect=self.min_effects.get(FLEET, effect / 2),
        )

    def described(self) -> dict[str, Value]:
        """Return each option by its name, as a user would give it, for the record of a comparison."""
        effects = {"": self.min_effect} if self.min_effect is not None else {}
        return {
            "metrics": _words({name: self.directions.get(name) for name in self.metrics}, ":") or "default",
            "min_effect": _words({**effects, **self.min_effects}, "=") or "default",
            "threshold": _words({"": self.threshold, **self.thresholds}, "="),
            "level": self.level,
            "correction": self.correction.value,
        }


def _words(values: Mapping[str, object], sign: str) -> str:
    return ",".join(f"{name}{sign}{value}".strip(sign) if value is not None else name for name, value in values.items())


def parse(
    *,
    metrics: Iterable[str] = (),
    min_effect: Iterable[str] = (),
    threshold: Iterable[str] = (),
    level: float = LEVEL,
    correction: Correction = Correction.BH,
) -> Rules:
    """Return the rules of these options, such as `METRIC:higher`, `0.02` or `METRIC=0.05`. Raises SelectionError for others."""
    named = [word.partition(":") for word in metrics]
    directions = {name: _direction(name, way) for name, sign, way in named if sign}
    effects, thresholds = _shares(min_effect, "--min-effect"), _shares(threshold, "--threshold")
    if not 0 < level < 1:
        raise SelectionError(f"--level {level:g}: give a probability between 0 and 1, such as {LEVEL}.")
    rules = Rules(
        metrics=tuple(dict.fromkeys(name for name, _, _ in named)),
        directions=directions,
        min_effect=effects.pop("", None),
        min_effects=effects,
        threshold=thresholds.pop("", ONE_RUN_EFFECT),
        thresholds=thresholds,
        level=level,
        correction=correction,
    )
    for name in rules.metrics:
        rules.of(name)
    return rules


def _direction(name: str, way: str) -> Direction:
    if way not in ("higher", "lower"):
        raise SelectionError(f"--metrics {name}:{way}: say which way is better, {name}:higher or {name}:lower.")
    return Direction(way)


def _shares(words: Iterable[str], option: str) -> dict[str, float]:
    """Return metric → share; the name is empty if none was given."""
    found: dict[str, float] = {}
    for word in words:
        name, _, text = word.rpartition("=")
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not 0 < share <= 10 or not text.isascii():
            raise SelectionError(
                f"{option} {word!r}: give a share above 0, such as 0.02 or 2%, for all or for one metric: METRIC=0.05."
            )
        found[name] = share
    return found


_BY_UNIT = {
    Direction.HIGHER: ("_per_s", "_per_second", "_per_s_per_gpu"),
    Direction.LOWER: ("_s", "_ms", "_us", "_ns", "_bytes", "_j"),
}


def _by_unit(name: str) -> Direction:
    """Return the direction that follows from the unit at the end of a name: more tokens per second are better, more seconds
    worse."""
    for direction, units in _BY_UNIT.items():
        if name.endswith(units):
            return direction
    near = get_close_matches(name, METRICS, n=1)
    meant = f"did you mean {near[0]!r}? If it is yours" if near and near[0] != name else "if it is to be compared"
    raise SelectionError(
        f"--metrics {name}: it is not known whether more of it is better; {meant}, say {name}:higher or {name}:lower."
    )


def has_direction(name: str) -> bool:
    """Return whether it is known which way a metric is better."""
    units = [unit for endings in _BY_UNIT.values() for unit in endings]
    return registered(name).direction is not Direction.NONE or name.endswith(tuple(units))


def one_headline(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules without all headlines but the first."""
    headlines = [rule for rule in rules if rule.metric in HEADLINES]
    return [rule for rule in rules if rule not in headlines[1:]]

"""The rules of a comparison. They come from the options of the command and from the registry of metrics (`measure/metrics/`).

The registry has each metric's smallest effect, its better direction, and its test or tolerance. This module chooses the default
metrics and the level of the test. `judging` applies the rules to runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from orchestrator.errors import SelectionError, suggestion
from orchestrator.measure.metrics import METRICS, ONE_RUN_EFFECT, Direction, Judged, Where, columns
from orchestrator.measure.metrics import metric as registered
from orchestrator.results.table.rows import Value

# Metrics of speed. A pair is judged by the first one that it has. The Trainer's speeds include warm-up.
_SPEEDS = columns(Where.SPEED)

DEFAULT = (*_SPEEDS, *columns(Where.COMPARED))

# If the padding of the sides differs, tokens per second are compared without padding.
TOKENS, REAL_TOKENS = "tokens_per_s", "real_tokens_per_s"
HEADLINES = tuple(name for speed in _SPEEDS for name in ((TOKENS, REAL_TOKENS) if speed == TOKENS else (speed,)))

# A change needs an adjusted p value below this level. In benchmarks/simulated/, 5 interleaved runs per side have a noise of
# 1.5 % between runs. If the sides are equal, 1.7 % of the rows seem to differ by the 2 % that matter. If the sides differ by 5 %,
# 98.3 % of the rows show the difference. At a level of 0.05, these shares are 2.2 % and 99.1 %.
LEVEL = 0.035

# An inconclusive row must rule out a slowdown of this many smallest effects: 5 % where 2 % matters. With 5 interleaved runs per
# side and a noise of 1.5 % between runs, 99 % of the unchanged rows rule it out.
RULE_OUT = 2.5

# In `--min-effect`, this name means the mean over all experiments.
FLEET = "fleet"


class Correction(StrEnum):
    """The correction for the many rows of a metric. Without it, more rows would seem to differ by chance."""

    BH = "bh"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The rule of one metric. The effects are shares: 0.02 means ×1.02 or ÷1.02.

    `rule_out` is the change for the worse that an inconclusive row must rule out.
    """

    metric: str
    direction: Direction
    judged: Judged
    min_effect: float
    one_run_effect: float
    fleet_effect: float
    rule_out: float

    def is_better(self, shift: float) -> bool:
        """Return whether a change of the logarithm (or of the value) is an improvement."""
        return (shift > 0) == (self.direction is Direction.HIGHER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The options of `compare`. If `metrics` is empty, the default metrics are judged. The mappings are from metric to value."""

    metrics: tuple[str, ...] = ()
    directions: Mapping[str, Direction] = field(default_factory=dict)
    min_effect: float | None = None
    min_effects: Mapping[str, float] = field(default_factory=dict)
    threshold: float = ONE_RUN_EFFECT
    thresholds: Mapping[str, float] = field(default_factory=dict)
    rule_out: float | None = None
    rule_outs: Mapping[str, float] = field(default_factory=dict)
    level: float = LEVEL
    correction: Correction = Correction.BH

    def of(self, name: str) -> Rule:
        """Return the rule of a metric. Raise SelectionError if its better direction is unknown."""
        known, direction = registered(name), self.directions.get(name) or better_direction(name)
        if direction is Direction.NONE:
            near = [other for other in get_close_matches(name, METRICS, n=1) if other != name]
            hint = f"did you mean {near[0]!r}? If not, " if near else ""
            raise SelectionError(
                f"metric {name}: it is unknown whether more or less is better; {hint}write {name}:higher or {name}:lower"
            )
        # Speeds without padding take the place of the usual ones, and so have their shares.
        shared = TOKENS if name == REAL_TOKENS else name
        overall = self.min_effect if self.min_effect is not None and known.judged is Judged.TEST else known.min_effect
        effect = self.min_effects.get(name, self.min_effects.get(shared, overall))
        threshold, rule_out = (shares.get(name, shares.get(shared)) for shares in (self.thresholds, self.rule_outs))
        return Rule(
            metric=name,
            direction=direction,
            judged=known.judged,
            min_effect=effect,
            one_run_effect=max(self.threshold, known.one_run_effect) if threshold is None else threshold,
            fleet_effect=self.min_effects.get(FLEET, effect / 2),
            rule_out=max(effect, self.rule_out or effect * RULE_OUT) if rule_out is None else rule_out,
        )

    def check_names(self, measured: Collection[str]) -> None:
        """Raise SelectionError if a share is for a metric that no run has and that is not registered."""
        options = {"--min-effect": self.min_effects, "--threshold": self.thresholds, "--rule-out": self.rule_outs}
        known = {*METRICS, *HEADLINES, *measured, FLEET}
        unknown = [(option, name) for option, shares in options.items() for name in shares if name not in known]
        if unknown and measured:
            option, name = unknown[0]
            # People write the heading that is on the screen.
            meant = [other for other in (*DEFAULT, *METRICS) if registered(other).label == name]
            usual = [other for other in DEFAULT if other in measured]
            hint = f"; did you mean {meant[0]!r}?" if meant else suggestion(name, usual or measured)
            raise SelectionError(f"{option} {name}: no run has this metric{hint}")

    def described(self) -> dict[str, Value]:
        """Return a dict from option to value. The values have the form of the command line."""
        effects = {"": self.min_effect} if self.min_effect is not None else {}
        rule_out = {"": self.rule_out} if self.rule_out is not None else {}
        return {
            "metrics": _words({name: self.directions.get(name) for name in self.metrics}, ":") or "default",
            "min_effect": _words({**effects, **self.min_effects}, "=") or "default",
            "threshold": _words({"": self.threshold, **self.thresholds}, "="),
            "rule_out": _words({**rule_out, **self.rule_outs}, "=") or "default",
            "level": self.level,
            "correction": self.correction.value,
        }


def _words(values: Mapping[str, object], sign: str) -> str:
    return ",".join(
        f"{name}{sign}{_word(value)}".strip(sign) if value is not None else name for name, value in values.items()
    )


def _word(value: object) -> str:
    # On the command line, a share above 1 needs the sign.
    return f"{value * 100:.12g}%" if isinstance(value, float) and value > 1 else str(value)


def parse(
    *,
    metrics: Iterable[str] = (),
    min_effect: Iterable[str] = (),
    threshold: Iterable[str] = (),
    rule_out: Iterable[str] = (),
    level: float = LEVEL,
    correction: Correction = Correction.BH,
) -> Rules:
    """Return the rules of options such as `METRIC:higher`, `0.02` or `METRIC=0.05`. Raise SelectionError for an invalid option."""
    named = [word.partition(":") for word in metrics]
    effects, thresholds = _shares(min_effect, "--min-effect"), _shares(threshold, "--threshold")
    rule_outs = _shares(rule_out, "--rule-out")
    if not 0 < level < 1:
        raise SelectionError(f"--level '{level:g}' is invalid; write a probability between 0 and 1, such as {LEVEL}")
    rules = Rules(
        metrics=tuple(dict.fromkeys(name for name, _, _ in named)),
        directions=_directions(named),
        min_effect=effects.pop("", None),
        min_effects=effects,
        threshold=thresholds.pop("", ONE_RUN_EFFECT),
        thresholds=thresholds,
        rule_out=rule_outs.pop("", None),
        rule_outs=rule_outs,
        level=level,
        correction=correction,
    )
    for name in rules.metrics:
        rules.of(name)
    return rules


def _directions(named: Iterable[tuple[str, str, str]]) -> dict[str, Direction]:
    """Return a dict from metric to direction, for the metrics that are named with one."""
    directions: dict[str, Direction] = {}
    for name, sign, way in named:
        if sign and way not in ("higher", "lower"):
            raise SelectionError(f"--metrics '{name}:{way}' is invalid; write {name}:higher or {name}:lower")
        if sign and directions.setdefault(name, Direction(way)) is not Direction(way):
            raise SelectionError(
                f"--metrics {name}: it is named with both directions; keep {name}:higher or {name}:lower"
            )
    return directions


def _shares(words: Iterable[str], option: str) -> dict[str, float]:
    """Return a dict from metric to share. The metric's name is empty if the share is for all metrics."""
    shares: dict[str, float] = {}
    for word in words:
        name, _, text = word.rpartition("=")
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not 0 < share <= 10 or not text.isascii():
            raise SelectionError(
                f"{option} {word!r} is invalid; write a share above 0, such as 0.02 or 2%, for all metrics, or METRIC=0.05 for one"
            )
        if share > 1 and not text.endswith("%"):
            raise SelectionError(
                f"{option} {word!r} is invalid: a share above 1 needs the sign %; write {text}% or {share / 100:g}"
            )
        if name == FLEET and option != "--min-effect":
            raise SelectionError(
                f"{option} {word!r} is invalid: only --min-effect has a share for {FLEET}; name a metric instead"
            )
        shares[name] = share
    return shares


_BY_UNIT = {
    Direction.HIGHER: ("_per_s", "_per_second", "_per_s_per_gpu"),
    Direction.LOWER: ("_s", "_ms", "_us", "_ns", "_bytes", "_j"),
}


def better_direction(name: str) -> Direction:
    """Return the metric's better direction from the registry. If it is unknown there, infer it from the unit in the metric's name.

    Return NONE if this unit is unknown, too.
    """
    known = registered(name).direction
    by_unit = (direction for direction, units in _BY_UNIT.items() if name.endswith(units))
    return known if known is not Direction.NONE else next(by_unit, Direction.NONE)


def one_headline(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules. Of the rules for HEADLINES, return only the first."""
    headlines = [rule for rule in rules if rule.metric in HEADLINES]
    return [rule for rule in rules if rule not in headlines[1:]]

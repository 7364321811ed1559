"""All experiments together: the geometric mean of a metric's ratios, so that 2 % everywhere is seen where no row shows it. Pure.

The pair is the sample, and its ratio counts once, however many runs it has. What all pairs of a comparison share (the day, the
room's temperature) is no noise to it: a fleet that moved did move, by whatever cause.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator import statistics
from orchestrator.compare.rules import Rule
from orchestrator.compare.values import Fleet, Row, Verdict
from orchestrator.metrics import Judged
from orchestrator.statistics import Ratio


def line(rule: Rule, rows: Sequence[Row], *, level: float) -> Fleet | None:
    """The line of one metric, from its rows that have a ratio; None for fewer than two, and for a guard."""
    ratios = [row.ratio.value for row in rows if row.ratio is not None]
    if len(ratios) < 2 or rule.judged is Judged.GUARD:
        return None
    found = statistics.paired_ratio([1.0] * len(ratios), ratios)
    return Fleet(metric=rule.metric, verdict=_verdict(rule, found, level=level), ratio=found, pairs=len(ratios))


def _verdict(rule: Rule, found: Ratio, *, level: float) -> Verdict:
    assert found.interval is not None and found.p is not None, "two pairs or more have an interval"
    shift, matters = math.log(found.value), math.log1p(rule.fleet_effect)
    if -matters < math.log(found.interval.low) and math.log(found.interval.high) < matters:
        return Verdict.SAME
    if found.p < level and abs(shift) >= matters:
        return Verdict.IMPROVED if rule.is_better(shift) else Verdict.REGRESSED
    return Verdict.INCONCLUSIVE

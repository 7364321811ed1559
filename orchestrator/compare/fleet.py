"""All experiments together: the geometric mean of a metric's ratios, so that 2 % everywhere is seen where no row shows it. Pure.

The pair is the sample, and its ratio counts once, however many runs it has. What all pairs of a comparison share (the day, the
room's temperature) is no noise to it: a fleet that moved did move, by whatever cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator import statistics
from orchestrator.compare.judging import by_test
from orchestrator.compare.rules import Rule
from orchestrator.compare.values import Fleet, Row
from orchestrator.metrics import Judged


def line(rule: Rule, rows: Sequence[Row], *, level: float) -> Fleet | None:
    """The line of one metric, from its rows that have a ratio; None for fewer than two, and for a guard."""
    ratios = [row.ratio.value for row in rows if row.ratio is not None]
    if len(ratios) < 2 or rule.judged is Judged.GUARD:
        return None
    found = statistics.paired_ratio([1.0] * len(ratios), ratios)
    verdict, _ = by_test(replace(rule, min_effect=rule.fleet_effect), found, level=level, p=found.p)
    return Fleet(metric=rule.metric, verdict=verdict, ratio=found, pairs=len(ratios))

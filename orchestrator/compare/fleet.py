"""Judge all experiments together by the geometric mean of a metric's ratios: 2 % everywhere shows here, even if it shows in no
row. Pure.

The pair is the sample. Its ratio counts once, however many runs it has. What all pairs share (the day, the room's temperature) is
not noise here: if all of them moved, they did move, whatever the cause.
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
    """Return the line of one metric, from its rows that have a ratio; None for fewer than two, and for a guard."""
    ratios = [row.ratio.value for row in rows if row.ratio is not None]
    if len(ratios) < 2 or rule.judged is Judged.GUARD:
        return None
    found = statistics.paired_ratio([1.0] * len(ratios), ratios)
    verdict, _ = by_test(replace(rule, min_effect=rule.fleet_effect), found, level=level, p=found.p)
    return Fleet(metric=rule.metric, verdict=verdict, ratio=found, pairs=len(ratios))

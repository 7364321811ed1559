"""The sign, symbol and colour of each verdict on a page, and the smallest change that counts in a row. Pure.

Colour is never the only mark. Improved is blue and points up. Regressed is red and points down. So people with any colour vision
can tell them apart, also in print. A verdict's sign in a text looks like its symbol in a chart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.compare import rules
from orchestrator.compare.comparison import Comparison, Row, Verdict
from orchestrator.compare.rules import Rule, Rules
from orchestrator.compare.view import wording
from orchestrator.errors import OrchestratorError
from orchestrator.measure.metrics import Judged
from orchestrator.report.page.charts import colours


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The look of a verdict. `colour` is a name in the page's theme. `kind` (gain, warning, failure or empty) is for lists."""

    sign: str
    symbol: str
    colour: str
    kind: str = ""


_BLUE, _WARN = "@accent", "@warn"

MARKS = {
    Verdict.FAILED: Mark(sign="✕", symbol="x", colour=colours.BAD, kind="failure"),
    Verdict.REGRESSED: Mark(sign="▼", symbol="triangle-down", colour=colours.BAD, kind="failure"),
    Verdict.MISSING: Mark(sign="−", symbol="line-ew-open", colour=colours.BAD, kind="failure"),
    Verdict.UNKNOWN: Mark(sign="?", symbol="diamond", colour=_WARN, kind="warning"),
    Verdict.NOT_COMPARABLE: Mark(sign="≠", symbol="cross", colour=_WARN, kind="warning"),
    Verdict.INCONCLUSIVE: Mark(sign="■", symbol="square", colour=_WARN, kind="warning"),
    Verdict.IMPROVED: Mark(sign="▲", symbol="triangle-up", colour=_BLUE, kind="gain"),
    Verdict.NEW: Mark(sign="+", symbol="cross", colour=_BLUE, kind="gain"),
    Verdict.UNTESTED: Mark(sign="○", symbol="circle-open", colour=colours.MUTED),
    Verdict.SAME: Mark(sign="●", symbol="circle", colour=colours.MUTED),
}


def signed(verdict: Verdict) -> str:
    """Return a verdict with its sign: `▼ regressed`."""
    return f"{MARKS[verdict].sign} {wording.words(verdict)}"


def judged_by(comparison: Comparison) -> Rules | None:
    """Return the rules of a comparison. Return None if they are not valid options."""

    def option(name: str) -> list[str]:
        text = str(comparison.rules.get(name, "default"))
        return [] if text == "default" else text.split(",")

    try:
        return rules.parse(metrics=option("metrics"), min_effect=option("min_effect"), threshold=option("threshold"))
    except OrchestratorError:
        return None


def rule(metric: str, by: Rules | None) -> Rule | None:
    """Return the rule of a metric. Return None if the metric is unknown."""
    try:
        return by.of(metric) if by is not None else None
    except OrchestratorError:
        return None


def effects(rows: Iterable[Row], by: Rules | None) -> list[float]:
    """Return the limits below which changes of these rows do not count, without duplicates, the largest first.

    A limit is a share: the smallest effect that matters, or the threshold if a side has one run.
    """
    shares = set()
    for row in rows:
        known = rule(row.metric, by)
        if known is not None:
            is_tested = row.ratio is not None and row.ratio.interval is not None
            shares.add(known.min_effect if is_tested or known.judged is not Judged.TEST else known.one_run_effect)
    return sorted(shares, reverse=True)

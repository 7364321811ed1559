"""Show a verdict on a page: a sign before its word, a symbol and a colour in the charts. Find the effect by which a row was
judged.

Colour is never the only sign: improved is blue and points up, regressed is red and points down. They differ for any colour
vision, and in print. A sign looks like its symbol. Pure.
"""

from __future__ import annotations

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
    """How a verdict looks: `colour` is a name of the page's theme, `kind` its kind in a list (gain, warning, failure, nothing)."""

    sign: str
    symbol: str
    colour: str
    kind: str = ""


_BLUE, _WARN = "@accent", "@warn"

MARKS = {
    Verdict.FAILED: Mark(sign="✕", symbol="x", colour=colours.BAD, kind="failure"),
    Verdict.REGRESSED: Mark(sign="▼", symbol="triangle-down", colour=colours.BAD, kind="failure"),
    Verdict.MISSING: Mark(sign="−", symbol="line-ew-open", colour=colours.BAD, kind="failure"),
    Verdict.NOT_COMPARABLE: Mark(sign="≠", symbol="cross", colour=_WARN, kind="warning"),
    Verdict.INCONCLUSIVE: Mark(sign="■", symbol="square", colour=_WARN, kind="warning"),
    Verdict.IMPROVED: Mark(sign="▲", symbol="triangle-up", colour=_BLUE, kind="gain"),
    Verdict.NEW: Mark(sign="+", symbol="cross", colour=_BLUE, kind="gain"),
    Verdict.UNTESTED: Mark(sign="○", symbol="circle-open", colour=colours.MUTED),
    Verdict.SAME: Mark(sign="●", symbol="circle", colour=colours.MUTED),
}


def signed(verdict: Verdict) -> str:
    """Return a verdict as the page writes it: `▼ regressed`."""
    return f"{MARKS[verdict].sign} {wording.words(verdict)}"


def judged_by(comparison: Comparison) -> Rules | None:
    """Return the rules of a comparison from their record; None if the record is not in the words of the options."""

    def words(name: str) -> list[str]:
        said = str(comparison.rules.get(name, "default"))
        return [] if said == "default" else said.split(",")

    try:
        return rules.parse(metrics=words("metrics"), min_effect=words("min_effect"), threshold=words("threshold"))
    except OrchestratorError:
        return None


def rule(metric: str, by: Rules | None) -> Rule | None:
    """Return the rule of a metric; None if it is not known."""
    try:
        return by.of(metric) if by is not None else None
    except OrchestratorError:
        return None


def effect(row: Row, by: Rules | None) -> float | None:
    """Return the share within which a change of a row does not count; None if it is not known.

    It is the smallest effect that matters, or the threshold if a side has one run.
    """
    found = rule(row.metric, by)
    if found is None:
        return None
    is_tested = row.ratio is not None and row.ratio.interval is not None
    return found.min_effect if is_tested or found.judged is not Judged.TEST else found.one_run_effect

"""How a page shows a verdict: a sign before its word, a symbol and a colour in the charts; and by which effect a row was judged.

No colour stands alone: improved is blue and points up, regressed is red and points down, so that they are told apart with any
colour vision, and in print. A sign looks like its symbol. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.compare import rules
from orchestrator.compare.rules import Rule, Rules
from orchestrator.compare.values import Comparison, Row, Verdict
from orchestrator.compare_view import wording
from orchestrator.errors import OrchestratorError
from orchestrator.metrics import Judged
from orchestrator.page import colours


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """`colour` is a name of the page's theme, `kind` what it is in a list of the page: gain, warning, failure, or nothing."""

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
    """A verdict as the page writes it: `▼ regressed`."""
    return f"{MARKS[verdict].sign} {wording.words(verdict)}"


def judged_by(comparison: Comparison) -> Rules | None:
    """The rules of a comparison, from its own words for them; None where these are not the options' words."""

    def words(name: str) -> list[str]:
        said = str(comparison.rules.get(name, "default"))
        return [] if said == "default" else said.split(",")

    try:
        return rules.parse(metrics=words("metrics"), min_effect=words("min_effect"), threshold=words("threshold"))
    except OrchestratorError:
        return None


def rule(metric: str, by: Rules | None) -> Rule | None:
    """The rule of a metric; None where it is not known."""
    try:
        return by.of(metric) if by is not None else None
    except OrchestratorError:
        return None


def effect(row: Row, by: Rules | None) -> float | None:
    """The share within which a change of a row does not count: the smallest that matters, or the threshold where a side has
    one run. None where it is not known."""
    found = rule(row.metric, by)
    if found is None:
        return None
    is_tested = row.ratio is not None and row.ratio.interval is not None
    return found.min_effect if is_tested or found.judged is not Judged.TEST else found.one_run_effect

"""Turn a comparison into the exit code of a build. Pure; `cli` exits."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from orchestrator.compare.comparison import Comparison, Verdict
from orchestrator.compare.verdicts import failed_newly
from orchestrator.errors import SelectionError
from orchestrator.measure.metrics import Judged, metric

# 2 is the user's mistake, as everywhere.
NOTHING_WORSE, WORSE, INCONCLUSIVE, NOTHING_COMPARABLE = 0, 1, 3, 4


class Cause(StrEnum):
    """A reason to fail a build, in the words of `--fail-on`."""

    # An experiment that ran on base, and does not any more.
    FAILED = "failed"
    # A metric of an experiment.
    REGRESSED = "regressed"
    # An experiment or a metric that base has.
    MISSING = "missing"
    # A metric over all experiments, though perhaps in no row.
    FLEET = "fleet"
    # A loss that left its tolerance, for the better as well: what was compared may be another training.
    GUARD = "guard"
    # A row that more runs would settle.
    INCONCLUSIVE = "inconclusive"
    # A pair that ran under another environment.
    NOT_COMPARABLE = "not_comparable"


DEFAULT = (Cause.FAILED, Cause.REGRESSED, Cause.MISSING, Cause.FLEET, Cause.GUARD, Cause.INCONCLUSIVE)

_NUMBERS = frozenset(
    {Verdict.IMPROVED, Verdict.REGRESSED, Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.UNTESTED},
)


def causes(comparison: Comparison) -> dict[Cause, int]:
    """Return how often each cause occurs. A loss that rose counts as regressed, too."""
    verdicts = [row.verdict for row in comparison.rows]
    left = (Verdict.IMPROVED, Verdict.REGRESSED)
    return {
        Cause.FAILED: sum(map(failed_newly, comparison.pairs)),
        Cause.REGRESSED: verdicts.count(Verdict.REGRESSED),
        Cause.MISSING: verdicts.count(Verdict.MISSING),
        Cause.FLEET: sum(line.verdict is Verdict.REGRESSED for line in comparison.fleet),
        Cause.GUARD: sum(row.verdict in left and metric(row.metric).judged is Judged.GUARD for row in comparison.rows),
        Cause.INCONCLUSIVE: verdicts.count(Verdict.INCONCLUSIVE),
        Cause.NOT_COMPARABLE: verdicts.count(Verdict.NOT_COMPARABLE),
    }


def exit_code(comparison: Comparison, *, fail_on: Iterable[Cause] = DEFAULT) -> int:
    """Return 0 (nothing worse), 1 (worse), 3 (inconclusive) or 4 (nothing comparable).

    The first that applies wins, in the order: newly failed (1), 4, 1, 3. Causes that `fail_on` leaves out do not count. That
    nothing could be compared always counts.
    """
    found, counted = causes(comparison), set(fail_on)
    if found[Cause.FAILED] and Cause.FAILED in counted:
        return WORSE
    if not any(row.verdict in _NUMBERS and row.metric for row in comparison.rows):
        return NOTHING_COMPARABLE
    if any(found[cause] for cause in counted - {Cause.INCONCLUSIVE}):
        return WORSE
    return INCONCLUSIVE if found[Cause.INCONCLUSIVE] and Cause.INCONCLUSIVE in counted else NOTHING_WORSE


def parse_causes(words: Iterable[str]) -> tuple[Cause, ...]:
    """Return the causes that `--fail-on` names; `none` means no cause.

    Raises SelectionError for an unknown word, and for no word at all: an empty variable must not remove the gate.
    """
    given, found = list(words), []
    if not given:
        raise SelectionError(f"--fail-on names nothing: name some of {', '.join(Cause)}, or none.")
    for word in given:
        if word == "none":
            continue
        if word not in Cause.__members__.values():
            raise SelectionError(f"--fail-on {word}: name some of {', '.join(Cause)}, or none.")
        found.append(Cause(word))
    return tuple(found)

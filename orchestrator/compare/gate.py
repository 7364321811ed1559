"""Turn a comparison into an exit code for a build. Pure; `cli` exits with this code."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from orchestrator.compare.comparison import Comparison, Row, Verdict
from orchestrator.compare.sides.incomparable import failed_newly, unknown_newly
from orchestrator.errors import SelectionError, suggestion
from orchestrator.measure.metrics import Judged, metric

# Exit codes. In every sub-command, 2 means a mistake of the user.
NOTHING_WORSE, WORSE, INCONCLUSIVE, NOTHING_COMPARABLE = 0, 1, 3, 4


class Cause(StrEnum):
    """A reason to fail a build, in the words of `--fail-on`."""

    # An experiment that ran on base fails on the new side.
    FAILED = "failed"
    # A metric of an experiment is worse.
    REGRESSED = "regressed"
    # The new side lacks an experiment or a metric of base.
    MISSING = "missing"
    # A metric is worse over all experiments together. Perhaps no single row shows this.
    FLEET = "fleet"
    # A loss rose or fell by more than its tolerance: the trainings may differ.
    GUARD = "guard"
    # A row is inconclusive and may be much worse: more runs may settle it. Or the new side's records cannot be read.
    INCONCLUSIVE = "inconclusive"
    # The sides of a pair ran in different environments.
    NOT_COMPARABLE = "not_comparable"


DEFAULT = tuple(cause for cause in Cause if cause is not Cause.NOT_COMPARABLE)

_WITH_NUMBERS = {Verdict.IMPROVED, Verdict.REGRESSED, Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.UNTESTED}


def causes(comparison: Comparison) -> dict[Cause, int]:
    """Return how often each cause occurs.

    A loss that rose counts as GUARD and as REGRESSED. An inconclusive row counts only if it may be worse by a share that matters.
    An experiment whose records cannot be read is not a failure. But it may be worse, so it is INCONCLUSIVE if it ran on base.
    """
    counts = {cause: len(rows) for cause, rows in _rows(comparison).items()} | _without_rows(comparison)
    return counts | {Cause.INCONCLUSIVE: counts[Cause.INCONCLUSIVE] + sum(map(unknown_newly, comparison.pairs))}


def experiments(comparison: Comparison) -> dict[Cause, int]:
    """Return how many experiments have each cause: one counts once, even if several metrics show its slowdown.

    FLEET counts metrics. Experiments whose records cannot be read are not among them.
    """
    of_rows = {cause: len({row.label for row in rows}) for cause, rows in _rows(comparison).items()}
    return of_rows | _without_rows(comparison)


def _without_rows(comparison: Comparison) -> dict[Cause, int]:
    return {
        Cause.FAILED: sum(map(failed_newly, comparison.pairs)),
        Cause.FLEET: sum(line.verdict is Verdict.REGRESSED for line in comparison.fleet),
    }


def _rows(comparison: Comparison) -> dict[Cause, list[Row]]:
    """Return the rows of each cause that a row can show."""
    moved, rows = (Verdict.IMPROVED, Verdict.REGRESSED), comparison.rows
    return {
        Cause.REGRESSED: [row for row in rows if row.verdict is Verdict.REGRESSED],
        Cause.MISSING: [row for row in rows if row.verdict is Verdict.MISSING],
        Cause.GUARD: [row for row in rows if row.verdict in moved and metric(row.metric).judged is Judged.GUARD],
        Cause.INCONCLUSIVE: [row for row in rows if row.may_be_worse_by is not None],
        Cause.NOT_COMPARABLE: [row for row in rows if row.verdict is Verdict.NOT_COMPARABLE],
    }


def exit_code(comparison: Comparison, *, fail_on: Iterable[Cause] = DEFAULT) -> int:
    """Return 0 (nothing worse), 1 (worse), 3 (inconclusive) or 4 (nothing comparable).

    Return the first code that applies. The order is: 1 for a new failure; 4; 1 for any other cause; 3. Causes outside `fail_on` do
    not count. Code 4 does not depend on `fail_on`.
    """
    counts, counted = causes(comparison), set(fail_on)
    if counts[Cause.FAILED] and Cause.FAILED in counted:
        return WORSE
    if not any(map(_is_compared, comparison.rows)):
        return NOTHING_COMPARABLE
    if any(counts[cause] for cause in counted - {Cause.INCONCLUSIVE}):
        return WORSE
    return INCONCLUSIVE if counts[Cause.INCONCLUSIVE] and Cause.INCONCLUSIVE in counted else NOTHING_WORSE


def _is_compared(row: Row) -> bool:
    """Return whether a row has numbers that were compared. An untested row without a ratio has numbers of different things."""
    has_numbers = bool(row.metric) and row.verdict in _WITH_NUMBERS
    return has_numbers and (row.ratio is not None or row.verdict is not Verdict.UNTESTED)


def parse_causes(words: Iterable[str]) -> tuple[Cause, ...]:
    """Return the causes that `--fail-on` names; `none` means no cause.

    Raise SelectionError for an unknown word. An empty list is an error, too: an empty shell variable must not remove the gate.
    """
    given, known = list(words), (*Cause, "none")
    if not given:
        raise SelectionError(f"--fail-on is empty; name at least one verdict, or none{suggestion('', known)}")
    for word in given:
        if word not in known:
            raise SelectionError(f"--fail-on {word!r} is not allowed{suggestion(word, known)}")
    return tuple(Cause(word) for word in given if word != "none")

"""The order and the words that all views of a comparison share: worst first, changes in percent, differences. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.compare.comparison import Comparison, Difference, Pair, Row, Verdict
from orchestrator.compare.gate import DEFAULT, Cause
from orchestrator.compare.verdicts import failed_newly
from orchestrator.files.printable_text import counted as number_of
from orchestrator.files.printable_text import one_line, printable
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import DASH, metric, show

WORST_FIRST = (
    *(Verdict.FAILED, Verdict.REGRESSED, Verdict.MISSING, Verdict.NOT_COMPARABLE),
    *(Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.NEW, Verdict.UNTESTED, Verdict.SAME),
)
# Characters of one value of an environment or an argument.
LONGEST = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One pair and its shown rows, worst first."""

    pair: Pair
    rows: tuple[Row, ...]


class Which(StrEnum):
    """Rows with news, rows that are only counted unless requested, or both."""

    TELLING = "telling"
    FOLDED = "folded"
    ALL = "all"


def blocks(comparison: Comparison, which: Which) -> list[Block]:
    """Return the pairs that have such rows, the worst pair first."""
    old = old_failures(comparison)
    of_label: dict[str, list[Row]] = defaultdict(list)
    for row in comparison.rows:
        if which is Which.ALL or is_folded(row, old) == (which is Which.FOLDED):
            of_label[row.label].append(row)
    found = [
        Block(pair=pair, rows=tuple(sorted(of_label[pair.label], key=badness)))
        for pair in comparison.pairs
        if pair.label in of_label
    ]
    return sorted(found, key=lambda block: (block.pair.label in old, badness(block.rows[0])))


def old_failures(comparison: Comparison) -> frozenset[str]:
    """Return the labels of the experiments that fail on base, too."""
    failed = {row.label for row in comparison.rows if row.verdict is Verdict.FAILED}
    return frozenset(pair.label for pair in comparison.pairs if pair.label in failed and not failed_newly(pair))


def is_folded(row: Row, old: Container[str]) -> bool:
    """Return whether a row is only counted unless requested; `old` are the failures that base has, too."""
    return row.verdict in (Verdict.SAME, Verdict.UNTESTED) or (row.verdict is Verdict.FAILED and row.label in old)


def badness(row: Row) -> tuple[int, float]:
    """Return a key that sorts rows by their verdict, the largest change first."""
    return WORST_FIRST.index(row.verdict), -abs(math.log(row.ratio.value)) if row.ratio else -math.inf


def counted(comparison: Comparison) -> str:
    """Return the number of rows by verdict, worst first: `2 regressed, 40 same`."""
    counts, old = Counter(row.verdict for row in comparison.rows), len(old_failures(comparison))
    counts[Verdict.FAILED] -= old
    found = [f"{counts[one]} {words(one)}" for one in WORST_FIRST if counts[one]]
    return ", ".join([*found, *([f"{old} failed on both sides"] if old else [])]) or "nothing to compare"


def words(verdict: Verdict) -> str:
    """Return a verdict as a word of a sentence."""
    return verdict.value.replace("_", " ")


def percent(change: float) -> str:
    """Return a ratio as a change: `-5.1%`; from ten times on, the ratio itself."""
    if not 0.1 < change < 10:
        return f"×{change:.3g}"
    text = f"{change - 1:+.1%}"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


def interval(ratio: Ratio) -> str:
    """Return the 95 % interval of the change; empty if there is none."""
    return f"{percent(ratio.interval.low)} to {percent(ratio.interval.high)}" if ratio.interval else ""


def values(row: Row) -> str:
    """Return both sides' values with their units: `1,234 → 1,300`; empty for a row without numbers."""
    if row.base is None and row.new is None:
        return ""
    return f"{show(row.metric, row.base)} → {show(row.metric, row.new)}"


def note(row: Row) -> str:
    """Return what to know besides the numbers: why, how many runs, how many more."""
    runs = f"{row.ratio.n_base}+{row.ratio.n_new} runs" if row.ratio and row.ratio.interval else ""
    turns = "in turns" if row.paired and row.ratio and row.ratio.interval else ""
    needs = f"needs about {row.needs} more per side" if row.needs else ""
    if row.verdict is Verdict.INCONCLUSIVE and row.needs is None:
        needs = "no number of runs would settle it"
    said = (" ".join(word for word in (runs, turns) if word), row.why, needs)
    return printable(", ".join(word for word in said if word))


def heading(name: str) -> str:
    """Return a metric's heading."""
    return printable(metric(name).label)


def difference(found: Difference) -> str:
    """Return a difference as text: `torch: 2.12.0 → 2.13.0`."""
    return f"{_short(found.name)}: {_short(found.base)} → {_short(found.new)}"


def differing(found: Difference) -> tuple[str, str, str]:
    """Return a difference as three cells."""
    return _short(found.name), _short(found.base), _short(found.new)


def _short(value: object) -> str:
    return one_line(DASH if value is None else value, longest=LONGEST)


def environment(comparison: Comparison) -> list[tuple[Difference, str]]:
    """Return each difference of environment with its number of pairs: those of all pairs first, then the most frequent."""
    both = [pair for pair in comparison.pairs if pair.base is not None and pair.new is not None]
    counts = Counter(one for pair in both for one in pair.environment)
    frequent = sorted(counts.items(), key=lambda one: -one[1])
    return [(one, "all" if often == len(both) else f"{often} of {len(both)}") for one, often in frequent]


def own_differences(pair: Pair, comparison: Comparison) -> list[Difference]:
    """Return the differences of a pair, without those that all pairs share."""
    common = frozenset(comparison.environment)
    return [*(one for one in pair.environment if one not in common), *pair.arguments]


def stand(comparison: Comparison) -> str:
    """Return the numbers of experiments: `48 experiments on both sides, 2 only on base`."""
    both = sum(pair.base is not None and pair.new is not None for pair in comparison.pairs)
    alone = {
        "only on base": sum(pair.new is None for pair in comparison.pairs),
        "only on the new side": sum(pair.base is None for pair in comparison.pairs),
    }
    first = f"{number_of(both, 'experiment')} on both sides"
    return ", ".join([first, *(f"{number} {where}" for where, number in alone.items() if number)])


_OUTCOMES = {0: "nothing worse", 1: "worse", 3: "inconclusive", 4: "nothing comparable"}
_CAUSES = {
    Cause.REGRESSED: "regressed",
    Cause.FAILED: "newly failed",
    Cause.MISSING: "missing",
    Cause.FLEET: "regressed over all experiments",
    Cause.GUARD: "with another loss",
    Cause.INCONCLUSIVE: "inconclusive",
    Cause.NOT_COMPARABLE: "not comparable",
}


def conclusion(code: int, causes: Mapping[Cause, int], fail_on: Sequence[Cause]) -> str:
    """Return the exit code as a sentence. Causes that `--fail-on` leaves out are named, too."""
    counting = [one for one in fail_on if causes[one] and (code != 3 or one is Cause.INCONCLUSIVE)]
    why = _causes(counting, causes) if code in (1, 3) else ""
    left = _causes([one for one in DEFAULT if causes[one] and one not in fail_on], causes)
    outcome = "nothing that counts is worse" if code == 0 and left else _OUTCOMES[code]
    return f"{outcome}{f': {why}' if why else ''}{f'; not counted: {left}' if left else ''} (exit code {code})"


def _causes(names: Iterable[Cause], causes: Mapping[Cause, int]) -> str:
    return ", ".join(f"{causes[one]} {_CAUSES[one]}" for one in names)

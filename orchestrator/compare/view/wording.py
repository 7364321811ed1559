"""The order and the words that all views of a comparison share: worst first, changes in percent, differences. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.compare import gate
from orchestrator.compare.comparison import Comparison, Difference, FirstRuns, Fleet, Pair, Row, Verdict
from orchestrator.compare.gate import DEFAULT, Cause
from orchestrator.compare.sides.incomparable import failed_newly, unknown_newly
from orchestrator.compare.sides.profiles import Profiles
from orchestrator.files.printable_text import counted as number_of
from orchestrator.files.printable_text import from_the_difference, one_line, printable
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import DASH, metric, show

WORST_FIRST = (
    *(Verdict.FAILED, Verdict.REGRESSED, Verdict.MISSING, Verdict.UNKNOWN, Verdict.NOT_COMPARABLE),
    *(Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.NEW, Verdict.UNTESTED, Verdict.SAME),
)
# The most characters that are shown of one value of an environment or an argument.
LONGEST = 80
# The most differences that are shown between the environments of a profile and of its side.
_MOST_ELSEWHERE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One pair with the rows that are shown, the worst row first."""

    pair: Pair
    rows: tuple[Row, ...]


class Which(StrEnum):
    """A choice of rows. UNCHANGED rows are the same, untested, or failed on both sides. If not requested, they are only counted."""

    NOTABLE = "notable"
    UNCHANGED = "unchanged"
    ALL = "all"


def blocks(comparison: Comparison, which: Which) -> list[Block]:
    """Return the pairs that have rows of this choice, the worst pair first."""
    old = old_failures(comparison)
    rows_of: dict[str, list[Row]] = defaultdict(list)
    for row in comparison.rows:
        if which is Which.ALL or is_unchanged(row, old) == (which is Which.UNCHANGED):
            rows_of[row.label].append(row)
    unordered = [
        Block(pair=pair, rows=tuple(sorted(rows_of[pair.label], key=badness)))
        for pair in comparison.pairs
        if pair.label in rows_of
    ]
    return sorted(unordered, key=lambda block: (block.pair.label in old, badness(block.rows[0])))


def old_failures(comparison: Comparison) -> frozenset[str]:
    """Return the labels of the experiments that fail on both sides."""
    failed = {row.label for row in comparison.rows if row.verdict is Verdict.FAILED}
    return frozenset(pair.label for pair in comparison.pairs if pair.label in failed and not failed_newly(pair))


def is_unchanged(row: Row, old: Container[str]) -> bool:
    """Return whether a row is the same, untested, or failed on both sides; `old` are the labels of `old_failures`."""
    return row.verdict in (Verdict.SAME, Verdict.UNTESTED) or (row.verdict is Verdict.FAILED and row.label in old)


def badness(row: Row) -> tuple[int, float]:
    """Return a key that sorts rows by their verdict, then by the size of their change, the largest first."""
    return WORST_FIRST.index(row.verdict), -abs(math.log(row.ratio.value)) if row.ratio else -math.inf


def counted(comparison: Comparison) -> str:
    """Return the number of rows by verdict, worst first: `2 regressed, 40 same`."""
    counts, old = Counter(row.verdict for row in comparison.rows), len(old_failures(comparison))
    counts[Verdict.FAILED] -= old
    parts = [f"{counts[verdict]} {words(verdict)}" for verdict in WORST_FIRST if counts[verdict]]
    return ", ".join([*parts, *([f"{old} failed on both sides"] if old else [])]) or "nothing to compare"


def words(verdict: Verdict) -> str:
    """Return a verdict as a word of a sentence."""
    return verdict.value.replace("_", " ")


def percent(ratio: float) -> str:
    """Return a ratio as a change: `-5.1%`. Return the ratio itself if it is at least ten, or at most a tenth."""
    if not 0.1 < ratio < 10:
        return _factor(ratio)
    text = f"{ratio - 1:+.1%}"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


def _factor(ratio: float) -> str:
    return f"×{ratio:.3g}"


def span(low: float, high: float) -> str:
    """Return two ratios as changes: `-5.1% to +2.0%`. If `percent` would give a factor for one of them, both are factors."""
    ends = percent(low), percent(high)
    if any(end.startswith("×") for end in ends):
        ends = _factor(low), _factor(high)
    return " to ".join(ends)


def range_of(low: float, high: float) -> str:
    """Return the `span` of two ratios. If both are the same text, return this text once."""
    return " to ".join(dict.fromkeys(span(low, high).split(" to ")))


def change(ratio: Ratio | None) -> str:
    """Return the change of a ratio. It is empty if there is no ratio."""
    return percent(ratio.value) if ratio else ""


def interval(ratio: Ratio | None) -> str:
    """Return the 95 % interval of the change. It is empty if there is no interval."""
    if ratio is None or ratio.interval is None:
        return ""
    return span(ratio.interval.low, ratio.interval.high)


def values(row: Row) -> str:
    """Return both values with their units: `1,234 → 1,300`; empty for a row without numbers."""
    if row.base is None and row.new is None:
        return ""
    return f"{show(row.metric, row.base)} → {show(row.metric, row.new)}"


def note(row: Row) -> str:
    """Return the remarks on a row: the number of runs, the reason, and how many more runs are needed."""
    runs = f"{row.ratio.n_base}+{row.ratio.n_new} runs" if row.ratio and row.ratio.interval else ""
    turns = " in turns" if runs and row.paired else ""
    needs = f"needs about {row.needs} more per side (80% chance)" if row.needs else ""
    if row.doubt:
        needs = f"needs {row.needs} more undisturbed runs per side"
    if row.verdict is Verdict.INCONCLUSIVE and row.needs is None:
        needs = "even 100 more per side would hardly settle it"
    return printable(", ".join(filter(None, (runs + turns, why(row), needs))))


_FIRST_RUNS = {
    FirstRuns.COUNTED: "",
    FirstRuns.LEFT_OUT: "slow first runs left out",
    FirstRuns.COLD: "slow first runs, and too few others: run more repeats",
}


def why(row: Row) -> str:
    """Return how the first runs were treated, the reason of the verdict, and by how much an inconclusive row may be worse."""
    worse = "" if row.may_be_worse_by is None else f"{row.may_be_worse_by * 100:.3g}% worse is not ruled out"
    return ", ".join(
        filter(None, (_FIRST_RUNS[row.first_runs], _highest(row), row.doubt, row.why, _not_significant(row), worse))
    )


def _highest(row: Row) -> str:
    """Return the highest run of each side, if runs of one side differ."""
    if row.highest is None or row.highest == (row.base, row.new):
        return ""
    return f"highest {show(row.metric, row.highest[0])} → {show(row.metric, row.highest[1])}"


def _not_significant(row: Row) -> str:
    """Return why the row is inconclusive although its interval excludes a ratio of 1. It is empty for other rows."""
    ends = row.ratio.interval if row.ratio and row.verdict is Verdict.INCONCLUSIVE else None
    if ends is None or ends.low <= 1 <= ends.high or row.why or row.doubt:
        return ""
    return f"excludes 0%, but adjusted p {row.p_adjusted:.2g} is above the level"


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as text: verdict, heading of the metric, change, interval, both values, remarks."""
    name = heading(row.metric) if row.metric else ""
    return words(row.verdict), name, change(row.ratio), interval(row.ratio), values(row), note(row)


def fleet_cells(line: Fleet) -> tuple[str, ...]:
    """Return a line over all experiments as text: verdict, heading of the metric, change, interval."""
    return words(line.verdict), heading(line.metric), change(line.ratio), interval(line.ratio)


def fleet_note(line: Fleet) -> str:
    """Return the number of pairs, and a remark if the sides ran one after the other."""
    days = "one side after the other: a difference between two days would look the same"
    return f"{line.pairs:,} pairs{f', {days}' if line.one_after_the_other else ''}"


def heading(name: str) -> str:
    """Return a metric's heading."""
    return printable(metric(name).label)


def difference(differing: Difference) -> str:
    """Return a difference as text: `torch: 2.12.0 → 2.13.0`."""
    name, base, new = difference_cells(differing)
    return f"{name}: {base} → {new}"


def difference_cells(differing: Difference) -> tuple[str, ...]:
    """Return a difference as three cells: name, base, new."""
    values = [DASH if value is None else str(value) for value in (differing.base, differing.new)]
    cells = (differing.name, *from_the_difference(*values, longest=LONGEST))
    return tuple(one_line(value, longest=LONGEST) for value in cells)


def elsewhere(profiles: Profiles) -> str:
    """Return a sentence about profiles that were made in another environment than the runs of their side; empty if none was."""
    sides = []
    for side, differences in profiles.elsewhere.items():
        texts = [difference(differing) for differing in differences[:_MOST_ELSEWHERE]]
        more = len(differences) - len(texts)
        sides.append(f"{side} ({'; '.join([*texts, *([f'and {more} more'] if more else [])])})")
    which = ", ".join(sides)
    cure = "the change may come from this; to profile again, remove the trace"
    return f"Profiled in another environment than measured: {which}; {cure}." if sides else ""


def environment(comparison: Comparison) -> list[tuple[Difference, str]]:
    """Return each difference of environment, the most frequent first, with the number of pairs that have it (or `all`)."""
    two_sided = [pair for pair in comparison.pairs if pair.base is not None and pair.new is not None]
    counts = Counter(differing for pair in two_sided for differing in pair.environment)
    total = len(two_sided)
    return [(differing, "all" if n == total else f"{n} of {total}") for differing, n in counts.most_common()]


def own_differences(pair: Pair, comparison: Comparison) -> list[Difference]:
    """Return the differences of a pair, without the differences that all pairs share."""
    common = frozenset(comparison.environment)
    return [*(differing for differing in pair.environment if differing not in common), *pair.arguments]


def experiments(comparison: Comparison) -> str:
    """Return how many experiments are on which side: `48 experiments on both sides, 2 only on base`."""
    only_base = sum(pair.new is None for pair in comparison.pairs)
    only_new = sum(pair.base is None for pair in comparison.pairs)
    parts = [f"{number_of(len(comparison.pairs) - only_base - only_new, 'experiment')} on both sides"]
    parts += [f"{only_base} only on base"] if only_base else []
    parts += [f"{only_new} only on the new side"] if only_new else []
    return ", ".join(parts)


def judged_by(comparison: Comparison) -> str:
    """Return the rules of a comparison as text: `metrics default, level 0.035`."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in comparison.rules.items())


_OUTCOMES = {0: "nothing worse", 1: "worse", 3: "inconclusive", 4: "nothing comparable"}
_CAUSES = {
    Cause.REGRESSED: "regressed",
    Cause.FAILED: "newly failed",
    Cause.MISSING: "with something missing",
    Cause.FLEET: "regressed over all experiments",
    Cause.GUARD: "with another loss",
    Cause.INCONCLUSIVE: "may be much worse",
    Cause.NOT_COMPARABLE: "not comparable",
}


_MORE_RUNS = "; for more runs: `tunebench rerun --from FILE.json`, with the file of `compare --output FILE.json`"
_UNTESTED = "each row is untested, and --all shows the reasons"
_SAME_RUNS = "both sides have the same runs; run the new side with another --results folder, or with --move-aside"


def conclusion(comparison: Comparison, fail_on: Sequence[Cause]) -> str:
    """Return the meaning of the exit code as a sentence. The sentence also names the causes that `--fail-on` leaves out."""
    code = gate.exit_code(comparison, fail_on=fail_on)
    counting = _listed(comparison, [cause for cause in fail_on if code != 3 or cause is Cause.INCONCLUSIVE])
    untested = any(row.verdict is Verdict.UNTESTED for row in comparison.rows)
    nothing = _SAME_RUNS if comparison.same_runs else _UNTESTED if untested else ""
    why = counting if code in (1, 3) else nothing if code == 4 else ""
    left = _listed(comparison, [cause for cause in DEFAULT if cause not in fail_on])
    outcome = "nothing that counts is worse" if code == 0 and left else _OUTCOMES[code]
    if code == 3 and any(row.may_be_worse_by is not None for row in comparison.rows):
        why += _MORE_RUNS
    elif code == 0 and not left:
        outcome += _on_open_rows(comparison)
    return f"{outcome}{f': {why}' if why else ''}{f'; not counted: {left}' if left else ''} (exit code {code})"


def _listed(comparison: Comparison, causes: Sequence[Cause]) -> str:
    """Return how many experiments have each of these causes: `1 experiment regressed, 2 may be much worse`."""
    counts = gate.experiments(comparison)
    found = [("metric" if cause is Cause.FLEET else "experiment", counts[cause], _CAUSES[cause]) for cause in causes]
    unknown = sum(map(unknown_newly, comparison.pairs)) if Cause.INCONCLUSIVE in causes else 0
    texts, before = list[str](), ""
    for noun, count, text in (one for one in [*found, ("experiment", unknown, "unknown")] if one[1]):
        shown = number_of(count, noun) if noun != before else str(count)
        texts, before = [*texts, f"{shown} {text}"], noun
    return ", ".join(texts)


def _on_open_rows(comparison: Comparison) -> str:
    """Return how many rows are inconclusive, but not much worse. It is empty if there are no such rows."""
    count = sum(row.verdict is Verdict.INCONCLUSIVE for row in comparison.rows)
    return f"; {number_of(count, 'inconclusive row')} {'is' if count == 1 else 'are'} not much worse" if count else ""

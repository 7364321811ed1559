"""Search the step between a good and a bad candidate: measure, decide, and go on in one half. Pure, apart from the given function.

First both ends are measured. The search goes on only if they differ. Then each probe is measured together with both ends, in
RUNS rounds. A probe that differs from exactly one end belongs to the other end. If it differs from neither, it gets RUNS more
rounds, at most MOST_LOOKS − 1 times, and then belongs to the nearer end, in doubt. If it differs from both, there is more than one
step. Then the probe belongs to the nearer end, and takes the place of this end in the decisions after it. So the search goes on
with the larger part of the slowdown. Such a difference from both is confirmed at a level for all probes.

A probe is judged up to MOST_LOOKS times. So each look has the level LEVEL ÷ MOST_LOOKS (Bonferroni). A wrong half needs an error
of half the step, which is far rarer than a wrong difference: see `benchmarks/simulated/bisections.py`.

A candidate is named by its place. Place 0 is the good end, and the last place is the bad end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import log, log1p

from orchestrator.compare.bisect.evidence import Evidence, Round
from orchestrator.compare.rules import LEVEL, Rule
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import Direction

RUNS, MOST_LOOKS = 5, 3


class State(StrEnum):
    """The state of a candidate. A candidate without a state is unknown."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


def step(states: Mapping[int, State]) -> tuple[int, int]:
    """Return the places of the last good and of the first bad candidate. The step is after the first of these two."""
    first_bad = min(place for place, state in states.items() if state is State.BAD)
    return max(place for place, state in states.items() if state is State.GOOD and place < first_bad), first_bad


def next_probe(states: Mapping[int, State]) -> int | None:
    """Return the unknown candidate that is nearest to the middle of the step. Return None if no candidate in it is unknown."""
    last_good, first_bad = step(states)
    unknown = [place for place in range(last_good + 1, first_bad) if place not in states]
    return min(unknown, key=lambda place: abs(2 * place - last_good - first_bad), default=None)


def most_probes(last: int) -> int:
    """Return how many probes find the step between place 0 and the last place if no candidate is skipped."""
    return max(last - 1, 0).bit_length()


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmeasured:
    """A candidate that cannot be measured, and the reason. `cure` says what to do if it is an end, besides naming another."""

    why: str
    cure: str = "correct this"


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The state of one probe. A skipped probe has only `why`.

    `from_good` and `from_bad` are the ratios of the probe to the two candidates that it is compared with. If `in_doubt`, it differs
    from neither, and belongs to the nearer one. If `between`, it differs from both by more than the smallest effect that matters.
    """

    place: int
    state: State
    rounds: int = 0
    from_good: Ratio | None = None
    from_bad: Ratio | None = None
    in_doubt: bool = False
    between: bool = False
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The end of a search. `ends` is the ratio bad ÷ good, and `differ` says whether the search went beyond the ends.

    If not, `is_better` says whether bad is clearly better than good. The step is between `last_good` and `first_bad`; all
    candidates in between are skipped. `ratio` is first bad ÷ last good.
    """

    ends: Ratio
    differ: bool
    is_better: bool = False
    rounds: int
    decisions: tuple[Decision, ...] = ()
    last_good: int = 0
    first_bad: int = 0
    ratio: Ratio | None = None

    @property
    def hidden(self) -> range:
        """The places of the skipped candidates before the first bad one. The step may be at any of them."""
        return range(self.last_good + 1, self.first_bad)

    @property
    def in_doubt(self) -> bool:
        """True if a candidate at the step belongs to its side only in doubt."""
        return any(one.in_doubt for one in self.decisions if one.place in (self.last_good, self.first_bad))

    @property
    def probes(self) -> int:
        return sum(one.state is not State.SKIPPED for one in self.decisions)


# Return the first rounds of a probe (None: of the ends), as many as the number says. Earlier rounds are not measured again.
Measure = Callable[[int | None, int], Sequence[Round] | Unmeasured]


def search(
    last: int,
    *,
    rule: Rule,
    measure: Measure,
    on_ends: Callable[[Ratio], None] = lambda ends: None,
    on_decision: Callable[[Decision], None] = lambda decision: None,
) -> Found:
    """Find the step between place 0, which is good, and the last place, which is bad.

    `on_ends` gets the ratio bad ÷ good before the first probe.
    """
    found = _Search(last=last, rule=rule, measure=measure)
    ends = found.compare_ends()
    on_ends(ends)
    is_better, differ = rule.is_better(log(ends.value)), found.differs(ends)
    if is_better or not differ:
        return Found(ends=ends, differ=False, is_better=is_better and differ, rounds=found.rounds)
    decisions = []
    while (place := next_probe(found.states)) is not None:
        decision = found.decide(place)
        found.states[place] = decision.state
        decisions.append(decision)
        on_decision(decision)
    last_good, first_bad = step(found.states)
    return Found(
        ends=found.ratio(0, last),
        differ=True,
        rounds=found.rounds,
        decisions=tuple(decisions),
        last_good=last_good,
        first_bad=first_bad,
        ratio=found.ratio(last_good, first_bad),
    )


@dataclass(kw_only=True)
class _Search:
    """The state of a search. A probe is compared with the candidates `good` and `bad`."""

    last: int
    rule: Rule
    measure: Measure
    states: dict[int, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states |= {0: State.GOOD, self.last: State.BAD}
        self.good, self.bad = 0, self.last
        self.evidence = Evidence(last=self.last, slower_is_more=self.rule.direction is Direction.LOWER)

    @property
    def rounds(self) -> int:
        return len(self.evidence.ends) + sum(map(len, self.evidence.probes.values()))

    def ratio(self, base: int, new: int) -> Ratio:
        return self.evidence.estimate(base, new).ratio()

    def differs(self, ratio: Ratio, *, questions: int = 1) -> bool:
        """Return whether a ratio differs from 1 at one look. `questions` is the number of candidates that are asked about."""
        return ratio.p is not None and ratio.p < LEVEL / MOST_LOOKS / questions

    def compare_ends(self) -> Ratio:
        """Measure both ends until they differ or MOST_LOOKS looks are made. Return bad ÷ good."""
        for look in range(1, MOST_LOOKS + 1):
            rounds = self.measure(None, RUNS * look)
            assert not isinstance(rounds, Unmeasured), "an end that cannot be measured is an error of its own"
            self.evidence.ends = rounds
            ends = self.ratio(0, self.last)
            if self.differs(ends):
                break
        return ends

    def decide(self, place: int) -> Decision:
        """Measure a probe until it differs from an end or MOST_LOOKS looks are made. Return its state."""
        for look in range(1, MOST_LOOKS + 1):
            rounds = self.measure(place, RUNS * look)
            if isinstance(rounds, Unmeasured):
                self.evidence.probes.pop(place, None)
                return Decision(place=place, state=State.SKIPPED, why=rounds.why)
            self.evidence.probes[place] = rounds
            ratios = self.ratio(self.good, place), self.ratio(self.bad, place)
            if sum(map(self.differs, ratios)) == 1 or self._is_between(*ratios):
                break
        return self._decision(place, *ratios)

    def _is_between(self, *ratios: Ratio) -> bool:
        """Return whether a probe differs from both ends. Each probe is asked, so the level is divided by their number."""
        return all(self.differs(ratio, questions=most_probes(self.last)) for ratio in ratios)

    def _decision(self, place: int, from_good: Ratio, from_bad: Ratio) -> Decision:
        ratios, is_between = (from_good, from_bad), self._is_between(from_good, from_bad)
        is_good = abs(log(from_good.value)) < abs(log(from_bad.value))
        matters = all(abs(log(ratio.value)) >= log1p(self.rule.min_effect) for ratio in ratios)
        if is_between:
            self.good, self.bad = (place, self.bad) if is_good else (self.good, place)
        return Decision(
            place=place,
            state=State.GOOD if is_good else State.BAD,
            rounds=len(self.evidence.probes[place]),
            from_good=from_good,
            from_bad=from_bad,
            in_doubt=not any(map(self.differs, ratios)),
            between=is_between and matters,
        )

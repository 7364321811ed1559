"""What a bisection says: a line for each end and each probe, the step in sentences, and the same as JSON."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from orchestrator.compare.bisect.checkout import Candidate
from orchestrator.compare.bisect.evidence import Round
from orchestrator.compare.bisect.search import Decision, Found, Unmeasured, search
from orchestrator.compare.bisect.wording import Words
from orchestrator.compare.rules import Rules

TITLES = (
    *("Start", "Read larger blocks", "Rename the loader", "Log the learning rate", "Share the tokenizer"),
    *("Pad to a multiple of 64", "Count tokens on the GPU", "Use the newer scheduler", "Tidy the imports"),
)
CANDIDATES = [
    Candidate(key=f"{place:x}" * 12, name=f"{place:x}" * 40, title=title, date=f"2026-03-0{place + 1}T10:00:00+01:00")
    for place, title in enumerate(TITLES)
]


def said(level: Callable[[int], float], broken: tuple[int, ...] = ()) -> tuple[list[str], Words, Found]:
    """Return the lines of a bisection before its conclusion, its words and its result. `level` gives the speed of a place."""
    rounds: dict[int | None, list[Round]] = {}
    last = len(CANDIDATES) - 1

    def value(place: int, number: int) -> float:
        return level(place) * math.exp(random.Random(f"{place} {number}").gauss(0, 0.01))

    def measure(place: int | None, count: int) -> list[Round] | Unmeasured:
        if place in broken:
            return Unmeasured(why="run 1: failed (exit_code: the trainer ended with exit code 1)")
        probes = [None if place is None else value(place, one) for one in range(count)]
        rounds[place] = [
            Round(good=value(0, one), bad=value(last, one), probe=probe) for one, probe in enumerate(probes)
        ]
        return rounds[place]

    def values(place: int) -> list[float]:
        if place in (0, last):
            return [one.bad if place else one.good for every in rounds.values() for one in every]
        return [one.probe for one in rounds.get(place, ()) if one.probe is not None]

    words = Words(candidates=CANDIDATES, noun="commit", metric="tokens_per_s", values=values)
    lines: list[str] = []

    def on_decision(decision: Decision) -> None:
        lines.append(words.decision(decision))

    found = search(
        last,
        rule=Rules().of("tokens_per_s"),
        measure=measure,
        on_ends=lambda ends: lines.extend(words.ends(ends)),
        on_decision=on_decision,
    )
    return lines, words, found


def told(lines: list[str], words: Words, found: Found) -> str:
    return "\n".join((*lines, *words.conclusion(found, runs=55, gpu_hours=1.25))) + "\n"


def test_each_line_and_the_step(golden: Callable[[str, str], None]) -> None:
    found = said(lambda place: 5000.0 if place < 6 else 4700.0)
    golden("bisect/step.txt", told(*found))
    golden("bisect/step.json", found[1].document(found[2], runs=55, gpu_hours=1.25, page="bisect/comparison.html"))


def test_a_hidden_step_two_steps_and_none(golden: Callable[[str, str], None]) -> None:
    hidden = said(lambda place: 5000.0 if place < 4 else 4000.0, broken=(4, 5))
    golden("bisect/hidden.txt", told(*hidden))
    golden("bisect/two-steps.txt", told(*said(lambda place: 5000.0 if place < 2 else 4700.0 if place < 7 else 4000.0)))
    golden("bisect/no-step.txt", told(*said(lambda place: 5000.0)) + told(*said(lambda place: 5000.0 + 50 * place)))

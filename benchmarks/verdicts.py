"""Measure how often `compare` gives a false alarm, and how often it finds a change: its own code, on simulated campaigns.

    python benchmarks/verdicts.py [--rows 20000]

A row is one experiment with a few runs on each side; its runs differ by lognormal noise. Interleaved: in each round
both sides run once, in a new random order. A drift goes over the whole campaign, from the first run to the last:
along a line, or as a random walk with the same standard deviation at its end. A false alarm is a row of two equal
sides that is called improved or regressed. Found is a row that is 5 % slower and is called regressed. Seeded: the
tables are the same on every machine.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from orchestrator.compare.comparison import Entry, Pair, Run, Side, Verdict
from orchestrator.compare.rules import LEVEL, Correction, Rules
from orchestrator.compare.verdicts import compare
from orchestrator.measure.intervals import paired_ratio

METRIC, SLOWER, MIN_EFFECT = "tokens_per_s", 1 / 1.05, 0.02
NOISES, RUNS, DRIFT, CAMPAIGN = (0.005, 0.01, 0.015, 0.02, 0.03), (3, 5, 10), 0.05, 20

# From a number of runs to the drift of the logarithm at each run.
Drift = Callable[[random.Random, int], list[float]]


def none(rng: random.Random, count: int) -> list[float]:
    return [0.0] * count


def line(rng: random.Random, count: int) -> list[float]:
    return [DRIFT * place / (count - 1) for place in range(count)]


def walk(rng: random.Random, count: int) -> list[float]:
    return list(accumulate(rng.gauss(0, DRIFT / math.sqrt(count)) for _ in range(count)))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One kind of campaign: runs per side, noise between runs, and their order."""

    runs: int = 5
    noise: float = 0.015
    drift: Drift = none
    interleaved: bool = True


def order(rng: random.Random, setting: Setting) -> list[int]:
    """Return the side (0 base, 1 new) of each run of an experiment, in the order of time."""
    if not setting.interleaved:
        return [0] * setting.runs + [1] * setting.runs
    return [side for _ in range(setting.runs) for side in rng.sample((0, 1), 2)]


def experiment(rng: random.Random, setting: Setting, *, effect: float) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Return the runs of both sides; `effect` is the new side's true ratio."""
    found: tuple[list[Run], list[Run]] = ([], [])
    drift = setting.drift(rng, 2 * setting.runs)
    for place, side in enumerate(order(rng, setting)):
        value = 1000 * math.exp(rng.gauss(0, setting.noise) + drift[place]) * (effect if side else 1)
        run = Run(repeat=len(found[side]) + 1, numbers={METRIC: value}, started_at=60.0 * place)
        found[side].append(run)
    return tuple(found[0]), tuple(found[1])


def campaign(rng: random.Random, setting: Setting, *, effects: list[float]) -> list[Pair]:
    """Return one pair for each true ratio."""
    pairs = []
    for number, effect in enumerate(effects):
        label = str(number)
        both = (
            Entry(key={"scenario": label}, label=label, status="ok", runs=runs)
            for runs in experiment(rng, setting, effect=effect)
        )
        base, new = both
        pairs.append(Pair(label=label, base=base, new=new))
    return pairs


def verdicts(pairs: list[Pair], *, correction: Correction) -> list[Verdict]:
    rules = Rules(min_effect=MIN_EFFECT, correction=correction)
    sides = (Side(name=name, entries=()) for name in ("base", "new"))
    return [row.verdict for row in compare(*sides, pairs=pairs, rules=rules).rows]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Return the share of the rows that is called regressed, and the share that is called improved."""

    regressed: float
    improved: float

    @property
    def either(self) -> float:
        return self.regressed + self.improved


def rows_alone(rows: int, setting: Setting, *, effect: float = 1.0, seed: int = 1) -> Shares:
    """Judge each row by itself, without correction, as in a comparison of one experiment."""
    rng = random.Random(seed)
    found = verdicts(campaign(rng, setting, effects=[effect] * rows), correction=Correction.NONE)
    return _shares(found)


def rows_of_campaigns(rows: int, setting: Setting, *, slower: int, of_slower: bool, seed: int = 1) -> Shares:
    """Judge campaigns of 20 experiments with correction. Some experiments are slower.

    Return the shares of the slower experiments, or of the others.
    """
    rng = random.Random(seed)
    found: list[Verdict] = []
    for _ in range(rows // CAMPAIGN):
        effects = [SLOWER] * slower + [1.0] * (CAMPAIGN - slower)
        said = verdicts(campaign(rng, setting, effects=effects), correction=Correction.BH)
        found += said[:slower] if of_slower else said[slower:]
    return _shares(found)


def rows_by_round(rows: int, setting: Setting, *, effect: float = 1.0, seed: int = 1) -> Shares:
    """Judge with Student's t over the ratios of the rounds, instead of fitting a line."""
    rng, found = random.Random(seed), []
    for _ in range(rows):
        sides = experiment(rng, setting, effect=effect)
        ratio = paired_ratio(*([run.numbers[METRIC] for run in runs] for runs in sides))
        counts = ratio.p is not None and ratio.p < LEVEL and abs(math.log(ratio.value)) >= math.log1p(MIN_EFFECT)
        found.append((Verdict.REGRESSED if ratio.value < 1 else Verdict.IMPROVED) if counts else Verdict.SAME)
    return _shares(found)


def _shares(found: list[Verdict]) -> Shares:
    return Shares(
        regressed=found.count(Verdict.REGRESSED) / len(found), improved=found.count(Verdict.IMPROVED) / len(found)
    )


def five_a_side(rows: int) -> Iterator[str]:
    """Judge each way to run, with five runs per side and 1.5 % noise between runs."""
    yield "| | false alarms | of these called slower | 5 % slower found |"
    yield "|---|--:|--:|--:|"
    kinds = {
        "interleaved": Setting(),
        "interleaved, 5 % of drift along a line": Setting(drift=line),
        "interleaved, 5 % of drift as a random walk": Setting(drift=walk),
        "one side after the other": Setting(interleaved=False),
        "one side after the other, 5 % of drift along a line": Setting(interleaved=False, drift=line),
    }
    ways = [(name, rows_alone, setting) for name, setting in kinds.items()]
    ways += [(f"*paired by round:* {name}", rows_by_round, kinds[name]) for name in list(kinds)[:2]]
    for name, shares, setting in ways:
        same, slower = shares(rows, setting), shares(rows, setting, effect=SLOWER, seed=2)
        yield f"| {name} | {same.either:.1%} | {same.regressed:.1%} | {slower.regressed:.1%} |"


def by_noise_and_runs(rows: int) -> Iterator[str]:
    """Return false alarms and found changes for several noises between runs and several numbers of runs."""
    yield "| between runs | " + " | ".join(f"{runs} × {runs}" for runs in RUNS) + " |"
    yield "|---|" + "--:|" * len(RUNS)
    for noise in NOISES:
        cells = []
        for runs in RUNS:
            setting = Setting(runs=runs, noise=noise)
            same, slower = rows_alone(rows, setting), rows_alone(rows, setting, effect=SLOWER, seed=2)
            cells.append(f"{same.either:.1%} / {slower.regressed:.1%}")
        yield f"| {noise * 100:g} % | " + " | ".join(cells) + " |"


def in_campaigns(rows: int) -> Iterator[str]:
    """Return the same for campaigns in which some experiments, no experiments or all experiments are slower."""
    yield "| of these 5 % slower | runs | false alarms among the others | slower ones found |"
    yield "|--:|--:|--:|--:|"
    for runs in RUNS:
        for slower in (0, 1, 10, CAMPAIGN):
            setting = Setting(runs=runs)
            others = rows_of_campaigns(rows, setting, slower=slower, of_slower=False) if slower < CAMPAIGN else None
            them = rows_of_campaigns(rows, setting, slower=slower, of_slower=True) if slower else None
            cells = (f"{others.either:.2%}" if others else "", f"{them.regressed:.1%}" if them else "")
            yield f"| {slower} | {runs} × {runs} | " + " | ".join(cells) + " |"


def lines(rows: int) -> Iterator[str]:
    """Return the tables as Markdown."""
    yield f"{rows} rows each; smallest effect that matters {MIN_EFFECT:.0%}, level {LEVEL:g}."
    yield "\nFive runs a side, 1.5 % between runs, each row by itself:\n"
    yield from five_a_side(rows)
    yield "\nInterleaved, each row by itself: false alarms / 5 % slower found\n"
    yield from by_noise_and_runs(rows)
    yield f"\nInterleaved, 1.5 % between runs, in campaigns of {CAMPAIGN} experiments, corrected (Benjamini-Hochberg):\n"
    yield from in_campaigns(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    for text in lines(parser.parse_args().rows):
        print(text, flush=True)


if __name__ == "__main__":
    main()

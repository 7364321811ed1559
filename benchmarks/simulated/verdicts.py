"""Measure `compare` on simulated campaigns of many shapes: false alarms, found changes, exit codes. Its own functions judge.

    python benchmarks/simulated/verdicts.py [--campaigns 2000] [--only targets]

Every figure is a share in per cent, with half the width of its 95 % interval. A false alarm is an unchanged row that is
called improved or regressed. Found is a slower row that is called regressed. Targets and figures of one row have all campaigns.
Other figures of 20 rows have a quarter of them, and of 200 rows a twentieth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import shapes
from figures import Share, Target, line, of_targets, options, share, table
from shapes import MEMORY, Shape
from simulation import MOVED, Simulation, judged

from orchestrator.compare import gate
from orchestrator.compare.comparison import Pair, Verdict

# A run of 20 steps with AR(0.8) noise has no steady state in about 4 % of the cases.
NOT_STEADY = 0.04

ONE_ROW = {
    "normal, 3 runs": Shape(runs=3),
    "normal, sd 0.5 %": Shape(sd=0.005),
    "normal": Shape(),
    "normal, sd 3 %": Shape(sd=0.03),
    "normal, 10 runs": Shape(runs=10),
    "heavy tails (t, 3 degrees)": Shape(noise="t3"),
    "first run of both sides cold, 3 runs": Shape(runs=3, cold="both"),
    "first run of both sides cold, sd 0.5 %": Shape(sd=0.005, cold="both"),
    "first run of both sides cold": Shape(cold="both"),
    "first run of both sides cold, 10 runs": Shape(runs=10, cold="both"),
    "first run in time cold": Shape(cold="time"),
    "first run of base cold": Shape(cold="base"),
    "drift of 5 %": Shape(drift=0.05),
    "drift of 5 %, one side after the other": Shape(drift=0.05, in_turns=False),
    "one side after the other": Shape(in_turns=False),
    "two modes 1 % apart": Shape(noise="two modes"),
    "1 run in 10 is 3 % slower": Shape(noise="rare slow"),
    "sd 0.75 and 2.25 %": Shape(unequal=3),
    "sd 1.5 and 4.5 %": Shape(sd=0.03, unequal=3),
}

TWENTY = {
    "normal": Shape(rows=20),
    "normal, sd 0.5 %": Shape(rows=20, sd=0.005),
    "normal, 3 runs": Shape(rows=20, runs=3),
    "normal, 3 runs, sd 0.5 %": Shape(rows=20, runs=3, sd=0.005),
    "normal, 10 runs": Shape(rows=20, runs=10),
    "sds spread over the rows, e^N(0, 0.5)": Shape(rows=20, spread=0.5),
    "heavy tails (t, 3 degrees)": Shape(rows=20, noise="t3"),
    "two modes 1 % apart": Shape(rows=20, noise="two modes"),
    "1 run in 10 is 3 % slower": Shape(rows=20, noise="rare slow"),
    "sd 0.75 and 2.25 %": Shape(rows=20, unequal=3),
    "drift of 5 %": Shape(rows=20, drift=0.05),
    "first run of both sides cold": Shape(rows=20, cold="both"),
    "first run of base cold": Shape(rows=20, cold="base"),
    "first run in time cold": Shape(rows=20, cold="time"),
    "common to a round, 1 %": Shape(rows=20, common=0.01),
    "common to a round, 1 %, 3 runs": Shape(rows=20, runs=3, common=0.01),
    "common to a round, 1.5 %": Shape(rows=20, common=0.015),
    "a day's difference, 1 %, one side after the other": Shape(rows=20, in_turns=False, day=0.01),
}
MANY = Shape(rows=200)

MEMORIES = {
    "sd 0.5 %": Shape(metric=MEMORY, sd=0.005),
    "sd 1 %": Shape(metric=MEMORY, sd=0.01),
    "two levels 3 % apart, 20 % of runs": Shape(metric=MEMORY, sd=0.001, noise="levels 3 %"),
    "two levels 8 % apart, 10 % of runs": Shape(metric=MEMORY, sd=0.001, noise="levels 8 %"),
}
RUNS_OF_MEMORY = ((1, 1), (3, 3), (3, 10), (5, 5), (5, 15), (10, 10))


def one_row(simulation: Simulation) -> Iterator[str]:
    """Judge campaigns of a single experiment."""
    yield from table("one row", "false alarms", "same", "inconclusive", "+2 % found", "+3 %", "+5 %")
    for name, shape in ONE_ROW.items():
        same = simulation.of(shape)
        found = [simulation.of(shape, slow=1, by=by).found for by in (0.02, 0.03, 0.05)]
        yield line(name, same.rows(*MOVED), same.rows(Verdict.SAME), same.rows(Verdict.INCONCLUSIVE), *found)


def campaigns(simulation: Simulation) -> Iterator[str]:
    """Judge campaigns of 20 experiments: all are unchanged, or one is slower."""
    yield from table(
        "20 rows", "false alarms, rows", "exit 0", "exit 1", "exit 3", "fleet moved", "one row +5 %: found", "exit 0"
    )
    for name, shape in TWENTY.items():
        same, one = (simulation.of(shape, slow=slow, fewer=4) for slow in (0, 1))
        exits = [same.exits(code) for code in (0, 1, 3)]
        yield line(name, same.rows(*MOVED), *exits, same.fleet(*MOVED), one.found, one.exits(0))


def many_slow(simulation: Simulation) -> Iterator[str]:
    """Judge campaigns in which many experiments are slower."""
    yield from table(
        "rows slower by 5 %", "found, 3 runs", "5 runs", "10 runs", "false alarms among the others, 5 runs"
    )
    for rows, slow, fewer in ((20, 1, 4), (20, 10, 4), (20, 20, 4), (200, 1, 20), (200, 5, 20)):
        kinds = [simulation.of(Shape(rows=rows, runs=runs), slow=slow, fewer=fewer) for runs in (3, 5, 10)]
        yield line(f"{slow} of {rows}", *(kind.found for kind in kinds), kinds[1].rows(*MOVED))


def fleet(simulation: Simulation) -> Iterator[str]:
    """Judge all experiments together, with an effect that all rows of a round share."""
    yield from table(
        "20 rows, common to a round",
        "moved, 3 runs",
        "of these slower",
        "5 runs",
        "of these slower",
        "all +2 %: found, 3 runs",
        "5 runs",
    )
    for common in (0.0, 0.005, 0.01, 0.015):
        kinds = [Shape(rows=20, runs=runs, common=common) for runs in (3, 5)]
        same = [
            simulation.of(shape, fewer=4).fleet(*verdicts)
            for shape in kinds
            for verdicts in (MOVED, (Verdict.REGRESSED,))
        ]
        found = [simulation.of(shape, slow=20, by=0.02, fewer=8).fleet(Verdict.REGRESSED) for shape in kinds]
        yield line(f"{100 * common:g} %", *same, *found)


def memory(simulation: Simulation) -> Iterator[str]:
    """Judge peaks of memory: unchanged, and 5 % higher."""
    yield from table("memory: regressed / +5 % found", *(f"{base} v {new}" for base, new in RUNS_OF_MEMORY))
    for name, shape in MEMORIES.items():
        cells = []
        for base, new in RUNS_OF_MEMORY:
            sized = replace(shape, runs=base, new_runs=new)
            same, higher = simulation.of(sized), simulation.of(sized, slow=1)
            cells.append(f"{same.rows(Verdict.REGRESSED)} / {100 * higher.found.value:.1f}")
        yield line(name, *cells)


@cache
def decided(simulation: Simulation, shape: Shape, by: float) -> tuple[Share, list[int]]:
    """Make as many further runs as an inconclusive row asks for. Return how often they decide it, and the asked numbers."""
    rng, asked, settled = shapes.generator(simulation.seed, f"needs {shape} {by}"), [], []
    for _ in range(simulation.campaigns):
        pairs = shapes.campaign(rng, replace(shape, runs=400), [by])
        (row,) = judged([_first_runs(pairs[0], shape.runs)]).rows
        if row.needs is not None:
            asked.append(row.needs)
            (after,) = judged([_first_runs(pairs[0], shape.runs + row.needs)]).rows
            settled.append(after.verdict is not Verdict.INCONCLUSIVE)
    return share(settled), asked


def _first_runs(pair: Pair, count: int) -> Pair:
    base, new = (replace(entry, runs=entry.runs[:count]) for entry in (pair.base, pair.new) if entry is not None)
    return replace(pair, base=base, new=new)


def needs(simulation: Simulation) -> Iterator[str]:
    """Follow the advice of inconclusive rows."""
    yield from table(
        "inconclusive rows that get the runs that they ask for",
        "decided, 3 runs",
        "asked (median)",
        "decided, 5 runs",
        "asked",
    )
    for name, by in (("unchanged", 0.0), ("+3 %", 0.03), ("+5 %", 0.05)):
        kinds = [decided(simulation, Shape(runs=runs), by) for runs in (3, 5)]
        yield line(name, *(cell for part, asked in kinds for cell in (part, f"{np.median(asked or [0]):.0f}")))


def lost(simulation: Simulation) -> Share:
    """Return how often a campaign with one run per side ends with exit code 1, because some runs never became steady."""
    rng, codes = shapes.generator(simulation.seed, "lost"), []
    for _ in range(simulation.campaigns):
        pairs = shapes.campaign(rng, Shape(rows=20, runs=1), [])
        refused = rng.random(20) < NOT_STEADY
        without = [_without_speed(pair) if gone else pair for pair, gone in zip(pairs, refused, strict=True)]
        codes.append(gate.exit_code(judged(without)))
    return share(code == gate.WORSE for code in codes)


def _without_speed(pair: Pair) -> Pair:
    assert pair.new is not None
    return replace(
        pair, new=replace(pair.new, runs=tuple(replace(run, numbers={}, never_steady=True) for run in pair.new.runs))
    )


def targets(simulation: Simulation) -> Iterator[str]:
    yield from of_targets((*_of_rows(simulation), *_of_campaigns(simulation), *_of_memory(simulation)))


def _of_rows(simulation: Simulation) -> Iterator[Target]:
    of = simulation.of
    clean, cold = Shape(), Shape(cold="both")
    yield Target(name="clean, 1 row: false alarms", share=of(clean).rows(*MOVED), at_most=0.017)
    yield Target(name="clean, 1 row: +5 % found", share=of(clean, slow=1).found, at_least=0.983)
    yield Target(name="cold, 1 row: +5 % found", share=of(cold, slow=1).found, at_least=0.9)
    four = of(replace(clean, runs=4)).rows(Verdict.SAME).value
    yield Target(
        name="cold, 1 row: same, as on clean data with 4 runs", share=of(cold).rows(Verdict.SAME), at_least=four
    )
    yield Target(name="cold, 1 row: false alarms", share=of(cold).rows(*MOVED), at_most=0.02)
    for runs, by in ((3, 0.0), (5, 0.0), (3, 0.03), (5, 0.03)):
        part, _ = decided(simulation, Shape(runs=runs), by)
        yield Target(name=f"`needs` decides, {runs} runs, {by:+.0%}", share=part, at_least=0.8)


def _of_campaigns(simulation: Simulation) -> Iterator[Target]:
    of, twenty = simulation.of, Shape(rows=20)
    yield Target(name="1 slow of 20, 5 runs: found", share=of(twenty, slow=1).found, at_least=0.95)
    yield Target(name="1 slow of 20, 3 runs: found", share=of(replace(twenty, runs=3), slow=1).found, at_least=0.65)
    yield Target(name="1 slow of 200: found", share=of(MANY, slow=1).found, at_least=0.85)
    yield Target(name="20 rows: false alarms per row", share=of(twenty).rows(*MOVED), at_most=0.002)
    yield Target(name="200 rows: false alarms per row", share=of(MANY, slow=1).rows(*MOVED), at_most=0.002)
    yield Target(name="20 rows unchanged: exit 0", share=of(twenty).exits(0), at_least=0.95)
    yield Target(name="1 slow of 20: exit 0", share=of(twenty, slow=1).exits(0), at_most=0.025)
    for runs in (3, 5, 10):
        shape = Shape(rows=20, runs=runs, common=0.01)
        yield Target(
            name=f"common to a round 1 %, {runs} runs: fleet moved", share=of(shape).fleet(*MOVED), at_most=0.03
        )
    cold = of(Shape(rows=20, cold="base")).fleet(Verdict.IMPROVED)
    yield Target(name="first run of base cold: fleet improved", share=cold, at_most=0.02)
    yield Target(name="1 run per side, 4 % never steady: exit 1", share=lost(simulation), at_most=0.02)


def _of_memory(simulation: Simulation) -> Iterator[Target]:
    """Yield the worst figure of each kind, over the numbers of runs per side."""
    for name, shape in MEMORIES.items():
        sized = [replace(shape, runs=base, new_runs=new) for base, new in RUNS_OF_MEMORY[1:]]
        for few, bound in ((True, 0.04), (False, 0.02)):
            kinds = [simulation.of(each).rows(Verdict.REGRESSED) for each in sized if (each.runs == 3) is few]
            runs = "3 runs on a side" if few else "from 5 v 5"
            yield Target(
                name=f"memory, {name}, {runs}: regressed", share=max(kinds, key=lambda part: part.value), at_most=bound
            )
        found = min((simulation.of(each, slow=1).found for each in sized), key=lambda part: part.value)
        yield Target(name=f"memory, {name}: +5 % found", share=found, at_least=0.95)


TABLES = {
    "targets": targets,
    "one_row": one_row,
    "campaigns": campaigns,
    "many_slow": many_slow,
    "fleet": fleet,
    "memory": memory,
    "needs": needs,
}


def main() -> None:
    asked = options(__doc__, 2000, *TABLES)
    simulation = Simulation(asked.campaigns, asked.seed)
    print(f"{asked.campaigns} campaigns for each target and each figure of one row, seed {asked.seed}.")
    print("Noise 1.5 %, 5 runs per side, in turns, unless a row says otherwise.")
    for name in asked.only:
        for text in TABLES[name](simulation):
            print(text, flush=True)


if __name__ == "__main__":
    main()

"""Simulate bisections of 64 commits with the search of `tunebench bisect`, and count how often it finds the planted step.

    python benchmarks/simulated/bisections.py [--bisections 500] [--commits 64]

The noise of a run's time is 1.5 %, unless the row says otherwise. The step is after a random commit. Found means that the step is
between the last good and the first bad commit, which are neighbours unless commits between them are skipped. With two
steps, either of them counts. A probe counts if it is measured; a skipped commit is not a probe. In doubt: the search itself says
that the commits at the step differ from neither end.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from shapes import COLD, NOISES, SEED, SPEED, generator

from orchestrator.compare.bisect.evidence import Round
from orchestrator.compare.bisect.search import Found, Unmeasured, most_probes, search
from orchestrator.compare.rules import Rules


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One kind of bisection. `steps` are the slowdowns, `skipped` the share of commits that cannot be measured.

    `drift` goes along a line over 300 runs. With `cold`, the first run of every commit is slower.
    """

    steps: tuple[float, ...] = (0.05,)
    sd: float = 0.015
    noise: str = "normal"
    skipped: float = 0.0
    drift: float = 0.0
    cold: bool = False


SHAPES = {
    "5 %": Shape(),
    "5 %, heavy tails (t, 3 degrees)": Shape(noise="t3"),
    "5 %, 1 run in 10 is 3 % slower": Shape(noise="rare slow"),
    "5 %, drift of 10 % over 300 runs": Shape(drift=0.1),
    "5 %, first runs cold (5 to 14 %)": Shape(cold=True),
    "5 %, 10 % of the commits skipped": Shape(skipped=0.1),
    "5 %, noise 3 %": Shape(sd=0.03),
    "3 %": Shape(steps=(0.03,)),
    "2 %": Shape(steps=(0.02,)),
    "two steps of 4 %": Shape(steps=(0.04, 0.04)),
    "two steps of 5 % and 15 %": Shape(steps=(0.05, 0.15)),
    "no step": Shape(steps=()),
}


@dataclass(kw_only=True)
class Repository:
    """Simulated commits. `first` has the places of the first commits after each step."""

    shape: Shape
    last: int
    rng: np.random.Generator
    first: Sequence[int] = ()
    skipped: frozenset[int] = frozenset()
    runs: int = 0
    rounds: dict[int | None, list[Round]] = field(default_factory=dict)

    def measure(self, place: int | None, count: int) -> list[Round] | Unmeasured:
        if place in self.skipped:
            return Unmeasured(why="it cannot be built")
        known = self.rounds.setdefault(place, [])
        while len(known) < count:
            every = (0, self.last) if place is None else (0, self.last, place)
            order = self.rng.permutation(len(every))
            values = dict(zip(order.tolist(), (self._run(every[at], not known and place) for at in order), strict=True))
            known.append(Round(good=values[0], bad=values[1], probe=values.get(2)))
        return known

    def _run(self, place: int, fresh: int | bool | None) -> float:
        """Return the speed of one run. `fresh` is the place whose first run this may be; None means both ends."""
        shape = self.shape
        noise = float(NOISES[shape.noise](self.rng, (1,), np.array([shape.sd]))[0])
        slower = sum(math.log1p(by) for by, first in zip(shape.steps, self.first, strict=True) if place >= first)
        is_cold = shape.cold and (fresh is None or (fresh is not False and fresh == place))
        cold = math.log1p(self.rng.uniform(*COLD)) if is_cold else 0.0
        self.runs += 1
        return 1000 * math.exp(-(noise + slower + cold + shape.drift * self.runs / 300))


def simulated(shape: Shape, last: int, rng: np.random.Generator) -> tuple[Repository, Found]:
    first = sorted((1 + rng.choice(last, size=len(shape.steps), replace=False)).tolist())
    skipped = frozenset((1 + np.flatnonzero(rng.random(last - 1) < shape.skipped)).tolist())
    repository = Repository(shape=shape, last=last, rng=rng, first=first, skipped=skipped)
    return repository, search(last, rule=Rules().of(SPEED), measure=repository.measure)


def row(name: str, shape: Shape, given: argparse.Namespace) -> str:
    rng, last = generator(given.seed, f"bisect {name}"), given.commits
    done = [simulated(shape, last, rng) for _ in range(given.bisections)]
    every = [(repository, found) for repository, found in done if found.differ]
    right = [found for one, found in every if any(found.last_good < at <= found.first_bad for at in one.first)]
    within = [found for found in right if found.probes <= most_probes(last) + 2]
    probes, runs = [found.probes for _, found in every] or [0], [repository.runs for repository, _ in done]
    cells = (
        *(f"{100 * len(some) / len(done):.1f}" for some in (every, right, within)),
        f"{100 * sum(found.in_doubt for _, found in every) / len(done):.1f}",
        f"{100 * sum(any(one.between for one in found.decisions) for _, found in every) / len(done):.1f}",
        f"{np.median(probes):.0f} / {np.quantile(probes, 0.95):.0f}",
        f"{np.median(runs):.0f} / {np.quantile(runs, 0.95):.0f}",
    )
    return f"| {' | '.join((name, *cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bisections", type=int, default=500)
    parser.add_argument("--commits", type=int, default=64)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    most, began = most_probes(given.commits) + 2, time.monotonic()
    columns = ("step", "ends differ, %", "found, %", f"found in at most {most} probes, %", "in doubt, %")
    columns += ("several steps, %", "probes: median / p95", "runs: median / p95")
    print(f"| {' | '.join(columns)} |\n|---|{'--:|' * (len(columns) - 1)}")
    for name, shape in SHAPES.items():
        print(row(name, shape, given), flush=True)
    print(f"\n{given.bisections} bisections of {given.commits} commits per row, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

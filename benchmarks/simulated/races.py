"""Simulate searches for the fastest of many experiments, by a full grid and by a race, and count how good the choices are.

    python benchmarks/simulated/races.py [--campaigns 1000]

The grid runs each experiment three times with 100 steps and chooses the highest mean. The race has runs of 30 steps, and the
rules of `measure/intervals/race.py`, without the repeats of its winner at the end. The speeds of the experiments are log-normal.
A run needs 13 s until its steps begin, and 0.34 s for a step, as on an H200 (`config:llama-1b`). In a run, steps differ by 2 %,
and neighbouring steps are alike (AR(1), 0.5). Both ways meet the same noise, drift and cold runs, but not the same random numbers.
A choice is judged by its true speed.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from shapes import COLD, NOISES, SEED, generator

from orchestrator.measure.intervals.race import NoSpeed, race

START_S, STEP_S, GRID_RUNS, GRID_STEPS, RACE_STEPS = 13.0, 0.34, 3, 100, 30
OF_STEPS = 0.02
# The speed drifts up and down by this period.
PERIOD_S = 3 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One kind of campaign. `spread` is that of the experiments' speeds, `sd` that of the runs of one experiment.

    `drift` is how far the speed of everything moves up and down. `cold` is the share of experiments whose first run is cold.
    `compile_s` is added to each run of every second experiment. With `sizes`, that many neighbouring experiments differ in their
    batch size b = 1, 2, 4 … only. Their speeds have the factor b / (b + h), where h is log-normal around 2, and lose the share
    `falls` at each doubling beyond 8.
    """

    cells: int = 48
    spread: float = 0.25
    sd: float = 0.015
    noise: str = "normal"
    drift: float = 0.0
    cold: float = 0.0
    compile_s: float = 0.0
    sizes: int = 1
    falls: float = 0.0


SHAPES = {
    "12": Shape(cells=12),
    "12: 2 with 6 batch sizes each": Shape(cells=12, sizes=6),
    "24": Shape(cells=24),
    "48": Shape(),
    "48, spread 10 %": Shape(spread=0.1),
    "96, spread 15 %": Shape(cells=96, spread=0.15),
    "200": Shape(cells=200),
    "48, noise 0.5 %": Shape(sd=0.005),
    "48, noise 4 %": Shape(sd=0.04),
    "48, heavy tails (t, 3 degrees)": Shape(noise="t3"),
    "48, 1 run in 10 is 3 % slower": Shape(noise="rare slow"),
    "48, drift of ±3 % in 3 h": Shape(drift=0.03),
    "48, every 3rd first run cold (5 to 14 %)": Shape(cold=1 / 3),
    "48, all first runs cold (5 to 14 %)": Shape(cold=1.0),
    "48, half of them compile for 45 s": Shape(compile_s=45.0),
    "48: 8 with 6 batch sizes each": Shape(sizes=6),
    "48: 8 with 6 batch sizes each, noise 4 %": Shape(sizes=6, sd=0.04),
    "48: 8 with 6 batch sizes each, a peak": Shape(sizes=6, falls=0.03),
    "48: 6 with 8 batch sizes each, a peak, drift": Shape(sizes=8, falls=0.01, drift=0.03),
}


@dataclass(kw_only=True)
class Machine:
    """A machine that runs experiments one after the other. `speeds` are the true logarithms."""

    shape: Shape
    speeds: Sequence[float]
    rng: np.random.Generator
    phase: float
    clock_s: float = 0.0
    seen: set[int] = field(default_factory=set)

    def run(self, cell: int, steps: int) -> float:
        """Return the logarithm of a run's measured speed."""
        shape, rng = self.shape, self.rng
        noise = float(NOISES[shape.noise](rng, (1,), np.array([shape.sd]))[0])
        of_steps = rng.normal(0.0, OF_STEPS * math.sqrt(3 / steps))  # AR(1) with 0.5 triples the variance of a mean
        drift = shape.drift * math.sin(2 * math.pi * self.clock_s / PERIOD_S + self.phase)
        is_cold = cell not in self.seen and rng.random() < shape.cold
        cold = math.log1p(rng.uniform(*COLD)) if is_cold else 0.0
        self.seen.add(cell)
        self.clock_s += START_S + steps * STEP_S + self.is_slow(cell) * shape.compile_s
        return self.speeds[cell] - noise + of_steps + drift - cold

    def is_slow(self, cell: int) -> bool:
        return self.shape.compile_s > 0 and cell % 2 == 1


def grid(machine: Machine) -> int:
    """Return the experiment that the full grid chooses."""
    cells = len(machine.speeds)
    values = np.zeros(cells)
    for _ in range(GRID_RUNS):
        for cell in machine.rng.permutation(cells).tolist():
            values[cell] += machine.run(cell, GRID_STEPS)
    return int(values.argmax())


def raced(machine: Machine) -> int:
    """Return the experiment that the race chooses."""
    names = [str(cell) for cell in range(len(machine.speeds))]
    slow = [name for name in names if machine.is_slow(int(name))]
    runs: dict[str, list[float | NoSpeed]] = {name: [] for name in names}
    size = machine.shape.sizes
    orders = [names[at : at + size] for at in range(0, len(names), size)] if size > 1 else []
    most = GRID_RUNS * len(names)
    while (state := race(names, runs, slow=slow, orders=orders, repeats=GRID_RUNS, most=most)).due:
        for name in machine.rng.permutation(state.due).tolist():
            runs[name].append(machine.run(int(name), RACE_STEPS))
    return int(state.racing[0])


def true_speeds(shape: Shape, rng: np.random.Generator) -> list[float]:
    """Return the logarithm of each experiment's speed. Shape: [cells]."""
    count = shape.cells // shape.sizes
    base = rng.normal(0.0, shape.spread, (count, 1))
    if shape.sizes == 1:
        return base.ravel().tolist()
    doublings = np.arange(shape.sizes)
    half = 2 * np.exp(rng.normal(0.0, 1.0, (count, 1)))
    rising = np.log(2.0**doublings / (2.0**doublings + half))
    falling = np.log1p(-shape.falls * np.maximum(0, doublings - 3))
    return (base + rising + falling).ravel().tolist()


def row(name: str, shape: Shape, given: argparse.Namespace) -> str:
    rng = generator(given.seed, f"race {name}")
    hours: dict[str, list[float]] = {"grid": [], "race": []}
    lost: dict[str, list[float]] = {"grid": [], "race": []}
    for _ in range(given.campaigns):
        speeds, phase = true_speeds(shape, rng), rng.uniform(0, 2 * math.pi)
        for way, choose in (("grid", grid), ("race", raced)):
            machine = Machine(shape=shape, speeds=speeds, rng=rng, phase=phase)
            lost[way].append(max(speeds) - speeds[choose(machine)])
            hours[way].append(machine.clock_s / 3600)
    shares = [f"{100 * np.mean(np.array(lost[way]) <= within):.1f}" for within in (0.01, 0.02) for way in hours]
    times = [float(np.mean(of_way)) for of_way in hours.values()]
    return f"| {' | '.join((name, *(f'{hour:.2f}' for hour in times), f'{times[0] / times[1]:.1f}', *shares))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    began = time.monotonic()
    columns = ["experiments", "grid, GPU-h", "race, GPU-h", "fewer, ×"]
    columns += [f"{way} within {within} %, %" for within in (1, 2) for way in ("grid", "race")]
    print(f"| {' | '.join(columns)} |\n|---|{'--:|' * (len(columns) - 1)}")
    for name, shape in SHAPES.items():
        print(row(name, shape, given), flush=True)
    print(f"\n{given.campaigns} campaigns per row, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

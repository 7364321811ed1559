"""Measure how often `tunebench history` finds a false step, and how often a real one, as a table for docs/history.md.

    python benchmarks/change_points.py

The command's own code searches series of white noise. Each series has a step of some noise widths in its middle. `near`: exactly
one step was found, at most one campaign from its place. Seeded: the table is the same on every machine. Takes a minute.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from orchestrator.compare.history.change_points import levels

SERIES = 1000
COUNTS = (4, 6, 8, 12, 16, 24, 40)
SIZES = (2, 3, 5, 8)


def normal(rng: random.Random) -> float:
    return rng.gauss(0, 1)


def heavy_tailed(rng: random.Random) -> float:
    """Draw from Student's t with three degrees of freedom, with variance 1."""
    return rng.gauss(0, 1) / math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(3)))


def correlated(rng: random.Random) -> Callable[[random.Random], float]:
    """Return noise in which each value keeps 0.3 of the previous one."""
    state = rng.gauss(0, 1)

    def following(rng: random.Random) -> float:
        nonlocal state
        state = 0.3 * state + math.sqrt(1 - 0.3**2) * rng.gauss(0, 1)
        return state

    return following


def shares(count: int, size: float, noise: str) -> tuple[float, float]:
    """Return the share of series in which any step was found, and the share with a single step near its true place."""
    rng = random.Random(f"{count} {size} {noise}")
    found = near = 0
    for _ in range(SERIES):
        draw = {"normal": normal, "heavy": heavy_tailed}.get(noise) or correlated(rng)
        values = [draw(rng) + (size if at >= count // 2 else 0) for at in range(count)]
        starts = [level.start for level in levels(values, errors=[1e-6] * count)[1:]]
        found += bool(starts)
        near += len(starts) == 1 and abs(starts[0] - count // 2) <= 1
    return found / SERIES, near / SERIES


def main() -> None:
    print(
        "| campaigns | none: normal | none: t₃ | none: AR(0.3) |",
        " | ".join(f"{size}: found (near)" for size in SIZES),
        "|",
    )
    print("|" + "---:|" * (4 + len(SIZES)))
    for count in COUNTS:
        false = [f"{shares(count, 0, noise)[0]:.1%}" for noise in ("normal", "heavy", "correlated")]
        true = ["{:.0%} ({:.0%})".format(*shares(count, size, "normal")) for size in SIZES]
        print(f"| {count} |", " | ".join([*false, *true]), "|", flush=True)


if __name__ == "__main__":
    main()

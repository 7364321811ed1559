"""Draw campaigns, histories and step times of all shapes in which the rules must hold. The drivers in this folder judge them.

The numbers come from numpy's generator. A driver gives each figure a generator of its own, seeded by `--seed` and the figure's
name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from orchestrator.compare.comparison import Entry, Pair, Run, Side
from orchestrator.compare.history.campaigns import Read

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...], Array], Array]

SPEED, MEMORY, FIRST_STEP = "tokens_per_s", "peak_reserved_bytes", "first_step_s"
# The seed of the published tables. A person who had not written the rules drew it.
SEED = 532_925_784
# A cold first run is slower by a share between these two. Real campaigns showed 5 to 14 %.
COLD = (0.05, 0.14)
# The first run of a campaign starts here, in seconds since the epoch.
START, MINUTE, DAY = 1.8e9, 60.0, 86_400.0


def generator(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one figure. Its numbers do not depend on other figures."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def normal(rng: np.random.Generator, size: tuple[int, ...], sd: Array) -> Array:
    return sd * rng.standard_normal(size)


def t3(rng: np.random.Generator, size: tuple[int, ...], sd: Array) -> Array:
    """Draw from Student's t with three degrees of freedom, scaled to the standard deviation."""
    return sd * rng.standard_t(3, size) / np.sqrt(3)


def two_modes(rng: np.random.Generator, size: tuple[int, ...], sd: Array) -> Array:
    """Draw normal noise around two modes that are 1 % apart."""
    return normal(rng, size, sd) + 0.01 * (rng.random(size) < 0.5)


def rare_slow(rng: np.random.Generator, size: tuple[int, ...], sd: Array) -> Array:
    """Draw normal noise. One run of ten is 3 % slower."""
    return normal(rng, size, sd) + 0.03 * (rng.random(size) < 0.1)


def levels_of(apart: float, share: float) -> Draw:
    """Return a noise that has two levels. A `share` of the runs is on the upper level."""

    def draw(rng: np.random.Generator, size: tuple[int, ...], sd: Array) -> Array:
        return normal(rng, size, sd) + np.log1p(apart) * (rng.random(size) < share)

    return draw


NOISES: dict[str, Draw] = {
    "normal": normal,
    "t3": t3,
    "two modes": two_modes,
    "rare slow": rare_slow,
    "levels 3 %": levels_of(0.03, 0.2),
    "levels 8 %": levels_of(0.08, 0.1),
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One kind of campaign. All effects are on the logarithm of a time. `noise` is a name in NOISES.

    `unequal` is the ratio of the sides' standard deviations, and `spread` spreads them over the rows. `cold` names the cold first
    runs: `both` (each side), `base`, or `time` (the earlier one of the two). `drift` goes along a line over the whole campaign.
    `common` is an effect that all rows of a side share in a round; `day` is one that a whole side shares.
    """

    rows: int = 1
    runs: int = 5
    new_runs: int | None = None
    sd: float = 0.015
    noise: str = "normal"
    unequal: float = 1.0
    spread: float = 0.0
    cold: str = ""
    drift: float = 0.0
    in_turns: bool = True
    common: float = 0.0
    day: float = 0.0
    metric: str = SPEED


def places(rng: np.random.Generator, shape: Shape, runs: int) -> NDArray[np.int64]:
    """Return each run's place in time: side, row, round. In turns, each round runs every row on both sides, in a new order."""
    order = np.stack([rng.permutation(shape.rows) for _ in range(runs)], axis=1)
    if not shape.in_turns:
        base = np.arange(runs) * shape.rows + order
        return np.stack([base, base + runs * shape.rows])
    first = rng.integers(0, 2, (shape.rows, runs))
    return 2 * (np.arange(runs) * shape.rows + order) + np.stack([first, 1 - first])


def _is_cold(shape: Shape, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which first runs are cold: side, row."""
    first = at[:, :, 0]
    if shape.cold == "time":
        return first == first.min(axis=0)
    return np.broadcast_to(np.array([[shape.cold in ("both", "base")], [shape.cold == "both"]]), first.shape)


def times(
    rng: np.random.Generator, shape: Shape, slower: Sequence[float], runs: int
) -> tuple[Array, NDArray[np.int64]]:
    """Return the logarithms of the times, and the places in time: side, row, round. `slower` has the true effect of each row."""
    size = (2, shape.rows, runs)
    ratio = 2 * np.array([1.0, shape.unequal]) / (1 + shape.unequal)
    sd = shape.sd * ratio[:, None, None] * np.exp(shape.spread * rng.standard_normal((1, shape.rows, 1)))
    at = places(rng, shape, runs)
    values = NOISES[shape.noise](rng, size, sd) + shape.drift * at / (at.size - 1)
    values += shape.common * rng.standard_normal((2, 1, runs)) + shape.day * rng.standard_normal((2, 1, 1))
    values[1] += np.log1p(np.array(slower))[:, None]
    values[:, :, 0] += np.where(_is_cold(shape, at), np.log1p(rng.uniform(*COLD, size[:2])), 0.0)
    return values, at


def campaign(rng: np.random.Generator, shape: Shape, slower: Sequence[float] = ()) -> list[Pair]:
    """Return the pairs of a campaign. The first rows are slower by these shares; the others are unchanged."""
    effects = [*slower, *[0.0] * (shape.rows - len(slower))]
    counts = (shape.runs, shape.new_runs or shape.runs)
    logs, at = times(rng, shape, effects, max(counts))
    sign = -1 if shape.metric == SPEED else 1
    values, starts = 1000 * np.exp(sign * logs), START + MINUTE * at
    return [
        _pair(shape.metric, f"row-{row:03}", values[:, row].tolist(), starts[:, row].tolist(), counts)
        for row in range(shape.rows)
    ]


def _pair(
    metric: str, label: str, values: list[list[float]], starts: list[list[float]], counts: tuple[int, int]
) -> Pair:
    base, new = (entry(metric, label, values[side][:count], starts[side][:count]) for side, count in enumerate(counts))
    return Pair(label=label, base=base, new=new)


def entry(metric: str, label: str, values: Sequence[float], starts: Sequence[float]) -> Entry:
    runs = tuple(
        Run(repeat=number, numbers={metric: value}, started_at=start)
        for number, (value, start) in enumerate(zip(values, starts, strict=True), start=1)
    )
    return Entry(key={"scenario": label}, label=label, status="ok", runs=runs, id=f"{label}-0123456789ab", whole=True)


@dataclass(frozen=True, kw_only=True)
class Nights:
    """One kind of history: some series over some nights. `between` is the noise between nights, `within` the noise between runs.

    `noise` is a name in NOISES; noise that is not normal is not carried over.

    A step slows `changed` of the series (None: all) by `step` from night `at` on (None: a random night). `drift` goes along a line
    to the last night. `carried` is the correlation of successive nights. `outlier` slows one random night. `disturbed` slows each
    run of the newest night by a random share up to this.
    """

    nights: int = 20
    series: int = 1
    runs: int = 3
    between: float = 0.01
    within: float = 0.01
    cold: bool = False
    step: float = 0.0
    at: int | None = None
    changed: int | None = None
    drift: float = 0.0
    carried: float = 0.0
    outlier: float = 0.0
    disturbed: float = field(default=0.0, repr=False)  # the other shapes keep their seeds, which come from this text
    common: float = 0.0
    noise: str = "normal"
    metric: str = SPEED


def nights(rng: np.random.Generator, shape: Nights) -> tuple[list[Read], int]:
    """Return the campaigns of a history, and the first night after its step."""
    size = (shape.series, shape.nights)
    at = shape.at if shape.at is not None else int(rng.integers(2, shape.nights - 1))
    is_normal = shape.noise == "normal"
    own = correlated(rng, size, shape.carried) if is_normal else NOISES[shape.noise](rng, size, np.ones(1))
    mood = shape.between * own + shape.common * rng.standard_normal(size[1:])
    mood += shape.drift * np.arange(shape.nights) / (shape.nights - 1)
    mood[: shape.changed, at:] += np.log1p(shape.step)
    mood[np.arange(shape.series), rng.integers(0, shape.nights, shape.series)] += shape.outlier
    logs = mood[:, :, None] + shape.within * rng.standard_normal((*size, shape.runs))
    if shape.cold:
        logs[:, :, 0] += np.log1p(rng.uniform(*COLD, size))
    if shape.disturbed:
        logs[:, -1] += np.log1p(rng.uniform(0, shape.disturbed, logs[:, -1].shape))
    values = (1000 * np.exp((-1 if shape.metric == SPEED else 1) * logs)).tolist()
    reads = []
    for night in range(shape.nights):
        starts = [START + DAY * night + MINUTE * run for run in range(shape.runs)]
        entries = [entry(shape.metric, f"row-{one:03}", values[one][night], starts) for one in range(shape.series)]
        reads.append(Read(side=Side(name=f"night-{night:02}", entries=tuple(entries)), began_at=starts[0]))
    return reads, at


def correlated(rng: np.random.Generator, size: tuple[int, ...], carried: float) -> Array:
    """Return AR(1) noise of variance 1 along the last axis. Each value keeps the share `carried` of the value before it."""
    values = rng.standard_normal(size)
    if carried:
        values[..., 1:] *= np.sqrt(1 - carried**2)
        for place in range(1, size[-1]):
            values[..., place] += carried * values[..., place - 1]
    return values


@dataclass(frozen=True, kw_only=True)
class Series:
    """One kind of run: `plan` returns the true course of the step times, in steps of 100 ms. Noise is added to its logarithm.

    `carried` is the correlation of successive steps. `truth` is the true median step after the warm-up.
    """

    plan: Callable[[np.random.Generator, int], Array] = lambda rng, steps: np.ones(steps)
    noise: float = 0.02
    carried: float = 0.5
    clock: float = 0.0
    truth: float = 1.0

    def draw(self, rng: np.random.Generator, steps: int) -> list[float]:
        noise = self.noise * correlated(rng, (steps,), self.carried) if self.noise else np.zeros(steps)
        seconds = 0.1 * self.plan(rng, steps) * np.exp(noise)
        if self.clock:  # a clock that ticks so rarely shows the difference of two of its readings
            seconds = (
                np.diff(np.floor((np.cumsum([0.0, *seconds]) + rng.random() * self.clock) / self.clock)) * self.clock
            )
        values: list[float] = seconds.tolist()
        return values


def _course(change: Callable[[np.random.Generator, Array, int], Array | float]) -> Callable[..., Array]:
    """Return a plan: the ratio to the steady step, from the index of each step and the number of steps."""
    return lambda rng, steps: np.ones(steps) * change(rng, np.arange(steps), steps)


def _compiled_at(*places: Callable[[np.random.Generator, int], int]) -> Callable[..., Array]:
    """Return a plan in which some steps take 5 seconds."""

    def plan(rng: np.random.Generator, steps: int) -> Array:
        ratio = np.ones(steps)
        ratio[[place(rng, steps) for place in places]] += 50
        return ratio

    return plan


def first(rng: np.random.Generator, steps: int) -> int:
    return 0


RUNS_OF_STEPS = {
    "plain": Series(),
    "warm-up, exponential, τ = n/20": Series(plan=_course(lambda rng, at, n: 1 + 0.5 * np.exp(-20 * at / n))),
    "warm-up, exponential, τ = n/8": Series(plan=_course(lambda rng, at, n: 1 + 0.5 * np.exp(-8 * at / n))),
    "compilation at steps 1 and k < 9": Series(plan=_compiled_at(first, lambda rng, n: int(rng.integers(1, 9)))),
    "compilation at step n/3": Series(plan=_compiled_at(first, lambda rng, n: n // 3)),
    "spikes of +50 %, 1 step in 20": Series(plan=_course(lambda rng, at, n: 1 + 0.5 * (rng.random(n) < 0.05))),
    "drift of 3 %": Series(plan=_course(lambda rng, at, n: np.exp(0.03 * (at / n - 0.5)))),
    "drift of 8 %": Series(plan=_course(lambda rng, at, n: np.exp(0.08 * (at / n - 0.5)))),
    "period 2, 10 % apart": Series(plan=_course(lambda rng, at, n: 1 + 0.05 * (-1.0) ** at)),
    "AR 0.8": Series(carried=0.8),
    "AR 0.95": Series(carried=0.95),
    "AR 0.8, noise 5 %": Series(carried=0.8, noise=0.05),
    "ragged, 30 %": Series(noise=0.3, carried=0.0),
    "shift of +5 % in the last third": Series(plan=_course(lambda rng, at, n: 1 + 0.05 * (at >= n - n // 3))),
    "shift of +10 % in the last third": Series(plan=_course(lambda rng, at, n: 1 + 0.1 * (at >= n - n // 3))),
    "shift of +10 % in the last fifth": Series(plan=_course(lambda rng, at, n: 1 + 0.1 * (at >= n - n // 5))),
    "plateau after 60 %, from +30 %": Series(
        plan=_course(lambda rng, at, n: 1 + np.maximum(0, 0.3 * (1 - at / n / 0.6)))
    ),
    "step of −17 % at 60 %": Series(plan=_course(lambda rng, at, n: 1 + 0.2 * (at < 0.6 * n))),
    "a clock of 10 ms": Series(clock=0.01),
}


def steps_of(shape: Series, rng: np.random.Generator, steps: int, count: int) -> Iterator[list[float]]:
    """Yield runs of this shape."""
    for _ in range(count):
        yield shape.draw(rng, steps)

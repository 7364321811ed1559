"""Measure `history` on simulated nights: how often it reports a false step, and how soon a real one. Its own functions judge.

    python benchmarks/simulated/history.py [--campaigns 2000] [--only targets]

Every figure is a share in per cent, with half the width of its 95 % interval. A step is found if `history` reports a step that is
worse, at most two nights from its place. Histories of 80 series are 300 for each figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import shapes
from figures import Share, Target, line, of_targets, options, share, table
from shapes import FIRST_STEP, Nights

from orchestrator.compare.history.history import History, Kind
from orchestrator.compare.history.trends import history
from orchestrator.compare.rules import Rules

NEAR, BASE, MOST = 2, 18, 300

FOUND = {
    "": Nights(),
    ", 1 run per night": Nights(runs=1),
    ", first run of each night cold": Nights(cold=True),
}
TOLD = {
    "5 % slower, 1 % between nights": Nights(step=0.05),
    "7 % slower, 1 %": Nights(step=0.07),
    "5 % slower, 2 %": Nights(step=0.05, between=0.02),
    "first step +40 %": Nights(step=0.4, between=0.05, within=0.1, metric=FIRST_STEP),
    "first step +60 %": Nights(step=0.6, between=0.05, within=0.1, metric=FIRST_STEP),
    "5 % slower, 1 %, first runs cold": Nights(step=0.05, cold=True),
    "7 % slower, 1 %, first runs cold": Nights(step=0.07, cold=True),
    "7 % slower, 1 %, newest night disturbed": Nights(step=0.07, disturbed=1.0),
}
QUIET = {
    "normal": Nights(),
    "2 % between nights": Nights(between=0.02),
    "heavy tails (t, 3 degrees)": Nights(noise="t3"),
    "first run of each night cold": Nights(cold=True),
    "one night 10 % slower": Nights(outlier=0.1),
    "newest night disturbed": Nights(disturbed=1.0),
    "each night keeps 0.5 of the night before": Nights(carried=0.5),
    "drift of 3 % over all nights": Nights(drift=0.03),
}
FLEET = {
    "3 % slower in 8 of 8, 2 % between nights": Nights(series=8, step=0.03, between=0.02),
    "3 % slower in 8 of 8, 1 %": Nights(series=8, step=0.03),
    "2 % slower in 8 of 8, 1 %": Nights(series=8, step=0.02),
    "3 % slower in 8 of 8, 1 %, first runs cold": Nights(series=8, step=0.03, cold=True),
    "5 % slower in 4 of 8, 2 %": Nights(series=8, step=0.05, between=0.02, changed=4),
    "first step +40 % in 8 of 8": Nights(series=8, step=0.4, between=0.05, within=0.1, metric=FIRST_STEP),
    "3 % slower in 8 of 8, 1 %, and 1 % common to a night": Nights(series=8, step=0.03, common=0.01),
}


@cache
def told(shape: Nights, count: int, seed: int) -> tuple[Share, Share]:
    """Simulate histories. Return the share of the histories in which a step is found, and the share of series with any step."""
    rng, found, stepped = shapes.generator(seed, repr(shape)), [], []
    for _ in range(count):
        campaigns, at = shapes.nights(rng, shape)
        judged = history(campaigns, rules=Rules())
        found.append(_names(judged, at))
        stepped += [bool(series.steps) for series in judged.series]
    return share(found), share(stepped)


def _names(judged: History, at: int) -> bool:
    """Return whether a series shows the step: that of an experiment, or that of all experiments together."""
    every = (*judged.series, *judged.fleet)
    steps = [(series.points[step.at].campaign, step.kind) for series in every for step in series.steps]
    return any(kind is Kind.WORSE and abs(place - at) <= NEAR for place, kind in steps)


def after(shape: Nights, nights: int) -> Nights:
    """Return a history in which the step was so many nights ago."""
    return replace(shape, nights=BASE + nights, at=BASE)


def found(count: int, seed: int) -> Iterator[str]:
    """Find a step at any place of a history."""
    sizes = (0.02, 0.03, 0.05, 0.07)
    yield from table("step anywhere, 20 nights; 60 nights", *(f"{100 * size:g} % slower" for size in sizes))
    for name, shape in FOUND.items():
        for between in (0.01, 0.02, 0.03):
            kinds = [replace(shape, step=size, between=between) for size in sizes]
            few = [told(kind, count // 2, seed)[0] for kind in kinds]
            many = [told(replace(kind, nights=60), count // 10, seed)[0] for kind in kinds]
            cells = (f"{one}; {100 * other.value:.0f}" for one, other in zip(few, many, strict=True))
            yield line(f"{100 * between:g} % between nights{name}", *cells)


def soon(count: int, seed: int) -> Iterator[str]:
    """Report a step some nights after it, with a base of 18 nights."""
    yield from table("told after", "2 nights", "3", "5", "12")
    for name, shape in TOLD.items():
        yield line(name, *(told(after(shape, nights), count, seed)[0] for nights in (2, 3, 5, 12)))


def false(count: int, seed: int) -> Iterator[str]:
    """Judge series without a step."""
    yield from table("series with a false step", "4 nights", "8", "20", "60")
    for name, shape in QUIET.items():
        kinds = [replace(shape, nights=nights) for nights in (4, 8, 20, 60)]
        yield line(name, *(told(kind, count // (4 if kind.nights == 60 else 1), seed)[1] for kind in kinds))


def fleet(count: int, seed: int) -> Iterator[str]:
    """Report a step of several experiments."""
    yield from table("8 series, told after", "2 nights", "3", "5")
    for name, shape in FLEET.items():
        yield line(name, *(told(after(shape, nights), count // 2, seed)[0] for nights in (2, 3, 5)))


def many(count: int, seed: int) -> Iterator[str]:
    """Judge histories of many series."""
    yield from table(
        "20 nights, no step", "histories with a false step", "series with a false step", "suspicious series"
    )
    for series, between in ((8, 0.01), (8, 0.02), (80, 0.01), (80, 0.02)):
        shape = Nights(series=series, between=between)
        yield line(f"{series} series, {100 * between:g} % between nights", *_false(shape, count, seed))


@cache
def _false(shape: Nights, count: int, seed: int) -> tuple[Share, Share, Share]:
    """Return the shares of histories and of series that have a step, and of series that have a suspicious step."""
    rng, per_history, suspicious = shapes.generator(seed, f"false {shape}"), [], []
    for _ in range(min(count, MOST) if shape.series > 8 else count // 2):
        campaigns, _ = shapes.nights(rng, shape)
        judged = history(campaigns, rules=Rules())
        per_history.append([bool(series.steps) for series in (*judged.series, *judged.fleet)])
        suspicious += [bool(series.suspicious) for series in (*judged.series, *judged.fleet)]
    return share(map(any, per_history)), share(one for each in per_history for one in each), share(suspicious)


def drifts(count: int, seed: int) -> Iterator[str]:
    """Judge series that drift slowly."""
    yield from table("20 nights that drift, 3 runs per night", "named a drift", "named a step", "neither")
    for drift in (0.03, 0.06, 0.1):
        for between in (0.005, 0.01):
            shape = Nights(drift=drift, between=between)
            rng, found = shapes.generator(seed, f"drifts {shape}"), []
            for _ in range(count):
                (series,) = history(shapes.nights(rng, shape)[0], rules=Rules()).series
                found.append((bool(series.drifts), bool(series.steps)))
            named = share(drift for drift, _ in found), share(step for _, step in found)
            name = f"{100 * drift:g} % in all, {100 * between:g} % between nights"
            yield line(name, *named, share(not any(each) for each in found))


def targets(count: int, seed: int) -> Iterator[str]:
    yield from of_targets(_targets(count, seed))


def _targets(count: int, seed: int) -> Iterator[Target]:
    names = "5 % slower, 1 % between nights", "5 % slower, 1 %, first runs cold"
    for name, bounds in zip(names, ((0.49, 0.88, 0.995), (0.45, 0.9, 0.98)), strict=True):
        for nights, bound in zip((2, 3, 5), bounds, strict=True):
            part, _ = told(after(TOLD[name], nights), count, seed)
            yield Target(name=f"{name}: told after {nights} nights", share=part, at_least=bound)
    name = "7 % slower, 1 %, newest night disturbed"
    part, _ = told(after(TOLD[name], 3), count, seed)
    yield Target(name=f"{name}: told after 3 nights", share=part, at_least=0.85)
    for name in ("normal", "first run of each night cold", "newest night disturbed"):
        for nights in (4, 8, 20):
            _, part = told(replace(QUIET[name], nights=nights), count, seed)
            yield Target(name=f"{name}, {nights} nights: series with a false step", share=part, at_most=0.01)
    for name, nights, bound in (
        ("3 % slower in 8 of 8, 2 % between nights", 3, 0.7),
        ("first step +40 % in 8 of 8", 2, 0.95),
    ):
        part, _ = told(after(FLEET[name], nights), count, seed)
        yield Target(name=f"{name}: told after {nights} nights", share=part, at_least=bound)
    for between in (0.01, 0.02):
        part, _, _ = _false(Nights(series=80, between=between), count, seed)
        yield Target(name=f"80 series, {100 * between:g} %: histories with a false step", share=part, at_most=0.05)


TABLES = {
    "targets": targets,
    "found": found,
    "soon": soon,
    "false": false,
    "fleet": fleet,
    "many": many,
    "drifts": drifts,
}


def main() -> None:
    asked = options(__doc__, 2000, *TABLES)
    print(f"{asked.campaigns} histories for each figure, seed {asked.seed}. 3 runs per night, noise 1 % between runs.")
    for name in asked.only:
        for text in TABLES[name](asked.campaigns, asked.seed):
            print(text, flush=True)


if __name__ == "__main__":
    main()

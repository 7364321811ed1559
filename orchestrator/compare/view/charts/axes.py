"""Make logarithmic axes of ratios and of values, with readable ticks. Pure.

A change of −5 % and its reverse, +5.26 %, have the same distance from no change. Ticks of changes are at round percentages. Ticks
of large changes are at factors, such as ×2. Ticks of values are at numbers that are round in the displayed unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.measure.metrics import Show, metric
from orchestrator.report.page.texts import for_plotly, rounded, shown

Ticks = tuple[list[float], list[str]]

_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25)
_FACTORS = (1.5, 2.0, 3.0, 5.0, 10.0, 100.0, 1e3, 1e6, 1e12, 1e50, 1e100, 1e200)
# If an axis reaches this change, its ticks are factors, because people do not see that -60 % and +150 % are inverses.
_AS_FACTORS = 1.2

_MOST = 6


def ratio_ticks(reach: float) -> Ticks:
    """Return ticks between 1/e^reach and e^reach: one tick at no change, and two ticks on each side.

    Only the middle tick and the two outermost ticks have a text, since a phone has room for only three texts.
    """
    reach = min(reach, 700.0)
    if math.expm1(reach) >= _AS_FACTORS:
        factors = [factor for factor in _FACTORS if factor <= math.exp(reach)][-2:]
        ticks = [(factor**way, f"×{factor**way:.3g}") for way in (-1, 1) for factor in factors]
        kept = {factors[-1] ** way for way in (-1, 1)}
    else:
        step = max((step for step in _STEPS if math.log1p(2 * step) <= reach), default=_STEPS[0])
        ticks = [(1 + share, f"{share * 100:+.3g}%") for share in (-2 * step, -step, step, 2 * step)]
        ticks = [(at, word) for at, word in ticks if abs(math.log(at)) <= reach]
        kept = {min(ticks)[0], max(ticks)[0]}
    ticks = sorted([*ticks, (1.0, "0%")])
    return [at for at, _ in ticks], [word if at in kept or at == 1 else "" for at, word in ticks]


def value_ticks(name: str, low: float, high: float) -> Ticks:
    """Return at most six ticks between two values of a metric."""
    unit = _unit(metric(name).show, high)
    ticks = [tick * unit for tick in _round_numbers(low / unit, high / unit)]
    return [float(f"{tick:.6g}") for tick in ticks], [for_plotly(shown(name, _whole(tick))) for tick in ticks]


def _whole(value: float) -> float:
    """Return the nearest whole number if the value differs from it only by a rounding error, else the value."""
    near = round(value)
    return float(near) if math.isclose(value, near, rel_tol=1e-9) else value


def _unit(form: Show, high: float) -> float:
    """Return the unit of the largest value. Ticks are round in this unit."""
    if form is Show.BYTES:
        return next((size for size in (2.0**30, 2.0**20, 2.0**10) if high >= size), 1.0)
    if form is Show.MIB:
        return 2.0**10 if high >= 2.0**10 else 1.0
    return 1.0


def _round_numbers(low: float, high: float) -> list[float]:
    """Return round numbers between two values above 0. If the range is wide, they are 1, 2, 5, 10, 20…, else equal steps."""
    decades = math.log10(high / low)
    if decades < 0.7:
        return _equal_steps(low, high)
    every = next((count for count in (1, 2, 3, 5, 10, 20, 50, 100, 200) if decades / count <= _MOST), 400)
    digits: Sequence[int] = (1, 2, 5) if decades <= 2 else (1, 3) if decades <= 3 else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    numbers = [digit * 10.0**power for power in range(first, last + 1) for digit in digits if power % every == 0]
    return [number for number in numbers if low <= number <= high]


def _equal_steps(low: float, high: float) -> list[float]:
    raw = (high - low) / (_MOST - 1)
    if raw <= 0 or not math.isfinite(raw):
        return [low]
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(digit * size for digit in (1, 2, 5, 10) if digit * size >= raw)
    return [count * step for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_range(low: float, high: float) -> list[float | None]:
    """Return the range of a logarithmic axis in Plotly's form: exponents of ten."""
    return [rounded(math.log10(low)), rounded(math.log10(high))]

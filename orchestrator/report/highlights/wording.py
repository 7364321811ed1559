"""Numbers in a sentence, and which way a ratio points."""

from __future__ import annotations

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Interval, Ratio
from orchestrator.measure.metrics import ONE_RUN_EFFECT


def direction(found: Ratio) -> int:
    """Return 1 for faster, -1 for slower, 0 without a clear difference (the interval contains 1, or single runs are too close)."""
    if found.interval is None:
        return 1 if found.value >= 1 + ONE_RUN_EFFECT else -1 if found.value <= 1 / (1 + ONE_RUN_EFFECT) else 0
    return 1 if found.interval.low > 1 else -1 if found.interval.high < 1 else 0


def is_wide(found: Ratio) -> bool:
    """Return whether an interval that contains 1 also contains differences that matter."""
    interval, least = found.interval, 1 + ONE_RUN_EFFECT
    return interval is not None and (interval.high >= least or interval.low <= 1 / least)


def inverse(found: Ratio) -> Ratio:
    """Return the comparison with its sides exchanged."""
    interval = found.interval and Interval(low=1 / found.interval.high, high=1 / found.interval.low)
    return Ratio(value=1 / found.value, interval=interval, p=found.p, n_base=found.n_new, n_new=found.n_base)


def factor(found: Ratio) -> str:
    """Return `1.21× (1.19–1.23)`, or for single runs, which have no interval, `1.21× (one run each)`."""
    if found.interval is None:
        return f"{times(found)} ({runs(found)})"
    digits = _digits(found)
    return f"{times(found)} ({found.interval.low:.{digits}f}–{found.interval.high:.{digits}f})"


def times(found: Ratio) -> str:
    return f"{found.value:.{_digits(found)}f}×"


def runs(found: Ratio) -> str:
    """Return the number of runs of a ratio without an interval, in words."""
    return "one run each" if found.n_base == found.n_new else f"{counted(found.n_new, 'run')} against {found.n_base}"


def _digits(found: Ratio) -> int:
    return 2 if abs(found.value - 1) >= 0.1 else 3


def efficiency(found: Ratio) -> str:
    """Return `95.4 % (94.9–95.9)`."""
    interval = found.interval
    range_of = f" ({100 * interval.low:.1f}–{100 * interval.high:.1f})" if interval else ""
    return f"{100 * found.value:.1f} %{range_of}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"

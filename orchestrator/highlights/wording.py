"""Numbers in a sentence, and which way a ratio points."""

from __future__ import annotations

from orchestrator.metrics import ONE_RUN_EFFECT
from orchestrator.printable import counted
from orchestrator.statistics import Interval, Ratio


def direction(found: Ratio) -> int:
    """1 for faster, -1 for slower, 0 where no difference is seen: the interval holds 1, or single runs differ by too little."""
    if found.interval is None:
        return 1 if found.value >= 1 + ONE_RUN_EFFECT else -1 if found.value <= 1 / (1 + ONE_RUN_EFFECT) else 0
    return 1 if found.interval.low > 1 else -1 if found.interval.high < 1 else 0


def is_wide(found: Ratio) -> bool:
    """Whether an interval that holds 1 holds differences as well that anybody would call one."""
    interval, least = found.interval, 1 + ONE_RUN_EFFECT
    return interval is not None and (interval.high >= least or interval.low <= 1 / least)


def inverse(found: Ratio) -> Ratio:
    """The same comparison with its sides exchanged."""
    interval = found.interval and Interval(low=1 / found.interval.high, high=1 / found.interval.low)
    return Ratio(value=1 / found.value, interval=interval, p=found.p, n_base=found.n_new, n_new=found.n_base)


def factor(found: Ratio) -> str:
    """`1.21× (1.19–1.23)`; of single runs, which have no interval, `1.21× (one run each)`."""
    if found.interval is None:
        return f"{times(found)} ({runs(found)})"
    digits = _digits(found)
    return f"{times(found)} ({found.interval.low:.{digits}f}–{found.interval.high:.{digits}f})"


def times(found: Ratio) -> str:
    return f"{found.value:.{_digits(found)}f}×"


def runs(found: Ratio) -> str:
    """Of how many runs a ratio without an interval is."""
    return "one run each" if found.n_base == found.n_new else f"{counted(found.n_new, 'run')} against {found.n_base}"


def _digits(found: Ratio) -> int:
    return 2 if abs(found.value - 1) >= 0.1 else 3


def efficiency(found: Ratio) -> str:
    """`95.4 % (94.9–95.9)`."""
    interval = found.interval
    range_of = f" ({100 * interval.low:.1f}–{100 * interval.high:.1f})" if interval else ""
    return f"{100 * found.value:.1f} %{range_of}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"

"""Numbers in a sentence, and the direction of a ratio."""

from __future__ import annotations

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import ONE_RUN_EFFECT


def direction(speed: Ratio) -> int:
    """Return 1 for faster, -1 for slower, and 0 if the interval contains 1 or single runs differ too little."""
    if speed.interval is None:
        return 1 if speed.value >= 1 + ONE_RUN_EFFECT else -1 if speed.value <= 1 / (1 + ONE_RUN_EFFECT) else 0
    return 1 if speed.interval.low > 1 else -1 if speed.interval.high < 1 else 0


def is_wide(speed: Ratio) -> bool:
    """Return whether an interval that contains 1 also contains a difference that matters. Without an interval, it is unknown."""
    interval, least = speed.interval, 1 + ONE_RUN_EFFECT
    return interval is None or interval.high >= least or interval.low <= 1 / least


def change(speed: Ratio, *, more: str = "faster", less: str = "slower") -> str:
    """Return a text such as `21 % faster (1.21×, 1.19 to 1.23)` or `22 % slower (0.78×, 0.71 to 0.87)`."""
    return f"{percent(abs(speed.value - 1))} {more if speed.value > 1 else less} ({times(speed)}, {_ends(speed)})"


def factor(speed: Ratio) -> str:
    """Return a text such as `1.003× (0.994 to 1.012)`, or `1.02× (one run each)` for single runs, which have no interval."""
    return f"{times(speed)} ({_ends(speed)})"


def _ends(speed: Ratio) -> str:
    if speed.interval is None:
        return runs(speed)
    digits = _digits(speed)
    return f"{speed.interval.low:.{digits}f} to {speed.interval.high:.{digits}f}"


def times(speed: Ratio) -> str:
    return f"{speed.value:.{_digits(speed)}f}×"


def runs(speed: Ratio) -> str:
    """Return words for a ratio without an interval: the number of runs on each side."""
    return "one run each" if speed.n_base == speed.n_new else f"{counted(speed.n_new, 'run')} against {speed.n_base}"


def _digits(speed: Ratio) -> int:
    return 2 if abs(speed.value - 1) >= 0.1 else 3


def efficiency(speed: Ratio) -> str:
    """Return a text such as `95.4 % (94.9 to 95.9)`."""
    interval = speed.interval
    range_of = f" ({100 * interval.low:.1f} to {100 * interval.high:.1f})" if interval else ""
    return f"{100 * speed.value:.1f} %{range_of}"


def percent(share: float) -> str:
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"

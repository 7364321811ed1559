"""Formats values for people; files have base units at full precision."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from orchestrator.measure.metrics.metric import MIB, Show


def text(value: float, form: Show) -> str:
    """Return a number in its format, followed by its unit if the column's heading does not name the unit."""
    return _FORMATS[form](value)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _count(value: float) -> str:
    return f"{value:,}" if float(value).is_integer() else f"{value:,.1f}"


def _magnitude(value: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.2f} {letter}"
    return _count(value)


def _seconds(value: float) -> str:
    if not isfinite(value):
        return str(value)
    if 0 < value < 0.0009995:  # what is less than 1 ms with three digits
        return f"{value * 1e6:.3g} µs"
    if value < 0.9995:
        return f"{value * 1000:.3g} ms"
    if value < 120:
        return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _joules(value: float) -> str:
    return f"{value * 1000:.3g} mJ" if abs(value) < 0.9995 else f"{value:.4g} J"


def _bytes(value: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value:.0f} B"


def _bytes_per_s(value: float) -> str:
    for size, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f} B/s"


def _share(value: float) -> str:
    return f"{value:.1%}" if abs(value) >= 0.1 else f"{value:.2%}"


def _ratio(value: float) -> str:
    return f"{value:.3f}×" if abs(value) < 10 else f"{value:.1f}×"


_FORMATS: dict[Show, Callable[[float], str]] = {
    Show.NUMBER: _number,
    Show.COUNT: _count,
    Show.MAGNITUDE: _magnitude,
    Show.SECONDS: _seconds,
    Show.JOULES: _joules,
    Show.BYTES: _bytes,
    Show.MIB: lambda value: _bytes(value * MIB),
    Show.BYTES_PER_S: _bytes_per_s,
    Show.SHARE: _share,
    Show.RATIO: _ratio,
    Show.TEXT: str,
}

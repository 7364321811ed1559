"""The units that `custom: metrics:` accepts, by kind. A unit of another kind than the metric's is refused by the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.errors import suggestion

_RATES = (("", "s", 1), ("k", "s", 1e3), ("", "min", 1 / 60))
_THINGS = (("tokens",), ("samples",), ("pairs",), ("steps", "it"))
_SHARES: Mapping[str, float] = {"%": 0.01, "ratio": 1, "share": 1}
# The units of each kind, with their sizes in the base unit (seconds, bytes, things per second).
_KINDS: Sequence[Mapping[str, float]] = (
    {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60, "h": 3600},
    {"B": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    | {"KB": 1e3, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    {"FLOP/s": 1, "GFLOP/s": 1e9, "TFLOP/s": 1e12},
    _SHARES,
    {"W": 1, "kW": 1e3},
    {"J": 1, "kJ": 1e3, "Wh": 3600, "kWh": 3.6e6},
    *(dict.fromkeys(names, 1) for names in _THINGS),
    *({f"{k}{name}/{per}": size for name in names for k, per, size in _RATES} for names in _THINGS),
)
UNITS: Mapping[str, float] = {unit: size for kind in _KINDS for unit, size in kind.items()}


def to_base(name: str, number: float, unit: str | None) -> float | None:
    """Return `number`, converted from `unit` to the unit of the metric `name`. Return None if `unit` is unknown."""
    if unit is None:
        return number
    if unit == unit_of(name):
        return number
    if unit not in UNITS:
        return None
    own, _, _ = (unit_of(name) or "").partition(" ")  # without "per device"
    return number * UNITS[unit] / UNITS.get(own, 1)


def fitting_units(name: str) -> Mapping[str, float]:
    """Return the units of the same kind as the unit of the metric `name`; all units if the metric is unknown.

    If its unit is of no kind (`nats`), only this unit fits. A known metric without a unit may be a share.
    """
    from orchestrator.measure.metrics import METRICS

    if name not in METRICS:
        return UNITS
    own = unit_of(name)
    words = (own or "").replace(",", "").split()  # such as "tokens/s, all devices"
    return next((kind for kind in _KINDS for word in words if word in kind), {own: 1} if own else _SHARES)


def unit_of(name: str) -> str | None:
    """Return the unit of the metric, or None."""
    from orchestrator.measure.metrics import metric

    return metric(name).unit


def wrong_unit(name: str, unit: str) -> str | None:
    """Return what is wrong with the unit of a metric, or None. A number in seconds is not a number of bytes."""
    fitting = fitting_units(name)
    if unit in fitting:
        return None
    known = f"{unit!r} is a unit of another kind" if unit in UNITS else f"unknown unit {unit!r}"
    return f"{known}{suggestion(unit, fitting)}"

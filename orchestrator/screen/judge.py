"""Find the figures that are off: among similar GPUs or links of this machine, and against its earlier screens. Pure.

With five values or more, a value is off if its robust z is above 5 and it differs from the median by more than 3 %. With fewer
values, it is off if it is more than 3 % worse than the best of them, or than the median of earlier screens. For figures with the
host's time in them, it is 15 % instead. In all cases, even the best of its five samples must be worse than the reference, so a
figure that fluctuates is not off.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from orchestrator.measure.rank_files import busy_host
from orchestrator.screen.figures import CPU, KINDS, OF_ALL, Figure, Off, Screen

LEAST_GROUP, LARGEST_Z = 5, 5.0
# The median of absolute deviations, times this, is the standard deviation of a normal distribution.
TO_DEVIATION = 1.4826
# Figures of earlier screens with other versions of these differ for another reason.
SAME_SOFTWARE = ("python", "torch")

# The name and the `like` of a figure → its values in earlier screens.
History = Mapping[tuple[str, str], Sequence[float]]


def robust_z(value: float, group: Sequence[float]) -> float:
    """Return the distance of a value from the median of a group, in robust standard deviations."""
    middle = median(group)
    distance = abs(value - middle)
    deviation = TO_DEVIATION * median(abs(one - middle) for one in group)
    if deviation:
        return distance / deviation
    return math.inf if distance else 0.0


def share(name: str, value: float, reference: float) -> float:
    """Return how much better a value is than the reference, as a share. A worse value has a negative share."""
    change = value / reference - 1
    return -change if KINDS[name].smaller_is_better else change


def differs(name: str, samples: Sequence[float], reference: float) -> float:
    """Return how much better (above 0) or worse the samples are than a reference, as a share.

    Return 0 if the share is too small for this figure, or if there are samples on both sides of the reference.
    """
    found = share(name, median(samples), reference)
    shares = [share(name, sample, reference) for sample in samples]
    is_clear = max(shares) < 0 or min(shares) > 0
    return found if abs(found) > KINDS[name].least_share and is_clear else 0.0


def off(screen: Screen, before: History) -> tuple[Off, ...]:
    """Return what is off in a screen, given its `history`. If a figure is off among its peers, earlier screens are not asked."""
    groups: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    for figure in screen.figures:
        if figure.samples and figure.name in KINDS:
            groups[figure.name, figure.like].append(figure)
    found: list[Off | None] = []
    for key, group in groups.items():
        found += [_among_peers(figure, group) or _against_earlier(figure, before.get(key, ())) for figure in group]
    return tuple(one for one in found if one is not None)


def _among_peers(figure: Figure, group: Sequence[Figure]) -> Off | None:
    """Compare a figure with the same figure of other GPUs or pairs."""
    values = [value for one in group if (value := one.value) is not None]
    value = median(figure.samples)
    what = "pairs" if len(figure.gpus) == 2 else "GPUs"
    if len(values) >= LEAST_GROUP:
        reference, against = median(values), f"the median of {len(values)} {what}"
        if robust_z(value, values) <= LARGEST_Z:
            return None
    else:
        best = min(values) if KINDS[figure.name].smaller_is_better else max(values)
        reference, against = best, f"the best of {len(values)} {what}"
    found = differs(figure.name, figure.samples, reference)
    return _off(figure, reference, found, against) if found else None


def _against_earlier(figure: Figure, before: Sequence[float]) -> Off | None:
    """Compare a figure with the median of earlier screens. Only a worse figure is off."""
    if not before:
        return None
    reference = median(before)
    found = differs(figure.name, figure.samples, reference)
    if found >= 0 or (len(before) >= LEAST_GROUP and robust_z(median(figure.samples), before) <= LARGEST_Z):
        return None
    times = "the earlier screen" if len(before) == 1 else f"the median of {len(before)} earlier screens"
    return _off(figure, reference, found, f"{times} of this machine")


def _off(figure: Figure, reference: float, found: float, against: str) -> Off:
    value = median(figure.samples)
    return Off(name=figure.name, gpus=figure.gpus, value=value, reference=reference, share=found, against=against)


def history(screen: Screen, earlier: Iterable[Screen]) -> History:
    """Return the values of earlier screens of this host with the same software, one for each screen.

    A figure of a GPU that another process used is left out. So is a screen of a busy host.
    """
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in earlier:
        if one.host == screen.host and _software(one) == _software(screen) and not busy(one):
            for key, value in typical(one).items():
                values[key].append(value)
    return values


def busy(screen: Screen) -> str | None:
    """Return a sentence if the host was busy during the screen, by the rule for runs. Return None otherwise."""
    return next((caveat.sentence for caveat in busy_host(screen.core_wait_share)), None)


def _software(screen: Screen) -> tuple[str | None, ...]:
    return tuple(screen.software.get(name) for name in SAME_SOFTWARE)


def typical(screen: Screen) -> dict[tuple[str, str], float]:
    """Return the median of each figure over the idle GPUs of a screen, by name and `like`."""
    return {key: median(values) for key, values in samples(screen).items()}


def samples(screen: Screen) -> dict[tuple[str, str], list[float]]:
    """Return the samples of each figure over the idle GPUs of a screen, by name and `like`."""
    busy = {card.index for card in screen.cards if card.used_bytes is not None}
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for figure in screen.figures:
        is_disturbed = bool(busy & {*figure.gpus}) or (figure.name in OF_ALL and bool(busy))
        if figure.samples and figure.name in KINDS and (not is_disturbed or figure.name == CPU):
            values[figure.name, figure.like] += figure.samples
    return values

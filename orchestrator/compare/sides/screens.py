"""Compare the machines of two sides by their screens (`run --screen`), before the verdicts on experiments. Pure.

A host's figure is the median over its idle GPUs and its screens. It is compared with the same host of the base, or else with the
median of the hosts of the base. Hosts differ if the figures differ by more than 3 % (15 % where the host's time counts), and the
samples are all on one side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from orchestrator.files.redaction import redact
from orchestrator.screen import judge
from orchestrator.screen.figures import KINDS, Screen
from orchestrator.screen.view import amount, changed, off_sentences

Values = Mapping[tuple[str, str], Sequence[float]]


def differences(base: Sequence[Screen], new: Sequence[Screen]) -> tuple[str, ...]:
    """Return sentences: which figures of the new hosts differ from those of the base, and what was off or busy in the screens.

    The screens may come from other people, so secrets in them are masked.
    """
    before = _by_host(base)
    hosts = [sentence for host, values in _by_host(new).items() for sentence in _of_host(host, values, before)]
    sides = (("base", base), ("new", new))
    was_off = [
        f"{name}: {one.host}: {text}"
        for name, side in sides
        for one in side
        for text in (*off_sentences(one), *filter(None, [judge.busy(one)]))
    ]
    return tuple(dict.fromkeys(map(redact, [*hosts, *was_off])))


def _by_host(screens: Sequence[Screen]) -> dict[str, dict[tuple[str, str], list[float]]]:
    """Return the samples of each host, by the name and the `like` of their figure."""
    hosts: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for screen in screens:
        for key, samples in judge.samples(screen).items():
            hosts[screen.host][key] += samples
    return hosts


def _of_host(host: str, values: Values, before: Mapping[str, Values]) -> Iterator[str]:
    for key, samples in values.items():
        others = {name: median(known[key]) for name, known in before.items() if key in known}
        reference = others.get(host) or median(others.values() or [0.0])
        share = judge.differs(key[0], samples, reference) if reference else 0.0
        if share:
            kind = KINDS[key[0]]
            both = f"{amount(key[0], median(samples))} against {amount(key[0], reference)} {kind.unit}"
            yield f"the {kind.label} of {host} is {changed(share)} than {_named(host, list(others))} ({both})"


def _named(host: str, others: Sequence[str]) -> str:
    """Return the reference in words."""
    if host in others:
        return "it was in base"
    return f"that of {others[0]} in base" if len(others) == 1 else f"the median of {len(others)} hosts in base"

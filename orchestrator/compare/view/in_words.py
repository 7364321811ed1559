"""Say what changed, in sentences: `Slower: llama-1b · none -5.0% tok/s (-5.4% to -4.6%) at 1 GPU`. Worst first. Pure.

A slowdown is one fact, even if several metrics show it (tokens per second, step time). So of the speeds of an experiment, only the
first one counts, and of its memory numbers, too. Experiments that differ only in the number of GPUs are one entry. The interval of
this entry goes from the lowest end of their intervals to the highest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.compare.comparison import Comparison, Row, Verdict
from orchestrator.compare.rules import DEFAULT, HEADLINES
from orchestrator.compare.view import wording
from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure.metrics import Judged, metric
from orchestrator.results.table.aggregate import ERRORS

SPEEDS = (*HEADLINES, "step_time_s")
MOST_ENTRIES = 3
_LONGEST = 200
_GPUS = re.compile(r"(?P<count>\d+) (?P<noun>GPU|process)(s|es)?")
BETWEEN = " · "
_SPEED, _MEMORY, _LOSS, _ERROR = "speed", "memory", "loss", "error"
_KINDS = {Verdict.REGRESSED: "failure", Verdict.IMPROVED: "gain"}
# The first words of a sentence about speed, memory, loss or the error of an operator.
_HEADS = {
    Verdict.REGRESSED: {_SPEED: "Slower", _MEMORY: "More memory", _LOSS: "Higher loss", _ERROR: "Less exact"},
    Verdict.IMPROVED: {_SPEED: "Faster", _MEMORY: "Less memory", _LOSS: "Lower loss", _ERROR: "More exact"},
}
_WITHOUT_NUMBERS = {
    Verdict.FAILED: ("failure", "Failed"),
    Verdict.MISSING: ("failure", "Missing"),
    Verdict.UNKNOWN: ("warning", "Unknown"),
    Verdict.NOT_COMPARABLE: ("warning", "Not comparable"),
    Verdict.NEW: ("gain", "New"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """A sentence without its full stop. `kind` is `failure`, `warning` or `gain`; `head` are its first words."""

    kind: str
    head: str
    text: str


def sentences(comparison: Comparison) -> list[Sentence]:
    """Return the sentences: first differences of the machines, then the worst rows. If nothing changed, one sentence says so."""
    machines = [Sentence(kind="warning", head="Machines", text=_listed([*comparison.machines]))]
    machines = machines if comparison.machines else []
    old = wording.old_failures(comparison)
    notable = [row for row in comparison.rows if not wording.is_unchanged(row, old)]
    found = [
        one for verdict in wording.WORST_FIRST for one in _of(verdict, [r for r in notable if r.verdict is verdict])
    ]
    return [*machines, *(found or [Sentence(kind="gain", head="No change", text=wording.counted(comparison))])]


def _of(verdict: Verdict, rows: Sequence[Row]) -> Iterator[Sentence]:
    if verdict in _WITHOUT_NUMBERS:
        kind, head = _WITHOUT_NUMBERS[verdict]
        names = dict.fromkeys(f"{row.label} ({row.why})" if row.why else row.label for row in rows)
        if names:
            yield Sentence(kind=kind, head=head, text=_listed([*names]))
    elif verdict is Verdict.INCONCLUSIVE and rows:
        yield Sentence(kind="warning", head="Not certain", text=_listed(_entries(_without_mirrors(rows))))
    elif verdict in _HEADS:
        families: dict[str, list[Row]] = {}
        for row in _without_mirrors(rows):
            families.setdefault(family(row.metric), []).append(row)
        for name in sorted(families, key=[_SPEED, _MEMORY, _LOSS, *families].index):
            # A loss that fell is not a gain: it may be another training.
            kind = "warning" if (name, verdict) == (_LOSS, Verdict.IMPROVED) else _KINDS[verdict]
            yield Sentence(kind=kind, head=first_words(name, verdict), text=_listed(_entries(families[name])))


def first_words(family: str, verdict: Verdict) -> str:
    """Return the first words about a family that regressed or improved: `Slower`, `Less memory`, `Worse first step`."""
    return _HEADS[verdict].get(family, f"{'Worse' if verdict is Verdict.REGRESSED else 'Better'} {family}")


def family(name: str) -> str:
    """Return the family of a metric: its label, if it is neither a speed, nor a memory, nor the loss."""
    if name in SPEEDS:
        return _SPEED
    if name in ERRORS:
        return _ERROR
    return {Judged.TOLERANCE: _MEMORY, Judged.GUARD: _LOSS}.get(metric(name).judged, wording.heading(name))


def _without_mirrors(rows: Sequence[Row]) -> list[Row]:
    """Return the first row of each experiment and family, in the order of the default metrics."""
    ordered = sorted(rows, key=lambda row: order(row.metric))
    first: dict[tuple[str, str], Row] = {}
    for row in ordered:
        first.setdefault((row.label, family(row.metric)), row)
    return sorted(first.values(), key=wording.badness)


def order(name: str) -> int:
    """Return the place of a metric among those that show the same fact. The first of them counts."""
    return DEFAULT.index(name) if name in DEFAULT else len(DEFAULT)


def _entries(rows: Sequence[Row]) -> list[str]:
    """Return a text for each group of rows that differ only in the number of GPUs."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((without_gpus(row.label), row.metric), []).append(row)
    return [_entry(name, metric_name, some) for (name, metric_name), some in groups.items()]


def _entry(name: str, metric_name: str, rows: Sequence[Row]) -> str:
    ratios = sorted((row.ratio for row in rows if row.ratio), key=lambda ratio: ratio.value)
    change = wording.range_of(ratios[0].value, ratios[-1].value) if ratios else ""
    ends = [ratio.interval for ratio in ratios if ratio.interval]
    low, high = min((end.low for end in ends), default=1.0), max((end.high for end in ends), default=1.0)
    within = f" ({wording.span(low, high)})" if ends and len(ends) == len(ratios) else ""
    open_rows = [row for row in rows if row.verdict is Verdict.INCONCLUSIVE and not row.doubt]
    needs = sorted(row.needs for row in open_rows if row.needs)
    runs = dict.fromkeys((needs[0], needs[-1])) if needs else {}
    what = "it" if len(needs) == len(open_rows) else f"{len(needs)} of {len(open_rows)}"
    at = gpus([row.label for row in rows])
    parts = [name, change, f"{wording.heading(metric_name)}{within}", at]
    more = f"; about {' to '.join(map(str, runs))} more runs per side would settle {what}" if runs else ""
    doubts = dict.fromkeys(f"; {row.doubt}" for row in rows if row.doubt)
    return " ".join(filter(None, parts)) + more + "".join(doubts)


def without_gpus(label: str) -> str:
    """Return the label of an experiment without its number of GPUs."""
    return BETWEEN.join(part for part in label.split(BETWEEN) if not _GPUS.fullmatch(part))


def gpus(labels: Sequence[str]) -> str:
    """Return the numbers of GPUs in the labels of experiments: `at 1 and 2 GPUs`."""
    found = [match for label in labels for part in label.split(BETWEEN) if (match := _GPUS.fullmatch(part))]
    if not found:
        return ""
    counts = sorted({int(match["count"]) for match in found})
    words = [f"{count:,}" for count in counts]
    noun = counted(counts[-1], found[0]["noun"], "processes" if found[0]["noun"] == "process" else "").partition(" ")[2]
    return f"at {' and '.join(filter(None, (', '.join(words[:-1]), words[-1])))} {noun}"


def _listed(texts: Sequence[str]) -> str:
    """Return the first texts in one line, and the number of the others."""
    more = len(texts) - MOST_ENTRIES
    shown = [one_line(text, longest=_LONGEST) for text in texts[:MOST_ENTRIES]]
    return "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])

"""Sentences on doubted numbers, one for each kind of doubt, and one for each wrong loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.files.printable_text import counted, one_line
from orchestrator.report.caveats import DoubtKind
from orchestrator.report.highlights.highlight import MOST_OTHERS, Highlight, HighlightKind, Known
from orchestrator.report.highlights.wording import percent
from orchestrator.report.labels import listed
from orchestrator.results.table.aggregate import NOT_COMPARED
from orchestrator.results.table.columns import column

_LOSSES = {DoubtKind.WRONG: "is faster but wrong", DoubtKind.OTHER_LOSS: "learns otherwise"}
_OTHERS = {
    DoubtKind.CONTAMINATED: "ran on GPUs that other processes used",
    DoubtKind.THROTTLED: "ran on GPUs with reduced clocks",
    DoubtKind.NOT_STEADY: "had a run without a steady state",
    DoubtKind.PACKED: "ran at the same time as others on the same machine",
}

# Characters of what speaks against a number: a whole reason, as `steady` gives it.
LONGEST_DETAIL = 120


def warnings(known: Known) -> Iterator[Highlight]:
    """Yield the warnings, those about losses first."""
    rows = {
        kind: [row for row, doubts in enumerate(known.doubts) if any(one.kind is kind for one in doubts)]
        for kind in DoubtKind
    }
    for kind, words in _LOSSES.items():
        yield from (_other_loss(known, words, row) for row in rows[kind][:MOST_OTHERS])
        rest = rows[kind][MOST_OTHERS:]
        if rest:
            text = f"{counted(len(rest), 'more experiment')} marked {kind.value!r}"
            yield known.sentence(HighlightKind.WARNING, text, rest)
    unchecked = [row for row, said in enumerate(column(known.table.experiments, "doubt")) if said == NOT_COMPARED]
    if unchecked:
        yield _unchecked(known, unchecked)
    yield from (_doubted(known, kind, rows[kind]) for kind in _OTHERS if rows[kind])


def _other_loss(known: Known, words: str, row: int) -> Highlight:
    off = known.numbers("loss_difference", row) or 0.0
    side = "above" if off > 0 else "below"
    text = (
        f"{known.names.whole(row)} {words}: its training loss is {percent(abs(off))} {side} the baseline's after "
        "the same number of steps, so no claim of speed is made"
    )
    return known.sentence(HighlightKind.WARNING, text, [row])


def _unchecked(known: Known, rows: Sequence[int]) -> Highlight:
    names = listed([known.names.whole(row) for row in rows])
    text = (
        f"{counted(len(rows), 'experiment')} had no baseline loss to compare with, so a wrong training would not be noticed: "
        f"{names}"
    )
    return known.sentence(HighlightKind.WARNING, text, rows)


def _doubted(known: Known, kind: DoubtKind, rows: Sequence[int]) -> Highlight:
    details = dict.fromkeys(one.detail for row in rows for one in known.doubts[row] if one.kind is kind and one.detail)
    why = f" ({listed([one_line(detail, longest=LONGEST_DETAIL) for detail in details], most=2)})" if details else ""
    names = listed([known.names.whole(row) for row in rows])
    text = f"{counted(len(rows), 'experiment')} {_OTHERS[kind]}{why}, so no claim of speed is made: {names}"
    return known.sentence(HighlightKind.WARNING, text, rows)

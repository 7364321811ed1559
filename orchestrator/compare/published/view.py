"""Show the outcomes of `tunebench verify`: a table with a line for each published value, and sentences about values not met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from orchestrator.compare.published.judging import Outcome, State
from orchestrator.compare.published.values import EXACT, Source, Value

STYLES = {
    State.MET: "green",
    State.EXPLAINED: "green",
    State.NOT_MET: "red",
    State.NOT_RUN: "yellow",
    State.CANNOT_RUN: "yellow",
}


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table with a line for each value."""
    view = Table(box=None, pad_edge=False, header_style="bold")
    view.add_column("result", no_wrap=True)
    view.add_column("value", overflow="fold")
    view.add_column("published", overflow="fold")
    view.add_column("ours", overflow="fold")
    view.add_column("source", overflow="fold")
    for one in outcomes:
        value, source = one.value, one.value.source
        published = f"{amount(value, value.published)} {tolerance(value)}"
        ours = one.reason if one.ours is None else amount(value, one.ours)
        cells = (value.name, published, ours, f"{source.name} {source.date}")
        view.add_row(Text(one.state, STYLES[one.state]), *map(Text, cells))
    return view


def amount(value: Value, number: float) -> str:
    """Return a number in the value's unit."""
    if value.tolerance == EXACT:
        return f"{number:,.0f}"
    text = f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.2f}"
    unit = value.unit if value.unit == "×" else f" {value.unit}"
    return f"{text.replace('-', '−')}{unit}"


def tolerance(value: Value) -> str:
    """Return the tolerance in words, such as `(exact)`, `± 10%` or `± 0.6`."""
    return f"({EXACT})" if value.tolerance == EXACT else f"± {value.tolerance}"


def sentences(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield how each source measured its values that are not met as published, and what Tunebench measures instead, and why."""
    groups: dict[Source, list[Outcome]] = {}
    for one in outcomes:
        if one.state in (State.EXPLAINED, State.NOT_MET):
            groups.setdefault(one.value.source, []).append(one)
    for source, group in groups.items():
        ours = "; ".join(dict.fromkeys(one.software for one in group if one.software))
        yield (
            f"{source.name} {source.date}: {source.where}, with {source.hardware}, {source.software}. {source.protocol}"
            + (f" Ours: {ours}." if ours else "")
        )
        for one in group:
            value = one.value
            if value.expected is not None:
                yield f"{value.name}: {amount(value, value.expected)} are expected here, because {value.because}."
            elif value.difference and one.state is State.NOT_MET:
                yield f"{value.name}: {value.difference}."


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return one sentence: how many values have each result."""
    counts = Counter(one.state for one in outcomes)
    return f"{len(outcomes)} values: {', '.join(f'{counts[state]} {state}' for state in State if counts[state])}."

"""The chart that explains a speed-up: how each part of a step differs between an experiment and its baseline. Pure.

A step is the mean step of the steady state. Records divide it by the metrics with a `step_part`, such as the time of the
forward pass, and by the time without a kernel on the GPU (NVML). What they do not divide is the rest. If a part is within
another part, both have a bar, and the bar of the other part is without it. Two steps are compared only if they have equally
many tokens. A part that only one side has is left out, with the reason. So are parts that together are longer than their step:
they overlap, and their bars would count the same time twice.
A step is the geometric mean over runs, as its speed is, but a part is the arithmetic mean. So a part is drawn as its share of the
arithmetic mean of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log, log10
from statistics import fmean
from typing import NamedTuple

from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import METRICS
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Figure, View, scale_of
from orchestrator.report.page.charts.chart_data import STEP_RATE, Cell, by_panel, noun
from orchestrator.report.page.charts.row_axis import row_bars, row_figure, texts
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, rounded, shown

IDLE, REST = "GPU idle", "the rest"
# The time between steps, and the two times that divide it. In these times the GPU is idle, too.
_BETWEEN, _BETWEEN_PARTS = "data_wait_share", ("data_time_s", "between_time_s")
_WAITS = (_BETWEEN, *_BETWEEN_PARTS)
# The largest number of experiments that are explained: those that differ the most.
MOST = 200
_STEP = "step_time_s"
_BUSY_SHARE = "gpu_utilization"
_TOKENS = ("real_tokens_per_s", "tokens_per_s")
# The sum of means of parts may exceed the mean step by this share of the step.
_EXCESS = 0.01
# Steps of texts of different lengths have the same tokens only on average.
_SAME_TOKENS = 0.02
_ROOM, _NARROW_ROOM = 1.45, 1.9


@dataclass(frozen=True, kw_only=True, slots=True)
class _Why:
    """An experiment and its baseline, the seconds of each part in a step of both, and the reason for each missing part."""

    cell: Cell
    base: Cell
    parts: Mapping[str, tuple[float, float]]
    missing: Mapping[str, str]

    @property
    def steps(self) -> tuple[float, float]:
        """Return the seconds of a step of the baseline, and of the experiment."""
        return _step_s(self.base), _step_s(self.cell)

    @property
    def changes(self) -> dict[str, str]:
        """Return the change of each part in words, all in the unit and with the digits of the longer step."""
        longest = max(self.steps)
        factor, unit = scale_of(_STEP, longest)
        digits = max(0, 3 - floor(log10(longest * factor)))
        changes = {name: round((new - old) * factor, digits) for name, (old, new) in self.parts.items()}
        signs = {name: "±" if not value else "+" if value > 0 else "−" for name, value in changes.items()}
        return {name: f"{signs[name]}{abs(value):.{digits}f} {unit}" for name, value in changes.items()}

    @property
    def ratio(self) -> float:
        before, after = self.steps
        return after / before

    @property
    def withheld(self) -> str:
        """Return why nothing is claimed; an empty text if the speed-up is claimed."""
        if self.cell.claimed:
            return ""
        if self.cell.in_doubt:
            return f"{_named(self.cell)} is in doubt: {', '.join(self.cell.doubts)}"
        return (
            f"the baseline is in doubt: {', '.join(self.base.doubts)}" if self.base.in_doubt else "a loss is in doubt"
        )


def waterfall(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart. Each experiment with a comparable baseline has a view."""
    known = {cell.key: cell for cell in cells}
    pairs = [(cell, known[cell.base]) for cell in cells if cell.base in known and _have_steps(cell, known[cell.base])]
    alike = [(cell, base) for cell, base in pairs if _have_same_tokens(cell, base)]
    compared = [_Why(cell=cell, base=base, **_divided(base, cell)._asdict()) for cell, base in alike]
    found = [why for why in compared if why.parts]
    drawn = sorted(found, key=lambda why: -abs(log(why.ratio)))[:MOST]
    in_order = sorted(drawn, key=lambda why: bool(why.withheld))
    views = [_view(why) for panel in by_panel(cells) for why in in_order if why.cell.panel == panel]
    reading = (
        "The mean step in the steady state: the baseline's on top, then what changed, and this experiment's below. Green is "
        f"shorter, purple is longer. {REST.capitalize()} is what the records do not divide. {IDLE} is the time in which no kernel "
        "ran, without the time between steps. If the bars are grey and hatched, nothing is claimed."
    )
    return Chart(
        id="why",
        title="Why: from the baseline's step to this one's",
        reading=reading,
        facets=(facet, noun(cells), "Experiment"),
        views=tuple(views),
        notes=tuple(_notes(len(pairs) - len(alike), len(alike) - len(found), len(found) - len(views))),
        together=True,
    )


def _have_steps(*cells: Cell) -> bool:
    return all(cell.numbers.get(STEP_RATE, 0.0) > 0 for cell in cells)


def _notes(other_work: int, undivided: int, left_out: int) -> Iterator[str]:
    if other_work:
        yield f"{counted(other_work, 'experiment')} left out: a step does not have as many tokens as the baseline's."
    if undivided:
        yield f"{counted(undivided, 'experiment')} left out: the records do not divide the steps of both sides."
    if left_out:
        more = f"{left_out:,} more {'is' if left_out == 1 else 'are'} left out"
        yield f"The page has room for the {MOST} experiments that differ the most; {more}."


def _step_s(cell: Cell) -> float:
    return 1 / cell.numbers[STEP_RATE]


def _have_same_tokens(cell: Cell, base: Cell) -> bool:
    for name in _TOKENS:
        if name in cell.numbers and name in base.numbers:
            mine, theirs = (one.numbers[name] * _step_s(one) for one in (cell, base))
            return abs(mine - theirs) <= _SAME_TOKENS * theirs
    return False


class _Division(NamedTuple):
    """The seconds of each part in a step of the baseline and of the experiment, and the reason for each missing part."""

    parts: dict[str, tuple[float, float]]
    missing: dict[str, str]


def _divided(base: Cell, cell: Cell) -> _Division:
    """Divide the steps of both sides into the parts that both recorded, if these can be true. There may be no part."""
    marked = {name: metric.step_part for name, metric in METRICS.items() if metric.step_part}
    both = [name for name in (*marked, _BUSY_SHARE) if name in base.numbers and name in cell.numbers]
    both = [name for name in both if not (within := METRICS[name].within) or within in both]
    if set(_BETWEEN_PARTS) <= set(both):
        both = [name for name in both if name != _BETWEEN]
        marked.pop(_BETWEEN)
    one_side = [name for name in marked if (name in base.numbers) != (name in cell.numbers)]
    missing = {marked[name]: "it is not known of both" for name in one_side}
    if _BUSY_SHARE not in both:
        missing[IDLE] = "both sides need NVML's readings: `monitors: [nvml]`"
    work = [marked[name] for name in both if name in marked and name not in _WAITS]
    if work and (parts := _pairs(base, cell, [name for name in both if name != _BUSY_SHARE])):
        return _Division(parts, missing | {IDLE: "the other parts include it"})
    missing |= dict.fromkeys(work, "the parts are longer than the step, so they overlap")
    return _Division(_pairs(base, cell, [name for name in both if marked.get(name) not in work]), missing)


def _pairs(base: Cell, cell: Cell, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the seconds of each part of both sides, and of the rest; nothing if one side's parts cannot be true."""
    before, after = _seconds(base, names), _seconds(cell, names)
    return {name: (before[name], after[name]) for name in before} if before and after else {}


def _seconds(cell: Cell, names: Sequence[str]) -> dict[str, float]:
    """Return the seconds of the parts of a step. Between steps, the GPU is idle, and this time counts once."""
    step = _step_s(cell)
    of_runs = [1 / rate for rate in cell.of_runs.get(STEP_RATE, ())]  # none if the source has only means
    scale = step / fmean(of_runs) if of_runs else 1.0
    whole = {
        name: cell.numbers[name] * (scale if METRICS[name].unit == "s" else step)
        for name in names
        if name != _BUSY_SHARE
    }
    own = dict(whole)
    for name, value in whole.items():
        if outer := METRICS[name].within:
            own[outer] -= value
    parts = {METRICS[name].step_part: value for name, value in own.items()}
    if _BUSY_SHARE in names:
        between = sum(whole.get(name, 0.0) for name in _WAITS)
        parts[IDLE] = max(0.0, (1 - cell.numbers[_BUSY_SHARE]) * step - between)
    rest = step - sum(parts.values())
    if not parts or min(*parts.values(), rest) < -_EXCESS * step:
        return {}
    return {name: max(0.0, value) for name, value in {**parts, REST: rest}.items()}


def _named(cell: Cell) -> str:
    return one_line(f"{cell.name} on {cell.where}")


def _view(why: _Why) -> View:
    cell = why.cell
    rows = [(name, *(shown(_STEP, one) for one in both), why.changes[name]) for name, both in why.parts.items()]
    return View(
        at=(cell.panel, str(cell.gpus), cell.name),
        figure=_figure(why),
        summary=_summary(why),
        columns=("part", one_line(why.base.name), one_line(cell.name), "change"),
        rows=(*rows, ("step", *(shown(_STEP, step) for step in why.steps), f"{why.ratio:.3f}×")),
    )


def _summary(why: _Why) -> str:
    before, after = why.steps
    ends = f"{_named(why.cell)}: a step takes {shown(_STEP, after)}, and {shown(_STEP, before)} with {one_line(why.base.name)}"
    changes = ", ".join(f"{name} {change}" for name, change in why.changes.items())
    interval = why.cell.speedup_interval
    unclear = " The difference is not clear." if interval and interval.low <= 1 <= interval.high else ""
    withheld = f" Nothing is claimed: {why.withheld}." if why.withheld else unclear
    reasons = dict.fromkeys(why.missing.values())
    missing = [
        f"{', '.join(name for name in why.missing if why.missing[name] == reason)} ({reason})" for reason in reasons
    ]
    not_shown = f" Not shown by itself: {'; '.join(missing)}." if missing else ""
    return f"{ends} ({changes}).{withheld}{not_shown}"


def _figure(why: _Why) -> Figure:
    before, after = why.steps
    factor, unit = scale_of(_STEP, max(before, after))
    sizes = {row: abs(end - start) * factor for row, (start, end) in enumerate(_spans(why))}
    lows, highs = ([choose(span) * factor for span in _spans(why)] for choose in (min, max))
    names = [why.base.name, *why.parts, why.cell.name]
    words = [shown(_STEP, before), *why.changes.values(), shown(_STEP, after)]
    bars = row_bars("step", sizes, _hover(why), base=[*map(rounded, lows)], marker=_marker(why))
    figure = row_figure(
        names,
        [bars, texts([*map(for_plotly, words)], [(high, row) for row, high in enumerate(highs)])],
        x_title=f"{unit} of a step",
        x_range=(0, max(highs) * _ROOM),
        narrow_range=(0, max(highs) * _NARROW_ROOM),
        bargap=0.35,
    )
    figure["narrow"]["ticktext"][1:-1] = [f"{name} " for name in why.parts]
    return figure


def _spans(why: _Why) -> list[tuple[float, float]]:
    """Return where each bar begins and ends, in seconds. The bar of a part begins where the bar above it ends."""
    before, after = why.steps
    spans = [(0.0, before)]
    for old, new in why.parts.values():
        at = spans[-1][1]
        spans.append((at, at + new - old))
    return [*spans, (0.0, after)]


def _hover(why: _Why) -> list[str]:
    before, after = (shown(_STEP, step) for step in why.steps)
    changes = [[name, " → ".join(shown(_STEP, one) for one in both)] for name, both in why.parts.items()]
    ends = [[why.base.name, before], [why.cell.name, after, *filter(None, [why.withheld])]]
    return [lines_for_plotly(lines) for lines in (ends[0], *changes, ends[1])]


def _marker(why: _Why) -> dict[str, object]:
    """Return the look of the bars. A difference that is not claimed is grey and hatched."""
    if why.withheld:
        count = len(why.parts) + 2
        return {"color": [colours.MUTED] * count, "pattern": colours.in_doubt([True] * count), "line": {"width": 0}}
    changes = ["@faster" if new < old else "@slower" for old, new in why.parts.values()]
    ends = [colours.colour(cell.place) for cell in (why.base, why.cell)]
    return {"color": [ends[0], *changes, ends[1]], "line": {"width": 0}}

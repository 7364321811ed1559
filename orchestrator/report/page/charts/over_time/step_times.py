"""The chart of an experiment's step times: all its runs, one over the other. Pure: series in, charts out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from orchestrator.files.printable_text import counted
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import (
    Chart,
    Trace,
    View,
    band,
    figure,
    level,
    note,
    scale_of,
    scatter,
    upright,
)
from orchestrator.report.page.charts.over_time import Drawn
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, rounded, seconds
from orchestrator.report.series import Point, Steps

HEIGHT_PX = 360
# A first step that takes more than this many times as long as each later step is marked at the edge. Otherwise the first step would
# flatten the lines.
_OFF_SCALE = 1.6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """One line of a drawing: a run's name, its steps, and why it does not count, if it does not."""

    name: str
    steps: Steps
    not_counted: str

    @property
    def label(self) -> str:
        return f"{self.name} ({self.not_counted}, not counted)" if self.not_counted else self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scale:
    """The y axis of a drawing, in seconds: its ends, and the height of a first step beyond `high`. `factor` is that of the unit."""

    low: float
    high: float
    edge: float
    factor: float
    unit: str

    def is_off(self, first: Point) -> bool:
        return first[1] > self.high

    def scaled(self, points: Iterable[Point]) -> list[Point]:
        return [(x, y * self.factor) for x, y in points]


def step_times(runs: Sequence[Drawn], notes: Sequence[str]) -> Chart:
    """Return the chart of each experiment's step times: the lines of its runs, their warm-up, their spikes, their first steps."""
    lines: dict[str, list[_Run]] = {}
    places: dict[str, int] = {}
    for run in runs:
        if run.series.steps is not None:
            places[run.experiment] = run.place
            line = _Run(name=run.run, steps=run.series.steps, not_counted=run.not_counted)
            lines.setdefault(run.experiment, []).append(line)
    in_order = {name: sorted(some, key=lambda run: _natural(run.name)) for name, some in lines.items()}
    reading = (
        "A line for each run of the experiment; a dashed run does not count, because it was a slow first run or failed. A step "
        "lasts from the moment when its last rank begins to the moment when its last rank ends. Shaded steps are warm-up, and "
        "no metric includes them. The dotted line is the median of the other steps. Spikes took much longer than similar steps. "
        "In a long run, only the lowest and highest values of each stretch are drawn."
    )
    views = tuple(_view(name, some, places[name]) for name, some in in_order.items())
    return Chart(
        id="steps", title="Step times", reading=reading, facets=("Experiment",), views=views, notes=tuple(notes)
    )


def _natural(name: str) -> tuple[int, str]:
    """Return a key that sorts r2-t1 before r10-t1."""
    return len(name), name


def _view(experiment: str, runs: Sequence[_Run], place: int) -> View:
    scale = _scale([run.steps for run in runs])
    begin, end = min(run.steps.first[0] for run in runs), max(run.steps.points[-1][0] for run in runs)
    margin = max(0.5, 0.015 * (end - begin))
    off = [run for run in runs if scale.is_off(run.steps.first)]
    drawing = figure(
        [*_lines(runs, scale, place), *_first_steps(runs, scale, place), *_spikes(runs, scale)],
        height=HEIGHT_PX,
        x_title="optimizer step",
        y_title=f"{scale.unit} per step",
        legend=True,
        yaxis={"range": [rounded(scale.low * scale.factor), rounded(scale.high * scale.factor)]},
        xaxis={"zeroline": False, "range": [rounded(begin - margin), rounded(end + margin)]},
        shapes=_shapes(runs, begin - margin, scale),
        annotations=[_off_scale(off, scale)] if off else [],
    )
    columns = (
        "run",
        "steps",
        "first step",
        "warm-up steps",
        "median after them",
        "5 to 95 % of the drawn steps",
        "spikes",
    )
    rows = tuple(map(_row, runs))
    return View(at=(experiment,), figure=drawing, summary=_summary(runs), columns=columns, rows=rows)


def _scale(series: Sequence[Steps]) -> _Scale:
    """Return the axis on which all steps after the first ones fit, and also the first steps that are not much longer."""
    rest = [value for steps in series for _, value in steps.points[1:]] or [steps.first[1] for steps in series]
    firsts = [steps.first[1] for steps in series]
    near = [value for value in firsts if value <= _OFF_SCALE * max(rest)]
    top, bottom = max(rest + near), min(rest)
    room = max(top - bottom, top * 0.02) * 0.15
    high = top + room if len(near) == len(firsts) else top + 2 * room
    factor, unit = scale_of("step_time_s", top)
    return _Scale(low=max(0.0, bottom - room), high=high, edge=high - room / 2, factor=factor, unit=unit)


def _lines(runs: Sequence[_Run], scale: _Scale, place: int) -> Iterator[Trace]:
    """Yield the line of each run, in the colour of the experiment; a later run is lighter."""
    for run, opacity in zip(runs, colours.lightness(len(runs)), strict=True):
        points = [point for point in run.steps.points if point != run.steps.first or not scale.is_off(point)]
        style = {"color": colours.colour(place), "dash": "dash" if run.not_counted else "solid", "width": 1.25}
        hover = f"{for_plotly(run.label)}: step %{{x}}, %{{y:.4g}} {scale.unit}<extra></extra>"
        yield scatter("lines", run.label, scale.scaled(points), line=style, opacity=opacity, hovertemplate=hover)


def _first_steps(runs: Sequence[_Run], scale: _Scale, place: int) -> Iterator[Trace]:
    """Yield the first steps. Those off the scale are one mark at the edge, with the numbers of all."""
    marks: dict[Point, list[str]] = {}
    for run in runs:
        number, value = run.steps.first
        height = scale.edge if scale.is_off(run.steps.first) else value
        marks.setdefault((number, height), []).append(f"{run.label}: first step {seconds(value)}")
    look = {"color": colours.colour(place), "symbol": "diamond", "size": 9}
    yield _marks("first step", scale.scaled(marks), look, [*marks.values()])


def _spikes(runs: Sequence[_Run], scale: _Scale) -> Iterator[Trace]:
    spikes = [(run, point) for run in runs for point in run.steps.spikes]
    if spikes:
        hover = [[f"{run.label}: spike of {seconds(value)} at step {number:.0f}"] for run, (number, value) in spikes]
        look = {"color": colours.INK, "symbol": "x", "size": 8}
        yield _marks("spike", scale.scaled(point for _, point in spikes), look, hover)


def _marks(name: str, points: Sequence[Point], look: Mapping[str, object], hover: Sequence[Sequence[str]]) -> Trace:
    return scatter("markers", name, points, marker=look, hovertext=[*map(lines_for_plotly, hover)], hoverinfo="text")


def _off_scale(runs: Sequence[_Run], scale: _Scale) -> dict[str, Any]:
    values = _between([run.steps.first[1] for run in runs], seconds)
    words = f"first step {values}, off the scale ↑"
    return note(runs[0].steps.first[0], rounded(scale.edge * scale.factor), words, xanchor="left", xshift=10)


def _shapes(runs: Sequence[_Run], begin: float, scale: _Scale) -> list[dict[str, Any]]:
    """Return the band of the longest warm-up, a line at the end of each warm-up, and the median of the runs that count."""
    ends = sorted({rounded(run.steps.first[0] + run.steps.cut - 0.5) or 0.0 for run in runs if run.steps.cut})
    shapes = [band(rounded(begin), ends[-1])] if ends else []
    shapes += [upright(end, {"color": colours.MUTED, "width": 1, "dash": "dash"}) for end in ends]
    medians = [run.steps.median_s for run in runs if run.steps.median_s is not None and not run.not_counted]
    if medians:
        line = {"color": colours.INK, "width": 1, "dash": "dot"}
        shapes.append(level(rounded(median(medians) * scale.factor), line))
    return shapes


def _between(values: Sequence[float], words: Callable[[float], str]) -> str:
    """Return the lowest and the highest value in words, or one of them if they read alike."""
    return " to ".join(dict.fromkeys((words(min(values)), words(max(values)))))


def _summary(runs: Sequence[_Run]) -> str:
    steps = [run.steps for run in runs]
    lengths = _between([one.steps for one in steps], str)
    ranks = counted(max(one.ranks for one in steps), "rank")
    firsts = _between([one.first[1] for one in steps], seconds)
    sentences = [f"{counted(len(runs), 'run')} of {lengths} steps on {ranks}: first step {firsts}{_steady(steps)}."]
    sentences += [f"{run.name} does not count ({run.not_counted})." for run in runs if run.not_counted]
    return " ".join(sentences)


def _steady(steps: Sequence[Steps]) -> str:
    steady = [(one.cut, one.median_s) for one in steps if one.cut is not None and one.median_s is not None]
    if not steady:
        return "; there was no steady state"
    cuts, spikes = [cut for cut, _ in steady], sum(len(one.spikes) for one in steps)
    warm_up = f"{_between(cuts, str)} {'step' if max(cuts) == 1 else 'steps'} of warm-up"
    medians = _between([value for _, value in steady], seconds)
    without = len(steps) - len(steady)
    rest = f"; {counted(without, 'run')} had no steady state" if without else ""
    return f", {warm_up}, then a median of {medians} with {counted(spikes, 'spike') if spikes else 'no spikes'}{rest}"


def _row(run: _Run) -> tuple[str, ...]:
    steps = run.steps
    spread = "-"
    if len(steps.points) >= 20:
        low, *_, high = quantiles((value for _, value in steps.points), n=20)
        spread = f"{seconds(low)} – {seconds(high)}"
    cut = "-" if steps.cut is None else str(steps.cut)
    spikes = ", ".join(f"{seconds(value)} at step {number:.0f}" for number, value in steps.spikes[:10])
    return run.label, str(steps.steps), seconds(steps.first[1]), cut, seconds(steps.median_s), spread, spikes or "-"

"""Charts of single runs over time: the steps of a run, and its GPUs' memory and power. Pure: series in, charts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from orchestrator.files.printable_text import counted
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import (
    Chart,
    Trace,
    View,
    axis_title,
    band,
    figure,
    level,
    marker,
    note,
    scale_of,
    scatter,
    upright,
)
from orchestrator.report.page.texts import one_line, rounded, seconds, size
from orchestrator.report.series import Device, Point, RunSeries, Steps

GIB = 2**30
STEPS_PX, DEVICES_PX = 360, 520
# A first step that takes more than this many times as long as each later step is marked at the edge. Otherwise the first step would
# flatten the line.
_OFF_SCALE = 1.6

FACETS = ("Experiment", "Run")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """One run to draw: its names in the lists of choices, its series, and the capacity of its GPUs if known."""

    experiment: str
    run: str
    series: RunSeries
    gpu_bytes: float | None = None


def step_times(runs: Sequence[Drawn], notes: Sequence[str]) -> Chart:
    """Return the chart of a run's step times: its warm-up, its spikes, its first step."""
    views = [_steps_view((run.experiment, run.run), run.series.steps) for run in runs if run.series.steps is not None]
    reading = (
        "A step lasts from the moment when its last rank begins to the moment when its last rank ends. Shaded steps are warm-up, "
        "and no metric includes them. The dotted line is the median of the other steps. Spikes took much longer than similar "
        "steps. In a long run, only the lowest and highest values of each stretch are drawn."
    )
    return Chart(
        id="steps", title="Step times of a run", reading=reading, facets=FACETS, views=tuple(views), notes=tuple(notes)
    )


def _steps_view(at: tuple[str, str], steps: Steps) -> View:
    top, bottom = _level(steps)
    off_scale = steps.first[1] > _OFF_SCALE * top
    room = max(top - bottom, top * 0.02) * 0.15
    upper = top + 2 * room if off_scale else max(top, steps.first[1]) + room
    margin = max(0.5, 0.015 * max(1, len(steps.points) - 1))
    begin = steps.first[0] - margin
    factor, unit = scale_of("step_time_s", top)

    def scaled(points: Sequence[Point]) -> list[Point]:
        return [(x, y * factor) for x, y in points]

    first = (steps.first[0], min(steps.first[1], upper - room / 2))
    spikes = [_marks("spike", scaled(steps.spikes), 3, "x", [y for _, y in steps.spikes])] if steps.spikes else []
    traces = [
        _line("step", scaled([point for point in steps.points if point != steps.first or not off_scale])),
        _marks("first step", scaled([first]), 1, "diamond", [steps.first[1]]),
        *spikes,
    ]
    words = f"first step {seconds(steps.first[1])}, off the scale ↑"
    drawing = figure(
        traces,
        height=STEPS_PX,
        x_title="optimizer step",
        y_title=f"{unit} per step",
        legend=True,
        yaxis={"range": [rounded(max(0.0, bottom - room) * factor), rounded(upper * factor)]},
        xaxis={"zeroline": False, "range": [rounded(begin), rounded(steps.points[-1][0] + margin)]},
        shapes=_steps_shapes(steps, begin, factor),
        annotations=[note(first[0], rounded(first[1] * factor), words, xanchor="left", xshift=10)] * off_scale,
    )
    rows = (*_steps_table(steps), ("steps drawn", str(len(steps.points))))
    return View(at=at, figure=drawing, summary=_steps_summary(steps), columns=("of this run", "value"), rows=rows)


def _level(steps: Steps) -> tuple[float, float]:
    """Return the longest and the shortest step after the first one."""
    rest = [value for _, value in steps.points[1:]] or [steps.first[1]]
    return max(rest), min(rest)


def _steps_shapes(steps: Steps, begin: float, factor: float) -> list[dict[str, Any]]:
    shapes = []
    if steps.cut:
        end = rounded(steps.first[0] + steps.cut - 0.5)
        shapes.append(band(rounded(begin), end))
        shapes.append(upright(end, {"color": colours.MUTED, "width": 1, "dash": "dash"}))
    if steps.median_s is not None:
        shapes.append(level(rounded(steps.median_s * factor), {"color": colours.INK, "width": 1, "dash": "dot"}))
    return shapes


def _steps_summary(steps: Steps) -> str:
    first = f"{counted(steps.steps, 'step')} of {counted(steps.ranks, 'rank')}: the first {seconds(steps.first[1])}"
    if steps.cut is None or steps.median_s is None:
        return f"{first}; there was no steady state."
    spikes = counted(len(steps.spikes), "spike") if steps.spikes else "no spikes"
    return (
        f"{first}, {counted(steps.cut, 'step')} of warm-up, then a median of {seconds(steps.median_s)} with {spikes}."
    )


def _steps_table(steps: Steps) -> list[tuple[str, str]]:
    rows = [("steps", str(steps.steps)), ("first step", seconds(steps.first[1]))]
    if steps.cut is not None and steps.median_s is not None:
        rows += [("warm-up steps", str(steps.cut)), ("median after them", seconds(steps.median_s))]
        rows += [(f"spike at step {number:.0f}", seconds(value)) for number, value in steps.spikes[:10]]
    if len(steps.points) >= 20:
        low, *_, high = quantiles((value for _, value in steps.points), n=20)
        rows.append(("5 to 95 % of the drawn steps", f"{seconds(low)} – {seconds(high)}"))
    return rows


def _line(name: str, points: Sequence[Point], place: int = 0, **more: Any) -> Trace:
    line = {"color": colours.colour(place), "dash": colours.dash(place), "width": 1.75}
    return scatter("lines", name, points, line=line, **more)


def _marks(name: str, points: Sequence[Point], place: int, symbol: str, values: Sequence[float]) -> Trace:
    look, hover = marker(place, size=10, symbol=symbol), [f"{name}: {seconds(value)}" for value in values]
    return scatter("markers", name, points, marker=look, hovertext=hover, hoverinfo="text")


def devices(runs: Sequence[Drawn], notes: Sequence[str]) -> Chart:
    """Return the chart of memory and power of a run's GPUs over time."""
    views = [
        _devices_view((run.experiment, run.run), run.series, run.gpu_bytes)
        for run in runs
        if any(device.memory_bytes or device.power_w for device in run.series.devices)
    ]
    reading = (
        "From the first reading before the run to the last reading after it. The steady state is shaded: energy, power and clocks "
        "are measured only there, peak memory over the whole run. In a long run, only the lowest and highest values of each "
        "stretch are drawn."
    )
    title = "Memory and power over time"
    return Chart(id="devices", title=title, reading=reading, facets=FACETS, views=tuple(views), notes=tuple(notes))


def _devices_view(at: tuple[str, str], series: RunSeries, gpu_bytes: float | None) -> View:
    traces = [trace for place, device in enumerate(series.devices) for trace in _device_lines(place, device)]
    shapes = [band(rounded(series.window[0]), rounded(series.window[1]))] if series.window else []
    notes: list[dict[str, Any]] = []
    peak = max((y for device in series.devices for _, y in device.memory_bytes), default=0.0)
    if gpu_bytes and gpu_bytes < 2.5 * peak:
        shapes.append(level(rounded(gpu_bytes / GIB), {"color": colours.BAD, "width": 1.5, "dash": "dash"}))
        text = f"GPU capacity: {gpu_bytes / GIB:.0f} GiB"
        place = {"xref": "paper", "xanchor": "right", "yanchor": "bottom"}
        notes.append(note(1, rounded(gpu_bytes / GIB), text, colour=colours.BAD, **place))
    drawing = figure(
        traces,
        height=DEVICES_PX,
        x_title="seconds since the first reading",
        y_title="GiB",
        legend=len(series.devices) > 1,
        above=26,
        shapes=shapes,
        annotations=notes,
        xaxis={"anchor": "y2", "zeroline": False},
        yaxis={"domain": [0.56, 1], "rangemode": "tozero"},
    )
    axes = drawing["layout"]
    axes["yaxis2"] = axes["yaxis"] | {"domain": [0, 0.44], "title": axis_title("W")}
    window = f"; the steady state lasted {series.window[1] - series.window[0]:.0f} s" if series.window else ""
    return View(
        at=at,
        figure=drawing,
        summary=f"{counted(len(series.devices), 'GPU')}; highest use {size(peak)}{window}.",
        columns=("GPU", "highest memory", "highest power"),
        rows=tuple(map(_device_row, series.devices)),
    )


def _device_row(device: Device) -> tuple[str, str, str]:
    memory = max((y for _, y in device.memory_bytes), default=None)
    power = max((y for _, y in device.power_w), default=None)
    return one_line(f"{device.place} {device.uuid or ''}"), size(memory), "-" if power is None else f"{power:.0f} W"


def _device_lines(place: int, device: Device) -> list[Trace]:
    name = f"GPU {device.place}"
    hover = f"{name}: %{{y:.4g}} at %{{x:.4g}} s<extra></extra>"
    shared: Mapping[str, Any] = {"legendgroup": name, "hovertemplate": hover}
    lines = []
    if device.memory_bytes:
        lines.append(_line(name, [(x, y / GIB) for x, y in device.memory_bytes], place, **shared))
    if device.power_w:
        lines.append(_line(name, device.power_w, place, **shared, yaxis="y2", showlegend=not lines))
    for line in lines:
        line["line"]["shape"] = "hv"
    return lines

"""The chart of a run's GPUs over time: their memory and power. Pure: series in, charts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    note,
    scatter,
)
from orchestrator.report.page.charts.over_time import Drawn
from orchestrator.report.page.texts import one_line, rounded, size
from orchestrator.report.series import Device, Point, RunSeries

GIB = 2**30
HEIGHT_PX = 520


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
    return Chart(
        id="devices", title=title, reading=reading, facets=("Experiment", "Run"), views=tuple(views), notes=tuple(notes)
    )


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
        height=HEIGHT_PX,
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


def _line(name: str, points: Sequence[Point], place: int, **more: Any) -> Trace:
    line = {"color": colours.colour(place), "dash": colours.dash(place), "width": 1.75}
    return scatter("lines", name, points, line=line, **more)

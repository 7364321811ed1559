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
    upright,
)
from orchestrator.report.page.charts.over_time import Drawn
from orchestrator.report.page.texts import one_line, rounded, size
from orchestrator.report.series import Device, RunSeries

GIB = 2**30
HEIGHT_PX = 520


def devices(runs: Sequence[Drawn], notes: Sequence[str]) -> Chart:
    """Return the chart of memory and power of a run's GPUs over time."""
    views = [_view(run) for run in runs if any(device.memory_bytes or device.power_w for device in run.series.devices)]
    reading = (
        "From the beginning of the first step to the last reading after the run; double-click to see the start and the loading "
        "before it. The steady state is shaded: energy, power and clocks are measured only there, peak memory over the whole run. "
        "In a long run, only the lowest and highest values of each stretch are drawn."
    )
    title = "Memory and power over time"
    return Chart(
        id="devices", title=title, reading=reading, facets=("Experiment", "Run"), views=tuple(views), notes=tuple(notes)
    )


def _view(run: Drawn) -> View:
    series = run.series
    lightness = colours.lightness(len(series.devices))
    traces = [
        trace
        for at, (device, opacity) in enumerate(zip(series.devices, lightness, strict=True))
        for trace in _device_lines(device, run.place, opacity=opacity, dash=colours.dash(at))
    ]
    peak = max((y for device in series.devices for _, y in device.memory_bytes), default=0.0)
    shapes, notes = _marks(series, run.gpu_bytes if run.gpu_bytes and run.gpu_bytes < 2.5 * peak else None)
    drawing = figure(
        traces,
        height=HEIGHT_PX,
        x_title="seconds since the first step began" if series.from_first_step else "seconds since the first reading",
        y_title="GiB",
        legend=len(series.devices) > 1,
        above=26,
        shapes=shapes,
        annotations=notes,
        xaxis={"anchor": "y2", "zeroline": False, **_from_first_step(series)},
        yaxis={"domain": [0.56, 1], "rangemode": "tozero"},
    )
    axes = drawing["layout"]
    axes["yaxis2"] = axes["yaxis"] | {"domain": [0, 0.44], "title": axis_title("W")}
    window = f"; the steady state lasted {series.window[1] - series.window[0]:.0f} s" if series.window else ""
    return View(
        at=(run.experiment, run.run),
        figure=drawing,
        summary=f"{counted(len(series.devices), 'GPU')}; highest use {size(peak)}{window}.",
        columns=("GPU", "highest memory", "highest power"),
        rows=tuple(map(_device_row, series.devices)),
    )


def _from_first_step(series: RunSeries) -> dict[str, Any]:
    """Return the range of the x axis. A double-click on the chart shows the time before it as well."""
    if not series.from_first_step:
        return {}
    end = max(x for device in series.devices for points in (device.memory_bytes, device.power_w) for x, _ in points)
    return {"range": [rounded(-0.01 * end), rounded(end)]}


def _marks(series: RunSeries, gpu_bytes: float | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the shapes of a drawing and their words: the steady state, the first step, the GPU's capacity."""
    shapes = [band(rounded(series.window[0]), rounded(series.window[1]))] if series.window else []
    if series.from_first_step:
        shapes.append(upright(0, {"color": colours.MUTED, "width": 1, "dash": "dash"}))
    if not gpu_bytes:
        return shapes, []
    shapes.append(level(rounded(gpu_bytes / GIB), {"color": colours.BAD, "width": 1.5, "dash": "dash"}))
    place = {"xref": "paper", "xanchor": "right", "yanchor": "bottom"}
    text = f"GPU capacity: {gpu_bytes / GIB:.0f} GiB"
    return shapes, [note(1, rounded(gpu_bytes / GIB), text, colour=colours.BAD, **place)]


def _device_row(device: Device) -> tuple[str, str, str]:
    memory = max((y for _, y in device.memory_bytes), default=None)
    power = max((y for _, y in device.power_w), default=None)
    return one_line(f"{device.place} {device.uuid or ''}"), size(memory), "-" if power is None else f"{power:.0f} W"


def _device_lines(device: Device, place: int, *, opacity: float, dash: str) -> list[Trace]:
    """Return the lines of a GPU in the colour of the experiment. Each GPU has its own lightness and dash."""
    name = f"GPU {device.place}"
    hover = f"{name}: %{{y:.4g}} at %{{x:.4g}} s<extra></extra>"
    line = {"color": colours.colour(place), "dash": dash, "width": 1.75, "shape": "hv"}
    shared: Mapping[str, Any] = {"legendgroup": name, "hovertemplate": hover, "opacity": opacity, "line": line}
    lines = []
    if device.memory_bytes:
        lines.append(scatter("lines", name, [(x, y / GIB) for x, y in device.memory_bytes], **shared))
    if device.power_w:
        lines.append(scatter("lines", name, device.power_w, **shared, yaxis="y2", showlegend=not lines))
    return lines

"""Show views of GPUs (`readings`): a table for people, which is live on a terminal, or lines of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.campaign.gpu_monitor.readings import Process, Reading, Seen, View
from orchestrator.files.redaction import masker
from orchestrator.measure.metrics import DASH

# From this terminal width on, the table has a column for processes. On narrower terminals, each process has a line below the table.
WIDE = 130


def as_json(view: View) -> str:
    """Return one line of JSON. Names include units; shares are between 0 and 1."""
    return json.dumps(masker()(asdict(view))) + "\n"


def follow(shown: Iterable[View], console: Console) -> None:
    """Print the views. On a terminal, each view replaces the previous view. In a pipe or file, print one view after the other."""
    if not console.is_terminal:
        for view in shown:
            console.print(as_table(view, width=console.width))
        return
    with Live(console=console, auto_refresh=False) as live:
        for view in shown:
            live.update(as_table(view, width=console.width), refresh=True)


def as_table(view: View, *, width: int) -> RenderableType:
    """Return a table with a row for each GPU.

    The processes are in the last column, or in lines below the table if the terminal is narrow.
    """
    wide = width >= WIDE
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2 if wide else 1, 0, 0))
    for heading in ("GPU", "name", "memory\nGiB", "peak\nGiB", "use", "power\nW", "energy", "SM\nMHz", "°C"):
        words = heading == "name"
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for heading in ("held\ndown by", "processes")[: 2 if wide else 1]:
        table.add_column(heading, overflow="fold")
    for gpu in view.gpus:
        table.add_row(*_cells(gpu), *([Text("\n".join(_processes(gpu) or [DASH]))] if wide else []))
    minutes, seconds = divmod(int(view.since_s), 60)
    head = Text(f"peak and energy over {minutes // 60}:{minutes % 60:02}:{seconds:02}", style="dim")
    below = [] if wide else [f"GPU {gpu.index}: {line}" for gpu in view.gpus for line in _processes(gpu)]
    return Group(head, table, *map(Text, below))


def _cells(gpu: Reading) -> Iterator[Text]:
    yield Text(str(gpu.index))
    yield Text((gpu.name or DASH).removeprefix("NVIDIA "))
    used = _pair(_gib(gpu.memory_used_bytes), _gib(gpu.memory_total_bytes))
    yield Text("lost", style="red") if gpu.lost else Text(used)
    yield Text(_gib(gpu.memory_peak_used_bytes))
    yield Text(DASH if gpu.gpu_utilization is None else f"{gpu.gpu_utilization:.0%}")
    yield Text(_pair(_whole(gpu.power_w), _whole(gpu.power_limit_w)))
    yield Text(_energy(gpu.energy_j))
    yield Text(_whole(gpu.sm_clock_mhz))
    yield Text(_whole(gpu.temperature_c))
    yield Text(", ".join(gpu.throttle_reasons or ()) or DASH, style="yellow" if gpu.throttle_reasons else "")


def _processes(gpu: Reading) -> list[str]:
    return [f"{process.pid} {_who(process)}".rstrip() for process in gpu.processes or ()]


def _who(process: Process) -> str:
    if process.seen is not Seen.HERE:
        return "(ending)" if process.seen is Seen.ENDING else "(of another container)"
    if process.run is None:
        return process.name or ""
    run = process.run
    return f"{run.experiment} r{run.repeat}" if run.experiment else f"run in {run.folder}" if run.folder else "a run"


def _pair(value: str, limit: str) -> str:
    return DASH if (value, limit) == (DASH, DASH) else f"{value} / {limit}"


def _gib(size: int | None) -> str:
    return DASH if size is None else f"{size / 2**30:.2f}"


def _whole(value: float | None) -> str:
    return DASH if value is None else f"{value:.0f}"


def _energy(joules: float | None) -> str:
    if joules is None:
        return DASH
    for size, unit in ((1e6, "MJ"), (1e3, "kJ")):
        if joules >= size:
            return f"{joules / size:.2f} {unit}"
    return f"{joules:.0f} J"

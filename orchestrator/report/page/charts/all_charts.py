"""The charts of a report in their order, and the data that the charts need besides the table.

Only a part of the folders is read: the series of some runs, the screens, and one record for each kind of GPU, because this record
has the GPU's capacity. The modules of the charts are pure (`bars`, `waterfall`, `parts`, `curves`, `over_time`, `operators`, ...).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from orchestrator.records import Status
from orchestrator.report import series
from orchestrator.report.page import runs
from orchestrator.report.page.charts import balance, bars, chart_data, heat_map, parts, waterfall
from orchestrator.report.page.charts.chart import Absent, Chart, chart_or_absent
from orchestrator.report.page.charts.chart_data import Cell, Key
from orchestrator.report.page.charts.curves.operators import calls
from orchestrator.report.page.charts.curves.operators.calls import HBM, MATMUL, Roof
from orchestrator.report.page.charts.curves.operators.roofline import roofline
from orchestrator.report.page.charts.curves.operators.sizes import sizes
from orchestrator.report.page.charts.curves.race import races
from orchestrator.report.page.charts.curves.scaling import scaling
from orchestrator.report.page.charts.curves.tradeoff import tradeoff
from orchestrator.report.page.charts.over_time import Drawn
from orchestrator.report.page.charts.over_time.devices import devices
from orchestrator.report.page.charts.over_time.step_times import step_times
from orchestrator.report.page.folders import Folders, gpus
from orchestrator.report.page.runs import Run
from orchestrator.screen import judge, stored

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

# The largest number of runs whose steps are drawn, and of runs whose GPUs are drawn, which take much more of the page.
MOST_STEPS, MOST_GPUS = 500, 120
# The largest number of points in the lines of all step times: 250 long runs.
STEP_POINTS = 50_000
# The largest number of bytes of series that are read for a page.
SERIES_BYTES = 32 * 2**20

MOST_GPU_KINDS = 16
NO_GPU_SAMPLES = "no run has NVML samples; on a machine with an NVIDIA GPU, `monitors: [nvml]` records them"
_NO_ROOF = "the folder has no figures of a GPU; `tunebench run --screen` measures them before the first run"
# The metrics of an operator and of a benchmark.
_OF_CALLS = ("call_time_s", "round_time_s")
_NO_PARTS = "no two comparable experiments have steps with equally many tokens, and a part of these steps"
Runs = Mapping[Key, Sequence[Run]]


def charts(
    table: ResultsTable,
    known: Sequence[Cell],
    ended: Runs,
    folders: Folders,
    *,
    capacities: Mapping[Key, float],
) -> Iterator[Chart | Absent]:
    """Yield all charts in their order. If a chart has no numbers, yield the reason in its place.

    A table that has only calls of operators and benchmarks gets no reasons about trainings.
    """
    facet = chart_data.panel_word(table.experiments)
    drawn, of_steps, of_gpus = _series(known, ended, folders, capacities)
    of_operators = calls.read(table, known, _roofs(ended, folders))
    of_trainings: Sequence[tuple[Chart, str]] = (
        (bars.throughput(known, facet), "no run has a speed"),
        (waterfall.waterfall(known, facet), _NO_PARTS),
        (parts.memory(known, facet, gpu_bytes=capacities), "no run has memory numbers of a GPU"),
        (tradeoff(known, facet), "no two comparable experiments have both a speed and a number for GPU memory"),
        (scaling(known, facet), "no experiment has a speed per GPU at different numbers of GPUs"),
        (step_times(drawn, of_steps), "no run recorded its steps"),
        (devices(drawn, of_gpus), NO_GPU_SAMPLES),
        (bars.energy(known, facet), NO_GPU_SAMPLES),
        (parts.wall_time(known, facet), "no run recorded when its stages began"),
        (balance.balance(table.ranks, known), "no run has the compute time or the memory of several ranks"),
    )
    yield from (chart for chart in (races(folders.roots.values()), heat_map.speedups(known, facet)) if chart.views)
    throughput, *others = of_trainings
    is_of_calls = _has_only_calls(known)
    yield from _with_reasons([throughput], silent=is_of_calls)
    optional = (bars.times(known, facet), sizes(of_operators, facet))
    yield from (chart for chart in optional if chart.views)
    if of_operators:
        yield chart_or_absent(roofline(of_operators, facet), _NO_ROOF)
    yield from _with_reasons(others, silent=is_of_calls)


def _has_only_calls(known: Sequence[Cell]) -> bool:
    """Return whether every experiment with a number measures calls of operators or benchmarks."""
    measured = [cell for cell in known if cell.numbers]
    return bool(measured) and all(any(name in cell.numbers for name in _OF_CALLS) for cell in measured)


def _with_reasons(all_charts: Sequence[tuple[Chart, str]], *, silent: bool) -> Iterator[Chart | Absent]:
    for chart, why in all_charts:
        if chart.views or not silent:
            yield chart_or_absent(chart, why)


def _roofs(ended: Runs, folders: Folders) -> dict[Key, Roof]:
    """Return the roof of each experiment whose GPUs were screened: medians over the idle GPUs of the same product in its folder."""
    by_card: dict[tuple[str | None, str, str], list[float]] = defaultdict(list)
    for results, root in folders.roots.items():
        for screen in stored.read(root / stored.FOLDER):
            for (name, card), samples in judge.samples(screen).items():
                by_card[results, card, name] += samples
    figures = {place: median(samples) for place, samples in by_card.items()}
    found: dict[Key, Roof] = {}
    for key, runs_of in ended.items():
        card = next((run.gpu_words for run in runs_of if run.gpu_words), "")
        roof = Roof(
            card=card,
            flops_per_s=figures.get((key[0], card, MATMUL)),
            bytes_per_s=figures.get((key[0], card, HBM)),
        )
        if roof.flops_per_s or roof.bytes_per_s:
            found[key] = roof
    return found


def gpu_capacities(ended: Runs, folders: Folders) -> dict[Key, float]:
    """Return a dict from experiment to the capacity of its GPUs, if they are all of one kind.

    Read one record for each kind of GPU.
    """
    by_words: dict[tuple[str | None, str], float | None] = {}
    sizes: dict[Key, float] = {}
    for key, runs_of in ended.items():
        run = next((run for run in runs_of if run.gpu_words), None)
        folder = run.folder(folders) if run else None
        if run is None or run.gpu_words is None or folder is None:
            continue
        words = (key[0], run.gpu_words)
        if words not in by_words and len(by_words) < MOST_GPU_KINDS:
            by_words[words] = _capacity(folder)
        if (size := by_words.get(words)) is not None:
            sizes[key] = size
    return sizes


def _capacity(folder: Path) -> float | None:
    sizes = {gpu.get("memory_bytes") for gpu in gpus(folder)}
    size: Any = sizes.pop() if len(sizes) == 1 else None
    return float(size) if isinstance(size, int) and 0 < size < 2**60 else None


def _series(
    known: Sequence[Cell], ended: Runs, folders: Folders, capacities: Mapping[Key, float]
) -> tuple[list[Drawn], list[str], list[str]]:
    """Return three values: the series of as many runs as fit, and notes about omissions of steps and of GPUs.

    The first runs of all experiments come first.
    """
    cells = {cell.key: cell for cell in known}
    in_turn = [*runs.in_turn(ended, [*cells])]
    drawn: list[Drawn] = []
    left, points_left, too_large = SERIES_BYTES, STEP_POINTS, 0
    for run in in_turn:
        folder, with_gpus = run.folder(folders), len(drawn) < MOST_GPUS
        if folder is None or len(drawn) >= MOST_STEPS or points_left <= 0:
            continue
        if (size := series.size(folder, with_gpus=with_gpus)) > left:
            continue
        left, too_large = left - size, too_large + (size > series.MAX_BYTES)
        points = series.read(folder, discarded_steps=run.discarded_steps, with_gpus=with_gpus)
        points_left -= len(points.steps.points) if points.steps else 0
        drawn.append(_drawn(run, cells[run.key], points, capacities.get(run.key)))
    large = []
    if too_large:
        limit = f"{series.MAX_BYTES // 2**20} MiB"
        large.append(f"The series of {too_large:,} runs are not drawn: each takes more than {limit}.")
    with_gpus_drawn = min(len(drawn), MOST_GPUS)
    of_steps, of_gpus = (
        [*_left_out(what, count, len(in_turn)), *large]
        for what, count in (("step times", len(drawn)), ("memory and power", with_gpus_drawn))
    )
    return drawn, of_steps, of_gpus


def _drawn(run: Run, cell: Cell, points: series.RunSeries, gpu_bytes: float | None) -> Drawn:
    not_counted = "slow first run" if run.cold else "" if run.status == Status.OK else run.status
    return Drawn(
        experiment=cell.full_name,
        run=run.name,
        series=points,
        place=cell.place,
        not_counted=not_counted,
        gpu_bytes=gpu_bytes,
    )


def _left_out(what: str, drawn: int, count: int) -> Iterator[str]:
    if drawn < count:
        more = f"those of {count - drawn:,} more runs are only in their folders"
        yield f"The page has room for the {what} of {drawn:,} runs; {more}."

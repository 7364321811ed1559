"""The first section of a report: what was run, and where. It is made from a table and the `suite.json` of its folders."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.files.printable_text import counted, rounded
from orchestrator.files.redaction import redact, redact_words
from orchestrator.measure.metrics import Show, show
from orchestrator.measure.metrics import shown as forms
from orchestrator.records import Start
from orchestrator.report.page.texts import one_line
from orchestrator.results.table.column_choice import column, gpu_models
from orchestrator.results.table.rows import PACKAGES, Value

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

MOST_VALUES = 4
_ROWS = (
    ("Host", ("provenance_host_name",)),
    ("Processor", ("provenance_host_cpu", "provenance_host_cpu_count")),
    ("System", ("provenance_host_system",)),
    ("Driver", ("provenance_driver_driver",)),
    ("CUDA", ("provenance_worker_versions_cuda",)),
    ("Python", ("provenance_worker_versions_python",)),
    ("Price", ("provenance_price",)),
)
_WHAT = (
    *(("Scenarios", "scenario"), ("Models", "model_name_or_path"), ("Frameworks", "framework_config")),
    *(("Processes", "num_gpus"), ("Data", "data"), ("Trainers", "trainer")),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A number at the top of the page, and its label."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """Tiles, and two tables of labels and words: what was run, and where."""

    tiles: tuple[Tile, ...]
    what: tuple[tuple[str, str], ...]
    where: tuple[tuple[str, str], ...]


def of(table: ResultsTable, suites: Sequence[Mapping[str, Any]], *, gpu_bytes: Sequence[float]) -> Overview:
    """Return the overview of a table.

    `suites` are the contents of `suite.json` in its folders. `gpu_bytes` are the known capacities of GPUs.
    """
    runs, experiments = table.runs, table.experiments
    return Overview(
        tiles=tuple(_tiles(experiments, runs)),
        what=(*_what(experiments), *_commands(suites)),
        where=tuple(_where(runs, gpu_bytes)),
    )


def in_one_line(overview: Overview) -> str:
    """Return the tiles as one line: `8 experiments, 25 runs, H200 GPU, began 2026-11-21`."""
    words = [
        f"{tile.label} {tile.value}" if tile.label == "began" else f"{tile.value} {tile.label}"
        for tile in overview.tiles
    ]
    return ", ".join(words)


def _tiles(experiments: pd.DataFrame, runs: pd.DataFrame) -> Iterator[Tile]:
    ended = Counter(one_line(value, width=20) for value in column(experiments, "status"))
    number, noun = counted(len(experiments), "experiment").split()
    yield Tile(value=number, label=noun, note=", ".join(f"{count} {status}" for status, count in ended.most_common(4)))
    number, noun = counted(len(runs), "run").split()
    yield Tile(value=number, label=noun)
    models = dict.fromkeys(name for value in gpu_models(runs) if value for name in value.split(", "))
    gpus = [one_line(name, width=40) for name in models]
    counts = [value for value in column(runs, "num_gpus") if isinstance(value, int)]
    if gpus:
        most = f"up to {max(counts)} at once" if counts and max(counts) > 1 else "one at a time"
        name = gpus[0].removeprefix("NVIDIA ")
        of_several = Tile(value=str(len(gpus)), label="GPU models", note=f"{_listed(gpus)}; {most}")
        yield Tile(value=name, label="GPU", note=most) if len(gpus) == 1 else of_several
    yield from _times(runs)


def _times(runs: pd.DataFrame) -> Iterator[Tile]:
    spans, hours = [], {"cuda": 0.0, "cpu": 0.0}
    columns = (column(runs, name) for name in ("started_at", "wall_s", "num_gpus", "device"))
    for started_at, wall, count, device in zip(*columns, strict=True):
        start = _moment(started_at)
        if start is None or not isinstance(wall, (int, float)):
            continue
        spans.append((start, start + wall))
        hours["cpu" if device == "cpu" else "cuda"] += wall * (count if isinstance(count, int) else 1) / 3600
    if not spans:
        return
    begin, end = min(start for start, _ in spans), max(end for _, end in spans)
    began = datetime.fromtimestamp(begin, UTC)
    yield Tile(value=f"{began:%Y-%m-%d}", label="began", note=f"{began:%H:%M} UTC")
    yield Tile(value=forms.text(end - begin, Show.SECONDS), label="from first to last run", note="including pauses")
    for device, word in (("cuda", "GPU-hours"), ("cpu", "process-hours on CPUs")):
        if hours[device]:
            yield Tile(value=rounded(hours[device], 3), label=word, note="wall time × processes")


def _moment(value: Value) -> float | None:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError):
        return None


def _what(experiments: pd.DataFrame) -> Iterator[tuple[str, str]]:
    for label, name in _WHAT:
        if words := _distinct(column(experiments, name), of=name):
            yield label, words
    compared = _distinct(column(experiments, "compared_with"))
    if compared:
        yield "Compared with", compared


def _commands(suites: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the command lines of the campaigns, from their suites."""
    for suite in suites:
        request = suite.get("asked")
        argv = request.get("argv") if isinstance(request, dict) else None
        if isinstance(argv, list) and all(isinstance(word, str) for word in argv):
            yield "Command", one_line(redact(shlex.join(["tunebench", *redact_words(argv)])))


def _where(runs: pd.DataFrame, gpu_bytes: Sequence[float]) -> Iterator[tuple[str, str]]:
    gpus = _distinct(column(runs, "provenance_gpus"))
    if gpus:
        sizes = ", ".join(forms.text(size, Show.BYTES) for size in sorted(set(gpu_bytes)))
        yield "GPUs", f"{gpus} ({sizes} each)" if sizes else gpus
    for label, names in _ROWS:
        parts = [_distinct(column(runs, name)) for name in names]
        if parts[0]:
            yield label, " × ".join(part for part in reversed(parts) if part)
    memory = [value for value in column(runs, "provenance_host_memory_bytes") if isinstance(value, int)]
    if memory:
        yield "Host memory", ", ".join(forms.text(size, Show.BYTES) for size in sorted(set(memory))[:MOST_VALUES])
    versions = {package: _distinct(column(runs, f"provenance_{package}")) for package in PACKAGES}
    if any(versions.values()):
        yield "Packages", ", ".join(f"{package} {words}" for package, words in versions.items() if words)
    starts = Counter(column(runs, "provenance_start"))
    if starts[Start.WARM]:
        yield "Start of the runs", ", ".join(f"{count} {how.value}" for how in Start if (count := starts[how]))
    commits, dirty = column(runs, "provenance_git_commit"), column(runs, "provenance_git_dirty")
    states = dict.fromkeys(
        one_line(str(commit)[:12]) + (" with uncommitted changes" if changed else "")
        for commit, changed in zip(commits, dirty, strict=True)
        if commit
    )
    if states:
        yield "Git", _listed(list(states))


def _distinct(values: Sequence[Value], *, of: str = "") -> str:
    """Return the first few distinct values in words. Numbers are sorted."""
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    if all(isinstance(value, int) for value in distinct):
        distinct.sort(key=lambda value: int(value or 0))
    return _listed([one_line(show(of, value), width=80) for value in distinct])


def _listed(words: Sequence[str]) -> str:
    more = len(words) - MOST_VALUES
    return ", ".join(words[:MOST_VALUES]) + (f" and {more} more" if more > 0 else "")

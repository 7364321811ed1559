"""Read a pytest-benchmark JSON file as a side: a benchmark is an experiment, and each of its rounds is a run.

The metric is `round_time_s`, the seconds per call. If the file has the rounds (`stats.data`), each round has a value. Otherwise,
the median of the rounds is the only value. If there are too many rounds, each stretch of adjacent rounds is replaced by its median.
All rounds come from one process, with one memory layout and one state of the clocks. Different processes differ more than such
rounds, so the interval is too narrow. A warning says this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from orchestrator.compare.comparison import Entry, Run, Side
from orchestrator.compare.sides.environment import CPU
from orchestrator.compare.sides.experiments import LONGEST_CAUSE
from orchestrator.records import Status
from orchestrator.results.table.rows import Value, cell
from orchestrator.trainers.external.pytest_benchmark_file import (
    FULLNAME,
    ROUND_TIME,
    Benchmark,
    benchmarks,
    is_pytest_benchmark,
    mapping,
    seconds,
)

__all__ = ["is_pytest_benchmark", "read"]

# The largest number of rounds of one benchmark. A call of one microsecond has 100,000 rounds in a second, and adjacent rounds are
# alike.
MOST_ROUNDS = 500

_ROUNDS = "its runs are rounds of one process per side: the intervals leave out differences between processes"


def read(place: Path, document: Mapping[str, Any]) -> Side:
    """Return the benchmarks in the file's order. Raise Unreadable for a benchmark without a name, or for too many benchmarks."""
    environment = _environment(document)
    entries = tuple(_entry(benchmark, environment) for benchmark in benchmarks(document))
    warnings = (_ROUNDS,) if any(len(entry.runs) > 1 for entry in entries) else ()
    return Side(name=str(place), entries=entries, warnings=warnings)


def _entry(benchmark: Benchmark, environment: Mapping[str, Value]) -> Entry:
    runs = _runs(benchmark)
    params = {str(key): cell(value) for key, value in benchmark.params.items()}
    return Entry(
        key={FULLNAME: benchmark.fullname},
        label="",
        status=(Status.OK if runs else Status.FAILED).value,
        runs=runs,
        arguments={**params, **({"group": benchmark.group} if benchmark.group is not None else {})},
        environment=environment,
        failure=None if runs else f"no_metrics: {benchmark.error or 'it has no times'}"[:LONGEST_CAUSE],
    )


def _runs(benchmark: Benchmark) -> tuple[Run, ...]:
    """Return a run for each round, or for each stretch of rounds if there are too many. An invalid time (0, NaN) is left out."""
    rounds = [time for time in map(seconds, benchmark.times or [benchmark.median]) if time is not None]
    length = math.ceil(len(rounds) / MOST_ROUNDS) or 1
    medians = (median(rounds[at : at + length]) for at in range(0, len(rounds), length))
    return tuple(Run(repeat=number, numbers={ROUND_TIME: time}) for number, time in enumerate(medians, start=1))


def _environment(document: Mapping[str, Any]) -> dict[str, Value]:
    machine, commit = mapping(document.get("machine_info")), mapping(document.get("commit_info"))
    processor = mapping(machine.get("cpu"))
    system = " ".join(str(machine[name]) for name in ("system", "release", "machine") if machine.get(name))
    facts = {
        CPU: processor.get("brand_raw") or machine.get("processor"),
        "cpu_count": processor.get("count"),
        "host": machine.get("node"),
        "system": system,
        "python": machine.get("python_version"),
        "git_commit": commit.get("id"),
        "git_dirty": commit.get("dirty"),
    }
    return {name: cell(value) for name, value in facts.items() if value not in (None, "")}

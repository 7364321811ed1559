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
from orchestrator.compare.sides.keys import FULLNAME
from orchestrator.files import reading
from orchestrator.files.reading import Unreadable
from orchestrator.records import Status
from orchestrator.results.table.rows import Value, cell

ROUND_TIME = "round_time_s"

# The largest number of rounds of one benchmark. A call of one microsecond has 100,000 rounds in a second, and adjacent rounds are
# alike.
MOST_ROUNDS = 500

MOST_BENCHMARKS = 5000

_ROUNDS = "its runs are rounds of one process per side: the intervals leave out differences between processes"


def is_pytest_benchmark(document: Any) -> bool:
    """Return whether a JSON document was written by pytest-benchmark."""
    return isinstance(document, Mapping) and isinstance(document.get("benchmarks"), list) and "machine_info" in document


def read(place: Path, document: Mapping[str, Any]) -> Side:
    """Return the benchmarks in the file's order. Raise Unreadable for a benchmark without a name, or for too many benchmarks."""
    if len(document["benchmarks"]) > MOST_BENCHMARKS:
        raise Unreadable(f"it has more than {MOST_BENCHMARKS:,} benchmarks")
    environment = _environment(document)
    entries = tuple(_entry(_mapping(benchmark), environment) for benchmark in document["benchmarks"])
    warnings = (_ROUNDS,) if any(len(entry.runs) > 1 for entry in entries) else ()
    return Side(name=str(place), entries=entries, warnings=warnings)


def _entry(benchmark: Mapping[str, Any], environment: Mapping[str, Value]) -> Entry:
    name = benchmark.get("fullname") or benchmark.get("name")
    if not isinstance(name, str):
        raise Unreadable("a benchmark in it has no name")
    runs = _runs(_mapping(benchmark.get("stats")))
    params = {str(key): cell(value) for key, value in _mapping(benchmark.get("params")).items()}
    group = benchmark.get("group")
    return Entry(
        key={FULLNAME: name},
        label="",
        status=(Status.OK if runs else Status.FAILED).value,
        runs=runs,
        arguments={**params, **({"group": group} if isinstance(group, str) else {})},
        environment=environment,
        failure=None if runs else f"no_metrics: {benchmark.get('error') or 'it has no times'}"[:LONGEST_CAUSE],
    )


def _runs(stats: Mapping[str, Any]) -> tuple[Run, ...]:
    """Return a run for each round, or for each stretch of rounds if there are too many. An invalid time (0, NaN) is left out."""
    data = stats.get("data")
    times = data if isinstance(data, list) and data else [stats.get("median") or stats.get("mean")]
    rounds = [seconds for seconds in map(_seconds, times) if seconds is not None]
    length = math.ceil(len(rounds) / MOST_ROUNDS) or 1
    medians = (median(rounds[at : at + length]) for at in range(0, len(rounds), length))
    return tuple(Run(repeat=number, numbers={ROUND_TIME: seconds}) for number, seconds in enumerate(medians, start=1))


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    sound = reading.sound_number(value)
    return float(sound) if sound is not None and sound > 0 else None


def _environment(document: Mapping[str, Any]) -> dict[str, Value]:
    machine, commit = _mapping(document.get("machine_info")), _mapping(document.get("commit_info"))
    processor = _mapping(machine.get("cpu"))
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


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

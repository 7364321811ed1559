"""Read the JSON file of pytest-benchmark: a benchmark is a test with its parameters, and it has rounds.

The trainer `pytest_benchmark` reads the file of its run, and `compare` reads such a file as a side. A time that is 0, negative or
not finite is missing, and so are the times of a clock that counts something else, such as the time of the processor. The file may
come from anyone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.files import reading
from orchestrator.files.reading import Unreadable

MOST_BENCHMARKS = 5000

ROUND_TIME, FULLNAME = "round_time_s", "fullname"

# The functions of Python's module `time` that count something else than seconds of wall time. A function of the user may be
# right, as one that waits for the GPU.
_OTHER_CLOCKS = {
    **dict.fromkeys(("process_time", "thread_time"), "the time of the processor"),
    **dict.fromkeys(("perf_counter_ns", "monotonic_ns", "time_ns", "process_time_ns", "thread_time_ns"), "nanoseconds"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """One benchmark of a file. `median` and `iqr` are in seconds per call; None if missing.

    `times` are the times of all rounds, as the file has them. `iqr` may be 0. `rounds` is the number of rounds, 0 if it is unknown.
    """

    fullname: str
    median: float | None
    iqr: float | None = None
    rounds: int = 0
    times: tuple[Any, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None
    # Why it has no times: its own error, or a clock that does not count.
    error: str | None = None
    is_refused: bool = False


def is_pytest_benchmark(document: Any) -> bool:
    """Return whether a JSON document was written by pytest-benchmark."""
    return isinstance(document, Mapping) and isinstance(document.get("benchmarks"), list) and "machine_info" in document


def benchmarks(document: Mapping[str, Any]) -> Iterator[Benchmark]:
    """Yield the benchmarks in the file's order. Raise Unreadable for a benchmark without a name, or for too many benchmarks."""
    if len(document["benchmarks"]) > MOST_BENCHMARKS:
        raise Unreadable(f"it has more than {MOST_BENCHMARKS:,} benchmarks")
    yield from (_benchmark(mapping(benchmark)) for benchmark in document["benchmarks"])


def _benchmark(written: Mapping[str, Any]) -> Benchmark:
    name = written.get(FULLNAME) or written.get("name")
    if not isinstance(name, str):
        raise Unreadable("a benchmark in it has no name")
    stats, group, error = mapping(written.get("stats")), written.get("group"), written.get("error")
    data, rounds = stats.get("data"), stats.get("rounds")
    if refusal := _other_clock(mapping(written.get("options")).get("timer")):
        return Benchmark(fullname=name, median=None, error=refusal, is_refused=True)
    return Benchmark(
        fullname=name,
        median=seconds(stats.get("median") or stats.get("mean")),
        iqr=0.0 if stats.get("iqr") == 0 else seconds(stats.get("iqr")),
        rounds=rounds if isinstance(rounds, int) and 0 < rounds < 2**53 else 0,
        times=tuple(data) if isinstance(data, list) else (),
        params={name: value for name, value in mapping(written.get("params")).items() if not _is_object(value)},
        group=group if isinstance(group, str) else None,
        error=str(error) if error else None,
    )


def _other_clock(clock: object) -> str | None:
    counts = _OTHER_CLOCKS.get(str(clock))
    return (
        counts
        and f"its clock, time.{clock}, counts {counts}; choose time.perf_counter, which counts seconds of wall time"
    )


def _is_object(value: object) -> bool:
    """Return whether a parameter is an object. pytest-benchmark writes its address, which differs in each process."""
    return isinstance(value, str) and value.startswith("UNSERIALIZABLE[")


def seconds(value: object) -> float | None:
    """Return a time if it is a number above 0, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    sound = reading.sound_number(value)
    return float(sound) if sound is not None and sound > 0 else None


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}

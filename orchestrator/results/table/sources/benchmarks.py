"""Rows of the benchmarks of a suite (trainer `pytest_benchmark`). A run of a suite has a number for each of its benchmarks. Pure.

Each benchmark is a row of its own: its name and parameters are arguments, so that tables, `compare` and `history` treat a benchmark
like an experiment. Its id is that of the experiment with the name of the benchmark after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.files import reading
from orchestrator.records import Status
from orchestrator.records.experiment import OF_BENCHMARK
from orchestrator.results.table.rows import Row, Value, argument_column, cell

_NAME, _PARAMS, _GROUP = "fullname", "params", "group"
_ABOVE_0, _MAY_BE_0 = ("round_time_s", "rounds"), ("round_iqr_s",)


def by_benchmark(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of an experiment, in a list for each benchmark. Without benchmarks, there is one list with all rows.

    A run that did not end ok is in all lists. An ok run is in the lists of its benchmarks.
    """
    known: dict[str, Mapping[str, Any]] = {}
    for name, benchmark in (pair for row in rows for pair in _named(row).items()):
        known.setdefault(name, benchmark)
    if not known:
        return [list(rows)]
    return [
        [_of(row, benchmark, _named(row).get(name, {})) for row in rows if not _named(row) or name in _named(row)]
        for name, benchmark in known.items()
    ]


def _named(row: Row) -> dict[str, Mapping[str, Any]]:
    """Return name → benchmark. The numbers of a run that did not end ok do not count."""
    if row.outcome.get("status") != Status.OK.value:
        return {}
    return {name: benchmark for benchmark in row.benchmarks if isinstance(name := benchmark.get(_NAME), str) and name}


def _of(row: Row, benchmark: Mapping[str, Any], measured: Mapping[str, Any]) -> Row:
    """Return the row with the id, the arguments and the numbers of a benchmark. The user's own arguments win over parameters."""
    name, params = str(benchmark[_NAME]), benchmark.get(_PARAMS)
    arguments: dict[str, Value] = {
        argument_column(str(key)): cell(value) for key, value in (params.items() if isinstance(params, Mapping) else ())
    }
    if isinstance(benchmark.get(_GROUP), str):
        arguments[_GROUP] = benchmark[_GROUP]
    rest = {key: value for key, value in row.measured.items() if key not in (*_ABOVE_0, *_MAY_BE_0, "benchmarks")}
    return replace(
        row,
        facts={**row.facts, "id": f"{row.facts['id']}{OF_BENCHMARK}{name}"},
        arguments={**arguments, **row.arguments, _NAME: name},
        measured={**rest, **_numbers(measured)},
        benchmarks=(),
    )


def _numbers(measured: Mapping[str, Any]) -> dict[str, Value]:
    """Return the numbers of a benchmark that can be used. Someone may have edited the record."""
    found: dict[str, Value] = {}
    for name in (*_ABOVE_0, *_MAY_BE_0):
        value = measured.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            sound = reading.sound_number(value)
            if sound is not None and (sound > 0 or (sound == 0 and name in _MAY_BE_0)):
                found[name] = sound
    return found

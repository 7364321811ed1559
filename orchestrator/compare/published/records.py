"""Numbers of runs, for published values: the rows of a results folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.compare.published.values import Found
from orchestrator.records import Status
from orchestrator.results.table.load import load

SOFTWARE = ("torch", "transformers", "peft", "bitsandbytes", "torchao", "liger-kernel")

# Other states are those of experiments whose run has not ended.
ENDED = frozenset(status.value for status in Status)


def read(results: Path) -> Mapping[str, Found]:
    """Return id → numbers of each experiment whose runs have ended. A number is the mean over the repeats that ended ok.

    Raise ResultsError if the folder is missing or is not a results folder.
    """
    table = load([results])
    rows: list[dict[Any, Any]] = table.experiments.to_dict("records")
    return {str(row["id"]): _found(row) for row in rows if row["status"] in ENDED}


def _found(row: Mapping[str, Any]) -> Found:
    failed = [*_texts(row, "failure_kind", "failure_cause")]
    if row["status"] != Status.OK.value:
        return Found(problem=f"the run is {row['status']}" + (f": {failed[-1]}" if failed else ""))
    numbers = {name: float(value) for name, value in row.items() if _is_number(value) and value > 0}
    versions = [
        f"{name} {row[column]}" for name in SOFTWARE for column in [f"provenance_{name}"] if [*_texts(row, column)]
    ]
    return Found(numbers=numbers, software=", ".join([*_texts(row, "provenance_gpus"), *versions]))


def _texts(row: Mapping[str, Any], *columns: str) -> Iterator[str]:
    """Yield the columns that have a text. A missing text is NA, which is not a text."""
    yield from (row[column] for column in columns if isinstance(row.get(column), str))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value

"""The rows of the table. A row is one run as flat cells: the facts of its experiment, its outcome and its measurements.

These functions make a `Row` from a record. `reference_folder` makes the same rows from results of the reference system, and `load`
makes frames of the rows. A cell is a text, a number, a truth value or None. A missing value is None or has no cell. Numbers that
are not finite are missing.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from orchestrator.measure.metrics import FACTS, METRICS
from orchestrator.records import Caveat, Experiment, JobState, RunRecord, Text, as_items

Value = str | int | float | bool | None

# The `framework_config` of an experiment without a framework configuration.
NO_FRAMEWORK = "none"

# The packages whose versions are columns of the table; requirements.txt has the versions of other packages.
PACKAGES = (
    *("torch", "transformers", "accelerate", "peft", "trl", "datasets"),
    *("bitsandbytes", "torchao", "liger-kernel", "flash-attn", "fms-hf-tuning"),
)


# The beginning of the names of cells that only comparisons use: commands, and rules of measuring.
ASKED = "provenance_key_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One run of an experiment, or an experiment without a run (its `outcome` then has only the state).

    The keys of the first four parts differ, so that all of them can be columns of one row. `ranks` has a row for each training
    process, `devices` a row for each GPU, `benchmarks` a row for each benchmark of a suite, as the record has it. `baseline`
    maps an axis to the reference value that the experiment is compared with. `given` maps the column of an argument to its
    value, because a list and a text may have the same cell. It is empty for a row of a file that has only cells. `shortfall` is
    that of the experiment (`due_runs.shortfall`).
    """

    facts: Mapping[str, Value]
    arguments: Mapping[str, Value]
    outcome: Mapping[str, Value]
    measured: Mapping[str, Value] = field(default_factory=dict)
    ranks: tuple[Mapping[str, Value], ...] = ()
    devices: tuple[Mapping[str, Value], ...] = ()
    benchmarks: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Caveat, ...] = ()
    baseline: Mapping[str, Text | None] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Text] = field(default_factory=dict)
    shortfall: tuple[int, int] | None = None

    def flat(self) -> dict[str, Value]:
        return {**self.facts, **self.outcome, **self.arguments, **self.measured}


def of_run(experiment: Experiment, record: RunRecord) -> Row:
    """Return the row of a run that ended."""
    facts, arguments = experiment_facts(experiment), argument_cells(experiment.arguments)
    measured = _measured(record)
    if experiment.target is not None and experiment.model.startswith("config:"):
        measured.pop(FINGERPRINT, None)  # each repeat has its own seed, and so its own random weights
    return Row(
        facts=facts,
        arguments=arguments,
        outcome=_outcome(record),
        measured=_apart(measured, taken={**facts, **arguments}),
        ranks=_cells_of(record.ranks),
        devices=_cells_of(record.devices),
        benchmarks=record.benchmarks,
        warnings=record.warnings,
        baseline=experiment.baseline,
        sources=experiment.sources,
        given=_given(experiment.arguments),
    )


def of_plan(experiment: Experiment, state: JobState) -> Row:
    """Return the row of an experiment without a record: pending, running, lost, or skipped with its reason."""
    outcome: dict[str, Value] = {"status": state.value}
    if state is JobState.ENDED:
        outcome = {"status": "lost", "failure_kind": "unreadable", "failure_cause": "Its record cannot be read."}
    reason = experiment.skip or experiment.cannot_run_here
    if reason:
        outcome |= {"status": "skipped", "failure_kind": reason.kind, "failure_cause": reason.text}
    return Row(
        facts=experiment_facts(experiment),
        arguments=argument_cells(experiment.arguments),
        outcome=outcome,
        baseline=experiment.baseline,
        sources=experiment.sources,
        given=_given(experiment.arguments),
    )


def _given(arguments: Mapping[str, Text]) -> dict[str, Text]:
    return {argument_column(name): value for name, value in arguments.items()}


def ambiguous(all_rows: Iterable[Row]) -> frozenset[tuple[str, Value]]:
    """Return the arguments, as pairs of name and cell, that have several values with the same cell.

    The JSON of another value counts, too. So `in_json` makes no new pair of values with the same cell.
    """
    values: dict[tuple[str, Value], set[Text]] = defaultdict(set)
    for name, value in {item for row in all_rows for item in row.given.items()}:
        for text in (argument_cell(value), _json(value)):
            values[name, text].add(value)
    return frozenset(pair for pair, several in values.items() if len(several) > 1)


def in_json(row: Row, several: frozenset[tuple[str, Value]]) -> Row:
    """Return the row. An argument whose cell has `several` values is written as JSON, so that the values differ."""

    def is_one_of_several(name: str, value: Text) -> bool:
        return (name, argument_cell(value)) in several

    written: dict[str, Value] = {
        name: _json(value)
        for name, value in row.given.items()
        if name in row.arguments and is_one_of_several(name, value)
    }
    baseline = {
        axis: _json(value) if value is not None and is_one_of_several(argument_column(axis), value) else value
        for axis, value in row.baseline.items()
    }
    return replace(row, arguments={**row.arguments, **written}, baseline=baseline)


def _json(value: Text) -> str:
    return json.dumps(value, ensure_ascii=False)


def with_versions(all_rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows.

    If rows have different versions of a user's file, the fact `sources` names each row's version.
    """
    contents: dict[str, set[str]] = {}
    for row in all_rows:
        for name, digest in row.sources.items():
            contents.setdefault(name, set()).add(digest)
    changed = {name for name, digests in contents.items() if len(digests) > 1}

    def own(row: Row) -> Row:
        text = ", ".join(f"{name} {digest[:6]}" for name, digest in row.sources.items() if name in changed)
        return replace(row, facts={**row.facts, "sources": text}) if text else row

    return list(map(own, all_rows)) if changed else all_rows


# Facts that all rows get if one row has them.
_USUAL: Mapping[str, Value] = {"num_nodes": 1, "environment": "none"}


def with_usual(all_rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows. If a row has several nodes or a software environment, each row has this fact."""
    usual = {name: value for name, value in _USUAL.items() if any(name in row.facts for row in all_rows)}
    return [replace(row, facts={**usual, **row.facts}) for row in all_rows] if usual else all_rows


def experiment_facts(experiment: Experiment) -> dict[str, Value]:
    """Return the facts that identify an experiment, under the names that the reference system uses."""
    facts: dict[str, Value] = {
        "id": experiment.id,
        "scenario": experiment.scenario,
        "framework_config": experiment.framework.name if experiment.framework else NO_FRAMEWORK,
        "model_name_or_path": experiment.model,
        "num_gpus": experiment.num_gpus,
        "num_nodes": experiment.num_nodes if experiment.num_nodes > 1 else None,
        "device": experiment.device.value,
        "trainer": experiment.trainer,
        "environment": experiment.environment.name if experiment.environment else None,
        "environment_lock": experiment.environment.lock if experiment.environment else None,
        "python": None if experiment.environment else experiment.python,
        "monitors": " ".join(experiment.monitors) or None,
        "data": experiment.data.source if experiment.data else None,
        "tags": " ".join(experiment.tags) or None,
        "global_batch": experiment.global_batch,
    }
    return {name: value for name, value in facts.items() if value is not None}


def argument_cells(arguments: Mapping[str, Text]) -> dict[str, Value]:
    """Return the trainer's arguments as cells."""
    cells: dict[str, Value] = {argument_column(name): argument_cell(value) for name, value in arguments.items()}
    cells.pop("argument_model_name_or_path", None)
    return cells


def argument_cell(value: Text) -> str:
    """Return the cell of an argument's value. It is never empty, because an empty cell is a missing value."""
    return " ".join(as_items(value)) or json.dumps(value)


def argument_column(name: str) -> str:
    """Return the column of an argument: its name. If a different column has that name, add the prefix `argument_`."""
    return f"{PREFIX}{name}" if _is_taken(name) else name


def columns_named(name: str, known: Collection[str], varies: Callable[[str], bool]) -> list[str]:
    """Return the columns that a user may mean by a name, the likeliest first.

    These are the column of this name, and the column of the argument of this name. A column that varies comes first.
    """
    columns = [column for column in dict.fromkeys((name, argument_column(name))) if column in known]
    return sorted(columns, key=lambda column: not varies(column))


def _is_taken(name: str) -> bool:
    if name.startswith(PREFIX) and name not in _TAKEN:  # `argument_data` may be the column of an argument `data`
        return _is_taken(name.removeprefix(PREFIX))
    return name in _TAKEN or (name.startswith(_MEASURED) and name != _BATCH)


# The prefix for the column of an argument, if another column has the argument's name.
PREFIX = "argument_"

# The digest of a local model folder or of saved random weights.
FINGERPRINT = "effective_model_fingerprint"

# The facts of the registry that are arguments.
ARGUMENT_FACTS = ("dtype", "torch_dtype", "peft_method", "per_device_train_batch_size")
# Columns that only databases and comparisons have. `sources/database.py` says what is in them.
OF_DATABASES = ("results_created_at", "started_at_s", "argument_columns", "framework_digest", "variables")
# `run_name` and `logging_dir` are columns of the reference system that identify no experiment, so tables leave them out.
_TAKEN = (METRICS.keys() | FACTS.keys() | {"run_name", "logging_dir", *OF_DATABASES}) - {*ARGUMENT_FACTS}
_MEASURED, _BATCH = ("effective_", "provenance_", "measured_"), "effective_batch_size"


def _cells_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Value], ...]:
    return tuple({name: cell(value) for name, value in row.items()} for row in rows)


def _outcome(record: RunRecord) -> dict[str, Value]:
    cells: dict[str, Value] = {
        "repeat": record.repeat,
        "attempt": record.attempt,
        "status": record.status.value,
        "failure_kind": record.kind,
        "failure_cause": record.cause,
        "failure_hint": record.hint,
        "started_at": datetime.fromtimestamp(record.started_at, UTC).isoformat(timespec="seconds"),
        "exit_code": record.exit_code,
        "signal": record.signal,
        "warnings": "\n".join(caveat.sentence for caveat in record.warnings) or None,
    }
    return {name: value for name, value in cells.items() if value is not None}


def _measured(record: RunRecord) -> dict[str, Value]:
    measured: dict[str, Value] = {m.name: cell(m.value) for m in record.measurements}
    measured.setdefault("wall_s", record.wall_s)
    if record.neighbours:
        measured["neighbours"] = record.neighbours
    settings = {f"effective_{name}": cell(value) for name, value in record.settings.items() if name != "architecture"}
    return measured | settings | dict(_provenance(record.provenance))


def own_metrics(row: Row) -> list[str]:
    """Return the columns of the metrics that only the row's `custom:` defines."""
    is_custom = row.facts.get("trainer") == "custom"
    return [name for name in row.measured if is_custom and name not in _TAKEN and not name.startswith(_MEASURED)]


def _apart(measured: Mapping[str, Value], *, taken: Mapping[str, Value]) -> dict[str, Value]:
    """Return measured cells. Leave out a cell if a fact or argument (`taken`) has the same name and value.

    If only the name is the same, rename the cell to `measured_…`.
    """
    return {
        f"measured_{name}" if name in taken else name: value
        for name, value in measured.items()
        if name not in taken or value != taken[name]
    }


def _provenance(provenance: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Yield the provenance as cells `provenance_<name>`: the versions of PACKAGES, the names of the GPUs, all other facts."""
    for name, value in provenance.items():
        if name == "packages" and isinstance(value, Mapping):
            yield from ((f"provenance_{package}", cell(value[package])) for package in PACKAGES if package in value)
        elif name == "gpus" and isinstance(value, (list, tuple)):
            names = dict.fromkeys(str(gpu["name"]) for gpu in value if isinstance(gpu, Mapping) and gpu.get("name"))
            yield "provenance_gpus", ", ".join(names) or None
        elif name == "nodes" and isinstance(value, (list, tuple)):
            yield "provenance_nodes", ", ".join(str(one.get("host")) for one in value if isinstance(one, Mapping))
        elif isinstance(value, Mapping):
            yield from ((f"provenance_{name}_{inner}", cell(value[inner])) for inner in value)
        else:
            yield f"provenance_{name}", cell(value)


def cell(value: object) -> Value:
    """Return a JSON value as one cell: lists as words, mappings as JSON, None for a number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (str, int)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return " ".join(str(item) for item in value) if value else "[]"
    return json.dumps(value, sort_keys=True, default=str)

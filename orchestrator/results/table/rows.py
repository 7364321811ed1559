"""One run as flat cells: what an experiment was, how the run ended, what it measured.

Functions from records to `Row`; no files and no frames. `reference.py` makes the same rows of a results folder of the
reference system, and `table.py` frames and groups them, so that both are one table. A cell is a text, a number, a truth
value or None; a value that is missing has no cell at all or None, and a number that is not finite is missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.measure.metrics import FACTS, METRICS
from orchestrator.records import Caveat, Experiment, JobState, RunRecord, Text, as_items

Value = str | int | float | bool | None

NO_FRAMEWORK = "none"
"""What `framework_config` says of an experiment without one."""

PACKAGES = (
    *("torch", "transformers", "accelerate", "peft", "trl", "datasets"),
    *("bitsandbytes", "liger-kernel", "flash-attn", "fms-hf-tuning"),
)
"""Of all installed packages, those whose versions stand beside the numbers; requirements.txt holds the rest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One run of an experiment, or an experiment without a run (`outcome` then holds its state alone).

    The keys of the first four parts are disjoint, so that they can be laid side by side as columns. `ranks` and `devices`
    are rows of their own, one a training process and one a GPU.
    """

    facts: Mapping[str, Value]
    arguments: Mapping[str, Value]
    outcome: Mapping[str, Value]
    measured: Mapping[str, Value] = field(default_factory=dict)
    ranks: tuple[Mapping[str, Value], ...] = ()
    devices: tuple[Mapping[str, Value], ...] = ()
    warnings: tuple[Caveat, ...] = ()

    def flat(self) -> dict[str, Value]:
        return {**self.facts, **self.outcome, **self.arguments, **self.measured}


def of_run(experiment: Experiment, record: RunRecord) -> Row:
    """The row of a run that ended."""
    facts, arguments = experiment_facts(experiment), argument_cells(experiment.arguments)
    return Row(
        facts=facts,
        arguments=arguments,
        outcome=_outcome(record),
        measured=_apart(_measured(record), taken={**facts, **arguments}),
        ranks=_cells_of(record.ranks),
        devices=_cells_of(record.devices),
        warnings=record.warnings,
    )


def of_plan(experiment: Experiment, state: JobState) -> Row:
    """The row of an experiment without a record: pending, running, lost, or skipped with its reason."""
    outcome: dict[str, Value] = {"status": state.value}
    if state is JobState.ENDED:
        outcome = {"status": "lost", "failure_kind": "unreadable", "failure_cause": "Its record cannot be read."}
    reason = experiment.skip or experiment.cannot_run_here
    if reason:
        outcome |= {"status": "skipped", "failure_kind": reason.kind, "failure_cause": reason.text}
    return Row(facts=experiment_facts(experiment), arguments=argument_cells(experiment.arguments), outcome=outcome)


def experiment_facts(experiment: Experiment) -> dict[str, Value]:
    """What identifies an experiment, under the names that the reference's users know."""
    facts: dict[str, Value] = {
        "id": experiment.id,
        "scenario": experiment.scenario,
        "framework_config": experiment.framework.name if experiment.framework else NO_FRAMEWORK,
        "model_name_or_path": experiment.model,
        "num_gpus": experiment.num_gpus,
        "device": experiment.device.value,
        "trainer": experiment.trainer,
        "python": experiment.python,
        "monitors": " ".join(experiment.monitors) or None,
        "data": experiment.data.source if experiment.data else None,
        "tags": " ".join(experiment.tags) or None,
        "global_batch": experiment.global_batch,
    }
    return {name: value for name, value in facts.items() if value is not None}


def argument_cells(arguments: Mapping[str, Text]) -> dict[str, Value]:
    """The trainer's arguments as columns; one that has the name of another column gets the prefix `argument_`."""
    cells: dict[str, Value] = {argument_column(name): _words(value) for name, value in arguments.items()}
    cells.pop("argument_model_name_or_path", None)
    return cells


def argument_column(name: str) -> str:
    """The column of an argument."""
    return f"argument_{name}" if name in _TAKEN else name


ARGUMENT_FACTS = ("dtype", "torch_dtype", "peft_method", "per_device_train_batch_size")
"""Of the registry's facts, those that are arguments."""

_TAKEN = (METRICS.keys() | FACTS.keys()) - {*ARGUMENT_FACTS}


def _words(value: Text) -> str:
    return " ".join(as_items(value)) if value != () else "[]"


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
    if record.beside:
        measured["neighbours"] = len(record.beside)
    settings = {f"effective_{name}": cell(value) for name, value in record.settings.items() if name != "architecture"}
    return measured | settings | dict(_provenance(record.provenance))


def _apart(measured: Mapping[str, Value], *, taken: Mapping[str, Value]) -> dict[str, Value]:
    """Measured cells; one with the name of a fact or argument is left out where they agree, else named `measured_…`."""
    return {
        f"measured_{name}" if name in taken else name: value
        for name, value in measured.items()
        if name not in taken or value != taken[name]
    }


def _provenance(provenance: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Facts of two levels as `provenance_<name>`: of the packages the few that matter, of the GPUs their names."""
    for name, value in provenance.items():
        if name == "packages" and isinstance(value, Mapping):
            yield from ((f"provenance_{package}", cell(value[package])) for package in PACKAGES if package in value)
        elif name == "gpus" and isinstance(value, (list, tuple)):
            names = dict.fromkeys(str(gpu["name"]) for gpu in value if isinstance(gpu, Mapping) and gpu.get("name"))
            yield "provenance_gpus", ", ".join(names) or None
        elif isinstance(value, Mapping):
            yield from ((f"provenance_{name}_{inner}", cell(value[inner])) for inner in value)
        else:
            yield f"provenance_{name}", cell(value)


def cell(value: object) -> Value:
    """Any JSON value as one cell: lists as words, mappings as JSON, what is not finite as missing."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (str, int)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return " ".join(str(item) for item in value) if value else "[]"
    return json.dumps(value, sort_keys=True, default=str)

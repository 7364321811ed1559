"""A plan as one JSON document, with secrets masked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orchestrator.files.redaction import Redactor, masker, redact_words, redactor
from orchestrator.plan.expand import Plan, has_id
from orchestrator.plan.view.as_commands import RUN_DIR, planned_command, variables
from orchestrator.records import Environment, Experiment, Reason
from orchestrator.trainers import get as get_trainer

if TYPE_CHECKING:  # most plans need no forecast
    from orchestrator.plan.forecast.outlook import Outlook


def json_document(plan: Plan, python: str, *, outlook: Outlook | None = None) -> Iterator[str]:
    """Yield the pieces of one JSON document: `experiments`, `collapsed`, `notes`, and the totals of a forecast."""
    redact = redactor()
    masked = masker(redact)
    yield '{"experiments": ['
    for index, experiment in enumerate(plan.experiments):
        document = _experiment(experiment, python, redact, masked)
        if outlook is not None:
            document |= outlook.document(experiment)
        yield (",\n" if index else "\n") + json.dumps(document)
    yield '\n],\n"collapsed": ['
    for index, duplicate in enumerate(plan.collapsed):
        yield (",\n" if index else "\n") + json.dumps(masked({"id": duplicate.id, **_cell(duplicate)}))
    yield "\n],\n"
    for name, value in (outlook.totals(plan.experiments) if outlook else {}).items():
        yield f'"{name}": {json.dumps(value)},\n'
    yield f'"notes": {json.dumps(masked(list(plan.notes)))}}}\n'


def _cell(experiment: Experiment) -> dict[str, Any]:
    return {
        "scenario": experiment.scenario,
        "framework_config": experiment.framework.name if experiment.framework else None,
        "model_name_or_path": experiment.model,
        "num_gpus": experiment.num_gpus,
        **({"num_nodes": experiment.num_nodes} if experiment.num_nodes > 1 else {}),
        **({"software": _software(experiment.environment)} if experiment.environment else {}),
    }


def _software(environment: Environment) -> dict[str, Any]:
    """Return the fields of a software environment. Those of containers are left out for other environments."""
    fields = asdict(environment)
    return fields if environment.container else {name: fields[name] for name in ("name", "request", "lock")}


def _experiment(experiment: Experiment, python: str, redact: Redactor, masked: Callable[[Any], Any]) -> dict[str, Any]:
    """Return an experiment's entry in the document, with secrets masked."""
    command = planned_command(experiment, python)
    received = get_trainer(experiment.trainer).arguments(experiment, RUN_DIR)
    stem, _, digest = experiment.id.rpartition("-")
    return {
        # many ids have the same stem, and `redact` caches its result; the digest contains nothing secret
        "id": f"{redact(stem)}-{digest}" if has_id(experiment) else None,
        **masked(_cell(experiment)),
        "device": experiment.device,
        "trainer": experiment.trainer,
        "global_batch": experiment.global_batch,
        "arguments": masked(received),
        "environment": {name: redact(value) for name, value in variables(command).items()},
        "command": redact_words(command.argv, redact),
        "repeats": asdict(experiment.adaptive) if experiment.adaptive else experiment.repeats,
        "skip": masked(_reason(experiment.skip)),
        "cannot_run_here": masked(_reason(experiment.cannot_run_here)),
    }


def _reason(reason: Reason | None) -> dict[str, str] | None:
    return {"kind": reason.kind, "reason": reason.text} if reason else None

"""Preparation of training data before the first run, by `workers/prepare/prepare.py` in the interpreter that will train.

Data is never prepared during a measurement. The worker makes the data under another name and renames the folder at the end. So an
existing folder is complete, and two benchmarks may prepare the same data at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from orchestrator.errors import PreparationError
from orchestrator.files import writing
from orchestrator.files.package import WORKERS
from orchestrator.files.redaction import redact
from orchestrator.machine import process
from orchestrator.measure.failures import log_tail
from orchestrator.records import Command, Experiment

WORKER = WORKERS / "prepare" / "prepare.py"
_ERROR = "error: "
_LOG_BYTES = 256 * 1024


def prepare_data(experiments: Iterable[Experiment], on_event: Callable[[str], None] | None = None) -> tuple[str, ...]:
    """Prepare the data of every experiment that can run. Shared data is prepared once.

    `on_event` gets a sentence before each preparation.

    Return a sentence for each failure. After a failure, the other data is still prepared. Runs without their data fail at once,
    with the same sentence (`why_missing`).
    """
    done: set[tuple[str, str]] = set()
    failed: list[str] = []
    for experiment in experiments:
        if experiment.skip or experiment.cannot_run_here or experiment.data is None or experiment.data_path is None:
            continue
        python = os.path.expanduser(experiment.python) if experiment.python else sys.executable
        if (python, experiment.data_path) in done:
            continue
        done.add((python, experiment.data_path))
        if not Path(experiment.data_path).exists():
            if on_event is not None:
                on_event(f"preparing {experiment.data.source} for {experiment.model}")
            try:
                _prepare(experiment, python=python, folder=Path(experiment.data_path))
            except PreparationError as error:
                failed.append(str(error))
    return tuple(failed)


def why_missing(experiment: Experiment) -> str | None:
    """Return the cause for missing training data, from the log of its preparation; None if no data is missing."""
    if experiment.data is None or experiment.data_path is None or Path(experiment.data_path).exists():
        return None
    folder = Path(experiment.data_path)
    log = folder.with_name(f"{folder.name}.log")
    if not log.exists():
        return f"{experiment.data.source} was never prepared: there is no {folder}"
    return _sentence(experiment, log, 0)


def _prepare(experiment: Experiment, *, python: str, folder: Path) -> None:
    """Run the worker. Its log and specification stay next to the data, so that a failure can be read and repeated."""
    assert experiment.data is not None
    log, spec = folder.with_name(f"{folder.name}.log"), folder.with_name(f"{folder.name}.spec.json")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        writing.replace(spec, json.dumps({**asdict(experiment.data), "path": str(folder)}, indent=2) + "\n")
    except OSError as error:
        raise PreparationError(f"{folder.parent}: no data can be prepared here: {error.strerror}") from error
    started = log.stat().st_size if log.exists() else 0
    # The experiment's own variables (a hub's address, offline switches) matter for loading data too; GPUs do not.
    env = {**experiment.env, "CUDA_VISIBLE_DEVICES": ""}
    command = Command(argv=(python, str(WORKER), str(spec)), env=env, cwd=folder.parent)
    outcome = process.run(command, stdout=log, stderr=log, timeout_s=None)
    if outcome.cancelled:
        raise KeyboardInterrupt
    if outcome.exit_code != 0 or not folder.exists():
        raise PreparationError(_sentence(experiment, log, started))


def _sentence(experiment: Experiment, log: Path, started: int) -> str:
    with log.open("rb") as file:
        file.seek(max(started, log.stat().st_size - _LOG_BYTES))
        lines = log_tail(file.read().decode("utf-8", errors="replace")).splitlines()
    error = next((line.removeprefix(_ERROR) for line in reversed(lines) if line.startswith(_ERROR)), None)
    cause = error or (lines[-1] if lines else "it ended without any output")
    source = experiment.data.source if experiment.data else ""
    return redact(f"scenario {experiment.scenario!r}: {source} could not be prepared: {cause} (log: {log})")

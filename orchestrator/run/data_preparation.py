"""Prepares training data before the first run. `workers/prepare/prepare.py` does this in the interpreter that will train.

Data is never prepared during a measurement. The worker makes the data under another name and renames the folder at the end. So the
folder was complete when it got its final name, and two benchmarks may prepare the same data at once. A disk may damage the folder
later. So before each use, the sizes and digests of its files are compared with its manifest (`damage`). Damaged data in the user's
cache is prepared anew.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.errors import PreparationError
from orchestrator.files import reading, writing
from orchestrator.files.cache import cache_folder
from orchestrator.files.mounts import mounted_in
from orchestrator.files.package import WORKERS
from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import redact, redact_file
from orchestrator.machine import process
from orchestrator.machine.environments.containers import in_container
from orchestrator.machine.environments.containers.command import PYXIS
from orchestrator.measure.failures import log_tail, signal_name
from orchestrator.plan.data import worker_functions
from orchestrator.records import Command, Experiment

WORKER, FOLDERS = WORKERS / "prepare" / "prepare.py", WORKERS / "prepare" / "folders.py"
_ERROR = "error: "
_KILLED_IN_CONTAINER = 128 + signal.SIGKILL
_LOG_BYTES = 256 * 1024
_LONGEST_CAUSE = 600


def prepare_data(experiments: Iterable[Experiment], on_event: Callable[[str], None] | None = None) -> tuple[str, ...]:
    """Prepare the data of every experiment that can run. Data that several experiments share is prepared once.

    `on_event` gets a sentence before each preparation.

    Return a sentence for each failure. After a failure, the remaining data is still prepared. Runs without their data fail at
    once, with the same sentence (`why_missing`).
    """
    done: set[tuple[str, str]] = set()
    failed: list[str] = []
    for experiment in experiments:
        if experiment.skip or experiment.cannot_run_here or experiment.data is None or experiment.data_path is None:
            continue
        python = _interpreter(experiment)
        if (python, experiment.data_path) in done:
            continue
        done.add((python, experiment.data_path))
        folder = Path(experiment.data_path)
        try:
            damaged = damage(folder) if folder.exists() else None
            if damaged is None and folder.exists():
                continue
            if on_event is not None:
                why = f" anew, because {damaged}" if damaged else ""
                on_event(f"preparing {experiment.data.source} for {experiment.model}{why}")
            if damaged is not None:
                _discard(folder, damaged)
            _prepare(experiment, python=python, folder=folder)
        except PreparationError as error:
            failed.append(str(error))
    return tuple(failed)


def damage(folder: Path) -> str | None:
    """Return a sentence about the first file that differs from the manifest of a folder of prepared data; None if no file differs.

    Only the sizes and some parts of the files are read. The manifest of an older version lists no files. In this case, only the end
    of the data file is checked. A missing file counts as a difference. Raise PreparationError if a file exists but cannot be read.
    """
    file = folder / "manifest.json"
    try:
        manifest = reading.read_json(file, limit=reading.RECORD_BYTES)
        for name, written in manifest.get("files", {}).items():
            file = folder / name
            found = _described(file)
            if found["bytes"] != written["bytes"]:
                return f"{file} has {found['bytes']:,} bytes, and {written['bytes']:,} were written"
            if found != written:
                return f"{file} has changed since it was written"
        if "files" not in manifest:
            file = folder / ("tokens.npz" if manifest["form"] == "tokens" else "train.json")
            last = reading.read_tail(file, limit=1)  # this refuses a pipe, too
            if not (zipfile.is_zipfile(file) if file.suffix == ".npz" else last == "\n"):
                return f"{file} has no end"
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no {file}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{file} is not a manifest"
    except OSError as error:
        raise PreparationError(f"{file}: cannot be read: {reading.reason(error)}") from error
    return None


def _described(file: Path) -> Mapping[str, Any]:
    """Return the size of a file and a digest of its parts, as the worker wrote them."""
    if stat.S_ISFIFO(file.stat().st_mode):  # the worker's function would wait for a pipe
        raise FileNotFoundError(file)
    found: Mapping[str, Any] = worker_functions(FOLDERS)["described"](str(file))
    return found


def _discard(folder: Path, damaged: str) -> None:
    """Remove a damaged folder from the user's cache. Raise PreparationError if it is elsewhere or cannot be removed."""
    if folder.parent != cache_folder() / "data":
        raise PreparationError(f"{damaged}; remove {folder}, and the same command prepares it anew")
    if mounted := mounted_in(folder):
        why = f"a file system is mounted at {mounted[0]}; unmount it, and repeat the command"
        raise PreparationError(f"{damaged}, and {folder} is kept, because {why}")
    aside = folder.with_name(f".{folder.name}.damaged-{os.getpid()}")
    try:
        folder.rename(aside)
        if damage(aside) is None and not folder.exists():  # another process has just made it anew
            aside.rename(folder)
        elif aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        else:
            aside.unlink()
    except OSError as error:
        raise PreparationError(f"{damaged}, and {folder} could not be removed: {reading.reason(error)}") from error


def why_missing(experiment: Experiment) -> str | None:
    """Return why the training data is missing or damaged.

    Return None if the data is complete. If its preparation failed, the returned sentence has the cause from the log.
    """
    if experiment.data is None or experiment.data_path is None:
        return None
    folder = Path(experiment.data_path)
    if folder.exists():
        try:
            damaged = damage(folder)
        except PreparationError as error:
            return str(error)
        return damaged and f"{damaged}; the same command prepares it anew"
    log = folder.with_name(f"{folder.name}.log")
    if not log.exists():
        parent = next(path for path in folder.parents if path.exists())
        why = "" if os.access(parent, os.W_OK | os.X_OK) else f", and {parent} cannot be written"
        return f"{experiment.data.source} was never prepared: there is no {folder}{why}"
    return _sentence(experiment, log, 0)


def _prepare(experiment: Experiment, *, python: str, folder: Path) -> None:
    """Run the worker. Its log and specification stay next to the data, so that a user can repeat a failure."""
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
    if not _on_host(experiment):
        command = in_container(command, experiment, run_dir=folder.parent)
    outcome = process.run(command, stdout=log, stderr=log, timeout_s=None)
    redact_file(log, limit=reading.LOG_BYTES)  # a library may print an address that contains a password
    if outcome.cancelled:
        raise KeyboardInterrupt
    killed = signal.SIGKILL if outcome.exit_code == _KILLED_IN_CONTAINER else outcome.signal
    if killed is not None:  # the log has the cause, because runs without their data read it there
        memory = "; perhaps the memory was too small" if killed == signal.SIGKILL else ""
        with suppress(OSError):  # a full disk
            writing.append(log, f"\n{_ERROR}it was ended by {signal_name(killed)}{memory}\n")
    if outcome.exit_code != 0 or not folder.exists():
        raise PreparationError(_sentence(experiment, log, started))


def _interpreter(experiment: Experiment) -> str:
    if experiment.python is None or _on_host(experiment):
        return sys.executable
    return os.path.expanduser(experiment.python)


def _on_host(experiment: Experiment) -> bool:
    """Return whether Tunebench's own interpreter prepares the data, because pyxis starts containers only in an allocation."""
    container = experiment.environment.container if experiment.environment else None
    return container is not None and container.program == PYXIS


def _sentence(experiment: Experiment, log: Path, started: int) -> str:
    written = max(0, log.stat().st_size - started)
    # Mask secrets before anything is cut, because half a secret is not recognised.
    lines = log_tail(redact(reading.read_tail(log, limit=min(written, _LOG_BYTES)))).splitlines()
    error = next((line.removeprefix(_ERROR) for line in reversed(lines) if line.startswith(_ERROR)), None)
    cause = (error or (lines[-1] if lines else "it ended without any output")).rstrip(".")
    source = experiment.data.source if experiment.data else ""
    return redact(
        f"scenario {experiment.scenario!r}: {source} could not be prepared: {one_line(cause, longest=_LONGEST_CAUSE)} (log: {log})"
    )

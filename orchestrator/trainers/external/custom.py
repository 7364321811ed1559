"""The trainer `custom`, for any command of the user.

The trainer fills the placeholders of the command, and reads the command's numbers. `{argument}` in the command is replaced by an
argument of the experiment or by a value of PROVIDED. If `{arguments}` is a separate word, all arguments replace it, each as `--key
value`. `{{word}}` is a literal `{word}`. The numbers come from a JSON file, a CSV file, the last line of stdout or of a JSONL file,
or regular expressions that are searched in stdout. A number that cannot be read is a missing measurement, never an exception: the
record of the run must be written.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.errors import LaunchError
from orchestrator.files import reading
from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import redact
from orchestrator.machine import process
from orchestrator.records import (
    Caveat,
    CaveatKind,
    CustomCommand,
    Experiment,
    Measurement,
    MetricSource,
    RunFolder,
    Text,
    as_items,
)
from orchestrator.results import experiment_file
from orchestrator.trainers import instrumented
from orchestrator.trainers.external import log_search
from orchestrator.trainers.trainer import Trainer
from orchestrator.trainers.units import to_base, unit_of

# Placeholders that need no argument. `gpus` becomes text such as `0,1`, `host` is the address of the first node, `python` is the
# interpreter that trains, and `scenario_dir` is the folder of the scenario file.
PROVIDED = (
    *("model_name_or_path", "num_gpus", "num_nodes", "run_dir", "gpus", "port", "host", "python", "scenario_dir"),
    "arguments",
)

# Only the end of a log is read. The results are at the end, and a whole log may be larger than the memory.
LONGEST_LOG_BYTES = 64 * 2**20
# The search for a pattern that backtracks may take years.
LONGEST_SEARCH_S, ALL_SEARCHES_S = 10.0, 30.0
LEFT_FOR_LAUNCH = ("gpus", "port", "host", "python")

_PLACEHOLDER = re.compile(r"\{\{(?P<literal>\w+)\}\}|\{(?P<name>[A-Za-z_]\w*)\}")
# A table cannot show a longer text.
_LONGEST_WORD = 1000
_TAIL_BYTES = 1 << 20
_CUT = "; a last line without a line end does not count, since measure: ended the program"
# The byte-order mark that some editors and PowerShell write before UTF-8 text.
_BOM = "\ufeff"


class Custom(Trainer):
    """The trainer that runs any command."""

    name = "custom"
    needs_model = False
    takes_defaults = False

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        """Return the filled command. Values that are known only at launch stay placeholders, such as `{port}`."""
        return filled(experiment, run_dir=run_dir, at_launch={name: f"{{{name}}}" for name in LEFT_FOR_LAUNCH})

    def metrics(self, run_dir: Path) -> list[Measurement]:
        custom = experiment_file.of_run(run_dir).custom
        return [] if custom is None else read_metrics(custom, run_dir)


def placeholders(command: Iterable[str]) -> set[str]:
    """Return the names of the placeholders in a command."""
    return {match["name"] for word in command for match in _PLACEHOLDER.finditer(word) if match["name"]}


def filled(experiment: Experiment, *, run_dir: Path, at_launch: Mapping[str, str]) -> list[str]:
    """Return the command with every placeholder filled in one pass.

    If a placeholder is a whole word and its value is a list, the word becomes several words.
    """
    if experiment.custom is None:
        return []
    values = _values(experiment, run_dir, at_launch)
    return [filled_word for word in experiment.custom.command for filled_word in _fill(word, values)]


def _values(experiment: Experiment, run_dir: Path, at_launch: Mapping[str, str]) -> dict[str, Text]:
    provided: dict[str, Text] = {
        "model_name_or_path": experiment.model,
        "num_gpus": str(experiment.num_gpus),
        "num_nodes": str(experiment.num_nodes),
        "run_dir": str(run_dir),
        "arguments": tuple(instrumented.flags(experiment.arguments)),
        **at_launch,
    }
    if experiment.custom is not None and experiment.custom.folder is not None:
        provided["scenario_dir"] = experiment.custom.folder
    return {**experiment.arguments, **provided}


def _fill(word: str, values: Mapping[str, Text]) -> Sequence[str]:
    whole = _PLACEHOLDER.fullmatch(word)
    if whole and whole["name"] in values:
        return as_items(values[whole["name"]])

    def replacement(match: re.Match[str]) -> str:
        if match["literal"]:
            return f"{{{match['literal']}}}"
        return ",".join(as_items(values[match["name"]])) if match["name"] in values else match[0]

    return [_PLACEHOLDER.sub(replacement, word)]


def read_metrics(custom: CustomCommand, run_dir: Path) -> list[Measurement]:
    """Return a measurement for each metric of the command, with the reason if its number could not be read."""
    from orchestrator.measure.rank_files import worker_files  # a plan does not need pydantic

    # `measure:` ended the program, so its last line may be cut off: `loss=12` of `loss=12.5`. An exit code of 0 may be that of
    # a wrapper.
    is_cut = any(worker.get("stopped") and worker.get("steps_from") for worker in worker_files(run_dir))
    look_up = _raw_values(custom.results, run_dir, is_cut=is_cut)
    return [
        _measurement(name, source, look_up(name, source), custom.results) for name, source in custom.metrics.items()
    ]


def _raw_values(results: str, run_dir: Path, *, is_cut: bool) -> Callable[[str, MetricSource], object]:
    """Return a function that finds the raw value of a metric in the files of the run.

    If the files have no value, the function returns the reason. If `is_cut`, a last line without a line end does not count.
    """
    file = results.removeprefix("file:") if results.startswith("file:") else RunFolder(run_dir).stdout.name
    place = "the last line of stdout" if results == "stdout" else file
    try:
        if results == "log":
            reading.read_tail(RunFolder(run_dir).stdout, limit=0)  # this refuses a log that is not a regular file
            ends = time.monotonic() + ALL_SEARCHES_S
            return lambda name, source: _last_match(
                source.pattern or "", RunFolder(run_dir).stdout, ends, is_cut=is_cut
            )
        if results == "stdout" or results.endswith(".jsonl"):
            line = _last_line(RunFolder(run_dir).stdout if results == "stdout" else _result_file(run_dir, place))
            if not line:
                return lambda name, source: Caveat(detail=f"{place.removeprefix('the last line of ')} is empty")
            values = reading.parse_json(line.encode(), finite=False)
        elif results.endswith(".csv"):
            rows = _csv_rows(_result_file(run_dir, place), is_cut=is_cut)
            return lambda name, source: _or_missing(
                _last_value(rows, source.column or name),
                f"no value in the column {source.column or name} of {place}{_CUT if is_cut else ''}",
            )
        else:
            values = reading.read_json(_result_file(run_dir, place), limit=reading.LOG_BYTES, finite=False)
    except FileNotFoundError:
        return lambda name, source: Caveat(detail=f"there is no file {file}")
    except (OSError, ValueError) as error:
        why = Caveat(detail=f"{place} cannot be read: {reading.reason(error).partition(':')[0]}")
        return lambda name, source: why
    except csv.Error:
        return lambda name, source: Caveat(detail=f"{place} cannot be read: it is not CSV")
    return lambda name, source: _nested(values, source.key or name, place)


def _result_file(run_dir: Path, name: str) -> Path:
    """Return the path of a result file: in the working folder if the file is there, else in the run's folder (older runs).

    Raise Unreadable for a file outside these folders, and for a file that is older than the run.
    """
    if leads_outside(name):
        raise reading.Unreadable("it is outside the run's folder")
    folder = RunFolder(run_dir)
    path = folder.work / name if os.path.lexists(folder.work / name) else run_dir / name
    started = folder.script  # this file is written just before the command starts
    if path.exists() and started.exists() and path.stat().st_mtime_ns < started.stat().st_mtime_ns:
        raise reading.Unreadable("it is older than the run")
    return path


def leads_outside(name: str) -> bool:
    """Return whether the name of a file leads out of a folder: it is absolute, or one of its parts is `..`."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts


def _or_missing(raw: object, reason: str) -> object:
    return Caveat(detail=reason) if raw is None else raw


def _measurement(name: str, source: MetricSource, raw: object, results: str) -> Measurement:
    if isinstance(raw, Caveat):
        return Measurement(name=name, value=None, source=results, missing=raw)
    number = _number(raw)
    base = None if number is None else to_base(name, number, source.unit)
    if base is not None and not math.isfinite(base):
        missing = Caveat(kind=CaveatKind.NOT_FINITE, detail=one_line(raw))
        return Measurement(name=name, value=None, source=results, missing=missing)
    if number is not None:
        return Measurement(name=name, value=base, source=results)
    word = isinstance(raw, str) and raw.strip() and source.unit is None and unit_of(name) is None
    if not word or len(str(raw)) > _LONGEST_WORD:
        missing = Caveat(detail=redact(f"{one_line(raw)!r} is not a number"))
        return Measurement(name=name, value=None, source=results, missing=missing)
    return Measurement(name=name, value=str(raw), source=results)


def _number(raw: object) -> float | int | None:
    """Return the number that a JSON value or a text contains, else None."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        return None
    if isinstance(raw, str):
        return reading.number_in(raw)
    try:
        float(raw)
    except OverflowError:  # JSON has whole numbers of any length
        return math.inf
    return raw


def _nested(values: Any, key: str, place: str) -> object:
    """Return `values[key]`. If there is no such key, the dots in `key` separate the keys of nested mappings.

    Return the reason if there is no value. `place` is the name of the file for the reason.
    """
    for part in [key] if isinstance(values, dict) and key in values else key.split("."):
        if not isinstance(values, dict) or part not in values:
            return Caveat(detail=f"no key {key} in {place}")
        values = values[part]
    return _or_missing(values, f"the key {key} is null in {place}")


def _last_match(pattern: str, log: Path, ends: float, *, is_cut: bool) -> object:
    """Return the text of the pattern's last match in the log, or the reason if there is no match.

    The searches of a run share the time until `ends` (on the monotonic clock). A search that starts later gets one second.
    """
    began = time.monotonic()
    limit_s = max(min(LONGEST_SEARCH_S, 1.0), min(LONGEST_SEARCH_S, ends - began))
    lines = "whole" if is_cut else "all"
    words = (str(log), str(LONGEST_LOG_BYTES), str(limit_s), lines, pattern)
    try:
        found = process.capture((sys.executable, "-I", "-S", log_search.__file__, *words), limit_s + 5)
    except LaunchError as error:
        if time.monotonic() - began < limit_s:
            return Caveat(detail=f"the pattern {pattern!r} could not be searched: {error}")
        why = f"the search for {pattern!r} was ended after {limit_s:.3g} s; write a pattern without nested repetitions"
        return Caveat(detail=why)
    return _or_missing(json.loads(found), f"no line of stdout matches {pattern!r}{_CUT if is_cut else ''}")


def _last_line(path: Path) -> str:
    """Return the last line that is not blank. Only the end of the log is read, since the log may be large."""
    # `splitlines` would also split at separators that a text in JSON may contain, such as U+2028.
    lines = re.split(r"[\r\n]+", reading.read_tail(path, limit=_TAIL_BYTES))
    return next((line for line in reversed(lines) if line.strip()), "").removeprefix(_BOM)


def _csv_rows(path: Path, *, is_cut: bool) -> list[dict[str, str]]:
    text = reading.read_text(path, limit=reading.LOG_BYTES).removeprefix(_BOM)
    if is_cut:
        text = text[: max(map(text.rfind, "\r\n")) + 1]
    return list(csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True))


def _last_value(rows: Sequence[Mapping[str, str]], column: str) -> str | None:
    """Return the column's last value. Rows without a value (evaluation rows among training rows) do not count."""
    return next((row[column] for row in reversed(rows) if (row.get(column) or "").strip()), None)

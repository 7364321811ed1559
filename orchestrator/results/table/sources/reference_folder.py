"""Read a results folder of the reference system (`exp_*/`) as rows like our own, so that `report` works on it.

Arguments and metrics of a run are in results.json; without this file they come from command.sh and stdout. The cause of a
failure is in stderr. Device memory is in gpu_memory_logs.csv.

Errors of the reference system are corrected. A run without complete metrics failed, whatever its log says. A complete run with a
traceback in its log did not fail. A missing stage or an empty log is a missing value. Such folders come from other people, so
files are read with limits, and a warning names each file that is refused.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from orchestrator.files import reading
from orchestrator.measure.memory_logs import memory_summary, read_summary
from orchestrator.measure.metrics import METRICS
from orchestrator.records import Caveat, Status
from orchestrator.results.folder import SUITE_FILE, may_exist
from orchestrator.results.table.column_choice import BOOKKEEPING
from orchestrator.results.table.rows import NO_FRAMEWORK, Row, Value, argument_cells, cell
from orchestrator.results.table.sources.reference_log import failure

_PLUGIN = "acceleration_framework_config_file"
_SUFFIX = "-sample-configuration.yaml"
_COMPLETE = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss")


def find(root: Path) -> Path | None:
    """Return the folder with the reference's `exp_*` folders: `root` or its `results/`. Return None if neither has such folders.

    Also return None for a folder with a `suite.json`, which is Tunebench's, even if this user may not see its files.
    """
    if may_exist(root / SUITE_FILE):
        return None
    return next((folder for folder in (root, root / "results") if any(_folders(folder))), None)


def read(root: Path) -> tuple[list[Row], list[str]]:
    """Return two values: the rows of a reference results folder in its order, and warnings about files that cannot be read."""
    rows: list[Row] = []
    warnings: list[str] = []
    names = _framework_names(root)
    for folder in sorted(_folders(root), key=_number):
        row = _row(folder, names)
        if row is None:
            warnings.append(f"{folder.name} is left out: it has neither results.json nor command.sh.")
        else:
            rows.append(row)
            warnings += [f"{folder.name}: {caveat.sentence}" for caveat in row.warnings]
    return rows, warnings


def _folders(root: Path) -> Iterator[Path]:
    return (path for path in root.glob("exp_*") if path.is_dir())


def _number(folder: Path) -> tuple[int, str]:
    digits = folder.name.removeprefix("exp_")
    return (int(digits) if digits.isdecimal() else 2**63, folder.name)


def _framework_names(root: Path) -> dict[str, str]:
    """Return a dict from script.json that maps a plugin's file to its short name. The dict is empty without script.json."""
    try:
        script = reading.read_json(root / "script.json", limit=reading.CLAIM_BYTES)
        pairs = [str(word) for word in script["acceleration_framework_config_keypairs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(zip(pairs[1::2], pairs[::2], strict=False))


def _row(folder: Path, names: Mapping[str, str]) -> Row | None:
    warnings: list[str] = []
    stored = _stored(folder / "results.json", warnings)
    command = _text(folder / "command.sh", warnings)
    if stored is None and not command:
        return None
    content = stored if stored is not None else _command_arguments(command)
    numbers = _final_metrics(content, lambda: _text(folder / "stdout", warnings))
    measured = {name: _number_of(value) for name, value in numbers.items()}
    memory = _memory(folder, measured, warnings)
    status, kind, cause = _verdict(numbers, measured, _text(folder / "stderr", warnings))
    outcome: dict[str, Value] = {"repeat": 1, "attempt": 1, "status": status.value}
    return Row(
        facts=_facts(folder.name, content=content, command=command, names=names),
        arguments=_arguments(content),
        outcome=outcome | ({"failure_kind": kind, "failure_cause": cause} if kind else {}),
        measured=measured | memory,
        warnings=tuple(Caveat(detail=sentence) for sentence in warnings),
    )


def _stored(path: Path, warnings: list[str]) -> dict[str, object] | None:
    """Return the content of results.json. If it is missing or damaged, return None and add a warning."""
    try:
        content = reading.read_json(path, limit=reading.RECORD_BYTES, finite=False)
        if isinstance(content, dict):
            return content
        warnings.append(_DAMAGED)
    except FileNotFoundError:
        warnings.append("has no results.json (it did not end); its command line is used instead.")
    except OSError as error:
        warnings.append(f"results.json is not read: {reading.reason(error)}; the command line is used instead.")
    except ValueError:
        warnings.append(_DAMAGED)
    return None


_DAMAGED = "results.json is incomplete; the command line is used instead."
# Only the end of a log is read: the Trainer's metrics and the exception are there.
_END_BYTES = 4 * reading.MIB


def _text(path: Path, warnings: list[str]) -> str:
    """Return the end of a text file, or "" if it is missing. If it cannot be read, also add a warning."""
    try:
        return reading.read_tail(path, limit=_END_BYTES)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        warnings.append(f"{path.name} is not read: {reading.reason(error)}.")
        return ""


def _command_arguments(command: str) -> dict[str, object]:
    """Return the trainer's arguments in a command line: each `--key` after the trainer's module, and the key's values."""
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    arguments: dict[str, list[str]] = {}
    start = words.index("-m") + 2 if "-m" in words else 0
    for word in words[start:]:
        if word.startswith("--"):
            arguments[word[2:]] = []
        elif arguments:
            arguments[next(reversed(arguments))].append(word)
    exported = re.search(r"^export ACCELERATION_FRAMEWORK_CONFIG_FILE=(.*)$", command, re.MULTILINE)
    plugin: dict[str, object] = {_PLUGIN: exported.group(1)} if exported else {}
    return {**{name: " ".join(items) for name, items in arguments.items()}, **plugin}


def _is_metric(name: str, value: object) -> bool:
    """Return whether a stored value is a metric. Arguments are texts; metrics are numbers, or texts from newer trainers."""
    return name in METRICS or (type(value) in (int, float) and name != "num_gpus")


def _number_of(value: object) -> Value:
    if isinstance(value, str):
        for read in (int, float):
            try:
                value = read(value)
                break
            except ValueError:
                continue
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return reading.sound_number(value)
    return cell(value)


def _final_metrics(content: Mapping[str, object], stdout: Callable[[], str]) -> dict[str, object]:
    """Return the metrics in results.json. If some are missing, add the metrics that the Trainer printed."""
    stored = {name: value for name, value in content.items() if _is_metric(name, value)}
    return stored if all(name in stored for name in _COMPLETE) else {**_stdout_metrics(stdout()), **stored}


_IN_BRACES = re.compile(r"\{[^{}]*\}")
_LONGEST_LITERAL = 64 * 1024
_NOT_FINITE = re.compile(r"(?<=: )-?(?:nan|inf)\b")


def _stdout_metrics(stdout: str) -> dict[str, object]:
    """Return the final metrics that the Trainer printed. The reference system stores no metrics of a run that it calls failed."""
    for literal in reversed(_IN_BRACES.findall(stdout)):
        if "train_runtime" in literal and len(literal) <= _LONGEST_LITERAL:
            with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                final = ast.literal_eval(_NOT_FINITE.sub("'nan'", literal))
                return {str(name): value for name, value in final.items()} if isinstance(final, dict) else {}
    return {}


def _facts(name: str, *, content: Mapping[str, object], command: str, names: Mapping[str, str]) -> dict[str, Value]:
    facts: dict[str, Value] = {"id": name, "framework_config": _framework(content.get(_PLUGIN), names)}
    if "model_name_or_path" in content:
        facts["model_name_or_path"] = cell(content["model_name_or_path"])
    processes = re.search(r"--num_processes[= ](\d+)", command)
    count = content.get("num_gpus") or (processes.group(1) if processes else 1)
    return facts | {"num_gpus": _number_of(count), "device": "cuda", "trainer": "fms_hf_tuning"}


def _framework(plugin: object, names: Mapping[str, str]) -> str:
    if not plugin:
        return NO_FRAMEWORK
    return names.get(str(plugin), Path(str(plugin)).name.removesuffix(_SUFFIX))


def _arguments(content: Mapping[str, object]) -> dict[str, Value]:
    ours = ("num_gpus", "error_messages")
    named = {name: value for name, value in content.items() if name not in ours and not _is_metric(name, value)}
    texts = {name: str(cell(value)) for name, value in named.items()}
    of_the_run: dict[str, Value] = {name: text for name, text in texts.items() if name in BOOKKEEPING}
    return argument_cells({name: text for name, text in texts.items() if name not in of_the_run}) | of_the_run


def _memory(folder: Path, measured: Mapping[str, Value], warnings: list[str]) -> dict[str, Value]:
    """Return those memory numbers, from the Trainer and nvidia-smi, that were requested. Warn if a requested number is missing."""
    memory: dict[str, Value] = {}
    if any("_mem_gpu" in name for name in measured):
        peak, allocated = memory_summary(measured) or (None, None)
        memory |= {"mem_peak_torch_mem_alloc_in_bytes": peak, "mem_torch_mem_alloc_in_bytes": allocated}
        warnings += ["a stage of the Trainer's memory metrics is missing."] if peak is None else []
    log = folder / "gpu_memory_logs.csv"
    if log.is_symlink() or log.exists():
        summary = read_summary(log)
        memory |= {"mem_nvidia_mem_reserved": summary.mean, "gpu_device_name": summary.device_name}
        warnings += [f"{log.name}: {summary.problem}."] if summary.problem else []
    return memory


def _verdict(
    final: Mapping[str, object], measured: Mapping[str, Value], stderr: str
) -> tuple[Status, str | None, str | None]:
    """Return status, kind and cause. A run with all final metrics is ok, whatever its log says."""
    if all(measured.get(name) is not None for name in _COMPLETE):
        return Status.OK, None, None
    if all(final.get(name) is not None for name in _COMPLETE):
        missing = ", ".join(name for name in _COMPLETE if measured.get(name) is None)
        return Status.FAILED, "not_finite", f"It ended with a number that is not finite: {missing}."
    return (Status.FAILED, *failure(stderr))

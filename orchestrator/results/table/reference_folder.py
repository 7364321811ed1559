"""A results folder of the reference system (`exp_*/`), read as the same rows as ours, so that `report` works on it.

Of each numbered folder: results.json (arguments and metrics as it stored them), else command.sh and stdout; stderr for
the cause of a failure; gpu_memory_logs.csv for device memory. What it gets wrong is put right here: a run without
complete metrics is failed, whatever its log says; a traceback in the log of a complete run is no failure; a missing
stage or an empty log is a missing value; a stray folder is said and left out. Such folders are handed around, so files are read
as `untrusted` does, and what it refuses is said. Writes nothing, and knows nothing of frames.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from orchestrator.files import reading
from orchestrator.measure.memory_logs import memory_summary, read_summary
from orchestrator.measure.metrics import METRICS
from orchestrator.records import Caveat, Status
from orchestrator.results.table.reference_log import failure
from orchestrator.results.table.rows import NO_FRAMEWORK, Row, Value, argument_cells, cell

_PLUGIN = "acceleration_framework_config_file"
_SUFFIX = "-sample-configuration.yaml"
_COMPLETE = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss")


def find(root: Path) -> Path | None:
    """The folder that holds the reference's `exp_*`: `root` itself or its `results/`; None where neither does."""
    return next((folder for folder in (root, root / "results") if any(_folders(folder))), None)


def read(root: Path) -> tuple[list[Row], list[str]]:
    """The rows of a results folder of the reference in its own order, and what could not be read, in sentences."""
    rows: list[Row] = []
    warnings: list[str] = []
    names = _framework_names(root)
    for folder in sorted(_folders(root), key=_number):
        row = _row(folder, names)
        if row is None:
            warnings.append(f"{folder.name} holds neither results.json nor command.sh: left out.")
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
    """Plugin file → short name, as script.json lists them; without it the file's own name has to do."""
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
    given = stored if stored is not None else _command_arguments(command)
    numbers = _final_metrics(given, lambda: _text(folder / "stdout", warnings))
    measured = {name: _number_of(value) for name, value in numbers.items()}
    memory = _memory(folder, measured, warnings)
    status, kind, cause = _verdict(numbers, measured, _text(folder / "stderr", warnings))
    outcome: dict[str, Value] = {"repeat": 1, "attempt": 1, "status": status.value}
    return Row(
        facts=_facts(folder.name, given=given, command=command, names=names),
        arguments=_arguments(given),
        outcome=outcome | ({"failure_kind": kind, "failure_cause": cause} if kind else {}),
        measured=measured | memory,
        warnings=tuple(Caveat(detail=sentence) for sentence in warnings),
    )


def _stored(path: Path, said: list[str]) -> dict[str, object] | None:
    """The content of results.json; None where there is none, with a sentence where it is not whole."""
    try:
        content = reading.read_json(path, limit=reading.RECORD_BYTES, finite=False)
    except FileNotFoundError:
        said.append("has no results.json (it did not end); its command line stands in.")
        return None
    except (OSError, ValueError):
        content = None
    if isinstance(content, dict):
        return content
    said.append("results.json is not whole; the command line stands in for it.")
    return None


_END_BYTES = 4 * reading.MIB
"""Of a log the end is read: there the Trainer prints its metrics, and an exception stands."""


def _text(path: Path, said: list[str]) -> str:
    """The end of a text; empty where there is none, with a sentence where something else has its name."""
    try:
        return reading.read_tail(path, limit=_END_BYTES)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        said.append(f"{path.name} is not read: {error}.")
        return ""


def _command_arguments(command: str) -> dict[str, object]:
    """The trainer's arguments in a command line: each `--key` with the words after it, from the trainer's module on."""
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
    """The reference stores arguments as text and metrics as numbers; newer trainers print metrics as text."""
    if name in METRICS:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and name != "num_gpus"


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


def _final_metrics(given: Mapping[str, object], stdout: Callable[[], str]) -> dict[str, object]:
    """What results.json holds; only where it holds no result, what the Trainer printed."""
    stored = {name: value for name, value in given.items() if _is_metric(name, value)}
    return stored if all(name in stored for name in _COMPLETE) else {**_stdout_metrics(stdout()), **stored}


_IN_BRACES = re.compile(r"\{[^{}]*\}")
_LONGEST_LITERAL = 64 * 1024
_NOT_FINITE = re.compile(r"(?<=: )-?(?:nan|inf)\b")


def _stdout_metrics(stdout: str) -> dict[str, object]:
    """The final metrics as the Trainer printed them: the reference keeps none where it took a run for an error."""
    for found in reversed(_IN_BRACES.findall(stdout)):
        if "train_runtime" not in found or len(found) > _LONGEST_LITERAL:
            continue
        try:
            final = ast.literal_eval(_NOT_FINITE.sub("'nan'", found))
        except (
            ValueError,
            TypeError,
            SyntaxError,
            MemoryError,
            RecursionError,
        ):  # it evaluates nothing, but parses all
            continue
        return {str(name): value for name, value in final.items()} if isinstance(final, dict) else {}
    return {}


def _facts(name: str, *, given: Mapping[str, object], command: str, names: Mapping[str, str]) -> dict[str, Value]:
    facts: dict[str, Value] = {"id": name, "framework_config": _framework(given.get(_PLUGIN), names)}
    if "model_name_or_path" in given:
        facts["model_name_or_path"] = cell(given["model_name_or_path"])
    processes = re.search(r"--num_processes[= ](\d+)", command)
    count = given.get("num_gpus") or (processes.group(1) if processes else 1)
    return facts | {"num_gpus": _number_of(count), "device": "cuda", "trainer": "fms_hf_tuning"}


def _framework(plugin: object, names: Mapping[str, str]) -> str:
    if not plugin:
        return NO_FRAMEWORK
    return names.get(str(plugin), Path(str(plugin)).name.removesuffix(_SUFFIX))


def _arguments(given: Mapping[str, object]) -> dict[str, Value]:
    ours = ("num_gpus", "error_messages")
    named = {name: value for name, value in given.items() if name not in ours and not _is_metric(name, value)}
    return argument_cells({name: str(cell(value)) for name, value in named.items()})


def _memory(folder: Path, measured: Mapping[str, Value], said: list[str]) -> dict[str, Value]:
    """Memory by both sources, each where it was asked for, and a sentence where one has nothing to say."""
    memory: dict[str, Value] = {}
    if any("_mem_gpu" in name for name in measured):
        peak, allocated = memory_summary(measured) or (None, None)
        memory |= {"mem_peak_torch_mem_alloc_in_bytes": peak, "mem_torch_mem_alloc_in_bytes": allocated}
        said += ["a stage of the Trainer's memory metrics is missing."] if peak is None else []
    log = folder / "gpu_memory_logs.csv"
    if log.is_symlink() or log.exists():
        summary = read_summary(log)
        memory |= {"mem_nvidia_mem_reserved": summary.mean, "gpu_device_name": summary.device_name}
        said += [f"{log.name}: {summary.problem}."] if summary.problem else []
    return memory


def _verdict(
    final: Mapping[str, object], measured: Mapping[str, Value], stderr: str
) -> tuple[Status, str | None, str | None]:
    """Status, kind and cause: ok is who has all final metrics, whatever was logged on the way."""
    if all(measured.get(name) is not None for name in _COMPLETE):
        return Status.OK, None, None
    if all(final.get(name) is not None for name in _COMPLETE):
        missing = ", ".join(name for name in _COMPLETE if measured.get(name) is None)
        return Status.FAILED, "not_finite", f"It ended with a number that is not finite: {missing}."
    return (Status.FAILED, *failure(stderr))

"""Every kind of failure that a run's record can name, in one table. Pure.

A row says what the kind means, which text in an error shows it, what to do about the failure, and whether the run is tried again.
Patterns are tried in the order of the rows: the first pattern that matches names the kind. `failures` decides the kind
of a run. docs/failures.md is made from this table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.records import Device, Experiment, whole_number

BATCH = "per_device_train_batch_size"
FILES_CHANGED, FOLDER_GONE, NO_METRICS = "files_changed", "folder_gone", "no_metrics"
ENVIRONMENT, NO_ENVIRONMENT, TEST_FAILED = "environment", "no_environment", "test_failed"
_CAPACITY = re.compile(
    r"Tried to allocate (?P<tried>[\d.]+ [KMG]iB)[\s\S]{0,500}?total capacity of (?P<capacity>[\d.]+ [KMG]iB)"
    r" of \w+ (?P<free>[\d.]+ [KMG]iB) is free"
)
_PIECES = re.compile(r"[^\n]*?(?P<pieces>[\d.]+ [KMG]iB) is reserved by PyTorch but unallocated")  # in the same message
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_GIB = {"KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0}
_NUMBER = re.compile(r"\d{1,11}(\.\d+)?")
_MODULE = re.compile(r"(No module named|Packages) '?(?P<name>[A-Za-z_][\w]*)")
_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureKind:
    """A kind of failure. `word` is the `kind` of a record, `meaning` a sentence for the documentation.

    `pattern` is a regular expression that finds this kind in an error. `hint` is advice, or a function that makes advice from
    the error and the experiment. `follows` means that ranks fail in this way after another rank has failed. So such a kind is
    the cause only if no other kind is found. `retried` means that the experiment did not cause the failure. So the run is
    repeated even without `--retry-failed`.
    """

    word: str
    meaning: str
    pattern: str | None = None
    hint: str | Callable[[str, Experiment], str | None] | None = None
    follows: bool = False
    retried: bool = False


def kind_of_text(text: str) -> str | None:
    """Return the first kind whose pattern matches an error or the end of a log."""
    return next((kind.word for kind in KINDS.values() if kind.pattern and re.search(kind.pattern, text)), None)


def known(word: str | None) -> FailureKind:
    """Return the kind with this name. For an unknown name, return a kind without any properties."""
    return KINDS.get(word or "") or FailureKind(word=word or "", meaning="")


def hint(word: str | None, text: str, experiment: Experiment) -> str | None:
    """Return advice for a failure of this kind; `text` is the whole error of the failing rank, or the log."""
    advice = known(word).hint
    return advice(text, experiment) if callable(advice) else advice


def _install(text: str, experiment: Experiment) -> str | None:
    match = _MODULE.search(text)
    if match is None:
        return None
    where = f" ({experiment.python})" if experiment.python else ""
    own = "; for a module of your own, set PYTHONPATH under env:" if experiment.script else ""
    return f"install {match['name']} into the training environment{where}{own}"


def _right_arguments(text: str, experiment: Experiment) -> str | None:
    if "assign use_cpu" in text:
        on_cpu = experiment.device is Device.CPU
        return "add use_cpu: true to the arguments" if on_cpu else "this GPU has no bfloat16: remove bf16, or use fp16"
    if experiment.script and re.search(r"arguments are required:.{0,500}--output_dir", text):
        return "add output_dir to the arguments, with any value: each run gets a folder of its own"
    return None


def _less_memory(text: str, experiment: Experiment) -> str:
    size = whole_number(experiment.arguments.get(BATCH))
    needed, pieces = _needed(text)
    expandable = any("expandable_segments" in str(experiment.env.get(name)) for name in _ALLOCATOR)
    first = f"env {_ALLOCATOR[0]}: expandable_segments:True, " if pieces and not expandable else ""
    instead = f"{size // 2}" if size is not None and size > 1 else "a shorter max_seq_len, LoRA, FSDP on more GPUs"
    checkpointing = any(str(experiment.arguments.get(name)).lower() == "true" for name in _CHECKPOINTING)
    last = "" if checkpointing else ", or gradient checkpointing"
    return f"{'it' if size is None else f'batch {size}'} {needed}; try {first}{instead}{last}"


def _needed(text: str) -> tuple[str, bool]:
    """Return two values: the memory needed, in words; and whether fragmentation is the cause (enough was free, but in pieces)."""
    match = _CAPACITY.search(text)
    if not match:
        return "did not fit", False
    unused = _PIECES.match(text, match.end())
    capacity, pieces = _gib(match["capacity"]), _gib(unused["pieces"]) if unused else 0.0
    used = capacity - _gib(match["free"]) - pieces
    least = used + _gib(match["tried"])
    if not (0 < used < least and round(capacity, 1)):  # also if one of them is nan
        return "did not fit", False
    needed = f"needed at least {least:.1f} GiB of {capacity:.1f}"
    if least > capacity or not pieces:
        return needed, False
    return f"{needed}; enough was free, but in pieces ({pieces:.1f} GiB reserved and unused)", True


def _gib(text: str) -> float:
    """Return an amount in GiB; nan if it has no number, because several ranks wrote into the log at once (`1.2.3 GiB`)."""
    number, unit = text.split()
    return float(number) * _GIB[unit] if _NUMBER.fullmatch(number) else math.nan


_TABLE = (
    FailureKind(
        word="oom_cuda",
        meaning="The GPU's memory ran out.",
        pattern=r"OutOfMemoryError|(CUDA|HIP) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        hint=_less_memory,
    ),
    FailureKind(
        word="oom_host",
        meaning="The host's memory ran out.",
        pattern=r"\bMemoryError\b|DefaultCPUAllocator|Cannot allocate memory|killed by signal: Killed|\[Errno 12\]",
        hint="the host's memory ran out: use fewer data loader workers, fewer runs at once, or a machine with more memory",
    ),
    FailureKind(
        word="gpu_lost",
        meaning="A GPU stopped answering.",
        pattern=(
            r"GPU is lost|fallen off the bus|uncorrectable ECC|CUDA error: unknown error|NVML_ERROR_GPU_IS_LOST"
            r"|all CUDA-capable devices are busy or unavailable"
        ),
        hint="look at nvidia-smi and the kernel log; a lost GPU works again only after a reset or a reboot",
    ),
    FailureKind(
        word=ENVIRONMENT,
        meaning="The versions of driver, torch and other packages do not match, or no GPU is visible. Or somebody installed or "
        "removed packages in a software environment after it was built; then the run was not started.",
        pattern=(
            r"driver on your system is too old|driver version is insufficient|not compiled with CUDA|undefined symbol"
            r"|No CUDA GPUs are available|no CUDA-capable device|GLIBC(XX)?_[\d.]+' not found|is required for a normal functioning"
            r"|no kernel image is available|Found no NVIDIA driver"
        ),
        hint="driver, torch and other packages do not match: `tunebench doctor` lists their versions",
    ),
    FailureKind(
        word="disk_full",
        meaning="The disk of the results was full, or a quota on it was used up.",
        pattern=r"No space left on device|Disk quota exceeded|\[Errno 28\]|\[Errno 122\]",
        hint="free some space; then the same command makes the missing runs",
    ),
    FailureKind(
        word="port_in_use",
        meaning="Another process took the port of the rendezvous.",
        pattern=r"EADDRINUSE|[Aa]ddress already in use|port is already|\[Errno 98\]",
        hint="the run is repeated automatically, with another port",
        retried=True,
    ),
    FailureKind(
        word="model_not_found",
        meaning="The model or its tokenizer does not exist, or cannot be reached.",
        pattern=(
            r"couldn't connect to 'https?://|outgoing traffic has been disabled|OfflineModeIsEnabled"
            r"|RepositoryNotFoundError|RevisionNotFoundError|GatedRepoError|is not a valid model identifier"
            r"|Can't load (the model|tokenizer|the configuration)|no file named (pytorch_model|model\.safetensors)"
            r"|does not appear to have a file named|Incorrect path_or_model_id|LocalEntryNotFoundError|\bModelError\b"
        ),
        hint="name a local folder or a hub model that this machine can reach; a gated model needs HF_TOKEN",
    ),
    FailureKind(
        word="bad_arguments",
        meaning="The trainer refused its arguments.",
        pattern=(
            r"\bArgumentError\b|unrecognized arguments|arguments are required|error: argument |unknown arg|assign use_cpu"
            r"|not used by the \w*[Pp]arser"
        ),
        hint=_right_arguments,
    ),
    FailureKind(
        word="import_error",
        meaning="A Python package or a shared library is missing.",
        pattern=(
            r"ModuleNotFoundError|ImportError|No module named|cannot open shared object file"
            r"|Packages '\w+' required by activated plugin '\w+' is missing"  # of fms-acceleration
        ),
        hint=_install,
    ),
    FailureKind(
        word="data",
        meaning="The training data is missing or cannot be read.",
        pattern=(
            r"DatasetNotFoundError|DataFilesNotFoundError|DatasetGenerationError|JSONDecodeError|ArrowInvalid|\bDataError\b"
            r"|UnicodeDecodeError|(FileNotFoundError|No such file)[^\n]{0,500}(\.jsonl?|\.parquet|\.npz|\.csv|/data/)"
        ),
    ),
    FailureKind(
        word="nccl",
        meaning="The communication between ranks failed.",
        pattern=r"NCCL|DistBackendError|DistStoreError|[Gg]loo|ProcessGroup|collective operation timeout|reset by peer",
        hint="set NCCL_DEBUG: INFO under 'env:', repeat the run, and look in the log for a rank that failed earlier",
        follows=True,
    ),
    FailureKind(word="killed", meaning="A signal ended the trainer.", follows=True),
    FailureKind(
        word=NO_METRICS,
        meaning="The trainer ended with exit code 0 and left no result.",
        hint=(
            "the program ended normally and wrote no metrics: see its output in stdout.log; "
            "a custom command must write the numbers that 'metrics:' names, and a script must train with a transformers Trainer "
            "in its own process, or report its steps (steps:)"
        ),
    ),
    FailureKind(
        word=TEST_FAILED,
        meaning="A test of a benchmark suite failed, or pytest ran no benchmark.",
        hint="stdout.log in the run's folder has pytest's report; `bash command.sh` in it repeats the run",
    ),
    FailureKind(
        word="function_failed",
        meaning="A function that trainer `operators` measured raised an exception, remembers results, or returns wrong ones.",
        pattern=r"^FunctionError\b",
        hint="stderr.log in the run's folder has the traceback of an exception; `bash command.sh` in it repeats the run",
    ),
    FailureKind(
        word="nan_loss",
        meaning="The loss was not finite.",
        hint="lower the learning rate, or train in bfloat16 instead of float16",
    ),
    FailureKind(word="not_in_effect", meaning="A requested setting did not take effect."),
    FailureKind(
        word="overcounted",
        meaning="By its numbers, the run did more work per second than the device can do.",
        hint="tokens, time, the model's FLOPs or the device's peak are wrong: do not trust the speed, and report the failure to us",
    ),
    FailureKind(
        word="impossible",
        meaning="The run reported an impossible number; or its steps contradict each other, the run's totals or the run's time.",
        hint="report what was measured: each step once, times within the run, speeds above 0, and the unit of each number",
    ),
    FailureKind(
        word=FILES_CHANGED,
        meaning="A file of the user's command changed after the plan was made, so the run was not started.",
        hint="repeat the same `tunebench run`: it makes a new experiment from the changed file",
        retried=True,
    ),
    FailureKind(
        word=NO_ENVIRONMENT,
        meaning="The software environment of the run was removed, or built anew with other packages, after the plan was made.",
        hint="repeat the same `tunebench run`: it builds what is missing, and other packages make another experiment",
        retried=True,
    ),
    FailureKind(
        word=FOLDER_GONE,
        meaning="The run's folder was removed, renamed or emptied during the run.",
        hint="let the command write into the folder in which it starts; it must not remove or rename {run_dir}",
    ),
    FailureKind(word="launcher", meaning="The run could not be started, or the launcher itself failed."),
    FailureKind(word="timeout", meaning="The run took longer than `timeout_s`."),
    FailureKind(
        word="stalled",
        meaning="The run made no step for too long: `startup_timeout_s` or `stall_timeout_s` ended it.",
        hint="stacks.txt in the run's folder has the stacks of the run's processes, if they could be read",
    ),
    FailureKind(word="cancelled", meaning="The run was interrupted."),
    FailureKind(word="lost", meaning="The process of the run ended without a record."),
    FailureKind(word="unknown", meaning="The cause is unknown.", follows=True),
)

# The kinds by their words. A run's `kind` is one of these words.
KINDS = {kind.word: kind for kind in _TABLE}

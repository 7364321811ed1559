"""What to do about a run that failed: one sentence, where one is known that helps. Pure.

Made of what the run said and what it was; never a guess about what it did not say.
"""

from __future__ import annotations

import re

from orchestrator.records import Experiment

BATCH = "per_device_train_batch_size"
_CAPACITY = re.compile(
    r"Tried to allocate (?P<tried>[\d.]+ [KMG]iB)[\s\S]*?total capacity of (?P<capacity>[\d.]+ [KMG]iB)"
    r" of which (?P<free>[\d.]+ [KMG]iB) is free"
)
_PIECES = re.compile(r"[^\n]*?(?P<pieces>[\d.]+ [KMG]iB) is reserved by PyTorch but unallocated")  # of the same message
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MODULE = re.compile(r"No module named '?(?P<name>[A-Za-z_][\w]*)")
_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")


def hint(kind: str | None, text: str, experiment: Experiment) -> str | None:
    """The sentence for a failure of this kind; `text` is what the failing rank, or the log, said in full."""
    if kind == "oom_cuda":
        return _less_memory(text, experiment)
    if kind == "oom_host":
        return "the host's memory ran out: fewer data loader workers, fewer runs at once, or a machine with more"
    if kind == "import_error" and (match := _MODULE.search(text)):
        return f"install {match['name']} into the environment that trains{_which(experiment)}"
    if kind == "stalled":
        return "stacks.txt in the run's folder says where each process stood, if it could be asked"
    return _PLAIN.get(kind or "")


_PLAIN = {
    "model_not_found": "name a local folder or a hub model that this machine can reach; a gated one needs HF_TOKEN",
    "disk_full": "free some space; the same command goes on with what is missing",
    "port_in_use": "it is tried again by itself, with another port",
    "gpu_lost": "look at nvidia-smi and the kernel log; a GPU that was lost needs a reset or a reboot before it computes again",
    "nccl": "run it again with env NCCL_DEBUG: INFO; a rank that failed before says more in its own lines of the log",
    "no_metrics": "the program ended well and wrote no metrics: see what it printed in stdout.log",
    "overcounted": "its tokens, its time, the model's FLOPs or the device's peak are wrong: do not trust its speed, and tell us",
    "nan_loss": "lower the learning rate, or train in bfloat16 instead of float16",
    "environment": "driver, torch and the packages beside it do not match: `tunebench doctor` says what is there",
}


def _less_memory(text: str, experiment: Experiment) -> str:
    batch = experiment.arguments.get(BATCH)
    size = int(batch) if isinstance(batch, str) and batch.isdecimal() else None
    needed, pieces = _needed(text)
    apart = any("expandable_segments" in str(experiment.env.get(name)) for name in _ALLOCATOR)
    first = f"env {_ALLOCATOR[0]}: expandable_segments:True, " if pieces and not apart else ""
    instead = f"{size // 2}" if size is not None and size > 1 else "a shorter max_seq_len, LoRA, FSDP on more GPUs"
    return f"{'it' if size is None else f'batch {size}'} {needed}; try {first}{instead}{_or_checkpointing(experiment)}"


def _needed(text: str) -> tuple[str, bool]:
    """How much was needed so far, and whether the room was there, in pieces: reserved, and no tensor's."""
    match = _CAPACITY.search(text)
    if not match:
        return "did not fit", False
    unused = _PIECES.match(text, match.end())
    capacity, pieces = _bytes(match["capacity"]), _bytes(unused["pieces"]) if unused else 0.0
    least = capacity - _bytes(match["free"]) - pieces + _bytes(match["tried"])
    said = f"needed at least {least / 2**30:.1f} GiB of {capacity / 2**30:.1f}"
    if least > capacity or not pieces:
        return said, False
    return f"{said}, and there was room, but in pieces ({pieces / 2**30:.1f} GiB reserved and unused)", True


def _or_checkpointing(experiment: Experiment) -> str:
    on = any(str(experiment.arguments.get(name)).lower() == "true" for name in _CHECKPOINTING)
    return "" if on else ", or gradient checkpointing"


def _which(experiment: Experiment) -> str:
    return f" ({experiment.python})" if experiment.python else ""


def _bytes(text: str) -> float:
    number, unit = text.split()
    return float(number) * _UNITS[unit]

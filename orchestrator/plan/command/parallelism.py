"""The division of a training between its processes, as accelerate is asked for it: replicas, shards, parts of a sequence.

Ranks that divide a sequence (context parallelism) form a group. Every rank of a group gets the same batch, and computes its own
part of each row. So a group counts as one data-parallel rank. The division comes from an experiment's `accelerate` settings.
`workers/instrument/settings.py` reads it from accelerate itself, and `run/settings_check.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.records import Device, Experiment, Reason, whole_number
from orchestrator.trainers import argument_names

FSDP, DEEPSPEED, MESH = "FSDP", "DEEPSPEED", "parallelism_config"
# The sizes in the section of the mesh. The number of replicas may be the word `num_nodes`.
REPLICAS, SHARDS, NODES = "parallelism_config_dp_replicate_size", "parallelism_config_dp_shard_size", "num_nodes"
CONTEXT = "parallelism_config_cp_size"

_PLAIN = ("MULTI_GPU", "NO", "MULTI_CPU")
_ON_CPU = "{} needs GPUs; with CPU processes, accelerate would silently run DDP"
FSDP_ON_CPU = Reason(kind="fsdp_on_cpu", text=_ON_CPU.format("FSDP"))
_SHARDED_ON_CPU = {FSDP: FSDP_ON_CPU, DEEPSPEED: Reason(kind="deepspeed_on_cpu", text=_ON_CPU.format("DeepSpeed"))}
# Arguments that join samples in one row. Context parallelism drops the mask that keeps these samples apart.
_JOINING = ("packing", "padding_free")


def distributed_type(experiment: Experiment) -> str:
    """Return accelerate's distributed type. It is NO for a single process, whatever the configuration says.

    CPU processes need MULTI_GPU, too: with another type accelerate starts only one process. On CPUs accelerate chooses gloo by
    itself.
    """
    if experiment.num_gpus == 1:
        return "NO"
    requested = _requested_type(experiment)
    return requested if requested in _SHARDED_ON_CPU else "MULTI_GPU"


def replicas(experiment: Experiment) -> int:
    """Return the number of replicas between which FSDP averages gradients. Each replica is divided into shards.

    It is 1 without hybrid shards. Hybrid shards on one node are plain FSDP, so several nodes can be compared with one node.
    """
    value = _size(experiment.accelerate, REPLICAS)
    return experiment.num_nodes if value == NODES else value if isinstance(value, int) else 1


def context_size(accelerate: Mapping[str, Any]) -> int:
    """Return the number of ranks that divide each sequence. It is 1 without context parallelism."""
    value = _size(accelerate, CONTEXT)
    return max(1, value) if isinstance(value, int) else 1


def data_parallel_ranks(num_gpus: int, accelerate: Mapping[str, Any]) -> int:
    """Return the number of processes that get a batch of their own. Ranks that divide a sequence count as one."""
    return max(1, num_gpus // context_size(accelerate))


def mesh(experiment: Experiment) -> dict[str, int]:
    """Return the sizes that accelerate needs, or {} for plain shards and for a training that is not sharded."""
    copies, context = replicas(experiment), context_size(experiment.accelerate)
    if distributed_type(experiment) != FSDP or copies == context == 1:
        return {}
    sizes = {REPLICAS: copies, SHARDS: experiment.num_gpus // (copies * context)}
    return sizes if context == 1 else {**sizes, CONTEXT: context}


def problem(experiment: Experiment) -> Reason | None:
    """Return the reason why accelerate cannot divide the training in this way, or None."""
    requested, single = _requested_type(experiment), experiment.num_gpus == 1  # one process is never divided
    sharded = requested not in _PLAIN and not single
    if sharded and requested not in _SHARDED_ON_CPU:
        text = f"distributed_type {requested} is not supported; use MULTI_GPU (DDP), FSDP or DEEPSPEED"
        return Reason(kind="unsupported_distribution", text=text)
    if sharded and experiment.device is Device.CPU:
        return _SHARDED_ON_CPU[requested]
    reason = _context_problem(experiment) if context_size(experiment.accelerate) > 1 else None
    return reason or (_replicas_problem(experiment) if sharded and replicas(experiment) > 1 else None)


def _size(accelerate: Mapping[str, Any], name: str) -> object:
    section = accelerate.get(MESH)
    return section.get(name) if isinstance(section, Mapping) else None


def _requested_type(experiment: Experiment) -> str:
    value = experiment.accelerate.get("distributed_type", "MULTI_GPU")
    return "NO" if value is None or value is False else str(value).upper()  # YAML reads a bare `no` as False


def _version(experiment: Experiment) -> str:
    return str((experiment.accelerate.get("fsdp_config") or {}).get("fsdp_version"))


def _context_problem(experiment: Experiment) -> Reason | None:
    """Return the reason why the ranks of a group cannot divide their rows, or None."""
    gpus, size, arguments = experiment.num_gpus, context_size(experiment.accelerate), experiment.arguments
    length = whole_number(arguments.get("max_seq_len") or arguments.get("max_length"))
    attention = str(arguments.get("attn_implementation") or "sdpa")
    joining = next((name for name in _JOINING if argument_names.is_true(arguments.get(name))), None)
    text = None
    if gpus % size:
        text = f"num_gpus {gpus} is not divisible by {size} ranks per sequence ({CONTEXT})"
    elif _requested_type(experiment) != FSDP or _version(experiment) != "2":
        text = f"{CONTEXT} needs FSDP version 2; write distributed_type: FSDP and fsdp_version: 2"
    elif attention != "sdpa":
        text = f"{CONTEXT} does not work with attn_implementation {attention}; write sdpa"
    elif joining is not None:
        text = f"{joining} needs a mask between the samples of a row, and {CONTEXT} drops this mask; write {joining}: false"
    elif length is not None and length % (2 * size):
        nearest = max(1, length // (2 * size)) * 2 * size
        text = f"rows of {length} tokens are not divisible by {2 * size}, which is 2 × {CONTEXT}; write {nearest}"
    elif experiment.trainer == "trl" and (whole_number(arguments.get("pad_to_multiple_of")) or 1) % (2 * size):
        text = f"trainer trl pads rows to the longest row, and {CONTEXT} divides them; write pad_to_multiple_of: {2 * size}"
    return None if text is None else Reason(kind="context_parallel", text=text)


def _replicas_problem(experiment: Experiment) -> Reason | None:
    """Return the reason why accelerate would refuse hybrid shards, or None."""
    count, ranks = replicas(experiment), data_parallel_ranks(experiment.num_gpus, experiment.accelerate)
    if _version(experiment) != "2":
        return Reason(kind="replicas_of_fsdp_1", text=f"{REPLICAS} needs FSDP version 2; write fsdp_version: 2")
    size = context_size(experiment.accelerate)
    groups = "" if size == 1 else f" ÷ {size} ranks per sequence"
    if ranks % count:
        text = f"num_gpus {experiment.num_gpus}{groups} is not divisible by {count} replicas ({REPLICAS})"
        return Reason(kind="replicas", text=text)
    if ranks == count and size > 1:
        text = f"each of {count} replicas has a single group of {size} GPUs, which accelerate refuses; use more GPUs per replica"
        return Reason(kind="replicas", text=text)
    if ranks == count:
        text = f"each of {count} replicas has a single GPU, so nothing is sharded; use more GPUs per replica, or ddp"
        return Reason(kind="replicas", text=text)
    return None

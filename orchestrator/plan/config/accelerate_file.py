"""The keys of an accelerate configuration file, and their allowed values.

The tables contain the keys of accelerate 1.x, so that the plan reports a misspelt key. Otherwise accelerate would refuse the
file at launch, or silently ignore a wrong key inside `fsdp_config`. Users' files may also contain keys whose values Tunebench
sets at every launch (OVERRIDDEN). Any value of these keys is accepted, and then replaced. `yaml_file` reads the user's file.
`command` writes the file of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from orchestrator.plan.command.parallelism import CONTEXT, MESH, NODES, REPLICAS, SHARDS

Path = tuple[str, ...]

# The values of these keys in the file are ignored, because every run gets its own values.
OVERRIDDEN = frozenset(
    {"gpu_ids", "machine_rank", "main_process_ip", "main_process_port", "num_machines", "num_processes", "rdzv_backend"}
    | {"same_network", "use_cpu"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """The allowed values of a key: one of `words` in capital or small letters, or a value of one of `types`.

    `text` describes the allowed values.
    """

    types: tuple[type, ...] = ()
    words: tuple[str, ...] = ()
    text: str = ""


Table = Mapping[str, Kind]


def _one_of(*words: str) -> Kind:
    return Kind(words=words, text=f"one of {', '.join(words)}")


def _all(kind: Kind, prefix: str, *names: str) -> Table:
    return {f"{prefix}{name}": kind for name in names}


YES_NO = Kind(types=(bool,), words=("true", "false", "yes", "no"), text="true or false")
WHOLE = Kind(types=(int,), text="a whole number")
TEXT = Kind(types=(str,), text="a text")
WORDS = Kind(types=(list,), text="a list of words")

_WRAPS = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
_PREFETCHES = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
_STATE_DICTS = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")
_SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "1", "2", "3", "4", "5")
_BACKENDS = _one_of(
    *("no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs", "ofi", "fx2trt"),
    *("onnxrt", "tensorrt", "aot_torchxla_trace_once", "torchxla_trace_once", "tvm", "hpu_backend", "neuron"),
)

TOP: Table = {
    **_all(YES_NO, "", "debug", "downcast_bf16", "enable_cpu_affinity", "same_network", "use_cpu"),
    **_all(YES_NO, "tpu_", "use_cluster", "use_sudo"),
    **_all(WHOLE, "", "machine_rank", "main_process_port", "num_machines", "num_processes"),
    **_all(TEXT, "", "main_process_ip", "main_training_function", "rdzv_backend"),
    "compute_environment": _one_of("LOCAL_MACHINE"),
    "distributed_type": _one_of("NO", "MULTI_GPU", "FSDP", "DEEPSPEED", "MULTI_CPU"),
    "dynamo_backend": _BACKENDS,
    "gpu_ids": Kind(types=(str, int), text="a text such as 'all'"),
    "mixed_precision": _one_of("no", "fp16", "bf16", "fp8"),
    "tpu_env": WORDS,
}

FSDP: Table = {
    **_all(YES_NO, "fsdp_activation_checkpointing", "", "_offload"),
    **_all(YES_NO, "fsdp_", "cpu_ram_efficient_loading", "forward_prefetch", "offload_params"),
    **_all(YES_NO, "fsdp_", "sync_module_states", "use_orig_params"),
    **_all(TEXT, "fsdp_", "ignored_modules", "transformer_layer_cls_to_wrap"),
    **_all(_one_of(*_PREFETCHES), "fsdp_backward_prefetch", "", "_policy"),
    "fsdp_auto_wrap_policy": _one_of(*_WRAPS),
    "fsdp_min_num_params": WHOLE,
    "fsdp_reshard_after_forward": _one_of("true", "false", *_SHARDING),
    "fsdp_sharding_strategy": _one_of(*_SHARDING),
    "fsdp_state_dict_type": _one_of(*_STATE_DICTS),
    "fsdp_version": _one_of("1", "2"),
}

DYNAMO: Table = {
    **_all(YES_NO, "dynamo_use_", "dynamic", "fullgraph", "regional_compilation"),
    "dynamo_backend": _BACKENDS,
    "dynamo_mode": _one_of("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
}

FP8: Table = {
    **_all(YES_NO, "fp8_", "enable_fsdp_float8_all_gather", "pad_inner_dim", "use_autocast_during_eval"),
    **_all(WHOLE, "fp8_", "amax_history_len", "interval", "margin"),
    "fp8_amax_compute_algo": _one_of("max", "most_recent"),
    "fp8_backend": _one_of("AO", "TE", "MSAMP"),
    "fp8_format": _one_of("HYBRID", "E4M3", "E5M2"),
    "fp8_opt_level": _one_of("O1", "O2"),
    "fp8_override_linear_precision": WORDS,
}

# Hybrid shards and context parallelism (FSDP 2). `command` replaces `num_nodes` by the number of nodes, and computes the number of
# shards.
PARALLELISM: Table = {
    REPLICAS: Kind(types=(int,), words=(NODES,), text=f"a number of replicas, or {NODES}"),
    SHARDS: WHOLE,
    CONTEXT: WHOLE,
    "parallelism_config_cp_comm_strategy": _one_of("allgather", "alltoall"),
    "parallelism_config_tp_size": Kind(
        words=("1",), text="1, because no trainer loads a model in parts for tensor parallelism"
    ),
    "parallelism_config_sp_size": Kind(words=("1",), text="1, because sequence parallelism is not supported"),
}

# ZeRO. `command` removes accumulation and clipping, so that the trainer's arguments decide, and sets the launcher of several nodes.
ZERO: Table = {
    **_all(YES_NO, "zero3_", "init_flag", "save_16bit_model"),
    **_all(_one_of("none", "cpu"), "offload_", "optimizer_device", "param_device"),
    **_all(Kind(types=(int, float), words=("auto",), text="auto"), "gradient_", "accumulation_steps", "clipping"),
    "deepspeed_moe_layer_cls_names": TEXT,
    "deepspeed_multinode_launcher": _one_of("standard", "pdsh", "openmpi", "mvapich", "nossh"),
    "zero_stage": _one_of("0", "1", "2", "3"),
}

SECTIONS: Mapping[str, Table] = {
    **{"fsdp_config": FSDP, "deepspeed_config": ZERO, "dynamo_config": DYNAMO, "fp8_config": FP8, MESH: PARALLELISM}
}

_UNSUPPORTED: Mapping[str, str] = {
    "megatron_lm_config": "Megatron-LM is not supported; use distributed_type MULTI_GPU (DDP), FSDP or DEEPSPEED",
    "mpirun_config": "MPI is not supported, because accelerate starts the processes; remove this key",
    **dict.fromkeys(
        ("command_file", "commands", "tpu_name", "tpu_vm", "tpu_zone"), "TPU pods are not supported; remove this key"
    ),
    "fp16": "this key has been renamed; write mixed_precision: fp16",
}


def check(mapping: Mapping[Any, Any]) -> list[tuple[Path, str]]:
    """Return a path and a sentence for every mistake in a configuration, or in a part of a configuration.

    A path is for example `("fsdp_config", "fsdp_version")`.
    """
    return list(_table_problems(mapping, TOP, ())) or list(_version_problems(mapping))


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the configuration with the changes applied. A section keeps the keys that the changes do not name."""
    result = dict(base)
    for name, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(name), Mapping)
        result[name] = merged(result[name], value) if both else value
    return result


def _table_problems(mapping: Mapping[Any, Any], table: Table, path: Path) -> Iterator[tuple[Path, str]]:
    for key, value in mapping.items():
        name = str(key)
        section = SECTIONS.get(name) if not path else None
        kind = table.get(name) or table.get(_prefix(path) + name)
        if section is not None:
            if isinstance(value, Mapping):
                yield from _table_problems(value, section, (name,))
            elif value is not None:
                yield (name,), f"{name}: {value!r} is invalid; write a mapping of settings"
        elif kind is not None:
            if not _fits(value, kind):
                yield (*path, name), f"{name}: {value!r} is invalid; write {kind.text}"
        elif value or name not in _UNSUPPORTED:  # `accelerate config` writes the unsupported keys without a value
            yield (*path, name), _unknown(name, table, path)


def _prefix(path: Path) -> str:
    """Return the prefix that accelerate adds to the keys of a section: `fsdp_` for `fsdp_config`."""
    return path[0].removesuffix("config") if path and path[0] not in (MESH, "deepspeed_config") else ""


def _fits(value: object, kind: Kind) -> bool:
    """Return whether a key may have this value. Null is always valid and means accelerate's default. YAML reads `no` as False."""
    if value is None:
        return True
    words = {word.lower() for word in kind.words}
    if isinstance(value, bool):
        return bool in kind.types or not words.isdisjoint({"true"} if value else {"no", "false"})
    if isinstance(value, list):
        return list in kind.types and all(isinstance(item, (str, int, float)) for item in value)
    return str(value).lower() in words or isinstance(value, kind.types)


def _unknown(name: str, table: Table, path: Path) -> str:
    if not path and name in _UNSUPPORTED:
        return f"{name}: {_UNSUPPORTED[name]}"
    prefix = _prefix(path)
    known = {key.removeprefix(prefix): key for key in (*table, *(SECTIONS if not path else ()))}
    near = get_close_matches(name.removeprefix(prefix), known, n=1, cutoff=0.6)
    where = f"in {path[0]}" if path else "in an accelerate configuration"
    hint = f"; did you mean {known[near[0]]}?" if near else f". Allowed: {', '.join(sorted(known.values()))}"
    return f"unknown key {name} {where}{hint}"


def _version_problems(mapping: Mapping[Any, Any]) -> Iterator[tuple[Path, str]]:
    """Yield a size below 1, and each setting that the chosen version of FSDP refuses.

    With such a setting, accelerate would fail in every rank.
    """
    sizes = mapping.get(MESH) or {}
    for name, more in ((REPLICAS, f", or {NODES}"), (CONTEXT, "")):
        if isinstance(sizes.get(name), int) and sizes[name] < 1:
            yield (MESH, name), f"{name}: {sizes[name]} is invalid; write 1 or more{more}"
    section = "fsdp_config"
    settings = {f"fsdp_{str(key).removeprefix('fsdp_')}": value for key, value in (mapping.get(section) or {}).items()}
    prefetch, reshard = "fsdp_forward_prefetch", "fsdp_reshard_after_forward"
    offload = "fsdp_activation_checkpointing_offload"
    if str(settings.get("fsdp_version", "1")) == "2":
        if _is_true(settings.get(prefetch)):
            yield (section, prefetch), f"FSDP version 2 has no {prefetch}; remove it"
        value = settings.get(reshard)
        if value is not None and str(value).lower() not in ("true", "false"):
            yield (section, reshard), f"{reshard}: {value!r} is invalid in FSDP version 2; write true or false"
    elif _is_true(settings.get(offload)) and "fsdp_version" in settings:
        yield (section, offload), f"{offload} needs FSDP version 2; write fsdp_version: 2"


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "1")

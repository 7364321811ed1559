"""The keys of an accelerate configuration file: which there are, and what each may hold.

A table of accelerate 1.x's own keys, so that a misspelt one is an error in the plan, with its nearest right name;
accelerate itself would refuse the file at launch, or, inside `fsdp_config`, ignore the key in silence. Keys that only a
launch can know (OVERRIDDEN) are accepted, because files that people have hold them, and replaced. Not here: reading the
file, lines and columns (`yaml_file`), what becomes of it (`launcher`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

Path = tuple[str, ...]

OVERRIDDEN = frozenset(
    {"gpu_ids", "machine_rank", "main_process_ip", "main_process_port", "num_machines", "num_processes", "rdzv_backend"}
    | {"same_network", "use_cpu"}
)
"""Keys whose value in the file is of no account: every run gets its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What a key may hold: one of `words` (in any case), or something of `types`."""

    types: tuple[type, ...] = ()
    words: tuple[str, ...] = ()
    meant: str = ""


def _one_of(*words: str) -> Kind:
    return Kind(words=words, meant=f"one of {', '.join(words)}")


YES_NO = Kind(types=(bool,), words=("true", "false", "yes", "no"), meant="true or false")
WHOLE = Kind(types=(int,), meant="a whole number")
TEXT = Kind(types=(str,), meant="a text")
WORDS = Kind(types=(list,), meant="a list of words")

DISTRIBUTED = ("NO", "MULTI_GPU", "FSDP", "MULTI_CPU")
PRECISIONS = ("no", "fp16", "bf16", "fp8")
_WRAPS = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
_STATE_DICTS = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")
_SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "1", "2", "3", "4", "5")
_BACKENDS = (
    *("no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs", "ofi", "fx2trt"),
    *("onnxrt", "tensorrt", "aot_torchxla_trace_once", "torchxla_trace_once", "tvm", "hpu_backend", "neuron"),
)
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

Table = Mapping[str, Kind]

TOP: Table = MappingProxyType(
    {
        "compute_environment": _one_of("LOCAL_MACHINE"),
        "debug": YES_NO,
        "distributed_type": _one_of(*DISTRIBUTED),
        "downcast_bf16": YES_NO,
        "dynamo_backend": _one_of(*_BACKENDS),
        "enable_cpu_affinity": YES_NO,
        "gpu_ids": Kind(types=(str, int), meant="a text such as 'all'"),
        "machine_rank": WHOLE,
        "main_process_ip": TEXT,
        "main_process_port": WHOLE,
        "main_training_function": TEXT,
        "mixed_precision": _one_of(*PRECISIONS),
        "num_machines": WHOLE,
        "num_processes": WHOLE,
        "rdzv_backend": TEXT,
        "same_network": YES_NO,
        "tpu_env": WORDS,
        "tpu_use_cluster": YES_NO,
        "tpu_use_sudo": YES_NO,
        "use_cpu": YES_NO,
    }
)

FSDP: Table = MappingProxyType(
    {
        "fsdp_activation_checkpointing": YES_NO,
        "fsdp_activation_checkpointing_offload": YES_NO,
        "fsdp_auto_wrap_policy": _one_of(*_WRAPS),
        "fsdp_backward_prefetch": _one_of("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
        "fsdp_backward_prefetch_policy": _one_of("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
        "fsdp_cpu_ram_efficient_loading": YES_NO,
        "fsdp_forward_prefetch": YES_NO,
        "fsdp_ignored_modules": TEXT,
        "fsdp_min_num_params": WHOLE,
        "fsdp_offload_params": YES_NO,
        "fsdp_reshard_after_forward": _one_of("true", "false", *_SHARDING),
        "fsdp_sharding_strategy": _one_of(*_SHARDING),
        "fsdp_state_dict_type": _one_of(*_STATE_DICTS),
        "fsdp_sync_module_states": YES_NO,
        "fsdp_transformer_layer_cls_to_wrap": TEXT,
        "fsdp_use_orig_params": YES_NO,
        "fsdp_version": _one_of("1", "2"),
    }
)

DYNAMO: Table = MappingProxyType(
    {
        "dynamo_backend": _one_of(*_BACKENDS),
        "dynamo_mode": _one_of(*_MODES),
        "dynamo_use_dynamic": YES_NO,
        "dynamo_use_fullgraph": YES_NO,
        "dynamo_use_regional_compilation": YES_NO,
    }
)

FP8: Table = MappingProxyType(
    {
        "fp8_amax_compute_algo": _one_of("max", "most_recent"),
        "fp8_amax_history_len": WHOLE,
        "fp8_backend": _one_of("AO", "TE", "MSAMP"),
        "fp8_enable_fsdp_float8_all_gather": YES_NO,
        "fp8_format": _one_of("HYBRID", "E4M3", "E5M2"),
        "fp8_interval": WHOLE,
        "fp8_margin": WHOLE,
        "fp8_opt_level": _one_of("O1", "O2"),
        "fp8_override_linear_precision": WORDS,
        "fp8_pad_inner_dim": YES_NO,
        "fp8_use_autocast_during_eval": YES_NO,
    }
)

SECTIONS: Mapping[str, Table] = MappingProxyType({"fsdp_config": FSDP, "dynamo_config": DYNAMO, "fp8_config": FP8})

_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "deepspeed_config": "DeepSpeed is not supported; distributed_type is MULTI_GPU (DDP) or FSDP",
        "megatron_lm_config": "Megatron-LM is not supported; distributed_type is MULTI_GPU (DDP) or FSDP",
        "mpirun_config": "MPI launches are not supported; every run is on one machine",
        "parallelism_config": "tensor and context parallelism are not supported",
        "command_file": "TPU pods are not supported",
        "commands": "TPU pods are not supported",
        "tpu_name": "TPU pods are not supported",
        "tpu_vm": "TPU pods are not supported",
        "tpu_zone": "TPU pods are not supported",
        "fp16": "this is called mixed_precision: fp16 today",
    }
)


def check(mapping: Mapping[Any, Any]) -> list[tuple[Path, str]]:
    """Every mistake in a configuration: where (`("fsdp_config", "fsdp_version")`) and a sentence; empty if it is right.

    Also right for a part of one, as a framework configuration's `accelerate:` holds.
    """
    problems = list(_table_problems(mapping, TOP, ()))
    if not problems:
        problems += _version_problems(mapping)
    return problems


def _table_problems(mapping: Mapping[Any, Any], table: Table, path: Path) -> Iterator[tuple[Path, str]]:
    for key, value in mapping.items():
        name = str(key)
        section = SECTIONS.get(name) if not path else None
        kind = table.get(name) or table.get(_prefixed(name, path))
        if section is not None:
            if isinstance(value, Mapping):
                yield from _table_problems(value, section, (name,))
            elif value is not None:
                yield (name,), f"{name} holds {value!r}; a mapping of settings is meant"
        elif kind is not None:
            if not _fits(value, kind):
                yield (*path, name), f"{name} holds {value!r}; {kind.meant} is meant"
        elif value or name not in _ELSEWHERE:  # `accelerate config` writes blank ones into every file
            yield (*path, name), _unknown(name, table, path)


def _prefixed(name: str, path: Path) -> str:
    """accelerate puts the section's prefix before a key that lacks it."""
    return f"{path[0].removesuffix('config')}{name}" if path else name


def _fits(value: object, kind: Kind) -> bool:
    """Null is right everywhere: it means accelerate's own default. YAML makes False of a bare `no`."""
    if value is None:
        return True
    words = {word.lower() for word in kind.words}
    if isinstance(value, bool):
        return bool in kind.types or not words.isdisjoint({"true"} if value else {"no", "false"})
    if isinstance(value, list):
        return list in kind.types and all(isinstance(item, (str, int, float)) for item in value)
    return str(value).lower() in words or isinstance(value, kind.types)


def _unknown(name: str, table: Table, path: Path) -> str:
    if not path and name in _ELSEWHERE:
        return f"{name}: {_ELSEWHERE[name]}"
    prefix = _prefixed("", path)
    known = {key.removeprefix(prefix): key for key in (*table, *(SECTIONS if not path else ()))}
    near = get_close_matches(name.removeprefix(prefix), known, n=1, cutoff=0.6)
    where = f"in {path[0]}" if path else "in an accelerate configuration"
    hint = f"; did you mean {known[near[0]]}?" if near else f"; known are {', '.join(sorted(known.values()))}"
    return f"unknown key {name} {where}{hint}"


def _version_problems(mapping: Mapping[Any, Any]) -> Iterator[tuple[Path, str]]:
    """What the two versions of FSDP don't share; accelerate would raise in every rank."""
    found = mapping.get("fsdp_config")
    config: Mapping[str, Any] = {_prefixed_fsdp(key): value for key, value in found.items()} if found else {}
    if str(config.get("fsdp_version", "1")) == "2":
        if _is_true(config.get("fsdp_forward_prefetch")):
            yield ("fsdp_config", "fsdp_forward_prefetch"), "FSDP version 2 has no fsdp_forward_prefetch; leave it out"
        reshard = config.get("fsdp_reshard_after_forward")
        if reshard is not None and str(reshard).lower() not in ("true", "false"):
            message = f"fsdp_reshard_after_forward holds {reshard!r}; FSDP version 2 takes true or false"
            yield ("fsdp_config", "fsdp_reshard_after_forward"), message
    elif _is_true(config.get("fsdp_activation_checkpointing_offload")) and "fsdp_version" in config:
        message = "fsdp_activation_checkpointing_offload needs fsdp_version: 2"
        yield ("fsdp_config", "fsdp_activation_checkpointing_offload"), message


def _prefixed_fsdp(key: object) -> str:
    return str(key) if str(key).startswith("fsdp_") else f"fsdp_{key}"


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "1")

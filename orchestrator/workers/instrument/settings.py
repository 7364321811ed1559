"""Reads the settings that really took effect from a Trainer's model, wrappers, optimizer, data loader and accelerator.

An argument is read only if no object shows the setting. So a flag that a library silently ignored does not count as a setting in
effect. If the installed libraries do not show a setting, the setting is None.

This is a part of the instrument (`instrument.py`). It imports neither torch nor transformers: it gets the Trainer, and reads
everything through that object.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

Readers = dict[str, Callable[[Any], Any]]
WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "DeepSpeedEngine")


def base_model(trainer: Any) -> Any:
    """Return the model without an adapter."""
    inner = getattr(trainer.model, "get_base_model", None)
    return inner() if callable(inner) else trainer.model


def packages_of(trainer: Any) -> set[str]:
    """Return the names of the modules that define the classes of the model's layers, or that replaced a layer's `forward`."""
    found: set[str] = set()
    for layer in trainer.model.modules():
        forward = layer.forward
        found.update((type(layer).__module__, getattr(getattr(forward, "__func__", forward), "__module__", None) or ""))
    return found


def size_of(parameter: Any) -> int:
    """Return the number of values in a parameter, even if two values share a byte, or if values are on another rank."""
    if type(parameter).__name__ == "Params4bit" and getattr(parameter, "bnb_quantized", False):
        return int(parameter.numel() * 2 * parameter.element_size())
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())


def main_dtype(trainer: Any) -> str | None:
    """Return the floating-point type that most of the model's numbers have."""
    sizes: Counter[str] = Counter()
    for parameter in trainer.model.parameters():
        if parameter.is_floating_point():
            sizes[str(parameter.dtype).replace("torch.", "")] += size_of(parameter)
    return sizes.most_common(1)[0][0] if sizes else None


def quantization(trainer: Any) -> str | None:
    """Return nf4, fp4, int8 or gptq, as the class of the linear layers shows; None without quantisation."""
    for layer in trainer.model.modules():
        name, home = type(layer).__name__, type(layer).__module__
        if name == "Linear4bit":
            return str(getattr(layer.weight, "quant_type", "") or "4bit")
        if name == "Linear8bitLt":
            return "int8"
        if home.startswith(("auto_gptq", "gptqmodel")):
            return "gptq"
    return None


def total_parameters(trainer: Any) -> int | None:
    # GPTQ keeps its weights in buffers with layouts of its own. None is better than a count without these weights.
    return None if quantization(trainer) == "gptq" else sum(map(size_of, trainer.model.parameters()))


def peft_method(trainer: Any) -> str | None:
    homes = sorted(home for home in packages_of(trainer) if home.startswith("peft.tuners.") and home.count(".") > 2)
    return homes[0].split(".")[2] if homes else None


def lora_rank(trainer: Any) -> int | None:
    """Return the rank of the adapters' matrices if all layers have the same rank."""
    layers = (layer for layer in trainer.model.modules() if type(layer).__module__.startswith("peft."))
    ranks = {rank for layer in layers if isinstance(getattr(layer, "r", None), dict) for rank in layer.r.values()}
    return int(ranks.pop()) if len(ranks) == 1 else None


def attention(trainer: Any) -> str | None:
    """Return the attention implementation: from the layers' class if its name shows it, else from the configuration."""
    names = [type(layer).__name__ for layer in trainer.model.modules()]
    for ending, method in (("SdpaAttention", "sdpa"), ("FlashAttention2", "flash_attention_2")):
        if any(name.endswith(ending) for name in names):
            return method
    return getattr(base_model(trainer).config, "_attn_implementation", None)


def sdpa_backend(trainer: Any) -> str | None:
    """Return the only kernel that sdpa may use, or `any`. Return None for another attention than sdpa."""
    if attention(trainer) != "sdpa":
        return None
    cuda = sys.modules["torch"].backends.cuda
    switches = {"flash": "flash", "efficient": "mem_efficient", "math": "math", "cudnn": "cudnn"}
    allowed = [name for name, switch in switches.items() if getattr(cuda, f"{switch}_sdp_enabled")()]
    return allowed[0] if len(allowed) == 1 else "any"


def chunked_loss(trainer: Any) -> bool:
    """Return whether the built-in trainer's loss in chunks is the model's loss."""
    return getattr(getattr(base_model(trainer), "loss_function", None), "__name__", None) == "chunked_loss"


def activation_offloading(trainer: Any) -> bool:
    """Return whether activations are kept in the host's memory. trl shows it only in its arguments."""
    return type(trainer).__name__ == "OffloadingTrainer" or bool(getattr(trainer.args, "activation_offloading", False))


def model_fingerprint(trainer: Any) -> str | None:
    """Return a digest of a local model folder. It covers the configuration, the index, and the weight files' names and sizes.

    For a model with saved random weights, return the digest of these weights.
    """
    if saved := getattr(base_model(trainer), "saved_weights", None):
        return str(saved)
    folder = getattr(base_model(trainer), "name_or_path", "") or ""
    if not os.path.isfile(os.path.join(folder, "config.json")):
        return None
    digest = hashlib.sha256()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name == "config.json" or name.endswith(".index.json"):
            with open(path, "rb") as file:
                digest.update(name.encode() + b"\0" + file.read())
        elif name.endswith((".safetensors", ".bin", ".pt", ".gguf")):
            digest.update(f"{name}\0{os.path.getsize(path)}\0".encode())
    return digest.hexdigest()[:16]


def wrapper_classes(trainer: Any) -> list[str]:
    """Return the model's wrappers, the outermost first. FSDP 2 has no wrapper: it changes the model's own class."""
    model, names = trainer.model_wrapped, []
    while type(model).__name__ in WRAPPERS:
        names.append(type(model).__name__)
        model = model._orig_mod if names[-1] == "OptimizedModule" else model.module
    return names + [type(model).__name__] * type(model).__name__.startswith("FSDP")


def checkpointing(trainer: Any) -> bool:
    return any(
        getattr(layer, "gradient_checkpointing", False) is True or type(layer).__name__ == "CheckpointWrapper"
        for layer in trainer.model.modules()
    )


def compiled(trainer: Any) -> bool:
    return "OptimizedModule" in wrapper_classes(trainer) or any(
        type(layer).__name__ == "OptimizedModule" or getattr(layer, "_compiled_call_impl", None) is not None
        for layer in trainer.model_wrapped.modules()
    )


def compile_mode(trainer: Any) -> str | None:
    return (trainer.accelerator.state.dynamo_plugin.mode or "default") if compiled(trainer) else None


def thunder_executors(trainer: Any) -> str | None:
    """Return the executors that Thunder uses by default, as one text, if the training script has imported Thunder."""
    thunder = sys.modules.get("thunder")
    default: Any = getattr(thunder, "get_default_executors", None)
    return " ".join(str(executor.name) for executor in default()) if default and compiled(trainer) else None


def optimizer(trainer: Any) -> Any:
    """Return the optimizer without accelerate's wrapper. With DeepSpeed, it is the optimizer of ZeRO."""
    inner = trainer.optimizer
    while type(inner).__name__ in ("AcceleratedOptimizer", "DeepSpeedOptimizerWrapper"):
        inner = inner.optimizer
    return inner


def group_size(_: Any) -> int:
    group = sys.modules["torch"].distributed
    return int(group.get_world_size()) if group.is_available() and group.is_initialized() else 1


def context_ranks(trainer: Any) -> int:
    """Return the number of ranks that divide the rows of each batch in the training step (context parallelism)."""
    return ranks_along("cp_size", trainer)


def ranks_along(name: str, trainer: Any) -> int:
    """Return a size of accelerate's mesh. An accelerate without a mesh has the size 1."""
    mesh = getattr(getattr(trainer, "accelerator", None), "parallelism_config", None)
    return int(getattr(mesh, name, None) or 1)


def data_parallel_ranks(trainer: Any) -> int:
    """Return the number of processes that get a batch of their own.

    Ranks that divide a batch (context parallelism) or the model (tensor parallelism) get the same batch, and count as one. But
    accelerate's DataLoaderDispatcher knows nothing of context parallelism: each rank gets a batch of its own. DeepSpeed's
    sequence parallelism divides a batch before the training step, so each rank sees a part of its own.
    """
    dispatched = type(trainer.callback_handler.train_dataloader).__name__ == "DataLoaderDispatcher"
    sharers = ranks_along("tp_size", trainer) * (1 if dispatched else context_ranks(trainer))
    return group_size(trainer) // sharers


def device_name(trainer: Any) -> str | None:
    device = trainer.accelerator.device
    return str(sys.modules["torch"].cuda.get_device_name(device)) if device.type == "cuda" else None


def per_device_batch(trainer: Any) -> int | None:
    """Return the rows per batch of one process, from its data loader. The result is at most the number of rows in the data set."""
    loader = trainer.callback_handler.train_dataloader
    sampler: Any = getattr(loader, "batch_sampler", None)
    if getattr(sampler, "split_batches", False):
        return int(sampler.batch_size // sampler.num_processes)
    size = getattr(sampler, "batch_size", None) or getattr(loader, "batch_size", None)
    # With several processes, accelerate fills the last batch with the first rows.
    drawn: Any = None if type(sampler).__name__ == "BatchSamplerShard" else getattr(sampler, "sampler", None)
    rows = len(drawn) if hasattr(drawn, "__len__") else size
    # A DataLoaderDispatcher reads the batch of all processes, and gives each a part.
    parts = group_size(trainer) if getattr(loader, "split_batches", False) else 1
    return int(min(size, rows)) // parts if size and rows else None


def padding_free(trainer: Any) -> bool:
    collator = trainer.data_collator
    by_class = type(collator).__name__ == "DataCollatorWithFlattening"
    return by_class or bool(getattr(collator, "padding_free", None) or getattr(trainer, "padding_free", False))


def longest(trainer: Any) -> int | None:
    names = ("max_seq_len", "max_length", "max_seq_length")
    values = (getattr(holder, name, None) for holder in (trainer.train_dataset, trainer.args) for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def packed(trainer: Any) -> bool:
    return bool(getattr(trainer.train_dataset, "packed", getattr(trainer.args, "packing", False)))


# These are read when Trainer.__init__ returns: sharding and wrapping would change the values.
BUILT: Readers = {
    "model_class": lambda trainer: type(base_model(trainer)).__name__,
    "attn_implementation": attention,
    "sdpa_backend": sdpa_backend,
    "chunked_loss": chunked_loss,
    "activation_offloading": activation_offloading,
    "dtype": main_dtype,
    "trainable_parameters": lambda trainer: sum(size_of(p) for p in trainer.model.parameters() if p.requires_grad),
    "total_parameters": total_parameters,
    "peft_method": peft_method,
    "lora_rank": lora_rank,
    "quantization": quantization,
    "model_fingerprint": model_fingerprint,
    "model_revision": lambda trainer: getattr(base_model(trainer).config, "_commit_hash", None),
    "packing": packed,
    "packed_attention": lambda trainer: getattr(trainer.train_dataset, "packed_attention", None),
    "padding_free": padding_free,
    "max_seq_len": longest,
    "train_rows": lambda trainer: len(trainer.train_dataset),
    "skip_memory_metrics": lambda trainer: trainer._memory_tracker.skip_memory_metrics,
}

# These are read when training begins: the model is wrapped, the optimizer and the data loader are prepared.
PREPARED: Readers = {
    # The Trainer replaces kernels just before its loop, not in its __init__.
    "liger": lambda trainer: any(home.startswith("liger_kernel") for home in packages_of(trainer)),
    "wrapper_classes": wrapper_classes,
    "mixed_precision": lambda trainer: trainer.accelerator.mixed_precision,
    "gradient_checkpointing": checkpointing,
    "torch_compile": compiled,
    "torch_compile_mode": compile_mode,
    "thunder_executors": thunder_executors,
    "optimizer": lambda trainer: optimizer(trainer) and type(optimizer(trainer)).__name__,
    "optimizer_fused": lambda trainer: bool(optimizer(trainer).param_groups[0].get("fused")),
    "world_size": group_size,
    "data_parallel_ranks": data_parallel_ranks,
    "distributed_type": lambda trainer: str(trainer.accelerator.distributed_type.value),
    "device": lambda trainer: str(trainer.accelerator.device).replace("cpu:0", "cpu"),
    "device_name": device_name,
    "num_threads": lambda _: sys.modules["torch"].get_num_threads(),
    "per_device_train_batch_size": per_device_batch,
    "gradient_accumulation_steps": lambda trainer: trainer.args.gradient_accumulation_steps,
    "max_steps": lambda trainer: trainer.state.max_steps,
}


def read(readers: Readers, trainer: Any) -> dict[str, Any]:
    """Return the value of each setting, as its reader returns it. A setting whose reader raises an error is None."""
    settings = {}
    for name, reader in readers.items():
        try:
            settings[name] = reader(trainer)
        except Exception:
            settings[name] = None
    return settings

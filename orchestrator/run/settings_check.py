"""The check that a run had the requested settings.

It compares the run's arguments with settings that were read from the built model.

Only explicit arguments are compared, and only with settings that the run could read. For a user's own script, only the
Trainer's arguments are compared, since the script decides what other names mean. Each difference becomes a sentence. A single
difference makes a run invalid, because its numbers were measured with different settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orchestrator.plan.command.parallelism import data_parallel_ranks, distributed_type
from orchestrator.records import Experiment
from orchestrator.trainers.argument_names import is_true
from orchestrator.trainers.argument_values import types

Settings = Mapping[str, Any]
Asked = Mapping[str, str]
# What was compared, the value that was asked for, the value in effect.
Difference = tuple[str, object, object]


def _attention(word: str) -> str:
    """Return the same word for all names of one attention algorithm.

    If the package of flash attention is missing, transformers loads the algorithm from a kernel hub, under another name.
    """
    for version in ("2", "3"):
        if f"flash-attn{version}" in word or word == f"flash_attention_{version}":
            return f"flash_attention_{version}"
    return word


_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}


def _dtype(word: str) -> str:
    plain = word.removeprefix("torch.").strip().lower()
    return _DTYPES.get(plain, plain)


def _number(word: str) -> object:
    try:
        return float(word)
    except ValueError:
        return word


_BATCH, _STEPS = "per_device_train_batch_size", "max_steps"
# Argument → the setting that shows its effect, and the form in which the two are compared.
_SETTING_OF: Mapping[str, tuple[str, Callable[[str], object]]] = {
    **{name: (name, is_true) for name in ("gradient_checkpointing", "torch_compile", "padding_free", "packing")},
    **{name: (name, is_true) for name in ("chunked_loss", "activation_offloading")},
    "activation_checkpointing": ("gradient_checkpointing", is_true),
    "use_liger_kernel": ("liger", is_true),
    "torch_compile_mode": ("torch_compile_mode", str),
    "attn_implementation": ("attn_implementation", _attention),
    "sdpa_backend": ("sdpa_backend", str.lower),
    "dtype": ("dtype", _dtype),
    "peft_method": ("peft_method", str.lower),
    "quantization": ("quantization", str.lower),
    _BATCH: (_BATCH, _number),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", _number),
    _STEPS: (_STEPS, _number),
    "r": ("lora_rank", _number),
    **dict.fromkeys(("lora_r", "lora_rank"), ("lora_rank", _number)),
}
# The optimizers whose class is known. Other optimizers come from packages, and the names of their classes change.
_OPTIMIZERS = {
    "adamw_torch": "AdamW",
    "adamw_torch_fused": "AdamW",
    "adafactor": "Adafactor",
    "adagrad": "Adagrad",
    "rmsprop": "RMSprop",
    "sgd": "SGD",
}


def mismatches(experiment: Experiment, settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each setting that is not as requested."""
    # A null here means that there is no adapter, or no quantisation.
    none = {name: "none" for name in ("peft_method", "quantization") if name in settings and not settings[name]}
    asked, settings = _asked(experiment), {**settings, **none}
    differences = (
        *_arguments(asked, settings),
        *_precision(asked, settings, by_weights=experiment.script is not None),
        *_optimizer(asked, settings),
        *_processes(experiment, asked, settings),
    )
    return tuple(f"{name} should be {wanted} and is {actual}" for name, wanted, actual in differences)


def of_ranks(experiment: Experiment, workers: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the sentences of `mismatches` for all ranks, each sentence once.

    A sentence that is not true for all ranks names its ranks.
    """
    ranks_of: dict[str, list[int]] = {}
    ranks = 0
    for place, worker in enumerate(workers):
        ranks += 1
        for sentence in mismatches(experiment, worker.get("settings") or {}):
            ranks_of.setdefault(sentence, []).append(worker.get("rank", place))
    return tuple(
        sentence if len(on) == ranks else f"{sentence} on rank {', '.join(map(str, sorted(on)))}"
        for sentence, on in ranks_of.items()
    )


def _asked(experiment: Experiment) -> dict[str, str]:
    """Return the arguments of any trainer, under the names of the built-in trainer. Lists are left out."""
    asked = {name: value for name, value in experiment.arguments.items() if isinstance(value, str)}
    if experiment.script is not None:
        return {name: value for name, value in asked.items() if name in types("Trainer")}
    if "torch_dtype" in asked:
        asked["dtype"] = asked["torch_dtype"]
    if is_true(asked.get("use_flash_attn")):
        asked["attn_implementation"] = asked.get("flash_attn_implementation", "flash_attention_2")
    if "use_peft" in asked:
        asked["peft_method"] = "lora" if is_true(asked["use_peft"]) else "none"
    if method := asked.get("finetuning_type", asked.get("adapter")):  # of llamafactory and axolotl
        asked["peft_method"] = {"full": "none", "freeze": "none", "qlora": "lora"}.get(method, method)
    if "disable_gradient_checkpointing" in asked:
        asked["gradient_checkpointing"] = str(not is_true(asked["disable_gradient_checkpointing"]))
    if is_true(asked.get("load_in_4bit")):
        asked["quantization"] = asked.get("bnb_4bit_quant_type", "nf4")
    if is_true(asked.get("load_in_8bit")):
        asked["quantization"] = "int8"
    return asked


def _arguments(asked: Asked, settings: Settings) -> Iterator[Difference]:
    quantised = {asked.get("quantization", "none"), settings.get("quantization", "none")} != {"none"}
    for name, (setting, form) in _SETTING_OF.items():
        wanted, actual = asked.get(name), settings.get(setting)
        if not wanted or actual is None or actual == "" or form(wanted) == form(str(actual)):
            continue
        if name == "dtype" and (quantised or wanted == "auto"):
            continue  # quantised weights have no dtype of their own
        if name == _STEPS and wanted.startswith("-"):
            continue  # whole epochs; the setting has their steps
        all_rows = name == _BATCH and actual == settings.get("train_rows")
        yield name, wanted, f"{actual}, all rows of the data" if all_rows else actual


def _precision(asked: Asked, settings: Settings, *, by_weights: bool) -> Iterator[Difference]:
    """Yield a difference in mixed precision. With `by_weights`, weights of the requested type are also accepted."""
    actual = settings.get("mixed_precision")
    for name in ("bf16", "fp16"):
        if by_weights and is_true(asked.get(name)) and settings.get("dtype") == _DTYPES[name]:
            continue
        chosen = name in asked and asked[name] != "auto"  # axolotl chooses itself
        if actual is not None and chosen and is_true(asked[name]) is not (actual == name):
            yield f"mixed precision {name}", "on" if is_true(asked[name]) else "off", actual


def _optimizer(asked: Asked, settings: Settings) -> Iterator[Difference]:
    """Yield a difference in the optimizer's class, or in whether AdamW is fused.

    The class is compared only if it is known and no launcher has replaced it.
    """
    wanted, actual = asked.get("optim", ""), settings.get("optimizer")
    fused = settings.get("optimizer_fused")
    known = actual and _launch(str(settings.get("distributed_type"))) != "DEEPSPEED"
    if known and wanted in _OPTIMIZERS and actual != _OPTIMIZERS[wanted]:
        yield "optim", wanted, actual
    elif (
        wanted.startswith("adamw_torch") and fused is not None and wanted.endswith("_fused") is not is_true(str(fused))
    ):
        yield "optim", wanted, f"{actual or 'an optimizer'}, fused: {fused}"


def _processes(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[Difference]:
    """Yield differences in the number of processes, in how they are distributed, and in their device."""
    size, ranks = settings.get("world_size"), settings.get("data_parallel_ranks")
    if size is not None and size != experiment.num_gpus:
        yield "the number of training processes", experiment.num_gpus, size
        ranks = None
    own = data_parallel_ranks(experiment.num_gpus, experiment.accelerate)
    chosen = experiment.script is not None and own == experiment.num_gpus  # a script may divide its model itself
    if ranks is not None and ranks != own and not chosen:
        yield "the number of processes with a batch of their own", own, ranks
    actual = settings.get("distributed_type")
    wanted = "FSDP" if is_true(asked.get("fsdp")) and experiment.num_gpus > 1 else distributed_type(experiment)
    if actual is not None and _launch(wanted) != _launch(str(actual)):
        yield "distributed_type", wanted, actual
    device = settings.get("device")
    if device and str(device).partition(":")[0] != experiment.device:
        yield "the device", experiment.device, device


def _launch(word: str) -> str:
    """Return the kind of launch in capitals.

    All of accelerate's names for DDP become DDP, because they contain the device, which is compared separately.
    """
    plain = word.rpartition(".")[2].upper()
    return "DDP" if plain.startswith("MULTI_") else plain

"""Was what was asked for really so? The arguments of an experiment against the settings read off the built model.

Only what was asked for explicitly is compared, and only with settings that the run could tell: a key that is absent is
unknown and proves nothing. Each difference is a sentence; one is enough to make a run invalid, because its number would
stand under the wrong name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orchestrator.plan.command import distributed_type
from orchestrator.records import Experiment, Text
from orchestrator.trainers.argument_names import is_true

Settings = Mapping[str, Any]
Asked = Mapping[str, str]

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
_FLAGS = {
    "gradient_checkpointing": "gradient_checkpointing",
    "activation_checkpointing": "gradient_checkpointing",
    "torch_compile": "torch_compile",
    "use_liger_kernel": "liger",
    "padding_free": "padding_free",
    "packing": "packing",
}
_WORDS = {"torch_compile_mode": "torch_compile_mode"}
_NUMBERS = {
    "per_device_train_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "r": "lora_rank",
    "lora_r": "lora_rank",
}
_OPTIMIZERS = {
    "adamw_torch": "AdamW",
    "adamw_torch_fused": "AdamW",
    "adafactor": "Adafactor",
    "adagrad": "Adagrad",
    "rmsprop": "RMSprop",
    "sgd": "SGD",
}
"""The classes that these stand for; others are made by packages of their own, under names that change."""


def mismatches(experiment: Experiment, settings: Settings) -> tuple[str, ...]:
    """What was asked for and did not take effect, a sentence each; empty when all is as asked."""
    asked = _asked(experiment.arguments)
    checks: tuple[Callable[[Experiment, Asked, Settings], Iterator[str]], ...] = (
        _flags,
        _attention,
        _dtype,
        _precision,
        _adapters,
        _optimizer,
        _numbers,
        _processes,
    )
    return tuple(sentence for check in checks for sentence in check(experiment, asked, settings))


def of_ranks(experiment: Experiment, workers: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """What did not take effect on any rank, each sentence once, with the ranks where not all say it; `workers` are their files."""
    said: dict[str, list[int]] = {}
    ranks = 0
    for place, worker in enumerate(workers):
        ranks += 1
        for sentence in mismatches(experiment, worker.get("settings") or {}):
            said.setdefault(sentence, []).append(worker.get("rank", place))
    return tuple(sentence if len(on) == ranks else f"{sentence} on rank {_listed(on)}" for sentence, on in said.items())


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))


def _asked(arguments: Mapping[str, Text]) -> dict[str, str]:
    """The arguments under the built-in trainer's names, whichever trainer they are for; lists are not compared."""
    asked = {name: value for name, value in arguments.items() if isinstance(value, str)}
    if "torch_dtype" in asked:
        asked["dtype"] = asked["torch_dtype"]
    if is_true(asked.get("use_flash_attn")):
        asked["attn_implementation"] = asked.get("flash_attn_implementation", "flash_attention_2")
    if "use_peft" in asked:
        asked["peft_method"] = "lora" if is_true(asked["use_peft"]) else "none"
    if is_true(asked.get("load_in_4bit")):
        asked["quantization"] = asked.get("bnb_4bit_quant_type", "nf4")
    if is_true(asked.get("load_in_8bit")):
        asked["quantization"] = "int8"
    return asked


def _sentence(name: str, wanted: object, found: object) -> str:
    return f"{name} was asked to be {wanted} and is {found}"


def _flags(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[str]:
    for argument, setting in _FLAGS.items():
        found = settings.get(setting)
        if argument in asked and found is not None and is_true(asked[argument]) is not is_true(str(found)):
            yield _sentence(argument, is_true(asked[argument]), is_true(str(found)))
    for argument, setting in _WORDS.items():
        found = settings.get(setting)
        if argument in asked and found is not None and asked[argument] != str(found):
            yield _sentence(argument, asked[argument], found)


def _attention(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[str]:
    wanted, found = asked.get("attn_implementation"), settings.get("attn_implementation")
    if wanted and found and _attention_kind(wanted) != _attention_kind(str(found)):
        yield _sentence("attn_implementation", wanted, found)


def _attention_kind(word: str) -> str:
    """One word for one algorithm: transformers takes flash attention from a kernel hub where the package is missing."""
    for version in ("2", "3"):
        if f"flash-attn{version}" in word or word == f"flash_attention_{version}":
            return f"flash_attention_{version}"
    return word


def _dtype(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[str]:
    """The type of the weights as they were loaded; quantised weights have none."""
    wanted, found = asked.get("dtype"), settings.get("dtype")
    if not wanted or wanted == "auto" or not found:
        return
    if settings.get("quantization") or asked.get("quantization", "none") != "none":
        return
    wanted, found = _dtype_name(wanted), _dtype_name(str(found))
    if wanted != found:
        yield _sentence("dtype", wanted, found)


def _dtype_name(word: str) -> str:
    plain = word.removeprefix("torch.").strip().lower()
    return _DTYPES.get(plain, plain)


def _precision(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[str]:
    found = settings.get("mixed_precision")
    if found is None:
        return
    for name in ("bf16", "fp16"):
        if name in asked and is_true(asked[name]) is not (found == name):
            yield _sentence(f"mixed precision {name}", "on" if is_true(asked[name]) else "off", found)


def _adapters(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[str]:
    """Adapters and quantisation, where null in the settings says none and an absent key says nothing."""
    for name in ("peft_method", "quantization"):
        if name in asked and name in settings:
            wanted, found = asked[name].lower(), str(settings[name] or "none").lower()
            if wanted != found:
                yield _sentence(name, wanted, found)


def _optimizer(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[str]:
    """The class, where it is one that we know and no launcher's own, and of torch's AdamW whether it is fused."""
    wanted, found = asked.get("optim", ""), settings.get("optimizer")
    fused = settings.get("optimizer_fused")
    known = found and _kind(str(settings.get("distributed_type"))) != "DEEPSPEED"
    if known and wanted in _OPTIMIZERS and found != _OPTIMIZERS[wanted]:
        yield _sentence("optim", wanted, found)
    elif (
        wanted.startswith("adamw_torch") and fused is not None and wanted.endswith("_fused") is not is_true(str(fused))
    ):
        yield _sentence("optim", wanted, f"{found or 'an optimizer'}, fused: {fused}")


def _same_number(asked: str, found: object) -> bool:
    try:
        return float(asked) == float(str(found))
    except ValueError:
        return asked == str(found)


def _numbers(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[str]:
    for name, setting in _NUMBERS.items():
        found = settings.get(setting)
        if name in asked and found is not None and not _same_number(asked[name], found):
            all_rows = setting == "per_device_train_batch_size" and found == settings.get("train_rows")
            yield _sentence(name, asked[name], f"{found}, all rows that the data have" if all_rows else found)


def _processes(experiment: Experiment, asked: Asked, settings: Settings) -> Iterator[str]:
    """How many processes there were, how they were tied together, and on what they ran."""
    size = settings.get("world_size")
    if size is not None and size != experiment.num_gpus:
        yield _sentence("the number of training processes", experiment.num_gpus, size)
    found = settings.get("distributed_type")
    wanted = "FSDP" if is_true(asked.get("fsdp")) and experiment.num_gpus > 1 else distributed_type(experiment)
    if found is not None and _kind(wanted) != _kind(str(found)):
        yield _sentence("distributed_type", wanted, found)
    device = settings.get("device")
    if device and str(device).partition(":")[0] != experiment.device:
        yield _sentence("the device", experiment.device, device)


def _kind(word: str) -> str:
    """DDP by accelerate's many names for it: the type names the device too, which is compared apart."""
    plain = word.rpartition(".")[2].upper()
    return "DDP" if plain.startswith("MULTI_") else plain

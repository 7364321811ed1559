"""What was asked for against what took effect."""

from __future__ import annotations

from typing import Any

import pytest
from factories.results import experiment

from orchestrator.records import Device
from orchestrator.run.settings_check import mismatches, of_ranks

FSDP = {"distributed_type": "FSDP"}


def found(settings: dict[str, Any], **changes: Any) -> str:
    return "; ".join(mismatches(experiment(**{"device": Device.CUDA, **changes}), settings))


@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        ({"attn_implementation": "eager"}, {"attn_implementation": "sdpa"}, "asked to be eager and is sdpa"),
        ({"use_flash_attn": "True"}, {"attn_implementation": "sdpa"}, "asked to be flash_attention_2 and is sdpa"),
        ({"attn_implementation": "flash_attention_2"}, {"attn_implementation": "kernels-community/flash-attn2"}, ""),
        ({"dtype": "bf16"}, {"dtype": "torch.bfloat16"}, ""),
        ({"torch_dtype": "bfloat16"}, {"dtype": "float32"}, "dtype was asked to be bfloat16 and is float32"),
        ({"dtype": "auto"}, {"dtype": "float32"}, ""),
        ({"dtype": "bfloat16"}, {"dtype": "uint8", "quantization": "nf4"}, ""),
        ({"gradient_checkpointing": "True"}, {"gradient_checkpointing": False}, "gradient_checkpointing was asked"),
        ({"gradient_checkpointing": "False"}, {"gradient_checkpointing": True}, "asked to be False and is True"),
        ({"gradient_checkpointing": "true"}, {"gradient_checkpointing": True}, ""),
        ({"torch_compile": "True"}, {"torch_compile": False}, "torch_compile was asked to be True"),
        ({"torch_compile_mode": "max-autotune"}, {"torch_compile_mode": "default"}, "torch_compile_mode"),
        ({"peft_method": "lora"}, {"peft_method": None}, "peft_method was asked to be lora and is none"),
        ({"peft_method": "none"}, {"peft_method": None}, ""),
        ({"use_peft": "True"}, {"peft_method": "lora"}, ""),
        ({"quantization": "nf4"}, {"quantization": "fp4"}, "quantization"),
        ({"load_in_4bit": "True"}, {"quantization": "nf4"}, ""),
        ({"use_liger_kernel": "True"}, {"liger": False}, "use_liger_kernel"),
        ({"bf16": "True"}, {"mixed_precision": "no"}, "mixed precision bf16 was asked to be on and is no"),
        ({"bf16": "False"}, {"mixed_precision": "bf16"}, "asked to be off and is bf16"),
        ({"fp16": "True"}, {"mixed_precision": "fp16"}, ""),
        ({"padding_free": "True"}, {"padding_free": False}, "padding_free"),
        ({"packing": "True"}, {"packing": True}, ""),
        ({"optim": "adamw_torch_fused"}, {"optimizer_fused": False, "optimizer": "AdamW"}, "AdamW, fused: False"),
        ({"optim": "adamw_torch"}, {"optimizer_fused": True}, "optim"),
        ({"optim": "sgd"}, {"optimizer_fused": False}, ""),
        (
            {"optim": "adafactor"},
            {"optimizer": "AdamW", "optimizer_fused": False},
            "optim was asked to be adafactor and is AdamW",
        ),
        ({"optim": "adafactor"}, {"optimizer": "Adafactor", "optimizer_fused": False}, ""),
        ({"optim": "adamw_bnb_8bit"}, {"optimizer": "AdamW", "optimizer_fused": False}, ""),
        (
            {"optim": "adamw_torch"},
            {"optimizer": "DeepSpeedZeroOptimizer", "distributed_type": "DEEPSPEED"},
            "distributed_type",
        ),
        ({"r": "8"}, {"lora_rank": 16}, "r was asked to be 8 and is 16"),
        ({"lora_r": "8"}, {"lora_rank": 8}, ""),
        ({"lora_r": "8"}, {"lora_rank": 4}, "lora_r was asked to be 8 and is 4"),
        ({"r": "4.0"}, {"lora_rank": 4}, ""),
        ({"per_device_train_batch_size": "1e1"}, {"per_device_train_batch_size": 10}, ""),
        ({"r": "8"}, {"lora_rank": None}, ""),
        ({"optim": "adamw_torch"}, {"optimizer": None, "optimizer_fused": None}, ""),
        ({"per_device_train_batch_size": "4"}, {"per_device_train_batch_size": 8}, "asked to be 4 and is 8"),
        (
            {"per_device_train_batch_size": "64"},
            {"per_device_train_batch_size": 32, "train_rows": 32},
            "asked to be 64 and is 32, all rows that the data have",
        ),
    ],
)
def test_a_setting(arguments: dict[str, str], settings: dict[str, Any], sentence: str) -> None:
    said = found(settings, arguments=arguments)
    assert sentence in said and bool(said) is bool(sentence)


def test_what_is_unknown_proves_nothing_and_what_was_not_asked_is_not_compared() -> None:
    settings = {"attn_implementation": "sdpa", "dtype": "bfloat16", "gradient_checkpointing": True}
    assert found(settings) == ""
    asked = {"attn_implementation": "eager", "packing": "True", "bf16": "True", "peft_method": "lora"}
    assert found({}, arguments=asked) == ""
    assert found({"attn_implementation": None, "packing": None, "mixed_precision": None}, arguments=asked) == ""


@pytest.mark.parametrize(
    ("changes", "settings", "sentence"),
    [
        ({"num_gpus": 2}, {"world_size": 1}, "number of training processes was asked to be 2 and is 1"),
        ({"num_gpus": 2, "accelerate": FSDP}, {"distributed_type": "MULTI_GPU"}, "asked to be FSDP and is MULTI_GPU"),
        ({"num_gpus": 2, "accelerate": FSDP}, {"distributed_type": "FSDP"}, ""),
        ({"num_gpus": 2, "device": Device.CPU}, {"distributed_type": "MULTI_CPU", "device": "cpu"}, ""),
        ({"num_gpus": 2}, {"distributed_type": "NO"}, "distributed_type"),
        ({"accelerate": FSDP}, {"distributed_type": "NO"}, ""),
        ({}, {"device": "cpu"}, "the device was asked to be cuda and is cpu"),
        ({}, {"device": "cuda:0"}, ""),
    ],
)
def test_processes(changes: dict[str, Any], settings: dict[str, Any], sentence: str) -> None:
    said = found(settings, **changes)
    assert sentence in said and bool(said) is bool(sentence)


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        (("eager", "eager", "eager"), ()),
        (("sdpa", "sdpa", "sdpa"), ("attn_implementation was asked to be eager and is sdpa",)),
        (("eager", "sdpa", "sdpa"), ("attn_implementation was asked to be eager and is sdpa on rank 1, 2",)),
    ],
)
def test_every_rank_is_asked(attention: tuple[str, ...], said: tuple[str, ...]) -> None:
    workers = [{"rank": rank, "settings": {"attn_implementation": found}} for rank, found in enumerate(attention)]
    asked = experiment(num_gpus=3, arguments={"attn_implementation": "eager"})
    assert of_ranks(asked, reversed(workers)) == said


def test_a_launchers_own_optimizer_is_none_of_ours() -> None:
    settings = {"optimizer": "DeepSpeedZeroOptimizer", "optimizer_fused": False, "distributed_type": "DEEPSPEED"}
    how: dict[str, Any] = {"num_gpus": 2, "accelerate": {"distributed_type": "DEEPSPEED"}}
    assert "optim" not in found(settings, arguments={"optim": "adamw_torch"}, **how)
    assert "optim was asked" in found(
        {**settings, "distributed_type": "MULTI_GPU"}, arguments={"optim": "adamw_torch"}, num_gpus=2
    )

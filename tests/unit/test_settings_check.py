"""What was asked for against what took effect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import settings
from factories.cases import cases
from factories.results import experiment

from orchestrator.records import Device, Script
from orchestrator.run.settings_check import mismatches, of_ranks

FSDP = {"distributed_type": "FSDP"}
CONTEXT = {**FSDP, "parallelism_config": {"parallelism_config_cp_size": 2}}
OWN = Script(script="train.py", folder="/srv")


def found(settings: dict[str, Any], **changes: Any) -> str:
    return "; ".join(mismatches(experiment(**{"device": Device.CUDA, **changes}), settings))


@pytest.mark.parametrize(("arguments", "settings", "sentence"), cases("settings_check/a_setting"))
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
        ({"num_gpus": 2}, {"world_size": 1}, "number of training processes should be 2 and is 1"),
        ({"num_gpus": 2, "accelerate": FSDP}, {"distributed_type": "MULTI_GPU"}, "should be FSDP and is MULTI_GPU"),
        ({"num_gpus": 2, "accelerate": FSDP}, {"distributed_type": "FSDP"}, ""),
        ({"num_gpus": 4, "accelerate": CONTEXT}, {"world_size": 4, "data_parallel_ranks": 2}, ""),
        (
            {"num_gpus": 4, "accelerate": CONTEXT},
            {"world_size": 4, "data_parallel_ranks": 4},
            "own should be 2 and is 4",
        ),
        ({"num_gpus": 4, "accelerate": CONTEXT, "script": OWN}, {"data_parallel_ranks": 4}, "own should be 2 and is 4"),
        ({"num_gpus": 4, "accelerate": FSDP}, {"data_parallel_ranks": 2}, "own should be 4 and is 2"),
        ({"num_gpus": 4, "accelerate": FSDP, "script": OWN}, {"data_parallel_ranks": 2}, ""),
        ({"num_gpus": 2, "device": Device.CPU}, {"distributed_type": "MULTI_CPU", "device": "cpu"}, ""),
        ({"num_gpus": 2}, {"distributed_type": "NO"}, "distributed_type"),
        ({"accelerate": FSDP}, {"distributed_type": "NO"}, ""),
        ({}, {"device": "cpu"}, "the device should be cuda and is cpu"),
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
        (("sdpa", "sdpa", "sdpa"), ("attn_implementation should be eager and is sdpa",)),
        (("eager", "sdpa", "sdpa"), ("attn_implementation should be eager and is sdpa on rank 1, 2",)),
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
    assert "optim should be" in found(
        {**settings, "distributed_type": "MULTI_GPU"}, arguments={"optim": "adamw_torch"}, num_gpus=2
    )


@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        ({"bf16": "True"}, {"mixed_precision": "no"}, "mixed precision bf16 should be on and is no"),
        ({"bf16": "True"}, {"mixed_precision": "no", "dtype": "bfloat16"}, ""),
        ({"bf16": "False"}, {"mixed_precision": "bf16", "dtype": "bfloat16"}, "bf16 should be off"),
        ({"gradient_checkpointing": "True"}, {"gradient_checkpointing": False}, "gradient_checkpointing should be"),
        ({"r": "4", "packing": "yes", "quantization": "mine"}, {"lora_rank": 8, "packing": False}, ""),
    ],
)
def test_of_a_script_s_arguments_only_the_trainer_s_are_compared(
    arguments: dict[str, str], settings: dict[str, Any], sentence: str
) -> None:
    own = {"trainer": "script", "script": Script(script="train.py", folder="/srv")}
    said = found(settings, arguments=arguments, **own)
    assert sentence in said and bool(said) is bool(sentence)


def test_the_optimizer_is_that_of_deepspeed_not_of_its_wrapper() -> None:
    zero = type("DeepSpeedZeroOptimizer", (), {})()
    wrapper = type("DeepSpeedOptimizerWrapper", (), {"optimizer": zero})()
    assert settings.optimizer(SimpleNamespace(optimizer=wrapper)) is zero

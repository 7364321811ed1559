"""Estimated memory of mixtures of experts (Mixtral) against what torch keeps and allocates on a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from factories.fit import (
    BF16,
    FSDP,
    LENGTH,
    LORA,
    ROWS,
    TINY,
    built,
    experiment,
    kept_by_formula,
    kept_by_torch,
    like_a_gpu,
    pass_by_formula,
    peak_of_a_pass,
)
from transformers import Adafactor, AutoConfig

from orchestrator.plan.forecast.memory_fit import Estimate, Unknown, estimate
from orchestrator.plan.forecast.memory_fit.model_states import ModelStates
from orchestrator.plan.forecast.memory_fit.optimizer import trained_parameters
from orchestrator.plan.forecast.memory_fit.training import training_of
from orchestrator.records import Experiment

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "checkpointed": {"gradient_checkpointing": True},
    "eager attention": {"attn_implementation": "eager"},
    "padded": {"data": None},
    "LoRA": {**LORA, "target_modules": ATTENTION},
    "LoRA on one matrix": {**LORA, "target_modules": ("o_proj",)},
    "LoRA, checkpointed": {**LORA, "target_modules": ATTENTION, "gradient_checkpointing": True},
}


def of_experts(folder: Path, *, vocabulary: int = 96, experts: int = 4, **arguments: Any) -> Experiment:
    fields = {
        "intermediate_size": 256,
        "num_local_experts": experts,
        "num_experts_per_tok": 2,
        "vocab_size": vocabulary,
    }
    AutoConfig.for_model("mixtral", **{**TINY, **fields}).save_pretrained(folder)
    return experiment(str(folder), **{**BF16, "max_seq_len": LENGTH, "per_device_train_batch_size": ROWS, **arguments})


@pytest.mark.parametrize("kind", KINDS)
def test_activations_of_experts_are_what_torch_keeps(kind: str, tmp_path: Path) -> None:
    one = of_experts(tmp_path, **KINDS[kind])
    real = kept_by_torch(built(tmp_path, one), one, compiled=False)
    assert kept_by_formula(training_of(one)) == pytest.approx(real, rel=0.007)


@pytest.mark.parametrize("vocabulary", [96, 2000])
@pytest.mark.parametrize("kind", ["full", "checkpointed", "LoRA", "LoRA, checkpointed"])
def test_the_fullest_moment_of_experts_is_as_full_as_torchs_own_record(
    kind: str, vocabulary: int, tmp_path: Path
) -> None:
    one = of_experts(tmp_path, vocabulary=vocabulary, **KINDS[kind])
    with like_a_gpu():
        real = peak_of_a_pass(built(tmp_path, one), one, tmp_path / "trace.json")
        assert pass_by_formula(one) == pytest.approx(real, rel=0.03)


@pytest.mark.parametrize(("name", "build"), [("adamw_torch", torch.optim.AdamW), ("adafactor", Adafactor)])
def test_states_of_stacked_experts(name: str, build: Any, tmp_path: Path) -> None:
    one = of_experts(tmp_path, optim=name)
    model = built(tmp_path, one)
    optimizer = build(list(model.parameters()))
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    tensors = (value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value))
    real = sum(tensor.nbytes for tensor in tensors if tensor.dim())
    assert ModelStates.of(training_of(one)).optimizer == real
    assert trained_parameters(training_of(one)) == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float32"}, "a mixture of experts with compilation or float32 weights"),
        ({"torch_compile": True}, "a mixture of experts with compilation or float32 weights"),
        ({**LORA}, "adapters of experts"),
        ({"peft_method": "lora"}, "the default target_modules for mixtral"),
        ({"output_router_logits": True}, "a loss on the router"),
        ({"use_liger_kernel": True}, "Liger for this model, or Liger with float32 weights"),
    ],
)
def test_what_is_not_known_of_experts(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert estimate(of_experts(tmp_path, **changes)) == Unknown(reason=reason)


def test_a_loss_on_the_router_that_the_configuration_asks_for_is_not_overlooked(tmp_path: Path) -> None:
    AutoConfig.for_model("mixtral", **TINY, output_router_logits=True).save_pretrained(tmp_path)
    assert estimate(experiment(str(tmp_path), **BF16)) == Unknown(reason="a loss on the router")


def test_fsdp_divides_whole_experts(tmp_path: Path) -> None:
    one = of_experts(tmp_path, processes=3, accelerate=FSDP)
    assert estimate(one) == Unknown(reason="experts that FSDP cannot divide evenly")
    assert isinstance(estimate(replace(one, num_gpus=2)), Estimate)

"""Estimated memory of LoRA on 4-bit weights (QLoRA) against bitsandbytes and torch on a CPU.

tests/golden/cases/fit/quantised_on_a_cpu.yaml holds what they kept and allocated. Where bitsandbytes is installed, the numbers
are taken again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import models
import pytest
import torch
from arguments import Own
from factories.cases import cases
from factories.fit import (
    BF16,
    FSDP,
    LENGTH,
    LORA,
    ROWS,
    TINY,
    experiment,
    kept_by_formula,
    kept_by_torch,
    like_a_gpu,
    pass_by_formula,
    peak_of_a_pass,
)
from transformers import AutoConfig

from orchestrator.plan.forecast.memory_fit import Estimate, Unknown, estimate
from orchestrator.plan.forecast.memory_fit.model_states import ModelStates
from orchestrator.plan.forecast.memory_fit.training import training_of
from orchestrator.records import Experiment

QLORA = {**BF16, **LORA, "quantization": "nf4"}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped queries": ("llama", {}),
    "large vocabulary": ("llama", {"vocab_size": 2000}),
    "biased": ("qwen2", {"num_key_value_heads": 1}),
    "normed heads": ("qwen3", {"head_dim": 24}),
    "scaled": ("granite", {"residual_multiplier": 0.2, "tie_word_embeddings": True}),
}
KINDS: dict[str, dict[str, Any]] = {
    "all": {},
    "two matrices": {"target_modules": ("q_proj", "v_proj")},
    "the MLP": {"target_modules": ("gate_proj", "down_proj")},
    "double quantisation": {"double_quantization": True},
    "checkpointed": {"gradient_checkpointing": True},
    "padded": {"data": None},
}
RECORDED = cases("fit/quantised_on_a_cpu")


def quantised(folder: Path, shape: str, kind: str) -> Experiment:
    family, fields = SHAPES[shape]
    AutoConfig.for_model(family, **{**TINY, "intermediate_size": 256, **fields}).save_pretrained(folder)
    size = {"max_seq_len": LENGTH, "per_device_train_batch_size": ROWS}
    return experiment(str(folder), **{**QLORA, **size, **KINDS[kind]})


@pytest.mark.parametrize(("shape", "kind", "weights", "kept", "peak"), RECORDED)
def test_the_estimate_is_what_bitsandbytes_and_torch_had(
    shape: str, kind: str, weights: int, kept: int, peak: int, tmp_path: Path
) -> None:
    one = quantised(tmp_path, shape, kind)
    training = training_of(one)
    assert ModelStates.of(training).weights == pytest.approx(weights, rel=0.005)
    assert kept_by_formula(training) == pytest.approx(kept, rel=0.007)
    with like_a_gpu():
        assert pass_by_formula(one) == pytest.approx(peak, rel=0.04)


@pytest.mark.parametrize(("shape", "kind", "weights", "kept", "peak"), RECORDED)
def test_the_recorded_numbers_are_those_of_the_installed_libraries(
    shape: str, kind: str, weights: int, kept: int, peak: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bitsandbytes")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: True)  # PEFT asks for that of a GPU
    one = quantised(tmp_path, shape, kind)
    with like_a_gpu():
        model = built(tmp_path, one)
        assert stored(model) == weights
        assert kept_by_torch(model, one, compiled=False) == pytest.approx(kept, rel=0.001)
        assert peak_of_a_pass(model, one, tmp_path / "trace.json") == pytest.approx(peak, rel=0.005)


def built(folder: Path, one: Experiment) -> Any:
    """The model as the built-in trainer makes it."""
    given = one.arguments
    targets = given["target_modules"]
    own = Own(
        model_name_or_path="config:any",
        dtype="bfloat16",
        peft_method="lora",
        r=int(str(given["r"])),
        target_modules=[targets] if isinstance(targets, str) else list(targets),
        quantization="nf4",
        double_quantization="double_quantization" in given,
    )
    model = models.build_model(own, AutoConfig.from_pretrained(folder), words={}, seed=0)
    return models.adapt(model, own, checkpointing="gradient_checkpointing" in given, reentrant=False).train()


def stored(model: Any) -> int:
    """Bytes of all weights and of the scales of those in 4 bits, each storage once."""
    tensors = []
    for weight in model.parameters():
        state = getattr(weight, "quant_state", None)
        scales = [] if state is None else [state.absmax, *([state.state2.absmax] if state.nested else [])]
        tensors += [weight, *scales]
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


def test_an_8_billion_model_in_4_bits() -> None:
    """6.98 billion weights of matrices at 4.5 bits each, and 1.05 billion of embedding and output matrix at 32."""
    found = estimate(experiment("config:llama-3-8b", **{**QLORA, "r": 16}))
    assert isinstance(found, Estimate)
    head = 2 * 128256 * 4096
    adapters = 4 * 41_943_040
    assert found.weights_bytes == pytest.approx(
        6_979_321_856 * 4.5 / 8 + 4 * 1_050_939_392 + head + 1.5 * adapters, rel=1e-3
    )
    nested = estimate(experiment("config:llama-3-8b", **{**QLORA, "r": 16, "double_quantization": True}))
    assert isinstance(nested, Estimate)
    saved = (found.weights_bytes - nested.weights_bytes) * 8 / 6_979_321_856
    assert saved == pytest.approx(0.373, abs=0.001), "bits per weight, as in the paper on QLoRA"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quantization": "int8"}, "int8 weights"),
        ({"quantization": "gptq"}, "gptq weights"),
        ({"peft_method": "none"}, "quantised weights without LoRA"),
        (
            {"model": "config:mixtral-8x7b", "target_modules": ("q_proj",)},
            "quantised weights with experts: bitsandbytes",
        ),
        ({"dtype": "float32"}, "quantised weights without autocast, or with another type in dtype than in autocast"),
        ({"bf16": False}, "quantised weights without autocast, or with another type in dtype than in autocast"),
        ({"use_liger_kernel": True}, "quantised weights with FSDP, compilation, Liger or eager attention"),
        ({"attn_implementation": "eager"}, "quantised weights with FSDP, compilation, Liger or eager attention"),
        ({"processes": 2, "accelerate": FSDP}, "quantised weights with FSDP, compilation, Liger or eager attention"),
    ],
)
def test_what_is_not_known_of_quantised_weights(changes: dict[str, Any], reason: str) -> None:
    found = estimate(experiment(**{"model": "config:llama-1b", **QLORA, **changes}))
    assert isinstance(found, Unknown)
    assert found.reason.startswith(reason)

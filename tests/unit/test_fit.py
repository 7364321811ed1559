"""Estimated memory against what torch really keeps and allocates, and against runs that were measured on GPUs.

torch's own bookkeeping is the judge: `saved_tensors_hooks` for what the forward pass keeps, the profiler's record of
allocations for the peak of a pass, the optimizers' states. All on small models on a CPU, which keeps the same tensors.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from arguments import Own
from configs import CONFIGS, HUB_NAMES
from factories.cases import cases
from factories.fit import (
    BF16,
    FSDP,
    GIB,
    LENGTH,
    LORA,
    OVER_FLOAT32,
    ROWS,
    TINY,
    batch,
    built,
    experiment,
    highest_allocation,
    kept_by_formula,
    kept_by_torch,
    like_a_gpu,
    parts_of_a_step,
    pass_by_formula,
    peak,
    peak_of_a_pass,
)
from hypothesis import given
from hypothesis import strategies as st
from models import count_parameters, load_config
from transformers import Adafactor, AutoConfig, AutoModelForCausalLM

from orchestrator.errors import SelectionError
from orchestrator.plan.command.parallelism import CONTEXT, REPLICAS
from orchestrator.plan.forecast.memory_fit import (
    Estimate,
    Fit,
    Moment,
    Unknown,
    column,
    estimate,
    fits,
    json_value,
    parse_memory,
    summary,
    unmeasured_line,
)
from orchestrator.plan.forecast.memory_fit.model_states import ModelStates
from orchestrator.plan.forecast.memory_fit.optimizer import step_workspace_bytes
from orchestrator.plan.forecast.memory_fit.shapes import FAMILIES, read_shape
from orchestrator.plan.forecast.memory_fit.training import training_of
from orchestrator.records import Device, Experiment, Framework

APPROACHES = {"dtype": "bfloat16", "bf16": True}

# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_real_model(name: str) -> None:
    one = experiment(f"config:{name}")
    real = count_parameters(load_config(Own(model_name_or_path=f"config:{name}", training_data_path="data"), {}))
    assert read_shape(one.model, {}, revision=None, hub="").parameters == real


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES),
    *((family, {"attention_bias": True, "mlp_bias": True}) for family in FAMILIES),
    ("llama", {"num_key_value_heads": 4, "head_dim": 32}),
    ("mistral", {"num_key_value_heads": 1, "tie_word_embeddings": True, "sliding_window": None}),
    ("qwen3", {"head_dim": 24, "tie_word_embeddings": True}),
    ("granite", {"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 12}),
    ("mixtral", {"num_local_experts": 3, "sliding_window": 4096}),
]


@pytest.mark.parametrize(("family", "changes"), VARIANTS)
def test_a_folders_configuration_is_read_as_transformers_reads_it(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """Saved without what is the default; so the defaults count too. Overrides stand among the arguments."""
    config = AutoConfig.for_model(family, **{**TINY, **changes})
    config.save_pretrained(tmp_path)
    shape = read_shape(str(tmp_path), {}, revision=None, hub="")
    assert shape.parameters == count_parameters(config)
    AutoConfig.for_model(family).save_pretrained(tmp_path / "all default")
    with_defaults = read_shape(str(tmp_path / "all default"), {"num_hidden_layers": "1"}, revision=None, hub="")
    assert with_defaults.parameters == count_parameters(AutoConfig.for_model(family, num_hidden_layers=1))
    assert with_defaults.window == (4096 if family == "mistral" else None)


def test_a_hub_model_is_read_from_the_cache(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--org--name"
    for commit, layers in (("abc", 2), ("def", 3)):
        AutoConfig.for_model("llama", **{**TINY, "num_hidden_layers": layers}).save_pretrained(
            folder / "snapshots" / commit
        )
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    env = {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": None}
    assert training_of(experiment("org/name", env=env)).shape.layers == 2
    assert training_of(experiment("org/name", env=env, revision="def")).shape.layers == 3
    assert training_of(experiment("org/name", env={"HF_HUB_CACHE": str(tmp_path / "hub")})).shape.layers == 2
    assert estimate(experiment("org/other", env=env)) == Unknown(reason="no config.json of org/other on this machine")
    assert isinstance(estimate(experiment("org/name", env=env, revision="ghi")), Unknown)
    (folder / "refs" / "giant").write_bytes(b"abc" + b"\n" * 2**20)
    assert isinstance(estimate(experiment("org/name", env=env, revision="giant")), Unknown)


@pytest.mark.parametrize("name", HUB_NAMES)
def test_well_known_models_of_the_hub_need_no_files(name: str) -> None:
    """A configuration in the cache counts first, and a revision may have other sizes."""
    env = {"HF_HUB_CACHE": "/nowhere"}
    found = estimate(experiment(name, env=env, **APPROACHES))
    assert isinstance(found, Estimate)
    assert found == estimate(experiment(f"config:{HUB_NAMES[name]}", env=env, **APPROACHES))
    assert estimate(experiment(f"{name}-Instruct", env=env, **APPROACHES)) == found
    assert isinstance(estimate(experiment(name, env=env, revision="abc", **APPROACHES)), Unknown)


@pytest.mark.parametrize("name", ["a" * 300, "org/a\0b", "~no-such-user-here/model"])
def test_a_name_that_no_folder_can_have_is_not_known(name: str) -> None:
    assert estimate(experiment(name)) == Unknown(reason=f"no config.json of {name} on this machine")


# --- what torch keeps ------------------------------------------------------------------------------------------------


KINDS: dict[str, dict[str, Any]] = {
    "16 bit": BF16,
    "16 bit without autocast": {"dtype": "bfloat16"},
    "autocast over float32": OVER_FLOAT32,
    "float32": {},
    "eager attention": {**BF16, "attn_implementation": "eager"},
    "eager attention over float32": {**OVER_FLOAT32, "attn_implementation": "eager"},
    "eager attention in float32": {"attn_implementation": "eager"},
    "checkpointed": {**BF16, "gradient_checkpointing": True},
    "checkpointed over float32": {**OVER_FLOAT32, "gradient_checkpointing": True},
    "padded": {**BF16, "data": None},
    "LoRA": {**BF16, **LORA},
    "LoRA without autocast": {"dtype": "bfloat16", **LORA},
    "LoRA over float32": {**OVER_FLOAT32, **LORA},
    "LoRA in float32": LORA,
    "LoRA on two matrices": {**BF16, **LORA, "target_modules": ("q_proj", "v_proj")},
    "LoRA on the MLP": {**BF16, **LORA, "target_modules": ("gate_proj", "down_proj")},
    "LoRA, eager attention": {**BF16, **LORA, "attn_implementation": "eager"},
    "LoRA, checkpointed": {**BF16, **LORA, "gradient_checkpointing": True},
}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped queries": ("llama", {}),
    "heads of their own": ("llama", {"num_key_value_heads": 4, "intermediate_size": 256}),
    "biased": ("qwen2", {"num_key_value_heads": 1}),
    "normed heads": ("qwen3", {"head_dim": 24}),
    "scaled": ("granite", {"residual_multiplier": 0.2, "tie_word_embeddings": True}),
    "windowed": ("mistral", {"sliding_window": 4096, "num_hidden_layers": 3}),
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


def small(folder: Path, shape: str, *, layers: int = 4, **arguments: Any) -> Experiment:
    family, changes = SHAPES[shape]
    AutoConfig.for_model(family, **{**TINY, "num_hidden_layers": layers, **changes}).save_pretrained(folder)
    batch_size = {"max_seq_len": LENGTH, "per_device_train_batch_size": ROWS}
    return experiment(str(folder), **{**batch_size, **arguments})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_activations_are_what_torch_keeps(shape: str, kind: str, tmp_path: Path) -> None:
    one = small(tmp_path, shape, **KINDS[kind])
    real = kept_by_torch(built(tmp_path, one), one, compiled=False)
    assert kept_by_formula(training_of(one)) == pytest.approx(real, rel=0.007)


@pytest.mark.parametrize("kind", ["16 bit", "autocast over float32", "LoRA"])
@pytest.mark.parametrize("shape", ["grouped queries", "biased"])
def test_activations_of_a_compiled_model_are_what_torchs_partitioner_keeps(
    shape: str, kind: str, tmp_path: Path
) -> None:
    one = small(tmp_path, shape, layers=2, torch_compile=True, **KINDS[kind])  # each takes a second to compile
    torch._dynamo.reset()
    real = kept_by_torch(built(tmp_path, one), one, compiled=True)
    assert kept_by_formula(training_of(one)) == pytest.approx(real, rel=0.03)


@pytest.mark.parametrize("vocabulary", [96, 2000])
@pytest.mark.parametrize(
    "kind",
    ["16 bit", "autocast over float32", "float32", "eager attention", "checkpointed", "checkpointed over float32", "LoRA",
     "LoRA, checkpointed", "LoRA in float32"],
)  # fmt: skip
def test_the_fullest_moment_is_as_full_as_torchs_own_record_of_it(kind: str, vocabulary: int, tmp_path: Path) -> None:
    """Large vocabularies make it the loss, small ones the layers."""
    changes = {"intermediate_size": 256, "vocab_size": vocabulary}
    AutoConfig.for_model("llama", **{**TINY, **changes}).save_pretrained(tmp_path)
    one = experiment(str(tmp_path), max_seq_len=LENGTH, per_device_train_batch_size=ROWS, **KINDS[kind])
    with like_a_gpu():
        real = peak_of_a_pass(built(tmp_path, one), one, tmp_path / "trace.json")
        assert pass_by_formula(one) == pytest.approx(real, rel=0.03)


# --- the optimizer ---------------------------------------------------------------------------------------------------


def sgd(weights: Any) -> Any:
    return torch.optim.SGD(weights, lr=0.1, weight_decay=0.1)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("adamw_torch", torch.optim.AdamW),
        ("adamw_torch_fused", torch.optim.AdamW),
        ("sgd", sgd),
        ("adafactor", Adafactor),
    ],
)
@pytest.mark.parametrize("kind", ["16 bit", "float32", "LoRA"])
def test_the_states_are_those_of_the_real_optimizer(name: str, build: Any, kind: str, tmp_path: Path) -> None:
    one = small(tmp_path, "biased", optim=name, **KINDS[kind])
    model = built(tmp_path, one)
    optimizer = build([weight for weight in model.parameters() if weight.requires_grad])
    model(**batch(one)).loss.backward()
    optimizer.step()
    tensors = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    real = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.dim())
    states = ModelStates.of(training_of(one))
    assert states.optimizer == real
    assert states.gradients == sum(one.grad.nbytes for one in model.parameters() if one.grad is not None)
    assert states.weights == sum(one.nbytes for one in model.parameters())


def test_8_bit_states_have_a_scale_for_256_and_leave_the_embedding_in_32_bits() -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **TINY))
    changes = {name: value for name, value in TINY.items() if name.startswith(("num", "hidden", "inter", "vocab"))}
    small = sum(weight.numel() for weight in model.parameters() if weight.numel() < 4096)
    real = 8 * small + sum(
        weight.numel() * (8 if name.endswith("embed_tokens.weight") else 2 + 2 * 4 / 256)
        for name, weight in model.named_parameters()
        if weight.numel() >= 4096
    )
    found = ModelStates.of(training_of(experiment(optim="adamw_bnb_8bit", **changes)))
    assert found.optimizer == round(real)


def test_large_states_are_paged_and_small_ones_are_not() -> None:
    """r × 2048 is under 100,000 numbers, r × 5632 is not."""
    lora = {**APPROACHES, "peft_method": "lora", "r": 20, "target_modules": ("q_proj", "down_proj")}
    plain, paged = (
        ModelStates.of(training_of(experiment(optim=name, **lora))).optimizer
        for name in ("adamw_torch", "paged_adamw_32bit")
    )
    assert plain == 22 * 8 * 20 * (3 * 2048 + 5632)
    assert paged == 22 * 8 * 20 * 3 * 2048
    full = ModelStates.of(training_of(experiment(optim="paged_adamw_8bit", **APPROACHES))).optimizer
    scales = 8 * (1_100_048_384 - 32000 * 2048 - 45 * 2048) // 256
    assert full == scales + 8 * 45 * 2048, "scales and norms are not paged"


def lists(optimizer: Any, **options: Any) -> Any:
    return lambda weights: optimizer(weights, lr=0.1, weight_decay=0.1, **options)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("adamw_torch", lists(torch.optim.AdamW, foreach=True)),
        ("adamw_torch_fused", lists(torch.optim.AdamW, fused=True)),
        ("sgd", lists(torch.optim.SGD, foreach=True)),
        ("adafactor", Adafactor),
    ],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_an_optimizer_step_makes_beside_the_states(name: str, build: Any, dtype: str, tmp_path: Path) -> None:
    one = small(tmp_path, "biased", optim=name, weight_decay=0.1, dtype=dtype, vocab_size=2000)
    AutoConfig.for_model("qwen2", **{**TINY, "vocab_size": 2000, "num_key_value_heads": 1}).save_pretrained(tmp_path)
    model = built(tmp_path, one)
    model(**batch(one)).loss.backward()
    optimizer = build(list(model.parameters()))
    optimizer.step()
    real = highest_allocation(optimizer.step, tmp_path / "trace.json")
    largest_or_all = step_workspace_bytes(training_of(one))
    assert largest_or_all == pytest.approx(real, rel=0.05, abs=40_000)


# --- runs that were measured -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("near", "measured_gib", "model", "processes", "moment", "arguments"), cases("fit/measured_on_gpus")
)
def test_the_estimate_is_what_was_measured_on_gpus(
    near: float, measured_gib: float, model: str, processes: int, moment: str, arguments: dict[str, Any]
) -> None:
    arguments |= {"accelerate": FSDP} if "accelerate" in arguments else {}
    found = estimate(experiment(f"config:{model}", processes=processes, **{**APPROACHES, **arguments}))
    assert isinstance(found, Estimate)
    assert found.peak_allocated_bytes / GIB == pytest.approx(measured_gib, rel=near)
    assert found.moment is Moment[moment.upper()]


# --- what depends on what --------------------------------------------------------------------------------------------


@given(
    rows=st.integers(1, 64),
    length=st.sampled_from([128, 2048, 8192]),
    model=st.sampled_from([name for name in CONFIGS if "moe" not in name and "mixtral" not in name]),
    kind=st.sampled_from(["16 bit", "autocast over float32", "float32", "LoRA", "LoRA over float32", "checkpointed"]),
)
def test_more_work_never_takes_less(rows: int, length: int, model: str, kind: str) -> None:
    arguments = {
        "max_seq_len": length,
        "per_device_train_batch_size": rows,
        "target_modules": "all-linear",
        **KINDS[kind],
    }
    name = f"config:{model}"
    now = peak(experiment(name, **arguments))
    assert now <= peak(experiment(name, **{**arguments, "per_device_train_batch_size": rows + 1}))
    assert now < peak(experiment(name, **{**arguments, "per_device_train_batch_size": 200_000}))
    assert now <= peak(experiment(name, **arguments, gradient_accumulation_steps=2))
    assert peak(experiment(name, **{**arguments, "gradient_checkpointing": True})) <= now * 1.001
    assert now <= peak(experiment(name, processes=2, **arguments))
    if kind in ("16 bit", "autocast over float32"):
        shards = [peak(experiment(name, processes=count, accelerate=FSDP, **arguments)) for count in (2, 4, 8)]
        assert shards == sorted(shards, reverse=True)


def test_accumulated_gradients_lie_beside_the_loss() -> None:
    once, more = (estimate(experiment(**APPROACHES, gradient_accumulation_steps=steps)) for steps in (1, 4))
    assert isinstance(once, Estimate) and isinstance(more, Estimate)
    assert once.moment is more.moment is Moment.LOSS
    assert (once.gradients_bytes, more.gradients_bytes) == (0, 2 * 1_100_048_384)


def test_casts_of_all_weights_lie_there_when_the_forward_pass_ends() -> None:
    """Also checkpointed, where the backward pass casts a layer at a time: autocast's cache is emptied at its end."""
    few = {"max_seq_len": 16, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 2, "optim": "sgd"}
    found = estimate(experiment(**OVER_FLOAT32, **few, gradient_checkpointing=True))
    assert isinstance(found, Estimate)
    norms = 2048 * (2 * 22 + 1)
    cast = 1_100_048_384 - norms - 32000 * 2048  # the embedding is looked up, not multiplied
    assert found.moment is Moment.FORWARD
    assert found.weights_bytes == 4 * 1_100_048_384 + 2 * cast


def test_fsdp_may_keep_all_layers_gathered() -> None:
    keeps = {**FSDP, "fsdp_config": {**FSDP["fsdp_config"], "fsdp_reshard_after_forward": False}}
    gives_back = experiment(processes=2, accelerate=FSDP, **APPROACHES)
    shape = training_of(gives_back).shape
    more = peak(experiment(processes=2, accelerate=keeps, **APPROACHES)) - peak(gives_back)
    assert more == 2 * (
        shape.parameters - shape.embedding_parameters - shape.hidden_size
    )  # the output matrix is kept anyway


def test_offloading_leaves_what_is_gathered_and_what_is_kept() -> None:
    settings = {**FSDP["fsdp_config"], "fsdp_offload_params": True}
    here, offloaded = (
        estimate(experiment(processes=2, accelerate={**FSDP, "fsdp_config": config}, **APPROACHES))
        for config in (FSDP["fsdp_config"], settings)
    )
    assert isinstance(here, Estimate) and isinstance(offloaded, Estimate)
    assert offloaded.optimizer_bytes == offloaded.gradients_bytes == 0
    assert offloaded.weights_bytes == 2 * 32000 * 2048, "the output matrix"
    assert here.peak_allocated_bytes - offloaded.peak_allocated_bytes == pytest.approx(12 * 1_100_048_384 / 2, rel=1e-6)


def test_liger_has_no_logits() -> None:
    without = estimate(experiment("config:llama-3.2-1b", **APPROACHES))
    with_liger = estimate(experiment("config:llama-3.2-1b", use_liger_kernel=True, **APPROACHES))
    assert isinstance(without, Estimate) and isinstance(with_liger, Estimate)
    assert without.logits_bytes == 12 * 8 * 2048 * 128256
    assert with_liger.peak_allocated_bytes < without.peak_allocated_bytes - without.logits_bytes


def test_padded_rows_take_more_than_full_ones_and_a_mask_of_a_long_row_most() -> None:
    full, padded, endless = (
        peak(experiment(**APPROACHES, **changes)) for changes in ({}, {"data": None}, {"padding_free": True})
    )
    assert full < padded < endless
    assert peak(experiment(**APPROACHES, packing=True)) == full  # each sample fills a row
    assert peak(experiment(**APPROACHES, data=None, packing=True, per_device_train_batch_size=1)) > peak(
        experiment(**APPROACHES, data=None, per_device_train_batch_size=1)
    )
    assert peak(experiment(**APPROACHES, data=None, attn_implementation="flash_attention_2")) == full


ONE_RUN = {"model": "config:llama-1b"}
NOT_KNOWN: list[tuple[dict[str, Any], str]] = [
    ({"quantization": "nf4", "peft_method": "lora"}, "quantised weights"),
    ({"model": "config:no-such"}, "there is no model config:no-such"),
    ({"model": "no-such/model"}, "no config.json of no-such/model on this machine"),
    ({"device": Device.CPU}, "the run uses a CPU"),
    ({"trainer": "trl"}, "trainer trl"),
    ({"framework": Framework(name="foak", digest="x", plugin_file="foak.yaml")}, "plugin file of foak"),
    ({"optim": "paged_lion_8bit"}, "optimizer paged_lion_8bit"),
    ({"model": "config:tiny-moe"}, "a mixture of experts with compilation or float32 weights"),
    ({"peft_method": "ia3"}, "peft_method ia3"),
    ({"peft_method": "lora", "target_modules": ("lm_head",)}, "target_modules lm_head"),
    ({"model": "config:granite-3-2b", "peft_method": "lora"}, "the default target_modules for granite"),
    ({"attn_implementation": "flash_attention_2", "packing": True}, "packed rows with flash attention"),
    ({"attn_implementation": "flex_attention"}, "attn_implementation flex_attention"),
    ({"max_seq_len": "None"}, "max_seq_len is 'None'"),
    ({"per_device_train_batch_size": "many"}, "per_device_train_batch_size is 'many'"),
    ({"hidden_size": "0"}, "hidden_size 0 is not a whole number from 1"),
    ({"num_hidden_layers": "9" * 5000}, "num_hidden_layers '99999"),
    ({"max_seq_len": "1e308"}, "max_seq_len is '1e308'"),
    ({"dtype": "float8"}, "weights of type float8"),
    ({"dtype": "float16", "bf16": True}, "float16 weights under autocast to bfloat16"),
    ({"torch_compile": True, "gradient_checkpointing": True}, "compilation together with any of these: checkpointing"),
    ({"torch_compile": True, "torch_compile_mode": "reduce-overhead"}, "torch_compile_mode"),
    ({"model": "config:granite-3-2b", "use_liger_kernel": True}, "Liger for this model, or Liger with float32"),
    ({"processes": 2, "accelerate": {"distributed_type": "DEEPSPEED"}}, "DeepSpeed"),
    ({"accelerate": {"mixed_precision": "fp8"}}, "mixed precision fp8"),
    ({"accelerate": {"mixed_precision": "fp8"}, "bf16": False}, "mixed precision fp8"),
    ({"sdpa_backend": "cudnn"}, "a choice of sdpa's kernel"),
    ({"chunked_loss": True}, "a loss in chunks"),
    ({"activation_offloading": True}, "activations in the host's memory"),
    ({"processes": 2, "accelerate": {"distributed_type": "FSDP"}}, "FSDP 1"),
    ({"processes": 4, "accelerate": {**FSDP, "parallelism_config": {REPLICAS: 2}}}, "hybrid shards"),
    ({"processes": 4, "accelerate": {**FSDP, "parallelism_config": {CONTEXT: 2}}}, "context parallelism"),
    ({"processes": 2, "accelerate": FSDP}, "FSDP without autocast; write bf16: true"),
    (
        {
            "processes": 2,
            "accelerate": {**FSDP, "fsdp_config": {**FSDP["fsdp_config"], "fsdp_mixed_precision_policy": "bf16"}},
        },
        "FSDP with its own precision policy; write bf16: true instead of fsdp_mixed_precision_policy",
    ),
    ({"processes": 2, "accelerate": FSDP, "bf16": True, "num_hidden_layers": 1}, "FSDP with a single layer"),
    ({"processes": 2, "accelerate": FSDP, "bf16": True, "torch_compile": True}, "FSDP with compilation"),
    ({"accelerate": {"mixed_precision": "fp8"}}, "mixed precision fp8"),
    ({"accelerate": {"dynamo_config": {"dynamo_backend": "inductor"}}}, "compilation by the launcher"),
]


@pytest.mark.parametrize(("changes", "reason"), NOT_KNOWN)
def test_what_is_not_known_is_said(changes: dict[str, Any], reason: str) -> None:
    found = estimate(experiment(**{**ONE_RUN, **changes}))
    assert isinstance(found, Unknown)
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model_type": "mamba"}, "architecture 'mamba'"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "attention windows in some layers"),
        ({"model_type": "llama", "hidden_act": "gelu"}, "activation 'gelu'"),
        ({"model_type": "llama", "quantization_config": {"bits": 4}}, "quantised weights"),
        ({"model_type": "llama", "hidden_size": "big"}, "hidden_size 'big' is not a whole number from 1"),
        *(
            ({"model_type": "mixtral", **TINY, name: 10**309}, f"{name} is larger than 9223372036854775807")
            for name in (
                *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
                *("num_key_value_heads", "head_dim", "num_local_experts", "num_experts_per_tok", "sliding_window"),
            )
        ),
        ({"model_type": "llama", "num_hidden_layers": -3}, "num_hidden_layers -3 is not a whole number from 1"),
        ({"model_type": "llama", "vocab_size": True}, "vocab_size True is not a whole number from 1"),
        (b'{"model_type": "llama", "hidden_size": 1e400}', "hidden_size inf is not a whole number from 1"),
        ({"model_type": "llama", "head_dim": 0}, "head_dim 0 is not a whole number from 1"),
        ({"model_type": "llama", "attention_bias": "yes"}, "attention_bias 'yes' is neither true nor false"),
        (
            {"model_type": "llama", "num_attention_heads": 5},
            "hidden_size 4096 is not a multiple of num_attention_heads 5",
        ),
        (
            {"model_type": "qwen3", "num_key_value_heads": 5},
            "num_attention_heads 32 is not a multiple of num_key_value_heads 5",
        ),
        ({"model_type": ["llama"]}, "architecture \"['llama']\""),
        ({"model_type": "llama", "layer_types": 7}, "attention windows in some layers"),
        ({"model_type": "llama", "torch_dtype": ["bfloat16"]}, "dtype ['bfloat16']"),
        ({"model_type": "mistral", "sliding_window": "far"}, "sliding_window 'far' is not a whole number from 1"),
        (["no", "mapping"], "is not a configuration"),
        (b"{", "can't be read: it is not JSON"),
        (b"[" * 100_000, "can't be read: it nests deeper than 64 levels"),
        (bytes(17 * 2**20), "can't be read: the file exceeds the limit of 16 MiB"),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else None,
)
def test_folders_that_hold_something_else(fields: Any, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(fields if isinstance(fields, bytes) else json.dumps(fields).encode())
    found = estimate(experiment(str(tmp_path)))
    assert isinstance(found, Unknown)
    assert reason in found.reason


def test_accelerates_own_mixed_precision_counts_and_off_switches_do_not() -> None:
    wanted = peak(experiment(**OVER_FLOAT32))
    assert peak(experiment(accelerate={"mixed_precision": "bf16"})) == wanted
    assert peak(experiment(**OVER_FLOAT32, load_in_4bit=False, neftune_noise_alpha=None, torch_compile=False)) == wanted
    assert (
        peak(
            experiment(**OVER_FLOAT32, accelerate={"mixed_precision": False, "dynamo_config": {"dynamo_backend": "no"}})
        )
        == wanted
    )


# --- the verdict -----------------------------------------------------------------------------------------------------


def test_a_card_holds_it_or_does_not_or_it_can_not_be_told() -> None:
    found = estimate(experiment(**APPROACHES))
    assert isinstance(found, Estimate)
    assert found.device_bytes > found.peak_allocated_bytes + 0.75 * GIB
    needed = found.device_bytes / 0.995
    assert fits(found, round(needed) + 1) is Fit.FITS
    assert fits(found, round(needed) - 1 * GIB) is Fit.MAY_NOT_FIT
    assert fits(found, round(0.95 * found.peak_allocated_bytes)) is Fit.DOES_NOT_FIT
    assert fits(Unknown(reason="quantised weights"), 1 << 60) is Fit.UNKNOWN


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GiB", 80 << 30), ("80 GB", 80 * 10**9), ("81559MiB", 81559 << 20), ("79.6gib", round(79.6 * (1 << 30)))],
)
def test_a_cards_memory_in_words(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    ("text", "said"),
    [("80", "has no unit; write 80GiB, 80GB or MiB"), ("80TB", "is invalid"), ("0GiB", "is invalid"),
     ("-1GiB", "is invalid"), ("GiB", "is invalid"), ("9" * 400 + "GB", "is invalid"), ("", "is invalid")],
)  # fmt: skip
def test_what_is_no_amount_of_memory_is_refused(text: str, said: str) -> None:
    with pytest.raises(SelectionError, match=said):
        parse_memory(text)


PLANNED = (
    experiment(**APPROACHES, gradient_checkpointing=True),
    experiment("config:llama-3-8b", **APPROACHES),
    experiment("config:llama-3-8b", **APPROACHES, gradient_checkpointing=True),
    experiment(quantization="int8", peft_method="lora"),
)


def test_the_column_of_a_plan() -> None:
    assert column(PLANNED, gpu_memory_bytes=parse_memory("80GiB")) == (
        "16.5 GiB of 80 GiB",
        "does not fit: 193 GiB",
        "may not fit: 86.8 GiB of 80 GiB",
        "unknown: int8 weights",
    )
    assert column(PLANNED)[0] == "16.5 GiB"
    assert summary(PLANNED, gpu_memory_bytes=80 << 30) == (
        "On GPUs of 80 GiB: 1 fit, 1 do not fit, 2 unknown or too close."
    )


def test_a_plan_names_what_was_not_compared_with_a_gpu() -> None:
    def made(model: str = "config:llama-1b", **more: Any) -> Experiment:
        return experiment(model, processes=2, accelerate=FSDP, **APPROACHES, **more)

    host = {**FSDP, "fsdp_config": {**FSDP["fsdp_config"], "fsdp_offload_params": True}}
    checkpointed, lora = {"gradient_checkpointing": True}, {"peft_method": "lora", "target_modules": "all-linear"}
    compared = (
        *PLANNED,
        *(made(**more) for more in (checkpointed, lora, {**checkpointed, **lora})),
        made("config:tiny-moe"),
        experiment("config:tiny-moe", optim="paged_adamw_8bit", **checkpointed, **APPROACHES),
        experiment(quantization="nf4", **lora, **checkpointed, **APPROACHES),
        experiment(processes=2, accelerate=host, **lora, **APPROACHES),
    )
    assert list(unmeasured_line(map(estimate, compared))) == []
    not_compared = (
        experiment(processes=2, accelerate=host, **APPROACHES),
        experiment(processes=2, accelerate=host, **lora, **checkpointed, **APPROACHES),
        made("config:tiny-moe", **checkpointed),
        made(gradient_accumulation_steps=2),
    )
    assert list(unmeasured_line(map(estimate, (*not_compared, *compared)))) == [
        "The estimates of memory for full fine-tuning with offload, checkpointing with offload, experts with FSDP and "
        "checkpointing, several micro-batches with FSDP were not yet compared with a run on a GPU."
    ]
    assert json_value(not_compared[1])["unmeasured"] == ["checkpointing with offload"]


def test_an_estimate_as_json_adds_up() -> None:
    document = json_value(PLANNED[0], gpu_memory_bytes=80 << 30)
    parts = ("weights", "gradients", "optimizer", "activations", "logits", "workspace")
    assert json.loads(json.dumps(document)) == document
    assert document["peak_allocated_bytes"] == sum(document[f"{part}_bytes"] for part in parts)
    assert document["verdict"] == "fits"
    assert json_value(PLANNED[-1]) == {"unknown": "int8 weights"}


def test_cells_that_differ_in_what_does_not_matter_are_estimated_once() -> None:
    cells = [experiment(learning_rate=f"{number}e-6", seed=number) for number in range(500)]
    before = parts_of_a_step._estimate.cache_info().misses
    assert len(set(column(cells))) == 1
    assert parts_of_a_step._estimate.cache_info().misses - before <= 1


def test_it_needs_neither_torch_nor_transformers() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from orchestrator.plan.forecast.memory_fit import column\n"
        "from orchestrator.records import Device, Experiment\n"
        "given = {'max_seq_len': '2048', 'optim': 'sgd'}\n"
        "print(column([Experiment(id='a', scenario='a', model='config:llama-1b', num_gpus=1, device=Device.CUDA,"
        " trainer='huggingface', arguments=given)])[0])\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    root = str(Path(__file__).parents[2])
    ended = subprocess.run([sys.executable, "-c", script, root], capture_output=True, text=True, check=True, timeout=60)
    cell, loaded = ended.stdout.splitlines()
    assert cell.endswith(" GiB")
    assert not {"torch", "transformers", "pandas", "numpy", "psutil", "pydantic"} & set(loaded.split())

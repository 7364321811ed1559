"""What is read off a model, and that what is not understood is None. FLOPs of real models are in test_flops.py."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import architecture
import backward
import pytest
import settings
import torch
from factories.cases import cases
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

TINY = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
ATTENTION = 64 * (64 + 32 + 32 + 64)
LAYER = ATTENTION + 3 * 64 * 128
HEAD = 64 * 256


def model_of(kind: str = "llama", **changes: Any) -> Any:
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**TINY, **changes}))


def read(model: Any) -> dict[str, Any]:
    return backward.read(SimpleNamespace(model=model), architecture)


def reasons(model: Any) -> str:
    found = read(model)
    if found["unknown"]:
        assert None in (found["trainable"], found["attention_width"], found["unreached"])
    return "; ".join(found["unknown"])


def test_a_plain_model() -> None:
    found = read(model_of())
    assert found == {
        "frozen": 0, "trainable": 3 * LAYER + HEAD, "expert_frozen": 0, "expert_trainable": 0, "experts": None,
        "experts_per_token": None, "outside_layers": HEAD, "spared": 3 * 64 * 128, "layers": 3, "heads": 4,
        "head_dim": 16, "kv_heads": 2, "attention_width": 3 * 64, "causal": True, "window": None, "unknown": [],
        "unreached": 0, "expert_unreached": 0, "attention_unreached": 0, "layers_unreached": 0,
    }  # fmt: skip
    assert json.loads(json.dumps(found)) == found


def test_an_output_layer_tied_to_the_embedding_multiplies_all_the_same() -> None:
    assert read(model_of(tie_word_embeddings=True)) == read(model_of())


def test_frozen_and_trained() -> None:
    model = model_of()
    model.lm_head.weight.requires_grad_(False)
    found = read(model)
    assert (found["frozen"], found["trainable"]) == (HEAD, 3 * LAYER)


def test_experts_count_apart_with_their_router_among_the_rest() -> None:
    found = read(model_of("mixtral", num_local_experts=4, num_experts_per_tok=2))
    assert (found["experts"], found["experts_per_token"]) == (4, 2)
    assert found["expert_trainable"] == 3 * 4 * 3 * 64 * 128
    assert found["trainable"] == 3 * (ATTENTION + 4 * 64) + HEAD


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(64, 32, bias=False), nn.Linear(32, 64, bias=False)


def test_experts_that_are_modules_in_a_list() -> None:
    model = model_of()
    for layer in model.model.layers:
        layer.mlp = nn.Module()
        layer.mlp.gate = nn.Linear(64, 5, bias=False)
        layer.mlp.experts = nn.ModuleList([Expert() for _ in range(5)])
    assert "how many experts a token uses" in reasons(model)
    model.config.num_experts_per_tok = 2
    found = read(model)
    assert (found["experts"], found["experts_per_token"]) == (5, 2)
    assert found["expert_trainable"] == 3 * 5 * 2 * 64 * 32
    model.model.layers[1].mlp.experts.append(Expert())
    assert "how many experts a token uses" in reasons(model)


class Linear4bit(nn.Linear):
    """As bitsandbytes keeps it: two numbers to the byte, in one column."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        packed = torch.zeros(inputs * outputs // 2, 1, dtype=torch.uint8)
        self.weight = nn.Parameter(packed, requires_grad=False)


class TorchQuantLinear(nn.Module):
    """As GPTQ keeps it: no weight at all, but buffers."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        vars(self).update(sizes)
        self.register_buffer("qweight", torch.zeros(8, 8, dtype=torch.int32))


def quantized(model: Any, build: Any) -> Any:
    for layer in model.model.layers:
        for parent, name in ((layer.self_attn, "q_proj"), (layer.mlp, "down_proj")):
            now = getattr(parent, name)
            setattr(parent, name, build(now.in_features, now.out_features))
    return model


@pytest.mark.parametrize("build", [Linear4bit, lambda i, o: TorchQuantLinear(in_features=i, out_features=o)])
def test_quantised_weights_count_by_the_numbers_that_they_stand_for(build: Any) -> None:
    found = read(quantized(model_of(), build))
    assert found["frozen"] == 3 * (64 * 64 + 64 * 128)
    assert found["frozen"] + found["trainable"] == 3 * LAYER + HEAD


def test_a_quantised_layer_of_unknown_size() -> None:
    model = quantized(model_of(), lambda i, o: TorchQuantLinear(infeatures=i, outfeatures=o))
    assert "what a TorchQuantLinear computes" in reasons(model)


@pytest.mark.parametrize(("kind", "changes", "said"), cases("architecture/other_kinds_of_models_are_unknown"))
def test_other_kinds_of_models_are_unknown(kind: str, changes: dict[str, Any], said: str) -> None:
    assert said in reasons(model_of(kind, **changes))


def test_frozen_layers_below_the_trained_ones() -> None:
    model = model_of()
    for part in (model.model.embed_tokens, model.model.layers[0]):
        part.requires_grad_(False)
    found = read(model)
    assert (found["layers_unreached"], found["unreached"]) == (1, LAYER)
    assert found["attention_unreached"] == 4 * 64
    model.enable_input_require_grads()
    assert read(model)["unreached"] == 0


@pytest.mark.parametrize("kind", ["IA3", "PROMPT_TUNING"])
def test_other_adapters_than_lora(kind: str) -> None:
    model = model_of()
    model.peft_config = {"default": SimpleNamespace(peft_type=kind)}
    assert "what the adapters default compute" in reasons(model)


def test_which_of_two_adapters_is_used_is_not_known() -> None:
    model = model_of()
    one = SimpleNamespace(peft_type="LORA", use_dora=False)
    model.peft_config = {"first": one}
    assert reasons(model) == ""
    model.peft_config = {"first": one, "second": one}
    assert "what the adapters first, second compute" in reasons(model)
    model.peft_config = {"first": SimpleNamespace(peft_type="LORA", use_dora=True)}
    assert "what the adapters first compute" in reasons(model)


def test_two_kinds_of_tokens() -> None:
    model = model_of()
    model.config.is_encoder_decoder = True
    assert "different tokens" in reasons(model)


def test_layers_that_are_used_more_than_once_or_without_attention() -> None:
    model = model_of()
    model.config.num_hidden_layers = 6
    found = read(model)
    assert found["attention_width"] is None
    assert "3 of 6 layers have a known kind" in "; ".join(found["unknown"])


def test_heads_that_do_not_fit_the_layer() -> None:
    model = model_of()
    model.model.layers[1].self_attn.head_dim = 8
    assert "4 heads of size 8 do not make up" in reasons(model)


def test_attention_with_a_window() -> None:
    assert read(model_of("mistral", sliding_window=32))["window"] == 32
    assert read(model_of("mistral", sliding_window=None))["window"] is None
    assert read(model_of("qwen2", sliding_window=32, use_sliding_window=False))["window"] is None
    assert read(model_of("gemma2", head_dim=16, sliding_window=32))["window"] == 32


class CheckpointWrapper(nn.Module):
    """As FSDP wraps a layer for checkpointing."""

    def __init__(self, inner: nn.Module, kind: str) -> None:
        super().__init__()
        self._checkpoint_wrapped_module, self.checkpoint_impl = inner, f"CheckpointImpl.{kind}"


def again(model: Any) -> str | None:
    return architecture.recomputation(SimpleNamespace(model=model))


def test_what_is_computed_again() -> None:
    model = model_of()
    assert again(model) == "none"
    for options, kind in (
        ({"use_reentrant": True}, "whole"),
        ({"use_reentrant": False}, "early_stop"),
        ({"use_reentrant": False, "early_stop": False}, "whole"),
        ({"use_reentrant": False, "context_fn": int}, None),
        ({}, None),
    ):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        assert again(model) == kind
    model.gradient_checkpointing_disable()
    assert again(model) == "none"


def test_layers_of_which_only_some_are_computed_again() -> None:
    model = model_of()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.model.layers[1].gradient_checkpointing = False
    assert again(model) is None


@pytest.mark.parametrize(("kind", "wrapped", "said"), [("NO_REENTRANT", 3, "early_stop"), ("NO_REENTRANT", 2, None)])
def test_what_fsdp_computes_again(kind: str, wrapped: int, said: str | None) -> None:
    model = model_of()
    for at in range(wrapped):
        model.model.layers[at] = CheckpointWrapper(model.model.layers[at], kind)
    assert again(model) == said


@pytest.mark.parametrize(
    ("rows", "processes", "drawn", "found"),
    [(8, 1, None, 8), (40, 1, None, 16), (8, 2, None, 16), (8, 1, 64, 16)],
    ids=[
        "fewer rows than a batch",
        "enough",
        "rows drawn again for two processes",
        "rows drawn again by their sampler",
    ],
)
def test_a_batch_has_no_more_rows_than_can_be_drawn(rows: int, processes: int, drawn: int | None, found: int) -> None:
    """Held against what accelerate's own sampler really gives."""
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

    order = RandomSampler(range(rows), replacement=True, num_samples=drawn) if drawn else SequentialSampler(range(rows))
    sampler: Any = BatchSampler(order, batch_size=16, drop_last=False)
    if processes > 1:
        sampler = BatchSamplerShard(sampler, num_processes=processes, process_index=0)
    loader = SimpleNamespace(batch_sampler=sampler)
    trainer = SimpleNamespace(callback_handler=SimpleNamespace(train_dataloader=loader), train_dataset=range(rows))
    assert settings.per_device_batch(trainer) == len(next(iter(sampler))) == found


@pytest.mark.parametrize(("split", "found"), [(True, 8), (False, 16)])
def test_a_dispatched_batch_is_divided_if_it_is_that_of_all_processes(
    monkeypatch: pytest.MonkeyPatch, split: bool, found: int
) -> None:
    from accelerate.data_loader import DataLoaderDispatcher

    loader = DataLoaderDispatcher(range(40), split_batches=split, batch_size=16)
    trainer = SimpleNamespace(callback_handler=SimpleNamespace(train_dataloader=loader), train_dataset=range(40))
    monkeypatch.setattr(settings, "group_size", lambda trainer: 2)
    assert settings.per_device_batch(trainer) == found


def test_an_adapters_rank_is_that_of_all_its_layers() -> None:
    from peft import LoraConfig, get_peft_model

    def rank(**more: Any) -> int | None:
        model = get_peft_model(model_of(), LoraConfig(r=8, target_modules=["q_proj", "v_proj"], **more))
        return settings.lora_rank(SimpleNamespace(model=model))

    assert rank() == 8
    assert rank(rank_pattern={"layers.0.self_attn.q_proj": 2}) is None
    assert settings.lora_rank(SimpleNamespace(model=model_of())) is None


class DataLoaderDispatcher:
    """As accelerate calls its loader of iterable data sets."""


@pytest.mark.parametrize(
    ("sizes", "loader", "ranks"),
    [
        (None, object(), 8),
        ({"cp_size": 1, "tp_size": 1, "sp_size": 1}, object(), 8),
        ({"cp_size": 2, "tp_size": 1, "sp_size": 1}, object(), 4),
        ({"cp_size": 2, "tp_size": 2, "sp_size": 1}, object(), 2),
        ({"cp_size": 1, "tp_size": 1, "sp_size": 2}, object(), 8),
        ({"cp_size": 2, "tp_size": 1, "sp_size": 1}, DataLoaderDispatcher(), 8),
        ({"tp_size": None}, object(), 8),
    ],
)
def test_ranks_that_get_the_same_batch_are_one_data_parallel_rank(
    sizes: dict[str, int] | None, loader: object, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed's sequence parallelism divides a batch before it is counted; a dispatcher shares nothing along `cp`."""
    monkeypatch.setattr(settings, "group_size", lambda _: 8)
    mesh = SimpleNamespace(**sizes) if sizes else None
    handler = SimpleNamespace(train_dataloader=loader)
    trainer = SimpleNamespace(accelerator=SimpleNamespace(parallelism_config=mesh), callback_handler=handler)
    assert settings.data_parallel_ranks(trainer) == ranks
    assert settings.context_ranks(trainer) == (sizes or {}).get("cp_size", 1)
    assert settings.context_ranks(object()) == 1

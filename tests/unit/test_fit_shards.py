"""Estimated memory of FSDP 2 against torch's own record of allocations, with the units that accelerate makes.

One process takes part in a group that only pretends to communicate. So each collective has its buffers, and no partner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from factories.fit import (
    BF16,
    FSDP,
    LENGTH,
    LORA,
    TINY,
    autocast,
    batch,
    built,
    experiment,
    highest_allocation,
    like_a_gpu,
    pass_by_formula,
)
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig

from orchestrator.plan.forecast.memory_fit.model_states import ModelStates
from orchestrator.plan.forecast.memory_fit.training import training_of
from orchestrator.records import Experiment


@contextlib.contextmanager
def group_of(processes: int) -> Iterator[None]:
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def sharded(model: Any, *, keeps: bool = False) -> Any:
    """The model as accelerate prepares it for the framework configuration `fsdp`."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        reshard_after_forward=not keeps,
        mixed_precision_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        cpu_ram_efficient_loading=False,
    )
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin), mixed_precision="bf16", is_main_process=False, torch_device_mesh=None
    )
    return fsdp2_prepare_model(accelerator, model)


SHARDED: dict[str, dict[str, Any]] = {
    "full": {},
    "full, layers kept": {"keeps": True},
    "full, checkpointed": {"gradient_checkpointing": True},
    "full, large vocabulary": {"vocab_size": 2000},
    "full, tied": {"vocab_size": 2000, "tie_word_embeddings": True},
    "LoRA": LORA,
    "LoRA on two matrices": {**LORA, "target_modules": ("q_proj", "v_proj")},
    "LoRA, layers kept": {**LORA, "keeps": True},
    "LoRA, checkpointed": {**LORA, "gradient_checkpointing": True},
    "LoRA, large vocabulary": {**LORA, "vocab_size": 2000},
    "experts": {"experts": 8},
    "experts, LoRA": {"experts": 8, **LORA, "target_modules": ("q_proj", "k_proj", "v_proj", "o_proj")},
    "experts, checkpointed": {"experts": 8, "gradient_checkpointing": True},
    "LoRA, tied": {**LORA, "vocab_size": 2000, "tie_word_embeddings": True},
}


def sharded_experiment(folder: Path, kind: str, processes: int, rows: int, **more: Any) -> Experiment:
    arguments = {**SHARDED[kind], **more, "r": 8}
    fields = {name: arguments.pop(name) for name in ("vocab_size", "tie_word_embeddings") if name in arguments}
    wide = {**TINY, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 6, **fields}
    experts = {"num_local_experts": arguments.pop("experts")} if "experts" in arguments else {}
    AutoConfig.for_model("mixtral" if experts else "llama", **wide, **experts).save_pretrained(folder)
    settings = {**FSDP["fsdp_config"], "fsdp_reshard_after_forward": not arguments.pop("keeps", False)}
    return experiment(
        str(folder), processes=processes, accelerate={**FSDP, "fsdp_config": settings}, max_seq_len=LENGTH,
        per_device_train_batch_size=rows, **BF16, **arguments,
    )  # fmt: skip


@pytest.mark.parametrize(("processes", "rows"), [(8, 1), (2, 4)], ids=["weights", "activations"])
@pytest.mark.parametrize("kind", SHARDED)
def test_the_fullest_moment_of_shards_is_as_full_as_torchs_own_record(
    kind: str, processes: int, rows: int, tmp_path: Path
) -> None:
    """Many processes and few rows make it gathered weights and whole gradients, the others activations."""
    one = sharded_experiment(tmp_path, kind, processes, rows)
    with like_a_gpu(), group_of(processes):
        model = sharded(built(tmp_path, one), keeps="kept" in kind)
        shards = sum(weight.to_local().nbytes for weight in model.parameters())
        assert shards == pytest.approx(ModelStates.of(training_of(one)).weights, rel=0.01)

        def step() -> None:
            one_pass(model, one, rows)
            model.zero_grad()

        step()
        assert pass_by_formula(one) == pytest.approx(highest_allocation(step, tmp_path / "trace.json"), rel=0.04)


@pytest.mark.parametrize("kind", ["full", "full, tied", "LoRA"])
def test_gradients_stay_whole_between_micro_batches(kind: str, tmp_path: Path) -> None:
    one = sharded_experiment(tmp_path, kind, 8, 1, gradient_accumulation_steps=2)
    with like_a_gpu(), group_of(8):
        model = sharded(built(tmp_path, one))

        def step() -> None:
            model.set_requires_gradient_sync(False)
            one_pass(model, one, 1)
            model.set_requires_gradient_sync(True)
            one_pass(model, one, 1)
            model.zero_grad()

        step()
        held = ModelStates.of(training_of(one)).held
        assert pass_by_formula(one) + held == pytest.approx(highest_allocation(step, tmp_path / "trace.json"), rel=0.05)


def one_pass(model: Any, one: Experiment, rows: int) -> None:
    with autocast(one):
        loss = model(**batch(one, rows=rows)).loss
    loss.backward()

"""Experiments whose memory is estimated, the models that the built-in trainer would make of them, and torch's record of both."""

from __future__ import annotations

import contextlib
import json
import sys
from bisect import bisect
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

from factories import results
from orchestrator.plan.forecast.memory_fit import Estimate, Moment, activations, estimate
from orchestrator.plan.forecast.memory_fit.model_states import ModelStates
from orchestrator.plan.forecast.memory_fit.training import Training, training_of
from orchestrator.records import DataSpec, Device, Experiment, Text

parts_of_a_step = sys.modules["orchestrator.plan.forecast.memory_fit.estimate"]
GIB = 1 << 30
SYNTHETIC = DataSpec(source="builtin:synthetic", form="tokens")
TINY = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
ROWS, LENGTH = 4, 96


BF16 = {"dtype": "bfloat16", "bf16": True}
OVER_FLOAT32 = {"dtype": "float32", "bf16": True}
LORA = {"peft_method": "lora", "r": 4, "target_modules": "all-linear"}
FSDP: dict[str, Any] = {
    "distributed_type": "FSDP",
    "fsdp_config": {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": True,
    },
}


def experiment(model: str = "config:llama-1b", *, processes: int = 1, **arguments: Any) -> Experiment:
    """Full fine-tuning on full rows; `accelerate`, `data` and `framework` are the experiment's own fields."""
    own = {
        name: arguments.pop(name)
        for name in ("accelerate", "data", "framework", "device", "trainer", "env")
        if name in arguments
    }
    texts: dict[str, Text] = {
        name: value if isinstance(value, tuple) else str(value) for name, value in arguments.items()
    }
    arguments = {"max_seq_len": "2048", "per_device_train_batch_size": "8", "optim": "adamw_torch", **texts}
    known = {"model": model, "num_gpus": processes, "arguments": arguments, "device": Device.CUDA, "data": SYNTHETIC}
    return results.experiment(id="one", scenario="one", **{**known, **own})


def peak(one: Experiment) -> int:
    found = estimate(one)
    assert isinstance(found, Estimate), found
    return found.peak_allocated_bytes


def built(folder: Path, one: Experiment) -> Any:
    """The model that the built-in trainer would make of the experiment, on the CPU."""
    arguments, config = one.arguments, AutoConfig.from_pretrained(folder)
    config.use_cache = False
    model = AutoModelForCausalLM.from_config(
        config, dtype=getattr(torch, str(arguments.get("dtype", "float32"))),
        attn_implementation=arguments.get("attn_implementation", "sdpa"),
    )  # fmt: skip
    if arguments.get("peft_method") == "lora":
        targets: Any = arguments.get("target_modules")
        targets = list(targets) if isinstance(targets, tuple) else targets
        model = get_peft_model(
            model, LoraConfig(r=int(str(arguments["r"])), target_modules=targets, task_type="CAUSAL_LM")
        )
    if arguments.get("gradient_checkpointing") == "True":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def batch(one: Experiment, *, rows: int = ROWS) -> dict[str, Any]:
    ids = torch.randint(1, TINY["vocab_size"], (rows, LENGTH))
    mask = {"attention_mask": torch.tril(torch.ones(rows, LENGTH, dtype=torch.long), LENGTH - 8)}
    return {"input_ids": ids, "labels": ids, **(mask if one.data is None else {})}


def autocast(one: Experiment) -> Any:
    return torch.autocast("cpu", torch.bfloat16) if one.arguments.get("bf16") else contextlib.nullcontext()


def kept_by_torch(model: Any, one: Experiment, *, compiled: bool) -> int:
    """Bytes of all tensors that are saved for the backward pass, each storage once, weights not among them."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    saved: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        if tensor.untyped_storage().data_ptr() not in weights:
            saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    forward = torch.compile(model, backend="aot_eager_decomp_partition") if compiled else model
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast(one):
        forward(**batch(one))
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def kept_by_formula(training: Training) -> int:
    """The activations, autocast's copies of weights, and what the loss keeps: log-softmax, or compiled the logits."""
    loss = (training.compute_bytes if training.compiled else 4) * training.tokens * training.shape.vocab_size
    copies = ModelStates.of(training).backward_copies
    return activations.kept_bytes(training) + copies + loss


@contextlib.contextmanager
def like_a_gpu() -> Iterator[None]:
    """A CPU's attention takes buffers for each thread, which a GPU's has not; its softmax makes no product, which a GPU's does."""
    threads, product = torch.get_num_threads(), activations.SOFTMAX_PRODUCT
    torch.set_num_threads(1)
    activations.SOFTMAX_PRODUCT = 0
    parts_of_a_step._estimate.cache_clear()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        activations.SOFTMAX_PRODUCT = product
        parts_of_a_step._estimate.cache_clear()


def pass_by_formula(one: Experiment) -> int:
    """The fullest moment of forward and backward pass, beyond what lies there between the passes."""
    training = training_of(one)
    states = ModelStates.of(training)
    between = states.weights + states.optimizer + states.held + states.buckets + parts_of_a_step.CUBLAS_BYTES
    moments = (at for at in parts_of_a_step._moments(training) if at.moment is not Moment.STEP)
    return max(at.peak_allocated_bytes for at in moments) - between


def peak_of_a_pass(model: Any, one: Experiment, trace: Path) -> int:
    """Bytes that forward and backward passes allocate at most, beyond what lay there before."""

    def step() -> None:
        inputs = batch(one)
        with autocast(one):
            loss = model(**inputs).loss
        loss.backward()
        model.zero_grad()

    step()
    return highest_allocation(step, trace)


def highest_allocation(work: Any, trace: Path) -> int:
    """Bytes that the work had allocated at its fullest, by torch's own record of each allocation.

    What a matrix product takes and gives back within itself does not count. Such a buffer is a matter of the processor: without
    instructions for bfloat16, the product of 16-bit matrices is computed in a copy of 32 bits.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    seen.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    products = sorted(
        (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event.get("cat") == "cpu_op" and event["name"] in ("aten::mm", "aten::bmm", "aten::addmm")
    )
    taken = sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: float(event["ts"]))
    own = buffers_of(products, taken)
    highest = now = 0
    for place, event in enumerate(taken):
        now += 0 if place in own else int(event["args"]["Bytes"])
        highest = max(highest, now)
    return highest


def buffers_of(products: list[tuple[float, float]], taken: list[dict[str, Any]]) -> set[int]:
    """The places of the allocations that one and the same product made and gave back, and of their ends."""
    places: set[int] = set()
    open_since: dict[tuple[int, int], int] = {}
    for place, event in enumerate(taken):
        product = bisect(products, (float(event["ts"]), inf)) - 1
        if product < 0 or float(event["ts"]) > products[product][1]:
            continue
        at = (product, int(event["args"]["Addr"]))
        if int(event["args"]["Bytes"]) > 0:
            open_since[at] = place
        elif at in open_since:
            places |= {open_since.pop(at), place}
    return places

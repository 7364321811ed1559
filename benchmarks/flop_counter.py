"""Compare the FLOPs per token with torch's own counter, for each way to train a part of `config:llama-1b`.

    python benchmarks/flop_counter.py [--layers 22] [--length 2048]

The model is on torch's meta device, so this needs neither weights nor a GPU. Attention is eager, and counts with the whole square
of scores: torch's counter cannot see that half of them are masked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from orchestrator.measure.flops import hardware_flops_per_token

WORKERS = Path(__file__).resolve().parents[1] / "orchestrator" / "workers"
sys.path += [str(WORKERS / "instrument"), str(WORKERS / "sft")]

import architecture  # noqa: E402
import backward  # noqa: E402

RANK = 8
# Names of Llama's, Phi-3's and GPT-2's modules.
QUERIES_AND_VALUES = ("q_proj", "v_proj", "qkv_proj", "attn.c_attn")
GATE_AND_UP = ("gate_proj", "up_proj", "gate_up_proj", "mlp.c_fc")
DOWN = ("down_proj", "mlp.c_proj")
OUTPUT = ("o_proj", "attn.c_proj")
MLP, ATTENTION = ("mlp",), ("self_attn", "attn")


def whole(model: Any) -> Any:
    return model


def lora(model: Any, *, targets: Any, upper_half: bool = False) -> Any:
    import peft

    layers = len(layers_of(model))
    config = peft.LoraConfig(
        r=RANK,
        target_modules=targets if isinstance(targets, str) else list(targets),
        layers_to_transform=list(range(layers // 2, layers)) if upper_half else None,
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, config)


def parts(model: Any, *, names: tuple[str, ...]) -> Any:
    """Train only the parts with these names in each layer."""
    model.requires_grad_(False)
    for layer in layers_of(model):
        for name in names:
            getattr(layer, name, torch.nn.Identity()).requires_grad_(True)
    return model


def upper_half(model: Any) -> Any:
    layers = layers_of(model)
    model.requires_grad_(False)
    layers[len(layers) // 2 :].requires_grad_(True)
    return model


CASES: dict[str, Callable[[Any], Any]] = {
    "full": whole,
    "LoRA on q and v": partial(lora, targets=QUERIES_AND_VALUES),
    "LoRA on all linear modules": partial(lora, targets="all-linear"),
    "LoRA only on down": partial(lora, targets=DOWN),
    "LoRA only on o": partial(lora, targets=OUTPUT),
    "LoRA on gate and up": partial(lora, targets=GATE_AND_UP),
    "LoRA on q and v in the upper half of the layers": partial(lora, targets=QUERIES_AND_VALUES, upper_half=True),
    "only the MLPs": partial(parts, names=MLP),
    "only attention": partial(parts, names=ATTENTION),
    "only the upper half of the layers": upper_half,
}


def layers_of(model: Any) -> Any:
    return architecture.stack_of(model, model.config)[1]


def facts(model: Any) -> dict[str, Any]:
    """Return the facts that the instrument would read when training begins."""
    trainer = SimpleNamespace(model=model)
    return backward.when_training_begins(backward.read(trainer, architecture), trainer, architecture)


def computed(model: Any, length: int) -> float | None:
    """Return the FLOPs per token by our formula, with what checkpointing repeats."""
    kind = architecture.recomputation(SimpleNamespace(model=model))
    return hardware_flops_per_token(
        facts(model), recomputation=kind, squares_per_token=length, longest=length, uncut=True
    )


def counted(model: Any, length: int) -> float:
    """Return the FLOPs per token of one forward and backward pass, as torch counts them."""
    device = next(model.parameters()).device
    ids = torch.zeros(1, length, dtype=torch.long, device=device)
    # To make a mask, transformers would have to read the tokens, and the meta device has none.
    mask = torch.zeros(1, 1, length, length, device=device) if device.type == "meta" else None
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, attention_mask=mask, labels=ids, use_cache=False).loss.backward()
    return counter.get_total_flops() / length


def llama(layers: int) -> Any:
    from arguments import Own
    from models import load_config
    from transformers import AutoModelForCausalLM

    config = load_config(Own(model_name_or_path="config:llama-1b", training_data_path="none"), {})
    config.num_hidden_layers = layers
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def cells(case: str, *, layers: int, length: int, checkpointed: bool) -> str:
    with torch.device("meta"):
        model = CASES[case](llama(layers)).train()
    if checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ours, theirs = computed(model, length), counted(model, length)
    if ours is None:
        return f"{theirs / 1e9:.4f} | - | -"
    return f"{theirs / 1e9:.4f} | {ours / 1e9:.4f} | {100 * (ours / theirs - 1):.3f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--length", type=int, default=2048)
    given = parser.parse_args()
    print("| trained | torch counts | formula | error | checkpointed: torch counts | formula | error |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for case in CASES:
        both = (cells(case, **vars(given), checkpointed=again) for again in (False, True))
        print(f"| {case} | {' | '.join(both)} |", flush=True)


if __name__ == "__main__":
    main()

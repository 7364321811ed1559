"""What the work of a model depends on: its matrices, its experts and its attention, read off the model as it was built.

`read` gives one dict (JSON), from which `orchestrator/flops.py` computes FLOPs a token. Numbers are counts of weights:

    frozen, trainable                 in matrices that every token is multiplied with: linear layers, routers, lm_head
                                      (tied to the embedding or not); not the embedding, which is looked up
    expert_frozen, expert_trainable   in the experts, all of them together; 0 without experts
    experts, experts_per_token        how many there are in a layer, and how many of them a token meets (None without)
    outside_layers                    those of `frozen` and `trainable` that no repeated layer holds, so the lm_head
    spared                            those that recomputation of a layer does not need, when it may stop early: the
                                      layer's last matrix, unless something behind it keeps what came out of it
    layers, heads, head_dim, kv_heads
    attention_width                   query heads × head dim (mean of keys' and values'), summed over the layers
    causal, window                    whether a token sees only what came before it, and how far (None: all of it)
    unknown                           what is not known, as sentences

Quantised weights count by the numbers that they stand for. Nothing is guessed: a parameter of two or more dimensions that
no known kind of module explains, an adapter other than LoRA, a model with two kinds of tokens, or frozen layers below all
trainable ones make the group of facts None, and a sentence says why.

A part of the instrument (`instrument.py`). It imports nothing; torch is known by the names of its classes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

MATRICES = (
    *("frozen", "trainable", "expert_frozen", "expert_trainable", "experts", "experts_per_token"),
    *("outside_layers", "spared"),
)
ATTENTION = ("layers", "heads", "head_dim", "kv_heads", "attention_width", "causal", "window")
ONE_EXPERT = re.compile(r"(?:.*\.)?experts\.\d+")
IN_AN_EXPERT = re.compile(r"((?:.*\.)?experts)\.\d+(?:\.|$)")
OUTPUTS = ("o_proj", "c_proj", "out_proj", "dense")
ONE_KIND_OF_WINDOW = {"full_attention", "sliding_attention"}
OTHER_PATTERNS = ("attention_types", "attention_chunk_size", "window_size", "attention_window")
PLAIN_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
INPUT_HOOKS = ("_require_grads_hook", "_require_grads_hooks")
NORMS_BEHIND = {"post_feedforward_layernorm", "post_mlp_layernorm"}


class Unknown(Exception):
    """The model does not tell; the text says what."""


class Matrix(NamedTuple):
    """One matrix that activations are multiplied with, or one tensor of as many experts as `experts` says."""

    path: str
    numbers: int
    trainable: bool
    experts: Optional[int] = None


def read(trainer: Any) -> dict[str, Any]:
    """The facts above, of the model that a Trainer was given; None for those that the model does not tell."""
    facts: dict[str, Any] = {}
    unknown: list[str] = []
    for names, reader in ((MATRICES, matrix_facts), (ATTENTION, attention_facts)):
        try:
            facts.update(reader(trainer.model))
        except Unknown as reason:
            facts.update(dict.fromkeys(names))
            unknown.append(str(reason))
    return {**facts, "unknown": unknown}


def config_of(model: Any) -> Any:
    """The configuration of the model below an adapter, whose tokens must be of one kind."""
    inner = getattr(model, "get_base_model", None)
    config = (inner() if callable(inner) else model).config
    parts = ("text_config", "vision_config", "audio_config", "is_encoder_decoder")
    if any(getattr(config, name, None) for name in parts):
        raise Unknown("the model's parts see different tokens")
    return config


# --- matrices --------------------------------------------------------------------------------------------------------


def matrix_facts(model: Any) -> dict[str, Any]:
    config = config_of(model)
    check_adapter(model)
    found = list(matrices(model))
    path, layers = stack_of(model, config)
    check_flow(model, layers[0])
    counts = {int(matrix.experts) for matrix in found if matrix.experts}
    per_token = getattr(config, "num_experts_per_tok", None)
    if len(counts) > 1 or (counts and not isinstance(per_token, int)):
        raise Unknown("how many experts a token meets")

    def numbers(*, expert: bool, trainable: bool) -> int:
        return sum(m.numbers for m in found if m.trainable is trainable and bool(m.experts) is expert)

    return {
        "frozen": numbers(expert=False, trainable=False),
        "trainable": numbers(expert=False, trainable=True),
        "expert_frozen": numbers(expert=True, trainable=False),
        "expert_trainable": numbers(expert=True, trainable=True),
        "experts": counts.pop() if counts else None,
        "experts_per_token": per_token if any(matrix.experts for matrix in found) else None,
        "outside_layers": sum(m.numbers for m in found if not m.path.startswith(path + ".")),
        "spared": spared(layers),
    }


def check_adapter(model: Any) -> None:
    """One plain LoRA adapter or none: shapes do not tell what other kinds compute, nor which of several is in use."""
    adapters = getattr(model, "peft_config", None) or {}
    kinds = {str(getattr(one.peft_type, "value", one.peft_type)).upper() for one in adapters.values()}
    dora = any(getattr(one, "use_dora", False) for one in adapters.values())
    if len(adapters) > 1 or kinds - {"LORA"} or dora:
        raise Unknown(f"what the adapters {', '.join(sorted(adapters))} compute")


def stack_of(model: Any, config: Any) -> tuple[str, Any]:
    """The list of the model's repeated layers, with its path."""
    for path, module in model.named_modules():
        if type(module).__name__ == "ModuleList" and len(module) == config.num_hidden_layers:
            return path, module
    raise Unknown("which layers are repeated")


def check_flow(model: Any, first_layer: Any) -> None:
    """Gradients are taken to reach the first layer: by a trained weight in it or before it, or by a hook for that."""
    tables = [module for module in model.modules() if is_a(module, "Embedding")]
    trained = any(parameter.requires_grad for part in (first_layer, *tables) for parameter in part.parameters())
    hooks = (vars(module).get(name) for module in model.modules() for name in INPUT_HOOKS)
    if not trained and not any(hooks):
        raise Unknown("how many layers lie below the first trainable weight")


def is_a(module: Any, name: str) -> bool:
    return any(base.__name__ == name for base in type(module).__mro__)


def matrices(model: Any) -> Iterator[Matrix]:
    """Every matrix; a weight that is tied to the embedding counts where it multiplies."""
    modules = dict(model.named_modules())
    lists = Counter(path.rpartition(".")[0] for path in modules if ONE_EXPERT.fullmatch(path))
    for path, module in modules.items():
        if "original_module" in path.split("."):  # what peft keeps beside a trained copy, and does not run
            continue
        within = IN_AN_EXPERT.match(path)
        for numbers, trainable, fused in matrices_in(module):
            yield Matrix(path=path, numbers=numbers, trainable=trainable, experts=lists[within[1]] if within else fused)


def matrices_in(module: Any) -> Iterator[tuple[int, bool, Optional[int]]]:
    """Numbers, whether they are trained, and the number of experts that share them, of a module's own matrices."""
    if is_linear(module):
        yield module.in_features * module.out_features, is_trained(module), None
        return
    kind = type(module).__name__
    if is_a(module, "Embedding") or kind.endswith("Norm"):
        return
    if kind == "ParamWrapper" or ("linear" in kind.lower() and not any(True for _ in module.children())):
        raise Unknown(f"what a {kind} computes")  # the first is an adapter that adds itself to a tensor of all experts
    for name, parameter in module.named_parameters(recurse=False):
        shape = tuple(getattr(parameter, "ds_shape", None) or parameter.shape)
        if len(shape) < 2 or "bias" in name:
            continue
        if len(shape) == 2 and (kind == "Conv1D" or (name == "weight" and kind.endswith(("Router", "Gate")))):
            yield shape[0] * shape[1], parameter.requires_grad, None
        elif len(shape) == 3 and "Experts" in kind:
            yield shape[0] * shape[1] * shape[2], parameter.requires_grad, shape[0]
        else:
            raise Unknown(f"what {kind}.{name} is multiplied with")


def is_linear(module: Any) -> bool:
    """A linear layer itself, quantised or not; not the wrapper that an adapter puts around one."""
    sizes = (getattr(module, "in_features", None), getattr(module, "out_features", None))
    return all(isinstance(size, int) for size in sizes) and not any(True for _ in module.children())


def is_trained(layer: Any) -> bool:
    return bool(getattr(getattr(layer, "weight", None), "requires_grad", False))  # GPTQ has buffers, and no weight


def spared(layers: Any) -> Optional[int]:
    """What recomputing all layers need not multiply, if it stops at the last thing that it must bring back."""
    ends = [end_of(layer) for layer in layers]
    return None if None in ends else sum(end for end in ends if end is not None)


def end_of(layer: Any) -> Optional[int]:
    """Numbers in the matrix whose product leaves a layer with nothing behind it that keeps it; None: not known."""
    parts = {name for name, _ in layer.named_children()}
    block = getattr(layer, "mlp", None) or getattr(layer, "block_sparse_moe", None)
    inner = {name for name, _ in block.named_children()} if block is not None else set()
    shared = any("shared" in name for name in parts | inner) and "shared_expert_gate" not in inner
    routed = "experts" in inner and not shared
    if routed or parts & NORMS_BEHIND:  # routing weights and norms keep what they are given
        return 0
    last = getattr(block, "down_proj", None)
    if last is None or not parts <= PLAIN_LAYER:
        return None
    if hasattr(last, "lora_B"):
        return sum(matrix.numbers for matrix in matrices(last.lora_B))
    return last.in_features * last.out_features if is_linear(last) else None


# --- attention -------------------------------------------------------------------------------------------------------


def attention_facts(model: Any) -> dict[str, Any]:
    config = config_of(model)
    found = [module for module in model.modules() if "Attention" in type(module).__name__ and sizes_of(module)]
    sizes = [size for size in map(sizes_of, found) if size]
    if not found or len(found) != config.num_hidden_layers:
        raise Unknown(f"attention in {config.num_hidden_layers} layers, of which {len(found)} have one that is known")
    causal = {getattr(module, "is_causal", by_name(model)) for module in found}
    if len(causal) > 1 or None in causal:
        raise Unknown("whether attention is causal")
    heads, keys, _ = sizes[0]
    alike = len(set(sizes)) == 1
    return {
        "layers": len(found),
        "heads": heads if alike else None,
        "head_dim": keys if alike else None,
        "kv_heads": getattr(config, "num_key_value_heads", None),
        "attention_width": sum(heads * (keys + values) for heads, keys, values in sizes) / 2,
        "causal": bool(causal.pop()),
        "window": window_of(config),
    }


def sizes_of(attention: Any) -> Optional[tuple[int, int, int]]:
    """Query heads, numbers of a key, numbers of a value; None where it has no heads of its own."""
    config = getattr(attention, "config", None)
    heads = first(attention, "num_heads", "num_attention_heads") or first(config, "num_attention_heads")
    keys = first(attention, "qk_head_dim", "head_dim", "head_size")
    values = first(attention, "v_head_dim") or keys
    if not (heads and keys and values):
        return None
    output = next((part for part in (getattr(attention, name, None) for name in OUTPUTS) if part is not None), None)
    width = first(output, "in_features", "nx")
    if width not in (None, heads * values):
        raise Unknown(f"{heads} heads of {values} do not make the {width} numbers that leave the attention")
    return heads, keys, values


def first(holder: Any, *names: str) -> Optional[int]:
    found = (getattr(holder, name, None) for name in names)
    return next((value for value in found if isinstance(value, int)), None)


def by_name(model: Any) -> Optional[bool]:
    """Old attention classes do not say, but what they are put together for does."""
    kinds = (type(module).__name__ for module in model.modules())
    return any(kind.endswith(("ForCausalLM", "LMHeadModel")) for kind in kinds) or None


def window_of(config: Any) -> Optional[int]:
    """How many tokens back attention goes in the layers where it does not go all the way."""
    if any(getattr(config, name, None) for name in OTHER_PATTERNS):
        raise Unknown("which tokens attention sees")
    kinds = getattr(config, "layer_types", None)
    if kinds and not set(kinds) <= ONE_KIND_OF_WINDOW:
        raise Unknown(f"what {', '.join(sorted(set(kinds)))} compute")
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    return getattr(config, "sliding_window", None) if slides else None


# --- recomputation ---------------------------------------------------------------------------------------------------


def recomputation(trainer: Any) -> Optional[str]:
    """What of the layers' forward pass is done again in the backward pass, once training begins.

    `none`; `whole`: all of it (the re-entrant kind of checkpointing); `early_stop`: up to the last thing that the backward
    pass needs (the other kind). None where only some layers do so, or in a way that is not known.
    """
    layers = [module for module in trainer.model.modules() if is_a(module, "GradientCheckpointingLayer")]
    wrapped = [module for module in trainer.model.modules() if type(module).__name__ == "CheckpointWrapper"]
    flags = {getattr(module, "gradient_checkpointing", False) is True for module in trainer.model.modules()}
    if True not in flags and not wrapped:
        return "none"
    if wrapped:  # by FSDP, which wraps what it shards: layers, and nothing else that a checkpoint may lie around
        kinds = {str(getattr(module, "checkpoint_impl", None)).rpartition(".")[2] for module in wrapped}
        whole = len(wrapped) == config_of(trainer.model).num_hidden_layers and True not in flags
        return "early_stop" if whole and kinds == {"NO_REENTRANT"} else None
    if not all(layer.gradient_checkpointing for layer in layers):
        return None
    functions = (getattr(module, "_gradient_checkpointing_func", None) for module in trainer.model.modules())
    options = [getattr(function, "keywords", None) for function in functions if function is not None]
    if not options or any(option != options[0] for option in options):
        return None
    return kind_of_checkpoint(options[0] or {})


def kind_of_checkpoint(options: dict[str, Any]) -> Optional[str]:
    if "context_fn" in options or "use_reentrant" not in options:
        return None
    return "whole" if options["use_reentrant"] or options.get("early_stop") is False else "early_stop"

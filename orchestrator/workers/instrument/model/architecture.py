"""Reads the facts that determine the work of a built model: its matrices, its experts and its attention.

`read` returns a dict for JSON. The orchestrator computes FLOPs per token from this dict:

    frozen, trainable                 number of weights in matrices that multiply every token: linear layers, routers and the
                                      lm_head (tied to the embedding or not); not the embedding, which is looked up
    expert_frozen, expert_trainable   number of weights in all experts together; 0 without experts
    experts, experts_per_token        number of experts in a layer, and of experts that a token passes; None without experts
    outside_layers                    weights of `frozen` and `trainable` outside the repeated layers, such as the lm_head
    spared                            number of weights that recomputation leaves out if it may stop early: the last matrix
                                      of each layer, unless a later module needs the matrix's result
    layers, heads, head_dim, kv_heads
    attention_width                   query heads × head dim (mean of keys' and values'), summed over the layers
    causal, window                    whether a token sees only previous tokens, and how many (None: all of them)
    unknown                           a sentence for each group of facts that is not known

Quantised weights count as the numbers that they represent. Nothing is guessed. In these cases a group of facts is None, and
a sentence says why: a parameter of two or more dimensions in an unknown kind of module; an adapter other than LoRA; a model
with two kinds of tokens; frozen layers below all trainable layers.

This is a part of the instrument (`instrument.py`). It does not import torch, and recognises torch's classes by their names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

WEIGHTS = ("frozen", "trainable", "expert_frozen", "expert_trainable")
MATRICES = (*WEIGHTS, "experts", "experts_per_token", "outside_layers", "spared")
ATTENTION = ("layers", "heads", "head_dim", "kv_heads", "attention_width", "causal", "window")
ONE_EXPERT = re.compile(r"(?:.*\.)?experts\.\d+")
IN_AN_EXPERT = re.compile(r"((?:.*\.)?experts)\.\d+(?:\.|$)")
OUTPUTS = ("o_proj", "c_proj", "out_proj", "dense")
ONE_KIND_OF_WINDOW = {"full_attention", "sliding_attention"}
OTHER_PATTERNS = ("attention_types", "attention_chunk_size", "window_size", "attention_window")
PLAIN_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
NORMS_BEHIND = {"post_feedforward_layernorm", "post_mlp_layernorm"}


class Unknown(Exception):
    """An error that names a fact that the model does not show."""


class Matrix(NamedTuple):
    """A matrix that multiplies activations, or one tensor with a matrix for each expert. `experts` is the number of experts."""

    path: str
    numbers: int
    trainable: bool
    experts: Optional[int] = None


def read(trainer: Any) -> dict[str, Any]:
    """Return the facts of a Trainer's model that the docstring above lists. A fact that the model does not show is None."""
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
    """Return the configuration of the model without its adapter. Raise Unknown if parts of the model see different tokens."""
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
    all_matrices = list(matrices(model))
    path, layers = stack_of(model, config)
    counts = {int(matrix.experts) for matrix in all_matrices if matrix.experts}
    per_token = getattr(config, "num_experts_per_tok", None)
    if len(counts) > 1 or (counts and not isinstance(per_token, int)):
        raise Unknown("how many experts a token uses")
    numbers: Counter[str] = Counter()
    for matrix in all_matrices:
        numbers["expert_" * bool(matrix.experts) + ("trainable" if matrix.trainable else "frozen")] += matrix.numbers
    return {
        **{name: numbers[name] for name in WEIGHTS},
        "experts": next(iter(counts), None),
        "experts_per_token": per_token if counts else None,
        "outside_layers": sum(m.numbers for m in all_matrices if not m.path.startswith(path + ".")),
        "spared": spared(layers),
    }


def check_adapter(model: Any) -> None:
    """Raise Unknown for every adapter except a single plain LoRA adapter. Shapes do not show what other adapters compute."""
    adapters = getattr(model, "peft_config", None) or {}
    kinds = {str(getattr(adapter.peft_type, "value", adapter.peft_type)).upper() for adapter in adapters.values()}
    dora = any(getattr(adapter, "use_dora", False) for adapter in adapters.values())
    if len(adapters) > 1 or kinds - {"LORA"} or dora:
        raise Unknown(f"what the adapters {', '.join(sorted(adapters))} compute")


def stack_of(model: Any, config: Any) -> tuple[str, Any]:
    """Return two values: the path of the list of the model's repeated layers, and that list."""
    for path, module in model.named_modules():
        if type(module).__name__ == "ModuleList" and len(module) == config.num_hidden_layers:
            return path, module
    raise Unknown("which layers are repeated")


def is_a(module: Any, name: str) -> bool:
    return any(base.__name__ == name for base in type(module).__mro__)


def matrices(model: Any) -> Iterator[Matrix]:
    """Yield every matrix. A weight that the embedding and lm_head share counts as lm_head's, because only lm_head multiplies."""
    modules = dict(model.named_modules())
    lists = Counter(path.rpartition(".")[0] for path in modules if ONE_EXPERT.fullmatch(path))
    for path, module in modules.items():
        if "original_module" in path.split("."):  # peft keeps this module next to a trained copy and does not run it
            continue
        within = IN_AN_EXPERT.match(path)
        for numbers, trainable, fused in matrices_in(module):
            yield Matrix(path=path, numbers=numbers, trainable=trainable, experts=lists[within[1]] if within else fused)


def matrices_in(module: Any) -> Iterator[tuple[int, bool, Optional[int]]]:
    """Yield three values for each of a module's own matrices: its size, whether it is trained, and its number of experts."""
    if is_linear(module):
        trained = bool(getattr(getattr(module, "weight", None), "requires_grad", False))  # GPTQ has buffers instead
        yield module.in_features * module.out_features, trained, None
        return
    kind = type(module).__name__
    if is_a(module, "Embedding") or kind.endswith("Norm"):
        return
    if kind == "ParamWrapper" or ("linear" in kind.lower() and not any(True for _ in module.children())):
        raise Unknown(f"what a {kind} computes")  # a ParamWrapper is an adapter of the tensor of all experts
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
    """Return whether this is a linear layer. A quantised layer is one; an adapter's wrapper is not."""
    sizes = (getattr(module, "in_features", None), getattr(module, "out_features", None))
    return all(isinstance(size, int) for size in sizes) and not any(True for _ in module.children())


def spared(layers: Any) -> Optional[int]:
    """Return the number of weights, over all layers, that recomputation leaves out if it may stop early."""
    known = [end for end in map(end_of, layers) if end is not None]
    return sum(known) if len(known) == len(layers) else None


def end_of(layer: Any) -> Optional[int]:
    """Return the size of a layer's last matrix, or 0 if a later module needs the matrix's result; None if the layer is unknown."""
    parts = {name for name, _ in layer.named_children()}
    block = getattr(layer, "mlp", None) or getattr(layer, "block_sparse_moe", None)
    inner = {name for name, _ in block.named_children()} if block is not None else set()
    shared = any("shared" in name for name in parts | inner) and "shared_expert_gate" not in inner
    routed = "experts" in inner and not shared
    if routed or parts & NORMS_BEHIND:  # routing weights and norms keep their input
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
    named = [(module, sizes_of(module)) for module in attentions(model)]
    modules, sizes = [module for module, size in named if size], [size for _, size in named if size]
    if not modules or len(modules) != config.num_hidden_layers:
        raise Unknown(f"{len(modules)} of {config.num_hidden_layers} layers have a known kind of attention")
    causal = {getattr(module, "is_causal", by_name(model)) for module in modules}
    if len(causal) > 1 or None in causal:
        raise Unknown("whether attention is causal")
    heads, keys, _ = sizes[0]
    alike = len(set(sizes)) == 1
    return {
        "layers": len(modules),
        "heads": heads if alike else None,
        "head_dim": keys if alike else None,
        "kv_heads": getattr(config, "num_key_value_heads", None),
        "attention_width": sum(heads * (keys + values) for heads, keys, values in sizes) / 2,
        "causal": bool(causal.pop()),
        "window": window_of(config),
    }


def attentions(model: Any) -> Iterator[Any]:
    return (module for module in model.modules() if "Attention" in type(module).__name__)


def sizes_of(attention: Any) -> Optional[tuple[int, int, int]]:
    """Return three values: the number of query heads, a key's size and a value's size. Return None for a module without heads."""
    config = getattr(attention, "config", None)
    heads = first(attention, "num_heads", "num_attention_heads") or first(config, "num_attention_heads")
    keys = first(attention, "qk_head_dim", "head_dim", "head_size")
    values = first(attention, "v_head_dim") or keys
    if not (heads and keys and values):
        return None
    output = next((part for part in (getattr(attention, name, None) for name in OUTPUTS) if part is not None), None)
    width = first(output, "in_features", "nx")
    if width not in (None, heads * values):
        raise Unknown(f"{heads} heads of size {values} do not make up the attention's output of size {width}")
    return heads, keys, values


def first(holder: Any, *names: str) -> Optional[int]:
    values = (getattr(holder, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def by_name(model: Any) -> Optional[bool]:
    """Return True if a model's class name shows that attention is causal, else None. Old attention classes do not show this."""
    kinds = (type(module).__name__ for module in model.modules())
    return any(kind.endswith(("ForCausalLM", "LMHeadModel")) for kind in kinds) or None


def window_of(config: Any) -> Optional[int]:
    """Return the number of previous tokens that attention sees in layers with a window; None without a window."""
    if any(getattr(config, name, None) for name in OTHER_PATTERNS):
        raise Unknown("which tokens attention sees")
    kinds = getattr(config, "layer_types", None)
    if kinds and not set(kinds) <= ONE_KIND_OF_WINDOW:
        raise Unknown(f"what {', '.join(sorted(set(kinds)))} compute")
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    return getattr(config, "sliding_window", None) if slides else None


# --- recomputation ---------------------------------------------------------------------------------------------------


def recomputation(trainer: Any) -> Optional[str]:
    """Return a name for the part of the layers' forward pass that is repeated in the backward pass. Call this when training begins.

    `none` means no part. `whole` means the whole pass, as in re-entrant checkpointing. `early_stop` means the pass up to the
    last result that the backward pass needs, as in non-reentrant checkpointing. Return None if only some layers are
    checkpointed, or if the way of checkpointing is unknown.
    """
    layers = [module for module in trainer.model.modules() if is_a(module, "GradientCheckpointingLayer")]
    wrapped = [module for module in trainer.model.modules() if type(module).__name__ == "CheckpointWrapper"]
    flags = {getattr(module, "gradient_checkpointing", False) is True for module in trainer.model.modules()}
    if True not in flags and not wrapped:
        return "none"
    if wrapped:  # FSDP wraps exactly the layers that it shards
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

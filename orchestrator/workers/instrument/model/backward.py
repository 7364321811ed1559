"""Reads what the backward pass of a model computes: which matrices get a gradient for their input, and what is computed again.

A matrix gets a gradient for its input only if something before it is trained. Autograd computes no gradient for the input of the
first trained layer, for instance, if the embedding is frozen. `read` adds these facts to those of `architecture.py`:

    unreached, expert_unreached    number of weights in matrices whose input gets no gradient, as `frozen` and `expert_frozen`
    attention_unreached            the same for the four matrix products of attention's backward pass: query heads × head dim,
                                   summed over the layers and over the products that are left out
    layers_unreached               number of layers below the first layer that is trained

Two parts of a model are easy: the layers below the first trained layer, which get no gradient, and the layers above it, which get
every gradient. Inside the first trained layer the modules' order decides. It is known by the modules' names, as transformers
uses them. If the order or a trained module is unknown, the facts are None. They are all 0 if the embedding is trained, or if its
output is made to require gradients. With gradient checkpointing, transformers 5 and PEFT do that.

This is a part of the instrument (`instrument.py`). It does not import torch, and gets the part `architecture.py` as an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

UNREACHED = ("unreached", "expert_unreached", "attention_unreached", "layers_unreached")
INPUT_HOOKS = ("_require_grads_hook", "_require_grads_hooks")

# Modules of attention in their order → what they compute: queries, keys, values.
BRANCHES = {
    ("q_proj", "q_a_proj", "q_a_layernorm", "q_b_proj", "q_norm", "q_layernorm"): "q",
    ("k_proj", "k_norm", "k_layernorm"): "k",
    ("v_proj",): "v",
    ("kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj"): "kv",
    ("qkv_proj", "c_attn", "query_key_value"): "qkv",
}
OUTPUTS = ("o_proj", "c_proj", "out_proj", "dense")
MLP_INPUTS = ("gate_proj", "up_proj", "gate_up_proj", "c_fc", "fc1", "fc_in", "dense_h_to_4h")
MLP_OUTPUTS = ("down_proj", "c_proj", "fc2", "fc_out", "dense_4h_to_h")
MLPS = ("mlp", "block_sparse_moe")
FIRST_NORMS = ("input_layernorm", "ln_1", "attention_layernorm")
MIDDLE_NORMS = (
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "ln_2",
    "feedforward_layernorm",
    "post_self_attn_layernorm",
)
NORMS = (*FIRST_NORMS, *MIDDLE_NORMS, "post_feedforward_layernorm", "post_mlp_layernorm")
PARALLEL = ("use_parallel_residual", "parallel_attn", "new_decoder_architecture")
PARALLEL_LAYER = {"self_attn", "attn", "mlp", "input_layernorm", "ln_1"}

NOT_KNOWN = "which matrices gradients reach in the first trained layer"


class NotKnown(Exception):
    """The error for a model whose first trained layer has an unknown order."""


class Cut(NamedTuple):
    """The parts of a layer, or of several, that get no gradient.

    `paths` are modules whose input gets none. `keys` and `values` are the products of attention's backward pass that are left out:
    those of the size of a key, and those of the size of a value.
    """

    paths: frozenset[str] = frozenset()
    keys: int = 0
    values: int = 0


def read(trainer: Any, architecture: Any) -> dict[str, Any]:
    """Return the facts of `architecture.read` and those that the docstring above lists."""
    facts = architecture.read(trainer)
    if facts["unknown"]:
        return {**facts, **dict.fromkeys(UNREACHED)}
    try:
        return {**facts, **unreached(trainer.model, architecture)}
    except NotKnown:
        return {**facts, **dict.fromkeys(UNREACHED), "unknown": [NOT_KNOWN]}


def when_training_begins(facts: dict[str, Any], trainer: Any, architecture: Any) -> dict[str, Any]:
    """Return the facts of `read`, corrected for what has changed since: the Trainer enables checkpointing when training begins."""
    if facts["unreached"] == 0 or facts["unknown"] not in ([], [NOT_KNOWN]):
        return facts
    if has_input_hook(trainer.model):
        return {**facts, **dict.fromkeys(UNREACHED, 0), "unknown": []}
    if architecture.recomputation(trainer) == "whole":
        # Re-entrant checkpointing computes no gradient at all in a layer whose input gets none.
        return {**facts, **dict.fromkeys(UNREACHED), "unknown": [NOT_KNOWN]}
    return facts


def has_input_hook(model: Any) -> bool:
    return any(vars(module).get(name) for module in model.modules() for name in INPUT_HOOKS)


def unreached(model: Any, architecture: Any) -> dict[str, int]:
    path, layers = architecture.stack_of(model, architecture.config_of(model))
    cuts = list(cuts_of(model, path, layers, architecture))
    paths = frozenset().union(*(cut.paths for cut in cuts))
    matrices = [matrix for matrix in architecture.matrices(model) if matrix.path in paths]
    sizes = filter(None, map(architecture.sizes_of, architecture.attentions(model)))
    frozen_layers = next((at for at, layer in enumerate(layers) if is_trained(layer)), len(layers))
    return {
        "unreached": sum(matrix.numbers for matrix in matrices if not matrix.experts),
        "expert_unreached": sum(matrix.numbers for matrix in matrices if matrix.experts),
        "attention_unreached": sum(map(width_of, cuts, sizes)),
        "layers_unreached": frozen_layers if cuts else 0,
    }


def width_of(cut: Cut, sizes: tuple[int, int, int]) -> int:
    heads, keys, values = sizes
    return heads * (keys * cut.keys + values * cut.values)


def cuts_of(model: Any, path: str, layers: Any, architecture: Any) -> Iterator[Cut]:
    """Yield what gets no gradient: a Cut for each layer up to the first trained layer, and one for the modules after the layers."""
    embeddings = [module for module in model.modules() if architecture.is_a(module, "Embedding")]
    if has_input_hook(model) or any(map(is_trained, embeddings)):
        return
    names = [name for name, _ in model.named_modules()]
    modules, at = dict(model.named_modules()), names.index(path)
    before = [name for name in names[:at] if not path.startswith(name)]
    if any(is_trained(modules[name]) for name in before) or any(m.path in before for m in architecture.matrices(model)):
        raise NotKnown  # a module before the layers that is not an embedding may come before or after them
    for number, layer in enumerate(layers):
        if is_trained(layer):
            yield in_first_layer(layer, f"{path}.{number}")
            return
        yield Cut(below(layer, f"{path}.{number}"), keys=2, values=2)
    after = [name for name in names[at:] if not f"{name}.".startswith(f"{path}.")]
    trained = [name for name in after if has_own_trained(modules[name])]
    yield Cut(frozenset(after[: after.index(trained[0]) + 1] if trained else after))


def in_first_layer(layer: Any, path: str) -> Cut:
    """Return what gets no gradient in the first trained layer, whose input gets none."""
    parts = dict(layer.named_children())
    attentions = [name for name, part in parts.items() if "Attention" in type(part).__name__]
    blocks = [name for name in parts if name in MLPS]
    known = {*attentions, *NORMS, *(blocks or MLP_INPUTS + MLP_OUTPUTS)}
    strange = any(matters(part) for name, part in parts.items() if name not in known)
    if len(attentions) != 1 or len(blocks) > 1 or strange or has_own_trained(layer):
        raise NotKnown
    trained = {name for name, part in parts.items() if is_trained(part)}
    parallel = is_parallel(layer, parts)
    trained_norms = trained & set(NORMS)
    if parallel and trained_norms and trained_norms != parts.keys() & set(NORMS):
        raise NotKnown  # it is not known which of the norms comes before which part
    if trained_norms & set(FIRST_NORMS):
        return Cut()
    [name] = attentions
    cut = in_attention(parts[name], f"{path}.{name}")
    if not parallel and trained & {name, *MIDDLE_NORMS}:
        return cut
    for block in blocks:
        return cut._replace(paths=cut.paths | in_mlp(parts[block], f"{path}.{block}"))
    return cut._replace(paths=cut.paths | in_mlp(layer, path, leaving_out={name, *NORMS}))


def is_parallel(layer: Any, parts: dict[str, Any]) -> bool:
    """Return whether attention and MLP read the same input, so that no gradient goes from one to the other."""
    config = next((part.config for part in parts.values() if hasattr(part, "config")), None)
    if any(getattr(holder, name, False) for holder in (layer, config) for name in PARALLEL):
        return True
    if parts.keys() & {*MIDDLE_NORMS, "final_layer_norm"}:
        return False
    with_weights = {name for name, part in parts.items() if any(True for _ in part.parameters())}
    if with_weights <= PARALLEL_LAYER:  # Cohere, Phi and GPT-J: one norm, and both read it
        return True
    raise NotKnown


def in_attention(attention: Any, path: str) -> Cut:
    """Return what gets no gradient in attention, if its input gets none."""
    parts = dict(attention.named_children())
    known = {*OUTPUTS, *(name for chain in BRANCHES for name in chain)}
    if any(matters(part) for name, part in parts.items() if name not in known) or has_own_trained(attention):
        raise NotKnown
    cut: list[str] = []
    reached: set[str] = set()
    for chain, results in BRANCHES.items():
        present = [name for name in chain if name in parts]
        first = next((at for at, name in enumerate(present) if is_trained(parts[name])), None)
        cut += present if first is None else present[: first + 1]
        reached.update(results if first is not None else ())
    cut += [] if reached else [name for name in OUTPUTS if name in parts]
    return Cut(
        paths_of({name: parts[name] for name in cut}, path),
        keys=("q" not in reached) + ("k" not in reached),
        values=("v" not in reached) + (not reached & {"q", "k"}),
    )


def in_mlp(block: Any, path: str, *, leaving_out: Collection[str] = ()) -> frozenset[str]:
    """Return the modules of an MLP whose input gets no gradient, if the input of the MLP gets none."""
    parts = {name: part for name, part in block.named_children() if name not in leaving_out}
    first = [name for name in MLP_INPUTS if name in parts]
    last = [name for name in MLP_OUTPUTS if name in parts]
    if not any(map(is_trained, parts.values())) and not has_own_trained(block):
        return paths_of(parts, path) | {path}
    if any(matters(part) for name, part in parts.items() if name not in (*first, *last)) or has_own_trained(block):
        raise NotKnown
    reached = any(is_trained(parts[name]) for name in first)
    return paths_of({name: parts[name] for name in (first if reached else first + last)}, path)


def paths_of(parts: dict[str, Any], path: str) -> frozenset[str]:
    return frozenset().union(*(below(part, f"{path}.{name}") for name, part in parts.items()))


def below(module: Any, path: str) -> frozenset[str]:
    """Return the paths in a module whose input gets no gradient, if the module's input gets none.

    The second matrix of a LoRA adapter reads the result of the first. So its input gets a gradient if the first is trained.
    """
    modules = dict(module.named_modules(prefix=path))
    first = {name: modules.get(name.replace("lora_B", "lora_A")) for name in modules if "lora_B" in name}
    return frozenset(name for name in modules if not is_trained(first.get(name)))


def matters(module: Any) -> bool:
    """Return whether a module of unknown use has a matrix, or is trained."""
    shapes = (getattr(parameter, "ds_shape", None) or parameter.shape for parameter in module.parameters())
    return is_trained(module) or any(len(shape) > 1 for shape in shapes)


def is_trained(module: Any) -> bool:
    return module is not None and any(parameter.requires_grad for parameter in module.parameters())


def has_own_trained(module: Any) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters(recurse=False))

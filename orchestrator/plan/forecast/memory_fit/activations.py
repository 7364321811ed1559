"""Bytes that the forward pass keeps for the backward pass, derived from the modules of transformers 5 and PEFT.

Each function sums the tensors that torch saves. `torch.autograd.graph.saved_tensors_hooks` shows the saved tensors.
tests/unit/test_fit.py compares the sums with these tensors. The terms per token, in a layer of hidden size h:

- A norm keeps its input in float32 (4h). With float32 weights, this input is the residual itself. A norm whose weight is trained
  also keeps the normed input.
- A trained matrix keeps its input. Matrices with the same input share one copy. If autocast converts the input, each matrix keeps
  its own copy. Each adapter keeps a copy of its input, because PEFT casts the input to float32 and autocast casts it back.
- Attention keeps queries, keys, values and its output. Eager attention also keeps all scores after softmax, in float32.
- The gated MLP keeps four tensors: `gate`, its activation, `up`, and the product of the last two. With quantised matrices, these
  four tensors are float32. The input of every matrix product is float32, too, except the input of attention's output matrix.

With compilation, torch's partitioner keeps the residuals and the inputs of matrix products, and computes the rest again. Position
tensors, mask tensors and random states are left out. Together they are less than 0.1 % of a real model.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.plan.forecast.memory_fit.training import Attention, Training

FLOAT32 = 4
INDEX = 8
ATTENTION_MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj")

# Bytes per score for the product of gradients and probabilities. Softmax's backward pass makes this product only on CUDA.
SOFTMAX_PRODUCT = FLOAT32


def kept_bytes(training: Training) -> int:
    """Return the bytes that one forward pass over the batch keeps, without logits and loss."""
    layers, around = training.shape.layers, outside_bytes(training)
    if training.checkpointed:
        return (layers * checkpoint_bytes(training) + around) * training.tokens
    per_token = layers * layer_bytes(training) + around - _untouched_below(training)
    return per_token * training.tokens + _shared_mask(training)


def checkpoint_bytes(training: Training) -> int:
    """Return the bytes per token that a checkpointed layer keeps. Such a layer keeps only its input."""
    return training.weight_bytes * training.shape.hidden_size


def layer_bytes(training: Training) -> int:
    """Return the bytes per token that one whole layer keeps."""
    return _compiled_layer(training) if training.compiled else _norms(training) + _attention(training) + _mlp(training)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a layer's backward pass.

    `freed` and `needed` are in bytes per token. `freed` is the part of the kept bytes that is free by now. `needed` is the memory
    in addition to the kept bytes. `gradients` is the share of the layer's gradients that already exist.
    """

    freed: int
    needed: int
    gradients: float


def phases(training: Training) -> tuple[Phase, Phase, Phase]:
    """Return a layer's three phases in the backward pass: at the layer's last matrix, at its MLP's first matrices, at the end."""
    shape, layer = training.shape, layer_bytes(training)
    last = shape.hidden_size * shape.intermediate_size * max(1, shape.experts) / shape.layer_parameters
    in_attention = sum(matrix.parameters for matrix in shape.matrices if matrix.name in ATTENTION_MATRICES)
    kept = min(layer, _attention(training) + _norms(training) // 2)
    large = training.adapters is None and (training.sharded or shape.experts)
    gate_and_up = 2 * training.compute_bytes * shape.intermediate_size * max(1, shape.experts_per_token)
    return (
        Phase(0, backward_bytes(training), last if large else 0),
        Phase(layer - kept, gate_and_up, 1 - in_attention / shape.layer_parameters),
        Phase(layer, 0, 1),
    )


def outside_bytes(training: Training) -> int:
    """Return the bytes per token that are kept outside the layers: ids, labels, last norm, input of the output matrix."""
    hidden, trained = training.shape.hidden_size, training.adapters is None
    ids = INDEX * (2 if trained else 1)
    if training.compiled:
        return ids + (training.weight_bytes + training.compute_bytes * trained) * hidden + FLOAT32
    if training.liger:
        return ids + 2 * hidden + FLOAT32
    normed_and_input = (training.weight_bytes + training.compute_bytes) * hidden if trained else 0
    return ids + FLOAT32 * hidden + FLOAT32 + normed_and_input


def backward_bytes(training: Training) -> int:
    """Return the largest number of bytes per token that one layer's backward pass needs in addition to the kept bytes."""
    shape, compute = training.shape, training.compute_bytes
    gradients = 2 * compute * shape.intermediate_size
    if training.quantized and training.adapters is not None:
        # The gradients of the product, the activation and `up`, in float32. The adapter's copy of the product is free by then.
        freed = compute if "down_proj" in training.adapters.targets else 0
        gradients = (3 * FLOAT32 - freed) * shape.intermediate_size
    elif shape.experts:
        # The gradients of the product, the activation and `up`. The second product's kept bytes and output are free by then.
        freed = shape.hidden_size + (shape.intermediate_size if training.adapters is None else 0)
        gradients = compute * shape.experts_per_token * (3 * shape.intermediate_size - freed)
    elif training.copies_for_adapters and training.compute_bytes == 2 and not training.compiled:
        gradients += FLOAT32 * shape.intermediate_size  # the gradient of an adapter's input is float32 first
    most = gradients + training.weight_bytes * shape.hidden_size
    if training.attention is Attention.EAGER:
        copy = compute if compute < FLOAT32 else 0
        scores = (2 * FLOAT32 + SOFTMAX_PRODUCT - copy) * shape.heads * training.row_tokens
        most = max(most, scores - _mlp(training))  # the MLP's kept bytes are free by then
    return most


# --- the terms, in bytes per token -----------------------------------------------------------------------------------


def _norms(training: Training) -> int:
    hidden, weight = training.shape.hidden_size, training.weight_bytes
    if training.liger:
        return 2 * (weight * hidden + FLOAT32)
    return 2 * ((FLOAT32 + (weight if training.adapters is None else 0)) * hidden + FLOAT32) + _head_norms(training)


def _head_norms(training: Training) -> int:
    shape = training.shape
    if not shape.head_norms:
        return 0
    number = FLOAT32 + (training.compute_bytes if training.adapters is None else 0)
    return number * (shape.query_width + shape.kv_width) + FLOAT32 * (shape.heads + shape.kv_heads)


def _attention(training: Training) -> int:
    shape, compute = training.shape, training.compute_bytes
    # A single head of keys and values is repeated without a copy, unless it is converted afterwards.
    repeated = training.attention is Attention.EAGER or (training.masked and (shape.kv_heads > 1 or training.quantized))
    keys_and_values = 2 * (shape.query_width if repeated else shape.kv_width)
    kept = compute * (shape.query_width + keys_and_values)
    kept += _inputs(training, ("q_proj", "k_proj", "v_proj"), shape.hidden_size)
    if training.attention is Attention.EAGER:
        copy = compute if compute < FLOAT32 else 0
        kept += (FLOAT32 + copy) * shape.heads * training.row_tokens
        return kept + _inputs(training, ("o_proj",), shape.query_width)
    mask = compute * training.row_tokens if training.masked else 0
    kept += compute * shape.query_width + FLOAT32 * shape.heads + mask
    if training.quantized:  # attention's output already has 16 bits, so the adapter keeps no copy of it
        return kept + _between_adapters(training, ("o_proj",), shape.query_width)
    return kept + (_inputs(training, ("o_proj",), shape.query_width) if _has_own_inputs(training) else 0)


def _mlp(training: Training) -> int:
    shape = training.shape
    if shape.experts:
        return _experts(training)
    outputs = (2 if training.liger else 3) * _mlp_number(training) * shape.intermediate_size
    outputs += _inputs(training, ("gate_proj", "up_proj"), shape.hidden_size)
    return outputs + _inputs(training, ("down_proj",), shape.intermediate_size)


def _mlp_number(training: Training) -> int:
    """Return the bytes of one number in the tensors of the MLP."""
    return FLOAT32 if training.quantized else training.compute_bytes


def _experts(training: Training) -> int:
    """Return the bytes that router and experts keep. One grouped product computes the chosen experts of all tokens."""
    shape, compute, chosen = training.shape, training.compute_bytes, training.shape.experts_per_token
    gate_up_and_gated = 3 * chosen * shape.intermediate_size
    outputs = chosen * shape.hidden_size
    products = compute * (gate_up_and_gated + outputs)
    if training.adapters is None:  # the inputs of the router, the first product and the second product
        products += compute * (shape.hidden_size + chosen * (shape.hidden_size + shape.intermediate_size))
    routing = (compute + FLOAT32) * shape.experts + FLOAT32 * (chosen + 1) + 4 * INDEX * chosen
    return products + routing


def _has_own_inputs(training: Training) -> bool:
    """Return whether each adapter keeps a copy of its input, because of the cast to float32 or because of dropout."""
    return training.copies_for_adapters or (training.adapters is not None and training.adapters.dropout)


def _inputs(training: Training, readers: tuple[str, ...], width: int) -> int:
    """Return the bytes that the matrices `readers` keep of their common input.

    The bytes that adapters keep between their two matrices are included.
    """
    adapters, compute = training.adapters, training.compute_bytes
    if adapters is None:
        # The input of a single matrix is in the compute type already, so autocast makes no copy.
        return compute * width * (len(readers) if training.casts else 1)
    adapted = len(adapters.targets.intersection(readers))
    number = compute if training.autocast else FLOAT32
    copies = adapted if _has_own_inputs(training) else min(adapted, 1)
    return copies * number * width + _between_adapters(training, readers, width)


def _between_adapters(training: Training, readers: tuple[str, ...], width: int) -> int:
    """Return the bytes of dropout's masks and of the numbers between each adapter's two matrices, for the adapters of `readers`."""
    adapters = training.adapters
    if adapters is None:
        return 0
    number = training.compute_bytes if training.autocast else FLOAT32
    dropped = width if adapters.dropout else 0
    return len(adapters.targets.intersection(readers)) * (dropped + number * adapters.rank)


def _untouched_below(training: Training) -> int:
    """Return the bytes that the first layer does not keep under LoRA, because no part before its adapters needs a gradient."""
    adapters, shape = training.adapters, training.shape
    if adapters is None:
        return 0
    number = training.weight_bytes if training.compiled or training.liger else FLOAT32
    norm = number * shape.hidden_size + FLOAT32
    if training.compiled:
        return norm
    if adapters.targets.isdisjoint(("q_proj", "k_proj", "v_proj")):
        below = _head_norms(training) + _attention(training) - _inputs(training, ("o_proj",), shape.query_width)
        if "o_proj" in adapters.targets:
            return norm + below
        outputs = (0 if "up_proj" in adapters.targets else 1) + (0 if "gate_proj" in adapters.targets else 2)
        return 2 * norm + below + outputs * _mlp_number(training) * shape.intermediate_size
    untouched = 0
    if shape.head_norms:
        for name, heads in (("q_proj", shape.heads), ("k_proj", shape.kv_heads)):
            untouched += 0 if name in adapters.targets else FLOAT32 * heads * (shape.head_dim + 1)
    return norm + untouched


def _compiled_layer(training: Training) -> int:
    shape, compute = training.shape, training.compute_bytes
    residuals = 2 * (training.weight_bytes * shape.hidden_size + FLOAT32)
    normed = 2 * compute * shape.hidden_size
    keys_and_values = 2 * (shape.query_width if shape.kv_heads > 1 else shape.kv_width)
    attention = compute * (2 * shape.query_width + keys_and_values) + FLOAT32 * shape.heads
    mlp = 3 * compute * shape.intermediate_size
    if training.adapters is not None:
        attention += compute * shape.query_width
        mlp += compute * training.adapters.rank * len(training.adapters.targets)
    return residuals + normed + attention + mlp


def _shared_mask(training: Training) -> int:
    """Return the bytes of the mask that compiled layers share."""
    return training.compute_bytes * training.rows * training.row_tokens**2 if training.compiled else 0

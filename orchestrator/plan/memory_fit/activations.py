"""What the forward pass keeps for the backward pass, in bytes: read off the modules of transformers 5 and PEFT, term by term.

Each function is a sum over the tensors that torch saves (`torch.autograd.graph.saved_tensors_hooks` shows them;
tests/unit/test_fit.py holds the sums to it). The terms, for a token and a layer of hidden size h:

- a norm keeps its input in float32 (4h, and that is the residual itself where weights are float32), and where its weight is
  trained the normed input too;
- a matrix that is trained keeps its input. Those that read the same tensor share it, unless autocast makes a copy for each;
  an adapter keeps a copy of its own, since PEFT takes its input to the adapter's float32 and autocast back;
- attention keeps queries, keys, values and its output; eager, also every score, once as softmax made it in float32;
- the gated MLP keeps gate, the activation of it, up and their product.

What the compiler keeps is what torch's partitioner decides: the inputs of matrix products and residuals, the rest is
computed again. Left out: position and mask tensors, random states; together under 0.1 % of a real model.
"""

from __future__ import annotations

from orchestrator.plan.memory_fit.training import Attention, Training

FLOAT32 = 4
INDEX = 8
SOFTMAX_PRODUCT = FLOAT32
"""For a score, what CUDA's softmax makes in its backward pass beside gradients: their product with the probabilities. A CPU's
makes none."""


def kept_bytes(training: Training) -> int:
    """Everything that one forward pass over the batch keeps, but for logits and loss."""
    layers = training.shape.layers
    if training.checkpointed:
        a_token = layers * checkpoint_bytes(training) + outside_bytes(training)
    else:
        a_token = layers * layer_bytes(training) + outside_bytes(training) - _untouched_below(training)
    return round(a_token * training.tokens) + (0 if training.checkpointed else _shared_mask(training))


def checkpoint_bytes(training: Training) -> int:
    """What is kept of a layer that is computed again: its input, for one token."""
    return training.weight_bytes * training.shape.hidden_size


def layer_bytes(training: Training) -> int:
    """What one whole layer keeps for one token."""
    return _compiled_layer(training) if training.compiled else _norms(training) + _attention(training) + _mlp(training)


def outside_bytes(training: Training) -> int:
    """What lies around the layers, for one token: token ids, labels, the last norm and the output matrix' input."""
    hidden, trained = training.shape.hidden_size, training.adapters is None
    ids = INDEX * (2 if trained else 1)
    if training.compiled:
        return ids + (training.weight_bytes + training.compute_bytes * trained) * hidden + FLOAT32
    one = (2 if training.liger else FLOAT32) * hidden + FLOAT32
    if trained and not training.liger:
        one += training.weight_bytes * hidden
    return ids + one + (training.compute_bytes * hidden if trained and not training.liger else 0)


def backward_bytes(training: Training) -> int:
    """The most that the backward pass of one layer holds besides what was kept, for one token."""
    shape, compute = training.shape, training.compute_bytes
    gradients = 2 * compute * shape.intermediate_size
    if training.adapters is not None and training.compute_bytes == 2 and not training.compiled:
        gradients += FLOAT32 * shape.intermediate_size  # the adapter's input has its gradient in float32 first
    most = gradients + training.weight_bytes * shape.hidden_size
    if training.attention is Attention.EAGER:
        copy = compute if compute < FLOAT32 else 0
        scores = (2 * FLOAT32 + SOFTMAX_PRODUCT - copy) * shape.heads * training.row_tokens
        most = max(most, scores - _mlp(training))  # by then the MLP's own are gone
    return most


# --- the terms -------------------------------------------------------------------------------------------------------


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
    repeated = training.attention is Attention.EAGER or (training.masked and shape.kv_heads > 1)  # one head is a view
    keys_and_values = 2 * (shape.query_width if repeated else shape.kv_width)
    kept = compute * (shape.query_width + keys_and_values)
    kept += _inputs(training, ("q_proj", "k_proj", "v_proj"), shape.hidden_size)
    if training.attention is Attention.EAGER:
        copy = compute if compute < FLOAT32 else 0
        kept += (FLOAT32 + copy) * shape.heads * training.row_tokens
        return kept + _inputs(training, ("o_proj",), shape.query_width)
    mask = compute * training.row_tokens if training.masked else 0
    kept += compute * shape.query_width + FLOAT32 * shape.heads + mask
    return kept + (_inputs(training, ("o_proj",), shape.query_width) if _has_own_inputs(training) else 0)


def _mlp(training: Training) -> int:
    shape = training.shape
    outputs = (2 if training.liger else 3) * training.compute_bytes * shape.intermediate_size
    outputs += _inputs(training, ("gate_proj", "up_proj"), shape.hidden_size)
    return outputs + _inputs(training, ("down_proj",), shape.intermediate_size)


def _has_own_inputs(training: Training) -> bool:
    """Whether each adapter keeps a copy of its input: for the cast to its float32, or for dropout."""
    adapters = training.adapters
    return adapters is not None and (training.compute_bytes < FLOAT32 or adapters.dropout)


def _inputs(training: Training, readers: tuple[str, ...], width: int) -> int:
    """What matrices that read one tensor keep of it, and what adapters keep between their two matrices."""
    adapters, compute = training.adapters, training.compute_bytes
    if adapters is None:
        # One reader's input is a product or attention's output: in the compute type already, and no copy is made.
        return compute * width * (len(readers) if training.casts else 1)
    adapted = len(adapters.targets.intersection(readers))
    number = compute if training.autocast else FLOAT32
    copies = adapted if _has_own_inputs(training) else min(adapted, 1)
    dropped = 1 if adapters.dropout else 0  # the mask
    return copies * number * width + adapted * (dropped * width + number * adapters.rank)


def _untouched_below(training: Training) -> int:
    """What the first layer does not keep under LoRA, for one token: nothing below its adapters asks for a gradient."""
    adapters, shape = training.adapters, training.shape
    if adapters is None:
        return 0
    norm = (
        FLOAT32 if not (training.compiled or training.liger) else training.weight_bytes
    ) * shape.hidden_size + FLOAT32
    if training.compiled:
        return norm
    if adapters.targets.isdisjoint(("q_proj", "k_proj", "v_proj")):
        below = _head_norms(training) + _attention(training) - _inputs(training, ("o_proj",), shape.query_width)
        if "o_proj" in adapters.targets:
            return norm + below
        outputs = (0 if "up_proj" in adapters.targets else 1) + (0 if "gate_proj" in adapters.targets else 2)
        return 2 * norm + below + outputs * training.compute_bytes * shape.intermediate_size
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
    """Compiled, the layers share one mask in the compute type."""
    return training.compute_bytes * training.rows * training.row_tokens**2 if training.compiled else 0

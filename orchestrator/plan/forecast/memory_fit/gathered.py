"""Memory that FSDP 2 uses in addition to the shards: gathered weights, and gradients that are not yet sharded.

FSDP gathers one unit after the other: the embedding, each layer, and the tail. The tail is the last norm and the output matrix.
Embedding and output matrix are one unit if they are tied. accelerate's `fsdp2_prepare_model` makes these units.

- Forward: in addition to a unit's weights, the buffer of its all-gather stays in memory until the next unit has been gathered. The
  tail stays gathered, because the backward pass begins with the tail.
- Backward: while a layer is computed, the next layer is gathered, and the buffer with the previous layer's gradients is being
  reduced. After the first layer, the embedding is gathered, even if it is frozen.
- Without a synchronisation at the end of a micro-batch, gradients stay whole on every GPU.

tests/unit/test_fit_shards.py compares the sums with torch's own record of allocations.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.plan.forecast.memory_fit.training import Training


@dataclass(frozen=True, kw_only=True, slots=True)
class Units:
    """The bytes of FSDP's units in the compute type, and of the units' gradients before sharding. Without FSDP, all are 0."""

    layer: int
    embedding: int
    tail: int
    layer_gradient: int
    tail_gradient: int
    embedding_gradient: int

    @classmethod
    def of(cls, training: Training) -> Units:
        shape, adapters = training.shape, training.adapters
        if not training.sharded:
            return cls(layer=0, embedding=0, tail=0, layer_gradient=0, tail_gradient=0, embedding_gradient=0)
        size, trains_base = training.compute_bytes, adapters is None
        added = adapters.parameters(shape) if adapters else 0
        layer, embedding = size * (shape.layer_parameters + added), size * shape.embedding_parameters
        return cls(
            layer=layer,
            embedding=0 if shape.tied else embedding,
            tail=embedding,
            layer_gradient=layer if trains_base else size * added,
            tail_gradient=embedding if trains_base else 0,
            embedding_gradient=0 if shape.tied or not trains_base else embedding,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """Bytes of gathered weights, and of gradients that are not yet sharded, at one moment."""

    weights: int = 0
    gradients: int = 0


def when_gathering(training: Training, *, tail: bool) -> Gathered:
    """Return the gathered bytes at the moment when the forward pass has gathered the last layer or (if `tail`) the tail.

    The buffer of the previous unit is included.
    """
    units = Units.of(training)
    kept = _kept(training, units, above=0)
    if tail:
        return Gathered(weights=units.layer + 2 * units.tail + kept)
    return Gathered(weights=2 * units.layer + (kept or units.layer))


def in_forward(training: Training) -> Gathered:
    """Return the gathered bytes at the end of the forward pass."""
    units = Units.of(training)
    return Gathered(weights=2 * units.tail + _kept(training, units, above=0))


def in_loss(training: Training) -> Gathered:
    """Return the gathered bytes in the backward pass of the loss."""
    units = Units.of(training)
    return Gathered(weights=units.tail + _kept(training, units, above=0))


def in_layer(training: Training, *, above: int) -> Gathered:
    """Return the gathered bytes in the backward pass of the layer with `above` layers above it.

    The gradients of the unit above are included, because they are being reduced at that time.
    """
    units, last = Units.of(training), training.shape.layers - 1
    tied = training.shape.tied  # then the tail's gradient stays until the embedding's gradient is added
    weights = _kept(training, units, above=above) or units.layer + (units.embedding if above == last else units.layer)
    reduced = units.layer_gradient if above else units.tail_gradient
    if tied:
        return Gathered(
            weights=weights + units.tail, gradients=units.tail_gradient + (units.layer_gradient if above else 0)
        )
    return Gathered(weights=weights, gradients=reduced)


def in_embedding(training: Training) -> Gathered:
    """Return the gathered bytes in the backward pass of a trained embedding."""
    units = Units.of(training)
    return Gathered(weights=units.embedding, gradients=units.embedding_gradient + units.layer_gradient)


def held_gradients(training: Training) -> int:
    """Return the bytes of whole gradients that stay between the micro-batches of an optimizer step."""
    units = Units.of(training)
    return training.shape.layers * units.layer_gradient + units.tail_gradient + units.embedding_gradient


def _kept(training: Training, units: Units, *, above: int) -> int:
    """Return the bytes of layers and embedding that stay gathered after the forward pass. Return 0 if the settings free them."""
    return (training.shape.layers - above) * units.layer + units.embedding if training.keeps_gathered else 0

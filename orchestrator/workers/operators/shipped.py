"""The operators that are shipped: for each, the tensors of a call and its plain PyTorch function.

A shape is written with an x between its sizes, such as `8x2048x4096`; SHAPES names the sizes. Leading sizes may be repeated where
the name has dots. Random values come from one generator, so all implementations and all repeats get the same numbers.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import functional

SHAPES: Dict[str, str] = {
    "rmsnorm": "...xHIDDEN",
    "layernorm": "...xHIDDEN",
    "rotary": "BATCHxHEADSxSEQUENCExHEAD_SIZE",
    "swiglu": "...xHIDDEN",
    "cross_entropy": "...xVOCABULARY",
    "linear_cross_entropy": "ROWSxHIDDENxVOCABULARY",
    "attention": "BATCHxHEADSxSEQUENCExHEAD_SIZE",
    "linear": "ROWSxINxOUT",
    "lora_linear": "ROWSxINxOUT",
    "nf4_linear": "ROWSxINxOUT",
    "optimizer_step": "WEIGHTS",
    "einsum": "one shape for each operand",
    "all_reduce": "NUMBERS",
    "all_gather": "NUMBERS",
    "reduce_scatter": "NUMBERS",
}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
# These write into their inputs, so there is nothing to differentiate.
FORWARD_ONLY = ("optimizer_step", *COLLECTIVES)
EPSILON = 1e-6


class ArgumentError(Exception):
    """A mistake in the arguments, in one sentence."""

    __module__ = "builtins"  # the run's error then shows the name of this class without a module


@dataclasses.dataclass(frozen=True)
class Setting:
    """The arguments of one experiment, as values. `shapes` has one shape for each operand; only `einsum` has several."""

    operator: str
    shapes: Tuple[Tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    equation: str = ""
    rank: int = 16
    seed: int = 0

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.shapes[0]


Tensors = Dict[str, Tensor]


def tensors(setting: Setting, generator: torch.Generator) -> Tensors:
    """Return the tensors of one call. Floating-point tensors are differentiated, except frozen weights and constants."""
    made = _MAKERS[setting.operator](setting, _Random(setting, generator))
    return {name: tensor.detach().requires_grad_(_learns(name, tensor)) for name, tensor in made.items()}


def function(setting: Setting) -> Callable[..., Any]:
    """Return the plain PyTorch function. It gets the tensors by name."""
    if setting.operator == "einsum":
        return lambda **operands: torch.einsum(setting.equation, *operands.values())
    return _FUNCTIONS[setting.operator]


def _learns(name: str, tensor: Tensor) -> bool:
    return tensor.is_floating_point() and name not in ("frozen", "cosine", "sine")


class _Random:
    """Makes random tensors of the setting's type on its device."""

    def __init__(self, setting: Setting, generator: torch.Generator) -> None:
        self.like: Dict[str, Any] = {"device": setting.device, "generator": generator}
        self.dtype = setting.dtype

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, dtype=self.dtype, **self.like).mul_(scale)

    def labels(self, rows: int, classes: int) -> Tensor:
        return torch.randint(classes, (rows,), **self.like)


def sizes(setting: Setting, count: int) -> Sequence[int]:
    """Return the sizes of the shape. Raise ArgumentError if there are not `count` of them."""
    if len(setting.shape) != count:
        written = "x".join(map(str, setting.shape))
        raise ArgumentError(
            f"shape {written} has {len(setting.shape)} sizes; {setting.operator} needs {SHAPES[setting.operator]}."
        )
    return setting.shape


def _norm(setting: Setting, random: _Random) -> Tensors:
    found = {"x": random.normal(*setting.shape), "weight": random.normal(setting.shape[-1])}
    return {**found, "bias": random.normal(setting.shape[-1])} if setting.operator == "layernorm" else found


def _rotary(setting: Setting, random: _Random) -> Tensors:
    batch, _, sequence, size = sizes(setting, 4)
    if size % 2:
        raise ArgumentError(f"HEAD_SIZE is {size}; rotary needs an even number.")
    places = torch.arange(sequence, device=setting.device, dtype=torch.float32)
    speeds = 10000 ** (-torch.arange(0, size, 2, device=setting.device, dtype=torch.float32) / size)
    angles = torch.cat([torch.outer(places, speeds)] * 2, dim=-1)[None].expand(batch, -1, -1)
    constants = {"cosine": angles.cos().to(setting.dtype), "sine": angles.sin().to(setting.dtype)}
    return {"query": random.normal(*setting.shape), "key": random.normal(*setting.shape), **constants}


def _swiglu(setting: Setting, random: _Random) -> Tensors:
    return {"gate": random.normal(*setting.shape), "up": random.normal(*setting.shape)}


def _cross_entropy(setting: Setting, random: _Random) -> Tensors:
    *leading, vocabulary = setting.shape
    rows = math.prod(leading)
    return {"logits": random.normal(rows, vocabulary), "labels": random.labels(rows, vocabulary)}


def _linear_cross_entropy(setting: Setting, random: _Random) -> Tensors:
    rows, hidden, vocabulary = sizes(setting, 3)
    weight = random.normal(vocabulary, hidden, scale=hidden**-0.5)
    return {"x": random.normal(rows, hidden), "weight": weight, "labels": random.labels(rows, vocabulary)}


def _attention(setting: Setting, random: _Random) -> Tensors:
    sizes(setting, 4)
    return {name: random.normal(*setting.shape) for name in ("query", "key", "value")}


def _linear(setting: Setting, random: _Random) -> Tensors:
    rows, width, out = sizes(setting, 3)
    found = {"x": random.normal(rows, width)}
    if setting.operator == "linear":
        return {**found, "weight": random.normal(out, width, scale=width**-0.5)}
    found["frozen"] = random.normal(out, width, scale=width**-0.5)
    if setting.operator == "lora_linear":
        found["down"] = random.normal(setting.rank, width, scale=width**-0.5)
        found["up"] = random.normal(out, setting.rank, scale=setting.rank**-0.5)
    return found


def _einsum(setting: Setting, random: _Random) -> Tensors:
    return {f"operand{number}": random.normal(*shape) for number, shape in enumerate(setting.shapes)}


def _numbers(setting: Setting, random: _Random) -> Tensors:
    (count,) = sizes(setting, 1)
    if setting.operator == "optimizer_step":
        return {"weights": random.normal(count), "gradients": random.normal(count)}
    processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if setting.operator == "all_reduce":
        return {"x": random.normal(count)}
    if count % processes:
        raise ArgumentError(f"shape {count} is not divisible by {processes} processes.")
    whole, part = random.normal(count), random.normal(count // processes)
    return {"whole": whole, "part": part}


_MAKERS: Mapping[str, Callable[[Setting, _Random], Tensors]] = {
    "rmsnorm": _norm,
    "layernorm": _norm,
    "rotary": _rotary,
    "swiglu": _swiglu,
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": _linear_cross_entropy,
    "attention": _attention,
    "linear": _linear,
    "lora_linear": _linear,
    "nf4_linear": _linear,
    "einsum": _einsum,
    **dict.fromkeys(FORWARD_ONLY, _numbers),
}


# --- the functions, as a model without fused kernels computes them ----------------------------------------------------


def rmsnorm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def layernorm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotary(query: Tensor, key: Tensor, cosine: Tensor, sine: Tensor) -> Tuple[Tensor, Tensor]:
    cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    return query * cosine + _turned(query) * sine, key * cosine + _turned(key) * sine


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels)


def linear_cross_entropy(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(x, weight), labels)


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(x, weight)


def lora_linear(x: Tensor, frozen: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return functional.linear(x, frozen) + functional.linear(functional.linear(x, down), up)


def nf4_linear(x: Tensor, frozen: Tensor) -> Tensor:
    """Compute the layer whose weights are not quantised: the reference of the quantised layer."""
    return functional.linear(x, frozen)


def bytes_sent(setting: Setting) -> float:
    """Return the bytes that each process must at least send in a collective operation: all parts but its own.

    `all_reduce` is `reduce_scatter` and then `all_gather`, so it sends twice as much.
    """
    (count,) = sizes(setting, 1)
    processes: int = torch.distributed.get_world_size()
    size: int = setting.dtype.itemsize
    return (2 if setting.operator == "all_reduce" else 1) * (processes - 1) / processes * count * size


def _all_reduce(x: Tensor) -> Tensor:
    torch.distributed.all_reduce(x)
    return x


def _all_gather(whole: Tensor, part: Tensor) -> Tensor:
    torch.distributed.all_gather_into_tensor(whole, part)
    return whole


def _reduce_scatter(whole: Tensor, part: Tensor) -> Tensor:
    torch.distributed.reduce_scatter_tensor(part, whole)
    return part


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "rmsnorm": rmsnorm,
    "layernorm": layernorm,
    "rotary": rotary,
    "swiglu": swiglu,
    "cross_entropy": cross_entropy,
    "linear_cross_entropy": linear_cross_entropy,
    "attention": attention,
    "linear": linear,
    "lora_linear": lora_linear,
    "nf4_linear": nf4_linear,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
}

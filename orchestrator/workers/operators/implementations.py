"""The implementations of an operator: from its name and the tensors of a call to the function that is measured.

`eager` is the plain function of `shipped`. `inductor` and `thunder` compile it. `liger` is Liger's kernel for the operator. The
kernels of attention have names of their own. Any other implementation is `module:callable`, which gets the tensors by name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any, Callable, Dict, Mapping

import own_function
import shipped
import torch
from shipped import FORWARD_ONLY, ArgumentError, Setting, Tensors

Call = Callable[..., Any]
# Implementation of attention → the name in torch.nn.attention.SDPBackend.
SDPA = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH", "cudnn": "CUDNN_ATTENTION"}


def build(name: str, setting: Setting, tensors: Tensors, *, module_folder: str = "") -> Call:
    """Return the function that is measured. It gets the tensors by name. Raise ArgumentError if it does not exist."""
    if ":" in name:
        return own_function.load(name, module_folder)
    if setting.operator == "optimizer_step":
        return _optimizer(name, tensors)
    if setting.operator == "nf4_linear":
        return _nf4(name, setting, tensors)
    plain = shipped.function(setting)
    if name == "eager":
        return plain
    if setting.operator in FORWARD_ONLY:
        raise ArgumentError(f"implementation {name} is invalid for {setting.operator}, which has eager only.")
    if name == "inductor":
        compiled: Call = torch.compile(plain, dynamic=False)
        return compiled
    if name == "thunder":
        jitted: Call = importlib.import_module("thunder").jit(plain)
        return jitted
    if name == "liger":
        return _liger(setting)
    if setting.operator == "attention" and name in SDPA:
        return _sdpa(SDPA[name], plain)
    if setting.operator == "attention" and name == "flex":
        return _flex(setting)
    raise ArgumentError(
        f"implementation {name} of {setting.operator} is unknown; write eager, inductor, or module:callable."
    )


def _optimizer(name: str, tensors: Tensors) -> Call:
    ways: Dict[str, Dict[str, bool]] = {
        "eager": {"foreach": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }
    if name not in ways:
        raise ArgumentError(
            f"implementation {name} of optimizer_step is unknown; write {', '.join(ways)}, or module:callable."
        )
    weights = tensors["weights"].detach().clone().requires_grad_()
    weights.grad = tensors["gradients"].detach()
    adamw = torch.optim.AdamW([weights], **ways[name])
    return lambda **_: adamw.step()


def _nf4(name: str, setting: Setting, tensors: Tensors) -> Call:
    if name != "eager":
        raise ArgumentError(
            f"implementation {name} of nf4_linear is unknown; write eager, which is bitsandbytes, or module:callable."
        )
    bitsandbytes = importlib.import_module("bitsandbytes")
    out, width = tensors["frozen"].shape
    layer = bitsandbytes.nn.Linear4bit(width, out, bias=False, quant_type="nf4", compute_dtype=setting.dtype)
    layer.weight = bitsandbytes.nn.Params4bit(tensors["frozen"].detach().cpu(), requires_grad=False, quant_type="nf4")
    layer = layer.to(setting.device)
    return lambda x, frozen: layer(x)


def _sdpa(backend: str, plain: Call) -> Call:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    allowed = getattr(SDPBackend, backend)

    @functools.wraps(plain)
    def call(**tensors: Any) -> Any:
        with sdpa_kernel(allowed):
            return plain(**tensors)

    return call


def _flex(setting: Setting) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    sequence = setting.shape[2]

    def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return query >= key

    mask = create_block_mask(causal, None, None, sequence, sequence, device=setting.device)
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda query, key, value: compiled(query, key, value, block_mask=mask)


def _liger(setting: Setting) -> Call:
    """Return Liger's kernel. Its names are those of liger-kernel 0.8."""
    calls: Mapping[str, Call] = {
        "rmsnorm": lambda x, weight: _of_liger("rms_norm", "LigerRMSNormFunction")(x, weight, shipped.EPSILON),
        "layernorm": lambda x, weight, bias: _of_liger("layer_norm", "LigerLayerNormFunction")(
            x, weight, bias, shipped.EPSILON
        ),
        "rotary": lambda query, key, cosine, sine: _of_liger("rope", "LigerRopeFunction")(query, key, cosine, sine),
        "swiglu": lambda gate, up: _of_liger("swiglu", "LigerSiLUMulFunction")(gate, up),
        "cross_entropy": lambda logits, labels: _loss("LigerCrossEntropyLoss")(logits, labels),
        "linear_cross_entropy": lambda x, weight, labels: _loss("LigerFusedLinearCrossEntropyLoss")(weight, x, labels),
    }
    if setting.operator not in calls:
        raise ArgumentError(f"Liger has no kernel for {setting.operator}; it has {', '.join(calls)}.")
    with contextlib.suppress(ImportError):
        importlib.import_module("liger_kernel.transformers")
    return calls[setting.operator]


@functools.lru_cache(maxsize=None)
def _of_liger(module: str, name: str) -> Call:
    return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name).apply  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=None)
def _loss(name: str) -> Call:
    return getattr(importlib.import_module("liger_kernel.transformers"), name)()  # type: ignore[no-any-return]

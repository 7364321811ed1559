"""The work of a model on one token, in FLOPs, and the share of a device's peak that a speed comes to.

Model FLOPs are what the mathematics of training asks for, whatever computes it: a matrix of n numbers takes 2n forward,
2n backward for what goes into it and, where it is trained, 2n for itself. So 6n in full fine-tuning, and 4n for the frozen
base with 6n for the adapters under LoRA; of experts, those that a token meets. Attention takes 12 × width × s (width:
query heads × head dim, summed over the layers) over a sequence of s tokens, and **half of that where it is causal**, since
only half of the scores count; for sequences of several lengths s is Σ sᵢ² ÷ Σ sᵢ, so that packed samples count each by
itself. Hardware FLOPs add what gradient checkpointing computes again: the layers' forward pass (less each
layer's last matrix where torch may stop before it), attention counted as above whatever the kernel computes.

What is left out: norms, activations, rotary embeddings, softmax, the loss and the optimizer (under 1 % beside the
matrices of a real model), and what a kernel computes again by itself, as flash attention does. Under LoRA gradients are
taken to reach the input of the first layer; where nothing asks for that, its first projections are counted 2n too high
(0.3 % of a model of 22 layers).

What is not known is None, never a guess: a fact that `workers/instrument/architecture.py` could not read, sequences longer than a
sliding window, a device that is not in the table (a MIG part neither), weights that are quantised, fp32 without autocast.
A share above one means that something here is wrong, so it is an error (`Overcounted`) and no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Architecture = Mapping[str, Any]

_A100, _H100_SXM = 312e12, 989e12

PEAKS: dict[str, float] = {
    "A100-SXM4-40GB": _A100,
    "A100-SXM4-80GB": _A100,
    "A100-PCIE-40GB": _A100,
    "A100 80GB PCIe": _A100,
    "H100 80GB HBM3": _H100_SXM,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H200": 989e12,
    "H20": 148e12,
    "B200": 2250e12,
}
"""Dense bf16 and fp16 peak in FLOP/s by the whole name that the driver gives the device, less the maker's."""

_SIXTEEN_BIT = {"bf16", "fp16", "bfloat16", "float16"}
_CAUSAL_SHARE = 0.5


class Overcounted(ArithmeticError):
    """More work a second than the device can do: the FLOPs, the tokens, the time or the peak are wrong."""


def model_flops_per_token(
    architecture: Architecture, *, squares_per_token: float, longest: int | None = None, uncut: bool = False
) -> float | None:
    """Forward and backward, without recomputation; None where the architecture does not tell enough.

    `squares_per_token` is Σ sᵢ² ÷ Σ sᵢ over the sequences, `longest` a bound on sᵢ (needed where attention has a window);
    `uncut` counts the whole square of scores, which is what eager attention computes and counters see.
    """
    matrices = _matrices(architecture)
    attention = _attention_forward(architecture, squares_per_token=squares_per_token, longest=longest, uncut=uncut)
    if matrices is None or attention is None:
        return None
    frozen, trainable = matrices
    return 4 * frozen + 6 * trainable + 3 * attention


def hardware_flops_per_token(
    architecture: Architecture,
    *,
    recomputation: str | None,
    squares_per_token: float,
    longest: int | None = None,
    uncut: bool = False,
) -> float | None:
    """Model FLOPs and what checkpointing computes again: `none`, `whole` layers, or all but their last matrix
    (`early_stop`, torch's other kind). None where that is not known either.
    """
    model = model_flops_per_token(architecture, squares_per_token=squares_per_token, longest=longest, uncut=uncut)
    matrices = _matrices(architecture)
    attention = _attention_forward(architecture, squares_per_token=squares_per_token, longest=longest, uncut=uncut)
    if model is None or matrices is None or attention is None or recomputation == "none":
        return model if recomputation == "none" else None
    outside = architecture.get("outside_layers")
    spared = {"whole": 0, "early_stop": architecture.get("spared")}.get(recomputation or "")
    if outside is None or spared is None:
        return None
    return model + 2 * (sum(matrices) - float(outside) - float(spared)) + attention


def _matrices(architecture: Architecture) -> tuple[float, float] | None:
    """Numbers that one token is multiplied with, of frozen matrices and of trained ones."""
    frozen, trainable = architecture.get("frozen"), architecture.get("trainable")
    of_experts = architecture.get("expert_frozen"), architecture.get("expert_trainable")
    if frozen is None or trainable is None or None in of_experts:
        return None
    if not any(of_experts):
        return float(frozen), float(trainable)
    experts, met = architecture.get("experts"), architecture.get("experts_per_token")
    if not experts or met is None:
        return None
    frozen_met, trainable_met = (float(count or 0) * met / experts for count in of_experts)
    return float(frozen) + frozen_met, float(trainable) + trainable_met


def _attention_forward(
    architecture: Architecture, *, squares_per_token: float, longest: int | None, uncut: bool
) -> float | None:
    """Scores and their product with the values, of one token in all layers."""
    width, causal = architecture.get("attention_width"), architecture.get("causal")
    window = architecture.get("window")
    if width is None or causal is None:
        return None
    if window is not None and (longest is None or longest > window):
        return None
    share = _CAUSAL_SHARE if causal and not uncut else 1.0
    return 4 * float(width) * squares_per_token * share


def peak_flops(
    device_name: str | None, *, dtype: str | None, mixed_precision: str | None, quantization: str | None = None
) -> float | None:
    """The device's dense peak in FLOP/s where matrices are multiplied in 16 bits: by autocast, or by the weights' type."""
    autocast = mixed_precision if mixed_precision not in (None, "no") else dtype
    if device_name is None or quantization is not None or autocast not in _SIXTEEN_BIT:
        return None
    return PEAKS.get(device_name.removeprefix("NVIDIA ").strip())


def utilization(*, flops_per_token: float, tokens_per_s_per_gpu: float, peak: float) -> float:
    """Share of the peak. Raises Overcounted above one."""
    share = flops_per_token * tokens_per_s_per_gpu / peak
    if share > 1:
        raise Overcounted(
            f"{flops_per_token:.4g} FLOP/token at {tokens_per_s_per_gpu:.5g} tokens/s are {share:.0%} of the peak of "
            f"{peak / 1e12:g} TFLOP/s, which cannot be"
        )
    return share


def achieved(settings: Mapping[str, Any], *, squares_per_token: float, tokens_per_s_per_gpu: float) -> dict[str, float]:
    """model_flops_per_token, tflops_per_s_per_gpu, mfu and hfu of a run, as far as its settings (a worker file's) tell.

    Raises Overcounted where a share comes out above one: then none of the four stands.
    """
    architecture = settings.get("architecture") or {}
    longest = settings.get("max_seq_len")
    work = model_flops_per_token(architecture, squares_per_token=squares_per_token, longest=longest)
    if work is None:
        return {}
    numbers = {"model_flops_per_token": work, "tflops_per_s_per_gpu": work * tokens_per_s_per_gpu / 1e12}
    precision = {name: settings.get(name) for name in ("dtype", "mixed_precision", "quantization")}
    peak = peak_flops(settings.get("device_name"), **precision)
    if peak is None:
        return numbers
    again = settings.get("recomputation")
    if settings.get("torch_compile") and again != "none":  # the compiler decides by itself what it computes again
        again = None
    hardware = hardware_flops_per_token(
        architecture, recomputation=again, squares_per_token=squares_per_token, longest=longest
    )
    for name, flops in (("mfu", work), ("hfu", hardware)):
        if flops is not None:
            numbers[name] = utilization(flops_per_token=flops, tokens_per_s_per_gpu=tokens_per_s_per_gpu, peak=peak)
    return numbers

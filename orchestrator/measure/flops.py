"""Computes FLOPs per token, and the share of a device's peak, from facts that `workers/instrument/model/architecture.py` reads.

Model FLOPs are the work that the mathematics of training needs. Per token, a matrix of n numbers takes 2n FLOPs forward, and 2n for
the gradient of its input. A trained matrix takes 2n more for its own gradient. So full fine-tuning takes 6n; LoRA takes 4n for the
frozen base and 6n for the adapters. Only the experts that a token uses count. Attention takes 12 × width × s for a sequence of s
tokens, and **half of that if it is causal**, since only half of the scores count. The width is query heads × head dim, summed over
the layers. For sequences of several lengths, s is Σ sᵢ² ÷ Σ sᵢ, so that packed samples count separately.

Hardware FLOPs are the model FLOPs plus the work of gradient checkpointing, which computes the forward pass of layers again. If
torch may stop this repetition before a layer's last matrix, that matrix is left out. Attention counts as above, whatever the kernel
computes.

Left out: norms, activations, rotary embeddings, softmax, the loss and the optimizer, which are under 1 % of a real model's work;
and work that a kernel repeats by itself, as flash attention does.

Gradients without a use do not count: if the embedding is frozen, no gradient is computed
for the input of the first trained matrix, nor for anything before it (`workers/instrument/model/backward.py`).

An unknown number is None, never a guess. A number is unknown if `workers/instrument/model/architecture.py` could not read a fact;
if sequences are longer than a sliding window; for devices that are not in the table, such as MIG instances; for quantised weights;
and for fp32 without autocast. A share of the peak above one shows a mistake in the FLOPs, the time or the peak, so it raises
`Overcounted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Architecture = Mapping[str, Any]

_A100, _HOPPER = 312e12, 989e12

# The dense peak of bf16 and fp16 in FLOP/s. The key is the device's full name in the driver, without "NVIDIA".
PEAKS: dict[str, float] = {
    "A100-SXM4-40GB": _A100,
    "A100-SXM4-80GB": _A100,
    "A100-PCIE-40GB": _A100,
    "A100 80GB PCIe": _A100,
    "H100 80GB HBM3": _HOPPER,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H200": _HOPPER,
    "H20": 148e12,
    "B200": 2250e12,
    "L40S": 362e12,
}

# Maps the short name of a GPU type to the device's name in PEAKS and the memory in GiB that CUDA can give out there. H100 and H200
# are measured. The others are the total that NVML reports, less about 0.5 GiB; the A100's driver keeps 0.8 GiB of 80.
GPU_TYPES: dict[str, tuple[str, float]] = {
    "A100-40GB": ("A100-SXM4-40GB", 39.4),
    "A100-80GB": ("A100-SXM4-80GB", 79.2),
    "H100": ("H100 80GB HBM3", 79.2),
    "H100-PCIe": ("H100 PCIe", 79.2),
    "H100-NVL": ("H100 NVL", 93.1),
    "H200": ("H200", 139.8),
    "H20": ("H20", 95.1),
    "B200": ("B200", 178.5),
    "L40S": ("L40S", 44.5),
}

# The passes whose FLOPs are known by themselves.
PASSES = ("forward", "backward")

_SIXTEEN_BIT = {"bf16", "fp16", "bfloat16", "float16"}


class Overcounted(ArithmeticError):
    """The error for more work per second than the device can do. The FLOPs, the tokens, the time or the peak are wrong."""


def model_flops_per_token(
    architecture: Architecture, *, squares_per_token: float, longest: int | None = None, uncut: bool = False
) -> float | None:
    """Return the FLOPs of the forward and backward pass without recomputation. Return None if a needed fact is unknown.

    `squares_per_token` is Σ sᵢ² ÷ Σ sᵢ over the sequences. `longest` is the largest possible sᵢ; it is needed if attention has a
    window. If `uncut` is true, the whole square of scores counts, as in eager attention and in FLOP counters.
    """
    matrices = _matrices(architecture)
    attention = _attention_forward(architecture, squares_per_token=squares_per_token, longest=longest, uncut=uncut)
    if matrices is None or attention is None:
        return None
    left_out = _left_out(architecture, attention)
    if left_out is None:
        return None
    frozen, trainable = matrices
    return 4 * frozen + 6 * trainable + 3 * attention - left_out


def forward_flops_per_token(
    architecture: Architecture, *, squares_per_token: float, longest: int | None = None
) -> float | None:
    """Return the FLOPs of the forward pass: a third of the model's FLOPs if all weights are trained. None if a fact is unknown."""
    matrices = _matrices(architecture)
    attention = _attention_forward(architecture, squares_per_token=squares_per_token, longest=longest, uncut=False)
    return None if matrices is None or attention is None else 2 * sum(matrices) + attention


def hardware_flops_per_token(
    architecture: Architecture,
    *,
    recomputation: str | None,
    squares_per_token: float,
    longest: int | None = None,
    uncut: bool = False,
) -> float | None:
    """Return the model FLOPs plus the work that checkpointing computes again, or None if either number is unknown.

    `recomputation` is `none`, `whole` (whole layers are repeated), or `early_stop` (layers without their last matrix).
    """
    model = model_flops_per_token(architecture, squares_per_token=squares_per_token, longest=longest, uncut=uncut)
    if recomputation == "none":
        return model
    matrices = _matrices(architecture)
    attention = _attention_forward(architecture, squares_per_token=squares_per_token, longest=longest, uncut=uncut)
    if model is None or matrices is None or attention is None:
        return None
    outside = architecture.get("outside_layers")
    spared = {"whole": 0, "early_stop": architecture.get("spared")}.get(recomputation or "")
    if outside is None or spared is None or architecture.get("layers_unreached"):
        return None
    return model + 2 * (sum(matrices) - float(outside) - float(spared)) + attention


def _matrices(architecture: Architecture) -> tuple[float, float] | None:
    """Return two values: how many weights of frozen matrices, and how many weights of trained matrices, multiply one token."""
    frozen, trainable = architecture.get("frozen"), architecture.get("trainable")
    of_experts = architecture.get("expert_frozen"), architecture.get("expert_trainable")
    if frozen is None or trainable is None or None in of_experts:
        return None
    used = _used_experts(architecture) if any(of_experts) else 0.0
    if used is None:
        return None
    frozen_used, trainable_used = (float(count or 0) * used for count in of_experts)
    return float(frozen) + frozen_used, float(trainable) + trainable_used


def _used_experts(architecture: Architecture) -> float | None:
    """Return the share of a layer's experts that a token passes."""
    experts, used = architecture.get("experts"), architecture.get("experts_per_token")
    return used / experts if experts and used is not None else None


def _left_out(architecture: Architecture, attention: float) -> float | None:
    """Return the FLOPs of the gradients that are not computed; `attention` are the FLOPs of attention in the forward pass.

    A file of an older version does not have these facts. Then every gradient counts, as it did in that version.
    """
    matrices, of_experts, of_attention = (
        architecture.get(name, 0) for name in ("unreached", "expert_unreached", "attention_unreached")
    )
    used = _used_experts(architecture) if of_experts else 0.0
    if matrices is None or of_experts is None or of_attention is None or used is None:
        return None
    products = 2 * float(architecture["attention_width"])  # in the forward pass, in units of `attention_unreached`
    return 2 * (float(matrices) + float(of_experts) * used) + attention * float(of_attention) / products


def _attention_forward(
    architecture: Architecture, *, squares_per_token: float, longest: int | None, uncut: bool
) -> float | None:
    """Return the FLOPs of the scores and of their product with the values, for one token in all layers."""
    width, causal, window = (architecture.get(name) for name in ("attention_width", "causal", "window"))
    if width is None or causal is None or (window is not None and (longest is None or longest > window)):
        return None
    share = 0.5 if causal and not uncut else 1.0
    return 4 * float(width) * squares_per_token * share


def peak_flops(
    device_name: str | None, *, dtype: str | None, mixed_precision: str | None, quantization: str | None = None
) -> float | None:
    """Return the device's dense peak in FLOP/s if autocast or the weights' type makes matrix products 16-bit, else None."""
    autocast = mixed_precision if mixed_precision not in (None, "no") else dtype
    if device_name is None or quantization is not None or autocast not in _SIXTEEN_BIT:
        return None
    return PEAKS.get(device_name.removeprefix("NVIDIA ").strip())


def utilization(*, flops_per_token: float, tokens_per_s_per_gpu: float, peak: float) -> float:
    """Return the achieved FLOP/s as a share of the peak. Raise Overcounted if the share is above one."""
    share = flops_per_token * tokens_per_s_per_gpu / peak
    if share > 1:
        raise Overcounted(
            f"{flops_per_token:.4g} FLOP/token at {tokens_per_s_per_gpu:.5g} tokens/s are {share:.0%} of the peak of "
            f"{peak / 1e12:g} TFLOP/s, which is impossible"
        )
    return share


def achieved(settings: Mapping[str, Any], *, squares_per_token: float, tokens_per_s_per_gpu: float) -> dict[str, float]:
    """Return model_flops_per_token, tflops_per_s_per_gpu, mfu and hfu of a run, as far as its worker file has the needed settings.

    Raise Overcounted if a share is above one: then all four numbers may be wrong.
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
    if settings.get("torch_compile") and again != "none":  # the compiler decides what it computes again
        again = None
    hardware = hardware_flops_per_token(
        architecture, recomputation=again, squares_per_token=squares_per_token, longest=longest
    )
    for name, flops in (("mfu", work), ("hfu", hardware)):
        if flops is not None:
            numbers[name] = utilization(flops_per_token=flops, tokens_per_s_per_gpu=tokens_per_s_per_gpu, peak=peak)
    return numbers


def of_passes(
    settings: Mapping[str, Any],
    *,
    squares_per_token: float,
    tokens_per_step: float,
    seconds: Mapping[str, float | None],
) -> dict[str, float]:
    """Return forward_mfu and backward_mfu, if they are known: the model FLOPs of a pass as a share of the peak in its time.

    `tokens_per_step` are those of one device. `seconds` are the times of the passes per step. What checkpointing computes again
    takes time, but does not count as work. A share above one is left out: the compiler or the kernels moved work to the other pass.
    """
    architecture, longest = settings.get("architecture") or {}, settings.get("max_seq_len")
    model = model_flops_per_token(architecture, squares_per_token=squares_per_token, longest=longest)
    forward = forward_flops_per_token(architecture, squares_per_token=squares_per_token, longest=longest)
    precision = {name: settings.get(name) for name in ("dtype", "mixed_precision", "quantization")}
    peak = peak_flops(settings.get("device_name"), **precision)
    if model is None or forward is None or peak is None:
        return {}
    work = dict(zip(PASSES, (forward, model - forward), strict=True))
    shares = {
        f"{name}_mfu": flops * tokens_per_step / time_s / peak
        for name, flops in work.items()
        if (time_s := seconds.get(name))
    }
    return {name: share for name, share in shares.items() if share <= 1}

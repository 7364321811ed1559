"""How much a run worked for its speed, and how its row compares with other rows."""

from __future__ import annotations

from functools import partial

from orchestrator.metrics.metric import Direction, Metric, Show, Where

_share = partial(Metric, unit="share", direction=Direction.HIGHER, show=Show.SHARE)
_count = partial(Metric, unit="tokens, all devices", show=Show.COUNT, source="worker files", where=Where.FILES)

WORK = (
    Metric(
        "model_flops_per_token",
        "FLOP/token",
        (
            "Work that the mathematics of training asks for, per processed token: 6 × weights of matrices (4 × where frozen, "
            "as the base under LoRA; lm_head in, embedding look-up out; of experts those that a token meets) + 6 × Σ over "
            "layers of (query heads × head dim) × s for causal attention, half of the square (12 × where not causal), s = Σ "
            "sᵢ² ÷ Σ sᵢ over samples."
        ),
        unit="FLOP/token",
        source="the built model's architecture and the lengths of its sequences",
        where=Where.FILES,
        leaves_out=(
            "Recomputation, norms, activations, rotary embeddings, softmax, the loss, the optimizer. Quantised weights count "
            "by the numbers that they stand for. Missing: architectures that the reader does not know, adapters other than "
            "plain LoRA, frozen layers below all trained ones, sequences that may outgrow a sliding window."
        ),
    ),
    Metric(
        "tflops_per_s_per_gpu",
        "TFLOP/s/GPU",
        "model_flops_per_token × tokens_per_s_per_gpu.",
        unit="TFLOP/s per device",
        direction=Direction.HIGHER,
        by_ratio=True,
        source="model_flops_per_token and steps",
        leaves_out="Counts work on padding.",
    ),
    _share(
        "mfu",
        "MFU",
        "Model FLOPs utilisation: tflops_per_s_per_gpu ÷ the device's dense peak in the training precision.",
        source="model FLOPs and the table of peaks in flops.py",
        leaves_out=(
            "Missing for devices not in the table (MIG parts, H200 NVL), quantised weights, fp32 without autocast, fp8. The "
            "peak is the data sheet's, not that of the run's clocks."
        ),
        where=Where.FIRST | Where.PAGE,
        order=130,
    ),
    _share(
        "hfu",
        "HFU",
        (
            "MFU with what gradient checkpointing computes again: the layers' forward pass, less each layer's last matrix "
            "where torch may stop before it."
        ),
        source="hardware FLOPs and the table of peaks in flops.py",
        leaves_out=(
            "What kernels compute again (flash attention's backward), and the masked half that eager or SDPA kernels "
            "compute. Missing under torch.compile with checkpointing, and where it is not known which layers or how much is "
            "computed again."
        ),
    ),
    _count("tokens_processed", "tokens", "Tokens of the whole run, padding counted."),
    _count("samples_processed", "samples", "Samples of the whole run.", unit="samples, all devices"),
    _count("steps", "steps", "Optimizer steps that were made.", unit="steps", source="worker file of rank 0"),
)

# Made from several rows (see `across`).
BESIDE = (
    _share(
        "scaling_efficiency",
        "scaling",
        "tokens_per_s_per_gpu ÷ that of the same cell at its smallest GPU count.",
        source="the table: experiments that differ in GPUs alone",
        leaves_out="What changes with the GPU count by itself: the global batch, where it is not held.",
        where=Where.FIRST | Where.PAGE,
        order=120,
    ),
    Metric(
        "loss_difference",
        "loss ≠ baseline",
        (
            "train_loss ÷ that of the baseline framework (`baseline`, else `none`, else the first that has a loss) among the "
            "scenario's cells that should learn alike, less 1; beyond the tolerance the row is marked. Where one ended "
            "early, over the steps that both made, by logged_losses."
        ),
        unit="share",
        show=Show.SHARE,
        source="the table: experiments that differ in framework alone",
        leaves_out="Noise of short runs. Where rows, length or precision differ by design the losses may too.",
    ),
    Metric(
        "doubt",
        "doubt",
        (
            "Why the number may stand for less work: `faster but wrong`, or `other loss` where it is no faster; `loss not "
            "compared` where the baseline has none, or one ended early and they logged none at the same step."
        ),
        show=Show.TEXT,
        source="the table",
        where=Where.FIRST | Where.PAGE,
        order=220,
    ),
)

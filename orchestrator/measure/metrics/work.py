"""Columns of a run's work (FLOPs, tokens, steps), and columns that compare the run's row with other rows."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Metric, Show, Where

_share = partial(Metric, unit="share", direction=Direction.HIGHER, show=Show.SHARE)
_count = partial(Metric, unit="tokens, all devices", show=Show.COUNT, source="worker files", where=Where.FILES)

WORK = (
    Metric(
        "model_flops_per_token",
        "FLOP/token",
        (
            "Work per processed token that the mathematics of training needs. Matrices: 6 × their weights, 4 × "
            "if they are frozen, as the base model under LoRA. The lm_head counts, the embedding look-up does "
            "not; of the experts, only those count that a token uses. Attention: 12 × Σ over layers of (query "
            "heads × head dim) × s, where s = Σ sᵢ² ÷ Σ sᵢ over samples. Causal attention needs half of that."
        ),
        unit="FLOP/token",
        source="the built model's architecture and the lengths of its sequences",
        where=Where.FILES,
        leaves_out=(
            "Recomputation, norms, activations, rotary embeddings, softmax, the loss, the optimizer. "
            "Quantised weights count as the numbers that they represent. Missing: architectures that the "
            "reader does not know, adapters other than plain LoRA, frozen layers below all trained ones, "
            "sequences that may outgrow a sliding window."
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
            "Missing for devices not in the table (MIG parts, H200 NVL), quantised weights, fp32 without "
            "autocast, fp8. The peak is that of the data sheet, not of the run's clocks."
        ),
        where=Where.FIRST | Where.PAGE,
        order=130,
    ),
    _share(
        "hfu",
        "HFU",
        (
            "MFU plus what gradient checkpointing computes again: the layers' forward pass, without each "
            "layer's last matrix if torch may stop before it."
        ),
        source="hardware FLOPs and the table of peaks in flops.py",
        leaves_out=(
            "Work that kernels repeat (flash attention's backward pass), and the masked half of attention, which "
            "eager and SDPA kernels compute. Missing under torch.compile with checkpointing, and if it is "
            "unknown which layers are computed again, or how much of them."
        ),
    ),
    _count("tokens_processed", "tokens", "Tokens of the whole run, padding included."),
    _count("samples_processed", "samples", "Samples of the whole run.", unit="samples, all devices"),
    _count("steps", "steps", "Optimizer steps that were made.", unit="steps", source="worker file of rank 0"),
)

# Made from several rows (see `results/table/aggregate.py`).
COMPARISON = (
    _share(
        "scaling_efficiency",
        "scaling",
        "tokens_per_s_per_gpu ÷ that of the same cell at its smallest GPU count.",
        source="the table: experiments that differ only in GPUs",
        leaves_out="The global batch grows with the GPU count unless it is fixed.",
        where=Where.FIRST | Where.PAGE,
        order=120,
    ),
    Metric(
        "loss_difference",
        "loss ≠ baseline",
        (
            "train_loss ÷ train_loss of the baseline framework, less 1. The baseline framework is `baseline`, "
            "else `none`, else the first that has a loss. Only cells of one scenario that should learn alike "
            "are compared. A row beyond the tolerance is marked. If a run ended early, only the steps that both "
            "made are compared, by logged_losses. Along another axis: ÷ that of the row that `compared_with` names."
        ),
        unit="share",
        show=Show.SHARE,
        source="the table: experiments that differ only in framework",
        leaves_out="Noise of short runs. If rows, length or precision differ by design, the losses may differ too.",
    ),
    Metric(
        "doubt",
        "doubt",
        (
            "Why the number may mean less work: `faster but wrong`, or `other loss` if it is not faster. "
            "`loss not compared`: the baseline has no loss, or a run ended early and both logged none at "
            "the same step. Of arguments, only those that do not change what is learned are marked."
        ),
        show=Show.TEXT,
        source="the table",
        where=Where.FIRST | Where.PAGE,
        order=220,
    ),
)

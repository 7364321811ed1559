"""Columns of a run's work (FLOPs, tokens, steps), and columns that compare the run's row with other rows.

RELATIVE compares an experiment with its reference. `--baseline` or the scenario's `baseline:` names the reference. Without a name,
Tunebench chooses the reference.
"""

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
            "Operations per processed token that the mathematics of training needs. A trained matrix counts 6 × its weights, and a "
            "frozen matrix (such as the base model's under LoRA) 4 × its weights. Each counts 2 × less if nothing before it is "
            "trained. The lm_head counts, the embedding look-up does not. "
            "Only the experts that a token uses count. Attention counts 12 × Σ over layers of (query "
            "heads × head dim) × s, where s = Σ sᵢ² ÷ Σ sᵢ over samples. For causal attention, half of this counts."
        ),
        unit="FLOP/token",
        source="the built model's architecture and the lengths of its sequences",
        where=Where.FILES,
        leaves_out=(
            "Recomputation, norms, activations, rotary embeddings, softmax, the loss, the optimizer. "
            "Quantised weights count as the numbers that they represent. Missing for architectures that "
            "Tunebench does not know, adapters other than plain LoRA, a first trained layer of unknown order, "
            "and sequences that may be longer than a sliding window."
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
        of_steady_state=True,
        leaves_out="Counts work on padding.",
    ),
    _share(
        "mfu",
        "MFU",
        "Model FLOPs utilisation: tflops_per_s_per_gpu ÷ the device's dense peak in the training precision.",
        source="model FLOPs and the table of peaks in flops.py",
        of_steady_state=True,
        leaves_out=(
            "Missing for devices not in the table (MIG parts, H200 NVL), quantised weights, fp32 without "
            "autocast, fp8. The peak is from the data sheet; the clocks of the run may be lower."
        ),
        where=Where.FIRST | Where.PAGE,
        order=130,
    ),
    _share(
        "hfu",
        "HFU",
        (
            "MFU plus the work that gradient checkpointing repeats: the forward pass of the layers. If torch is allowed to stop a "
            "layer's repetition early, the layer's last matrix product does not count."
        ),
        source="hardware FLOPs and the table of peaks in flops.py",
        of_steady_state=True,
        leaves_out=(
            "Work that kernels repeat (flash attention's backward pass), and the masked half of attention, which "
            "eager and SDPA kernels compute. Missing under torch.compile with checkpointing, and if it is "
            "unknown which layers, or which parts of the layers, are computed again."
        ),
    ),
    _count("tokens_processed", "tokens", "Tokens of the whole run, padding included."),
    _count("samples_processed", "samples", "Samples of the whole run.", unit="samples, all devices"),
    _count("steps", "steps", "Optimizer steps that were made.", unit="steps", source="worker file of rank 0"),
)

_cost = partial(
    Metric,
    unit="currency of the price",
    direction=Direction.LOWER,
    source="the price (`--price`, or `price:` in the site file) and the numbers of the run",
)
_WHOSE = "A price per GPU-hour counts the run's GPUs, and one per node-hour whole nodes, with idle GPUs."
_STEADY_COST = "Start-up, warm-up, evaluation and saving."
_cost_end = partial(_cost, by_ratio=True, where=Where.FILES)

# Only the table computes them, and only if a price is known. The column `provenance_price` has the price and its currency.
COST = (
    _cost(
        "cost_per_billion_tokens",
        "cost/B tok",
        f"Cost of 1e9 tokens at real_tokens_per_s, or at tokens_per_s if padding is unknown. {_WHOSE}",
        by_ratio=True,
        leaves_out=_STEADY_COST,
        where=Where.FIRST | Where.KEPT | Where.PAGE,
        order=30,
    ),
    _cost_end(
        "cost_per_billion_tokens_low",
        "cost/B tok low",
        "Lower end of the 95 % t interval of cost_per_billion_tokens over repeats, computed from logarithms.",
        leaves_out="Effects that all repeats share, such as machine, day and versions.",
    ),
    _cost_end(
        "cost_per_billion_tokens_high", "cost/B tok high", "Upper end of the interval of cost_per_billion_tokens."
    ),
    _cost(
        "cost_to_finish",
        "cost to finish",
        (
            "Cost of training on all rows of the data, as often as the argument num_train_epochs says (without it: once): epochs × "
            "effective_train_rows ÷ effective_global_batch ÷ steps_per_s, at the price."
        ),
        by_ratio=True,
        leaves_out=f"{_STEADY_COST} Missing if the number of rows is unknown, as for streams.",
        where=Where.FIRST | Where.KEPT | Where.PAGE,
        order=31,
    ),
    _cost_end(
        "cost_to_finish_low",
        "cost to finish low",
        "Lower end of the 95 % t interval of cost_to_finish over repeats, computed from logarithms.",
        leaves_out="Effects that all repeats share, such as machine, day and versions.",
    ),
    _cost_end("cost_to_finish_high", "cost to finish high", "Upper end of the interval of cost_to_finish."),
    _cost(
        "cost_of_run",
        "cost of run",
        f"Cost of wall_s at the price: what the run itself cost. {_WHOSE}",
        leaves_out="Other runs at the same time: a price per node-hour counts the whole node for each of them.",
    ),
    _cost(
        "cost_to_target",
        "cost to target",
        f"Cost of time_to_target_s at the price. {_WHOSE}",
        by_ratio=True,
        leaves_out="Loading the model. A run that did not reach the target has no value; then the experiment has no mean.",
    ),
)

# These columns are made from several rows (see `results/table/aggregate.py`).
COMPARISON = (
    _share(
        "scaling_efficiency",
        "scaling",
        "tokens_per_s_per_gpu ÷ tokens_per_s_per_gpu of the same cell with the fewest GPUs on the fewest nodes. If the shares of "
        "padding of all numbers of GPUs are known and differ by more than 5 percentage points, real_tokens_per_s_per_gpu.",
        source="the table: experiments that differ only in GPUs and nodes",
        leaves_out="The global batch grows with the number of GPUs unless it is fixed.",
        where=Where.FIRST | Where.PAGE,
        order=120,
    ),
    Metric(
        "loss_difference",
        "loss ≠ baseline",
        (
            "train_loss ÷ train_loss of the baseline framework, minus 1. The baseline framework is the configuration "
            "named `baseline`, else `none`, else the first configuration that has a loss. Cells are compared only if they are of "
            "the same scenario and should learn alike. A row beyond the tolerance is marked. If a run ended early, the losses are "
            "means over the steps that both runs made (logged_losses). Along another axis, the loss is compared "
            "with that of the row in `compared_with`."
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
            "Reason to doubt the row's speed. `faster but wrong`: the row is faster than the baseline and has a different loss. "
            "`other loss`: the loss differs, but the row is not faster. `loss not compared`: the baseline has no loss, or a run "
            "ended early and the two runs logged no loss at a common step. A different loss is not a reason for doubt if the rows "
            "differ in an argument that changes what is learned. `less exact`: the numerical error of an operator is over ten "
            "times that of the baseline, with the same type, and larger than that of rounding (1.2e-5 in float32). `fewer steps to "
            "target`: the row needed significantly fewer steps to its target than the baseline (one-sided t test, 5 %), so it is "
            "another training. With `--baseline`: also every other reason why nothing is claimed about the row's speed or "
            "speed-up, such as `not steady`, in the baseline's own row, too."
        ),
        show=Show.TEXT,
        source="the table",
        where=Where.FIRST | Where.PAGE,
        order=220,
    ),
)

_ALIKE = "Missing if no cell with the baseline's value is otherwise equal."
_DOUBT = "Missing, too, if one of the two speeds is in doubt, except if `--baseline` names the baseline."

_speedup = partial(
    Metric,
    source="the table, along one axis (`compared_with`)",
    unit="ratio",
    direction=Direction.HIGHER,
    show=Show.RATIO,
    by_ratio=True,
)

RELATIVE = (
    _speedup(
        "speedup",
        "speed-up",
        (
            "The row's speed ÷ the speed of the cell that has the baseline's value and is otherwise equal. Speeds are geometric "
            "means over runs. The speed is the first of these metrics that both rows have: real_tokens_per_s, tokens_per_s, "
            "samples_per_s, 1 ÷ step_time_s. If no run of the trainer has steps, it is the first of train_tokens_per_second, "
            "train_samples_per_second, 1 ÷ train_runtime."
        ),
        leaves_out=f"{_ALIKE} {_DOUBT}",
        where=Where.FIRST | Where.KEPT | Where.PAGE,
        order=50,
    ),
    _speedup(
        "speedup_low",
        "speed-up low",
        "Lower end of the 95 % interval of speedup: Welch's t over the logarithms of the runs' speeds.",
        leaves_out="Effects that all runs share, such as machine or day. Missing if one of the two rows has only one run.",
        where=Where.FIRST | Where.KEPT,
        order=60,
    ),
    _speedup(
        "speedup_high",
        "speed-up high",
        "Upper end of the interval of speedup.",
        where=Where.FIRST | Where.KEPT,
        order=70,
    ),
    _speedup(
        "memory_ratio",
        "memory ×",
        (
            "The row's peak memory ÷ the peak memory of the cell that has the baseline's value and is otherwise equal. The metric "
            "is the first of these that both rows have: peak_allocated_bytes, peak_reserved_bytes, "
            "device_peak_used_bytes, mem_peak_torch_mem_alloc_in_bytes, mem_nvidia_mem_reserved."
        ),
        direction=Direction.LOWER,
        leaves_out=_ALIKE,
        where=Where.FIRST | Where.KEPT | Where.PAGE,
        order=80,
    ),
    Metric(
        "compared_with",
        "compared with",
        "The value that speedup and memory_ratio compare with, as in `--baseline`: `optim=sgd`, or a framework configuration.",
        show=Show.TEXT,
        source="`--baseline`, the scenario's `baseline:`, or the first value of the axis",
        leaves_out="Missing if all experiments are compared with a framework configuration.",
        where=Where.TABLES | Where.KEPT,
    ),
)

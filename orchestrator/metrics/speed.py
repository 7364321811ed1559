"""How fast a run was in its steady state, where its time went before, how much it worked for it."""

from __future__ import annotations

from orchestrator.metrics.metric import Direction, Metric, Show

_STEPS = "steps of all ranks, in steady state"
_STAMPS = "stamps of rank 0"
_PADDING = "Counts padding as work."


def _rate(name: str, label: str, unit: str, text: str, without: str) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit=unit,
        direction=Direction.HIGHER,
        description=text,
        source=_STEPS,
        leaves_out=without,
        by_ratio=True,
    )


def _time(name: str, label: str, text: str, without: str = "", *, source: str = _STEPS, ratio: bool = False) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
        description=text,
        source=source,
        leaves_out=without,
        by_ratio=ratio,
    )


def _share(name: str, label: str, text: str, without: str = "", *, better: Direction = Direction.LOWER) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="share",
        direction=better,
        show=Show.SHARE,
        description=text,
        source=_STEPS,
        leaves_out=without,
    )


def _count(name: str, label: str, unit: str, text: str, without: str = "", *, source: str = _STEPS) -> Metric:
    return Metric(
        name=name, label=label, unit=unit, show=Show.COUNT, description=text, source=source, leaves_out=without
    )


def _word(name: str, label: str, text: str, source: str) -> Metric:
    return Metric(name=name, label=label, show=Show.TEXT, description=text, source=source)


_OVER_RUNS = "experiments with two ok runs or more"

SPEED = (
    _rate(
        "tokens_per_s",
        "tok/s",
        "tokens/s, all devices",
        "Tokens of the steady steps of all ranks ÷ the time they took on the slowest rank. Over repeats: mean of logs.",
        _PADDING + " Warm-up, compilation and whatever came before them.",
    ),
    _rate(
        "tokens_per_s_per_gpu",
        "tok/s/GPU",
        "tokens/s per device",
        "tokens_per_s ÷ processes.",
        _PADDING,
    ),
    _rate(
        "real_tokens_per_s",
        "real tok/s",
        "tokens/s, all devices",
        "The same with tokens that are not padding (sum of the attention mask; all tokens where there is none).",
        "Whether a token bears loss.",
    ),
    _rate(
        "real_tokens_per_s_per_gpu",
        "real tok/s/GPU",
        "tokens/s per device",
        "real_tokens_per_s ÷ processes.",
        "Whether a token bears loss.",
    ),
    _rate(
        "labelled_tokens_per_s",
        "labelled tok/s",
        "tokens/s, all devices",
        "The same with tokens that have a label (≠ -100).",
        "That the first token of a row is never predicted.",
    ),
    _rate(
        "samples_per_s",
        "samples/s (steady)",
        "samples/s, all devices",
        "Samples of the steady steps ÷ their time; rows that hold several count as several.",
        "A sample that packing cuts counts twice.",
    ),
    _rate(
        "steps_per_s",
        "steps/s (steady)",
        "optimizer steps/s",
        "Steady steps ÷ their time.",
        "Steps of different global batches are not comparable.",
    ),
    _time(
        "step_time_s",
        "step time",
        "Median time of a steady optimizer step, from the end of one to the end of the next.",
        "Spikes move it little; spike_share says what they cost.",
        ratio=True,
    ),
    _time("step_time_low_s", "step time low", "Lower end of the 95 % interval of step_time_s within one run."),
    _time(
        "step_time_high_s",
        "step time high",
        "Upper end of the 95 % interval of step_time_s within one run.",
        "How runs differ: that takes repeats.",
    ),
    _time("step_time_p5_s", "step p5", "5 % of the steady steps were faster."),
    _time("step_time_p95_s", "step p95", "5 % of the steady steps were slower."),
    _rate(
        "tokens_per_s_low",
        "tok/s low",
        "tokens/s, all devices",
        "Lower end of the 95 % t interval of tokens_per_s over repeats (of logs).",
        "Differences that all repeats share: machine, day, versions.",
    ),
    _rate(
        "tokens_per_s_high",
        "tok/s high",
        "tokens/s, all devices",
        "Upper end of that interval.",
        "",
    ),
    Metric(
        name="tokens_per_s_spread",
        label="spread",
        unit="share",
        direction=Direction.LOWER,
        show=Show.SHARE,
        description="Relative standard deviation of tokens_per_s over repeats.",
        source=_OVER_RUNS,
    ),
    Metric(
        name="tokens_per_s_runs",
        label="n",
        direction=Direction.NONE,
        show=Show.COUNT,
        description="Repeats that tokens_per_s is the mean of: those that ended ok and reached a steady state.",
        source=_OVER_RUNS,
    ),
    _time("first_step_s", "first step", "The first step, from the start of the loop to its end.", ratio=True),
    _time(
        "compile_s",
        "compile",
        "What the steps before the steady state took above as many steady ones, where torch.compile was on.",
        "Recompilation later on, which shows as spikes.",
    ),
    _time("warmup_s", "warm-up", "Time of the steps before the steady state."),
    _time(
        "startup_s", "start-up", "From the training process' start until its libraries were imported.", source=_STAMPS
    ),
    _time(
        "model_load_s",
        "model load",
        "From there until the Trainer was given its model: data, configuration, weights.",
        source=_STAMPS,
    ),
    _time(
        "trainer_setup_s",
        "set-up",
        "From there until the loop began: wrapping, sharding, optimizer.",
        source=_STAMPS,
    ),
    _count(
        "discarded_steps",
        "cut",
        "steps",
        "Where the steady state begins: as many steps are left out of its numbers.",
    ),
    _count("steady_steps", "steady steps", "steps", "Steps that the steady state's numbers are of."),
    _word(
        "steady_found_by", "cut by", "How that place came about: `declared` by the scenario, or `found`.", "steady.py"
    ),
    _word(
        "stopped_early",
        "stopped",
        "Why training ended before its last step: `within` or `at_most_steps` of `measure:`.",
        "worker file",
    ),
    _share(
        "data_wait_share",
        "data wait",
        "Share of the steady time between the end of a step and the next one's beginning.",
        "It holds logging, evaluation and saving too. Loading that the GPU's work hides is not in it.",
    ),
    _share(
        "padding_share",
        "padding",
        "Tokens of the steady steps that are padding.",
    ),
    _count("spikes", "spikes", "steps", "Steady steps with a modified z-score above 14.8: late recompiles, stalls."),
    _share("spike_share", "spike cost", "Time of the spikes above the median step, as a share of the steady time."),
)

WORK = (
    Metric(
        name="model_flops_per_token",
        label="FLOP/token",
        unit="FLOP/token",
        description=(
            "Work that the mathematics of training asks for, per processed token: 6 × weights of matrices (4 × where frozen, "
            "as the base under LoRA; lm_head in, embedding look-up out; of experts those that a token meets) + 6 × Σ over "
            "layers of (query heads × head dim) × s for causal attention, half of the square (12 × where not causal), "
            "s = Σ sᵢ² ÷ Σ sᵢ over samples."
        ),
        source="the built model's architecture and the lengths of its sequences",
        leaves_out=(
            "Recomputation, norms, activations, rotary embeddings, softmax, the loss, the optimizer. Quantised weights count by "
            "the numbers that they stand for. Missing: architectures that the reader does not know, adapters other than plain "
            "LoRA, frozen layers below all trained ones, sequences that may outgrow a sliding window."
        ),
    ),
    Metric(
        name="tflops_per_s_per_gpu",
        label="TFLOP/s/GPU",
        unit="TFLOP/s per device",
        direction=Direction.HIGHER,
        description="model_flops_per_token × tokens_per_s_per_gpu.",
        source="model_flops_per_token and steps",
        leaves_out="Counts work on padding.",
        by_ratio=True,
    ),
    Metric(
        name="mfu",
        label="MFU",
        unit="share",
        direction=Direction.HIGHER,
        show=Show.SHARE,
        description="Model FLOPs utilisation: tflops_per_s_per_gpu ÷ the device's dense peak in the training precision.",
        source="model FLOPs and the table of peaks in flops.py",
        leaves_out=(
            "Missing for devices not in the table (MIG parts, H200 NVL), quantised weights, fp32 without autocast, fp8. The "
            "peak is the data sheet's, not that of the run's clocks."
        ),
    ),
    Metric(
        name="hfu",
        label="HFU",
        unit="share",
        direction=Direction.HIGHER,
        show=Show.SHARE,
        description=(
            "MFU with what gradient checkpointing computes again: the layers' forward pass, less each layer's last matrix where "
            "torch may stop before it."
        ),
        source="hardware FLOPs and the table of peaks in flops.py",
        leaves_out=(
            "What kernels compute again (flash attention's backward), and the masked half that eager or SDPA kernels compute. "
            "Missing under torch.compile with checkpointing, and where it is not known which layers or how much is computed again."
        ),
    ),
    _count(
        "tokens_processed",
        "tokens",
        "tokens, all devices",
        "Tokens of the whole run, padding counted.",
        source="worker files",
    ),
    _count("samples_processed", "samples", "samples, all devices", "Samples of the whole run.", source="worker files"),
    _count("steps", "steps", "steps", "Optimizer steps that were made.", source="worker file of rank 0"),
)

BESIDE = (
    Metric(
        name="scaling_efficiency",
        label="scaling",
        unit="share",
        direction=Direction.HIGHER,
        show=Show.SHARE,
        description="tokens_per_s_per_gpu ÷ that of the same cell at its smallest GPU count.",
        source="the table: experiments that differ in GPUs alone",
        leaves_out="What changes with the GPU count by itself: the global batch, where it is not held.",
    ),
    _share(
        "loss_difference",
        "loss ≠ baseline",
        "train_loss ÷ that of the scenario's baseline framework, less 1; beyond the tolerance the row is marked.",
        "Noise of short runs. Where rows, length or precision differ by design the losses may too.",
        better=Direction.NONE,
    ),
    _word("doubt", "doubt", "Why the number may stand for less work: `faster but wrong`.", "the table"),
)
"""What a row says beside others; see `across`."""

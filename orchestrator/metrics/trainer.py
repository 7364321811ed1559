"""What the Trainer itself reports at the end of a run, and its memory tracker: the numbers that the field knows."""

from __future__ import annotations

from orchestrator.metrics.metric import Direction, Judged, Metric, Show

_TRACKER = " Rank 0 and its device only."


_TOLERANCE = 0.05
"""Of the tracker's memory, which sees one rank and adds up stages, and of the loss, as beside a baseline (see `across`)."""


def _trainer(
    name: str,
    label: str,
    unit: str,
    better: Direction,
    text: str,
    without: str,
    show: Show,
    judged: Judged = Judged.TEST,
) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit=unit,
        direction=better,
        description=text,
        source="final metrics of the Trainer",
        leaves_out=without,
        show=show,
        judged=judged,
        min_effect=_TOLERANCE if judged is Judged.GUARD else 0.02,
    )


def _stage_memory(name: str, text: str) -> Metric:
    return Metric(
        name=name,
        label=name,
        unit="bytes",
        show=Show.BYTES,
        description=text,
        source="memory tracker of the Trainer",
        leaves_out="Other ranks, other processes, the allocator's reserve.",
    )


def _stages() -> tuple[Metric, ...]:
    stages = {"init": "while the Trainer was built", "train": "in training"}
    devices = {"cpu": "of the process (resident)", "gpu": "on the GPU"}
    changes = {
        "alloc": "Change of memory {where} {when}.",
        "peaked": "Peak {when} above what was held at the end of it, {where}.",
    }
    before = (
        _stage_memory("before_init_mem_cpu", "Resident memory of the process before the Trainer was built."),
        _stage_memory("before_init_mem_gpu", "GPU memory allocated by torch before the Trainer was built."),
    )
    deltas = (
        _stage_memory(f"{stage}_mem_{device}_{change}_delta", text.format(where=where, when=when))
        for stage, when in stages.items()
        for device, where in devices.items()
        for change, text in changes.items()
    )
    return (*before, *deltas)


FINAL = (
    _trainer(
        "train_tokens_per_second",
        "Trainer tok/s",
        "tokens/s per device",
        Direction.HIGHER,
        "Processed tokens ÷ train_runtime ÷ world size, padding counted: the number that the reference's users know.",
        "Counts padding as work; warm-up, compilation, evaluation and saving are in: no steady-state speed.",
        Show.NUMBER,
    ),
    _trainer(
        "train_samples_per_second",
        "samples/s",
        "samples/s, all devices",
        Direction.HIGHER,
        "Samples ÷ train_runtime, over all processes.",
        "A packed row counts as one sample. Holds warm-up and compilation.",
        Show.NUMBER,
    ),
    _trainer(
        "train_steps_per_second",
        "steps/s",
        "optimizer steps/s",
        Direction.HIGHER,
        "Optimizer steps ÷ train_runtime.",
        "Steps of different global batches are not comparable. Holds warm-up and compilation.",
        Show.NUMBER,
    ),
    _trainer(
        "train_runtime",
        "train time",
        "s",
        Direction.LOWER,
        "Wall time from the start of the training loop to its end.",
        "Loading the model. Compilation, first-step set-up, evaluation and saving are in.",
        Show.SECONDS,
    ),
    _trainer(
        "train_loss",
        "loss",
        "nats",
        Direction.LOWER,
        "Mean training loss over all steps of the run.",
        "Not the final loss, and no held-out data: compare only runs with the same data, length and global batch.",
        Show.NUMBER,
        Judged.GUARD,
    ),
    Metric(
        name="logged_losses",
        label="losses",
        description="The loss as training went: points `step:mean of the steps since the point before`, at most four for each "
        "doubling of the steps, and the last.",
        source="worker file of rank 0",
        show=Show.TEXT,
        leaves_out="Where the Trainer logged more often, neighbours are put together. Several runs are separated by commas.",
    ),
    _trainer(
        "epoch",
        "epoch",
        "epochs",
        Direction.NONE,
        "Passes over the data that were made.",
        "",
        Show.NUMBER,
    ),
    _trainer(
        "total_flos",
        "FLOPs (HF)",
        "FLOP",
        Direction.NONE,
        "Floating-point work as the Trainer estimates it.",
        "Attention and PEFT; counts padding, and differs between FSDP versions: no base for efficiency.",
        Show.NUMBER,
    ),
    _trainer(
        "num_input_tokens_seen",
        "tokens seen",
        "tokens, all devices",
        Direction.NONE,
        "Input tokens as the Trainer counts them, where it was asked to.",
        "Whether padding is in depends on include_num_input_tokens_seen.",
        Show.COUNT,
    ),
)

MEMORY = (
    Metric(
        name="mem_peak_torch_mem_alloc_in_bytes",
        label="peak torch mem",
        unit="bytes",
        direction=Direction.LOWER,
        show=Show.BYTES,
        description="Highest GPU memory held by tensors: running sum of the stage deltas plus each stage's peak.",
        source="memory tracker of the Trainer (skip_memory_metrics: False)",
        judged=Judged.TOLERANCE,
        min_effect=_TOLERANCE,
        leaves_out="The allocator's reserve, contexts and communication buffers; other ranks than 0." + _TRACKER,
    ),
    Metric(
        name="mem_torch_mem_alloc_in_bytes",
        label="torch mem",
        unit="bytes",
        direction=Direction.LOWER,
        show=Show.BYTES,
        description="GPU memory held by tensors at the end of a stage (before init, init, train): the highest.",
        source="memory tracker of the Trainer (skip_memory_metrics: False)",
        judged=Judged.TOLERANCE,
        min_effect=_TOLERANCE,
        leaves_out="Everything between the ends of stages: activations are not in." + _TRACKER,
    ),
    *_stages(),
)

"""Columns that say where the time of a step goes: its parts, the waits for other ranks, and how far the host sets the pace."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Metric, Show, Where

_MARKS = "marks in the steps of all ranks, in steady state"
_NO_OTHERS = "The other parts of a step: logging, evaluation and saving, and the time between micro-batches."

_of_marks = partial(Metric, source=_MARKS, of_steady_state=True, where=Where.FILES)
_time = partial(_of_marks, unit="s", direction=Direction.LOWER, show=Show.SECONDS, min_effect=0.05)
_share = partial(_of_marks, unit="share", show=Show.SHARE)
_mfu = partial(_share, direction=Direction.HIGHER, source="the built model, and marks in the steps")

STEP_PARTS = (
    _time(
        "data_time_s",
        "data",
        (
            "Mean time per steady step in which a device only waits for the Trainer to fetch the step's batches. All times of "
            "parts are means over steps and ranks."
        ),
        leaves_out="Data loading while the GPU still works. Evaluation, logging and saving.",
        step_part="waiting for data",
    ),
    _time(
        "between_time_s",
        "between steps",
        "Mean time between steady steps without data_time_s: logging, evaluation, saving and other callbacks.",
        step_part="logging, evaluation and saving",
    ),
    _time(
        "forward_time_s",
        "forward",
        "Mean time of the forward passes per steady step, all micro-batches added up, with the loss.",
        leaves_out=_NO_OTHERS,
        step_part="forward pass",
    ),
    _time(
        "backward_time_s",
        "backward",
        "Mean time of the backward passes per steady step, all micro-batches added up, with what checkpointing computes again.",
        leaves_out=_NO_OTHERS,
        step_part="backward pass",
    ),
    _time(
        "optimizer_time_s",
        "optimizer",
        "Mean time per steady step from the end of the last backward pass to the step's end: clipping, optimizer, scheduler.",
        leaves_out="An optimizer that acts inside the backward pass.",
        step_part="optimizer",
    ),
    _time(
        "exposed_comm_time_s",
        "communication",
        (
            "Exposed communication: the mean time per steady step in which a device's computation waits for other ranks. It is "
            "part of the passes. With sharded models, every fifth step is measured."
        ),
        leaves_out=(
            "Communication while the GPU computes. Communication in the optimizer, such as that for the norm of the gradients; "
            "with torch.compile, the broadcast of buffers before a forward pass."
        ),
    ),
    _time(
        "forward_comm_time_s",
        "communication, forward",
        "The part of exposed_comm_time_s that is in forward passes.",
        where=Where.RAW,
        step_part="communication in the forward pass",
        within="forward_time_s",
    ),
    _time(
        "backward_comm_time_s",
        "communication, backward",
        "The part of exposed_comm_time_s that is in backward passes.",
        where=Where.RAW,
        step_part="communication in the backward pass",
        within="backward_time_s",
    ),
    _share(
        "host_bound_share",
        "host-bound",
        (
            "Share of the steady time in passes and optimizers at whose end the GPU waited for the host: the host sets the pace "
            "there, by launching kernels. torch.compile or a larger batch may help."
        ),
        direction=Direction.LOWER,
        leaves_out="How long the GPU works in such a pass; with `monitors: [nvml]`, gpu_utilization shows it. Waiting for data.",
        where=Where.TABLES,
    ),
    _mfu(
        "forward_mfu",
        "MFU forward",
        "Model FLOPs of the forward pass ÷ its time, as a share of the device's peak.",
        leaves_out="Missing if mfu is missing.",
    ),
    _mfu(
        "backward_mfu",
        "MFU backward",
        "Model FLOPs of the backward pass ÷ its time, as a share of the device's peak.",
        leaves_out="Work that checkpointing repeats: only its time counts. Missing if mfu is missing.",
    ),
    _share(
        "step_tokens_spread",
        "tokens' spread",
        "Standard deviation of the tokens of a steady step ÷ their mean.",
        source="steps of all ranks, in steady state",
    ),
    Metric(
        "step_tokens_per_gpu",
        "tokens/step/GPU",
        "Tokens of a steady step ÷ processes, padding included.",
        unit="tokens/step per device",
        show=Show.COUNT,
        source="steps of all ranks, in steady state",
        of_steady_state=True,
        where=Where.FILES,
    ),
)

"""Columns of the training processes' memory, as torch and the operating system measure it on every rank."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Judged, Metric, Show, Where

_TORCH = "torch's allocator, highest rank (ranks.csv has each)"
_RESERVE = "The allocator's reserve, contexts, communication buffers, libraries' own memory."

_bytes = partial(
    Metric, source=_TORCH, unit="bytes", direction=Direction.LOWER, show=Show.BYTES, judged=Judged.TOLERANCE
)
_allocated = partial(_bytes, leaves_out=_RESERVE, where=Where.FILES)
_count = partial(
    Metric,
    source="torch's allocator, sum over ranks",
    direction=Direction.LOWER,
    show=Show.COUNT,
    judged=Judged.TOLERANCE,
    where=Where.FILES,
)

MEMORY = (
    _bytes(
        "peak_allocated_bytes",
        "peak alloc",
        "Highest memory that tensors held at any time.",
        leaves_out=f"{_RESERVE} With trainer thunder also ranks other than 0.",
        where=Where.FIRST | Where.PAGE | Where.COMPARED,
        order=140,
    ),
    _bytes(
        "peak_reserved_bytes",
        "peak reserved",
        "Highest memory that torch's allocator held: tensors and cache.",
        leaves_out="Contexts, communication buffers, libraries' own memory.",
        where=Where.TABLES | Where.COMPARED,
        order=150,
    ),
    _allocated("allocated_after_load_bytes", "alloc loaded", "Memory that tensors held when training began."),
    _allocated(
        "peak_allocated_first_step_bytes",
        "peak 1st step",
        "Highest memory that tensors held during the first step, compilation included.",
    ),
    _allocated("peak_allocated_steady_bytes", "peak steady", "Highest memory that tensors held after the first step."),
    _bytes(
        "saved_for_backward_bytes",
        "saved tensors",
        "Size of the tensors that the forward pass saves for the backward pass.",
        source=f"{_TORCH}, in the first micro-batch of the second step; the program's own results file (trainer thunder)",
        leaves_out="With FSDP, weights that stay gathered are counted, too. With trainer thunder: ranks other than 0, and all "
        "compiled graphs but the last.",
        where=Where.FILES | Where.COMPARED,
        order=155,
    ),
    _count(
        "alloc_retries", "retries", "How often the allocator freed its cache because memory was full.", unit="retries"
    ),
    _count(
        "cuda_ooms", "OOMs", "Out-of-memory errors that torch saw, including errors that were caught.", unit="errors"
    ),
    _bytes(
        "host_rss_bytes",
        "host mem",
        "Highest resident memory of the training processes and their children, sum over ranks.",
        source="/proc of every rank",
        leaves_out="A page that several processes share is counted in each of them. Memory is read only at the ends of stages.",
        where=Where.FILES,
    ),
)

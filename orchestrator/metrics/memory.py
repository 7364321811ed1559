"""Memory of the training processes as torch and the operating system saw it, on every rank."""

from __future__ import annotations

from orchestrator.metrics.metric import Direction, Judged, Metric, Show

_TORCH = "torch's allocator, highest rank (ranks.csv has each)"
_RESERVE = "The allocator's reserve, contexts, communication buffers, libraries' own memory."


def _bytes(name: str, label: str, text: str, without: str, source: str = _TORCH) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="bytes",
        direction=Direction.LOWER,
        show=Show.BYTES,
        description=text,
        source=source,
        leaves_out=without,
        judged=Judged.TOLERANCE,
    )


def _count(name: str, label: str, unit: str, text: str) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit=unit,
        direction=Direction.LOWER,
        show=Show.COUNT,
        description=text,
        source="torch's allocator, sum over ranks",
        judged=Judged.TOLERANCE,
    )


MEMORY = (
    _bytes("peak_allocated_bytes", "peak alloc", "Highest memory that tensors held in the whole process.", _RESERVE),
    _bytes(
        "peak_reserved_bytes",
        "peak reserved",
        "Highest memory that torch's allocator held, tensors and cache.",
        "Contexts, communication buffers, libraries' own memory.",
    ),
    _bytes("allocated_after_load_bytes", "alloc loaded", "Memory that tensors held when training began.", _RESERVE),
    _bytes(
        "peak_allocated_first_step_bytes",
        "peak 1st step",
        "Highest memory that tensors held during the first step, compilation included.",
        _RESERVE,
    ),
    _bytes(
        "peak_allocated_steady_bytes",
        "peak steady",
        "Highest memory that tensors held after the first step.",
        _RESERVE,
    ),
    _count("alloc_retries", "retries", "retries", "How often the allocator freed its cache because memory was full."),
    _count("cuda_ooms", "OOMs", "errors", "Out-of-memory errors that torch saw, also those that were caught."),
    _bytes(
        "host_rss_bytes",
        "host mem",
        "Highest resident memory of the training processes and their children, sum over ranks.",
        "Pages that processes share are counted in each. Read at the ends of stages.",
        "/proc of every rank",
    ),
)

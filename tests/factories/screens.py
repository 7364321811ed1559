"""Screens of machines, as `tunebench screen` would measure them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.screen.figures import Card, Figure, Screen

H100 = "NVIDIA H100 80GB HBM3"
MATMUL = "matmul_flops_per_s"


def around(value: float, spread: float = 0.001) -> tuple[float, ...]:
    """Return five samples whose median is the value."""
    return tuple(value * (1 + spread * step) for step in (-2, 1, 0, -1, 2))


def of_gpu(gpu: int, value: float, name: str = MATMUL, **fields: Any) -> Figure:
    return Figure(**{"name": name, "gpus": (gpu,), "like": H100, "samples": around(value), **fields})


def screened(matmuls: Sequence[float], *more: Figure, busy: Sequence[int] = (), **fields: Any) -> Screen:
    """Make the screen of a machine whose GPUs reach these rates of matrix products. `busy` GPUs have another process."""
    cards = tuple(
        Card(
            index=gpu,
            uuid=f"GPU-{gpu}",
            name=H100,
            used_bytes=5 * 2**30 if gpu in busy else None,
            processes=("process 812 (python), 5.0 GiB",) if gpu in busy else (),
        )
        for gpu in range(len(matmuls))
    )
    figures = tuple(of_gpu(gpu, value) for gpu, value in enumerate(matmuls))
    known = {"host": "node1", "taken_at": "2026-11-26T08:00:00+0000", "took_s": 31.0}
    software = {"python": "3.11.7", "torch": "2.11.0"}
    return Screen(**{**known, "software": software, "cards": cards, "figures": (*figures, *more), **fields})

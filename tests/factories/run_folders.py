"""Run folders as the instrument leaves them, for tests: worker files and steps of every rank, without any training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGAN = 1_700_000_000.0


def write_steps(run_dir: Path, rank: int, seconds: Sequence[float], **fields: Any) -> None:
    """Steps of these durations; `fields` are constant in each, or a list with one for each."""
    at, lines = BEGAN, []
    for number, duration in enumerate(seconds, start=1):
        at += duration
        own = {name: value[number - 1] if isinstance(value, list) else value for name, value in fields.items()}
        counts = {"tokens": 1000, "real": 800, "labelled": 500, "samples": 4, "squares": 250_000, "micro": 1}
        wait = own.pop("wait_s", 0.0)
        line = {"step": number, "t": at, "s": duration, "compute_s": duration - wait, "wait_s": wait, **counts, **own}
        lines.append(json.dumps(line) + "\n")
    (run_dir / f"steps-rank{rank}.jsonl").write_text("".join(lines), encoding="utf-8")


def worker(rank: int = 0, *, world_size: int = 1, steps: int = 40, **fields: Any) -> dict[str, Any]:
    """A worker file's content."""
    memory = {
        "allocated_bytes": 100, "reserved_bytes": 200, "peak_allocated_bytes": 300 + rank, "peak_reserved_bytes": 400,
        "alloc_retries": 0, "ooms": 0, "rss_bytes": 1000,
    }  # fmt: skip
    stamps = {"process_start": 10.0, "imports_done": 14.0, "model_built": 16.5, "train_begin": 17.0}
    return {
        "schema": 2, "rank": rank, "world_size": world_size, "host": "node", "status": "ok", "error": None,
        "metrics": {"train_runtime": 10.0, "train_loss": 2.5}, "settings": {"torch_compile": False}, "versions": {},
        "tokens": {"processed": 1000 * steps, "real": 800 * steps, "labelled": 500 * steps, "samples": 4 * steps,
                   "squares": 250_000 * steps, "steps": steps, "micro": steps},
        "stamps": stamps, "memory": {"after_load": memory, "first_step": memory, "steady": memory},
        "peak": {"allocated_bytes": 300 + rank, "reserved_bytes": 400, "rss_bytes": 1000},
        "measure": None, "stopped": None, "nonfinite_step": None, "gpu": None, **fields,
    }  # fmt: skip


def write_worker(run_dir: Path, content: Mapping[str, Any]) -> None:
    (run_dir / f"worker-rank{content['rank']}.json").write_text(json.dumps(content), encoding="utf-8")

"""Campaigns for tests of what people look at: many experiments with numbers as real ones have, series and logs beside them.

Made by a seeded generator, written through the store as runs would be. The numbers are invented: they look like an H100's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from factories.results import BASE, ended, failed, stored
from factories.run_folders import BEGAN, write_steps
from orchestrator.records import Device, Experiment, Framework, RunRecord
from orchestrator.results.store import Store

FRAMEWORKS = {
    "baseline": 1.0,
    "liger": 1.21,
    "packing": 1.08,
    "padding-free": 1.15,
    "torch-compile": 1.18,
    "fused-optimizer": 1.03,
    "flash-attention": 1.12,
    "gradient-checkpointing": 0.78,
    "fsdp": 0.95,
    "bnb-nf4": 0.7,
}
MODELS = {"config:llama-1b": 52_000, "Qwen/Qwen2.5-7B": 9_800, "mistralai/Mistral-7B-v0.3": 9_300}
CARD_BYTES = 85_520_809_984
START = 1_795_000_000.0


def experiments(
    frameworks: Sequence[str] = tuple(FRAMEWORKS),
    models: Sequence[str] = tuple(MODELS),
    gpus: Sequence[int] = (1, 2, 4, 8),
    batches: Sequence[int] = (8,),
) -> Iterator[Experiment]:
    for number, (model, framework, count, batch) in enumerate(product(models, frameworks, gpus, batches)):
        yield replace(
            BASE,
            id=f"full-{model.rpartition('/')[2].replace(':', '-')}.{framework}.gpus{count}-{number:012x}",
            scenario="full-finetuning",
            model=model,
            num_gpus=count,
            device=Device.CUDA,
            framework=Framework(name=framework, digest="1"),
            monitors=("nvml",),
            arguments={**BASE.arguments, "model_name_or_path": model, "per_device_train_batch_size": str(batch)},
        )


def campaign(
    root: Path,
    chosen: Sequence[Experiment],
    *,
    repeats: int = 1,
    series: int = 0,
    logs: bool = True,
    seed: int = 0,
    start: float = START,
) -> Path:
    """A results folder of these experiments: one in fifty out of memory; of the first `series` runs the steps and samples too."""
    chance = random.Random(seed)
    cells = [(one, list(_records(one, repeats, chance, at, start))) for at, one in enumerate(chosen)]
    stored(root, *cells)
    store, left = Store.resume(root), series
    for experiment, records in cells:
        for record in records:
            run_dir = store.run_dir(experiment.id, record.repeat, record.attempt)
            if logs:
                write_texts(run_dir, experiment)
            if left > 0 and record.status == "ok":
                left -= 1
                write_series(run_dir, experiment, chance)
    return root


def _records(experiment: Experiment, repeats: int, chance: random.Random, at: int, start: float) -> Iterator[RunRecord]:
    for repeat in range(1, repeats + 1):
        started_at = start + 60 * (at * repeats + repeat)
        if at % 50 == 17:
            yield replace(failed(experiment, repeat), started_at=started_at, wall_s=21.5)
            continue
        yield replace(
            ended(experiment, repeat, **numbers(experiment, chance)),
            started_at=started_at,
            wall_s=55.0 + chance.random(),
            ranks=tuple(_rank(rank, chance) for rank in range(experiment.num_gpus)),
            provenance={
                "git": {"commit": "853061b7eb168547c59becff319d1257bbddc61d", "dirty": False},
                "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
                "gpus": [{"name": "NVIDIA H100 80GB HBM3", "memory_bytes": CARD_BYTES}] * experiment.num_gpus,
                "host": {"name": "node-1", "cpu": "Intel Xeon", "cpu_count": 64, "memory_bytes": 2**39},
                "driver": {"driver": "580.159.04", "cuda": "13.0"},
            },
        )


def numbers(experiment: Experiment, chance: random.Random) -> dict[str, float | int | str | None]:
    """What a run of the experiment measures."""
    count, batch = experiment.num_gpus, int(str(experiment.arguments["per_device_train_batch_size"]))
    factor = FRAMEWORKS.get(experiment.framework.name if experiment.framework else "", 1.0)
    lost = 1 - 0.02 * (count - 1) ** 0.6 * (1.5 - factor / 2)
    a_gpu = MODELS.get(experiment.model, 20_000) * factor * lost * batch**0.06 * chance.gauss(1, 0.008)
    allocated = int(CARD_BYTES * min(0.9, 0.35 + 0.02 * batch) * (1.6 - 0.6 * factor))
    return {
        "tokens_per_s": a_gpu * count,
        "tokens_per_s_per_gpu": a_gpu,
        "step_time_s": 2048 * batch / a_gpu,
        "steps_per_s": a_gpu / (2048 * batch),
        "data_wait_share": 0.01 * factor,
        "gpu_utilization": 0.98 - 0.03 * factor,
        "steady_steps": 39,
        "discarded_steps": 1,
        "first_step_s": 1.3 + chance.random(),
        "warmup_s": 1.3 + chance.random() + (20 if factor == 1.18 else 0),
        "startup_s": 8 + chance.random(),
        "model_load_s": 2 + chance.random(),
        "trainer_setup_s": 0.8 + chance.random(),
        "steps": 40,
        "train_loss": 9.4 + chance.gauss(0, 0.01),
        "peak_allocated_bytes": allocated,
        "peak_reserved_bytes": int(allocated * 1.09),
        "device_peak_used_bytes": float(int(allocated * 1.09) + 2_100_000_000),
        "energy_per_real_token_j": 690 / a_gpu,
        "mean_power_w": 690 + chance.gauss(0, 5),
        "mfu": 0.36 * factor,
    }


def _rank(rank: int, chance: random.Random) -> dict[str, float | int]:
    return {
        "rank": rank,
        "compute_time_s": 0.31 * chance.gauss(1, 0.004) * (1.03 if rank == 3 else 1),
        "peak_allocated_bytes": int(4e10 * chance.gauss(1, 0.002)),
    }


def write_texts(run_dir: Path, experiment: Experiment) -> None:
    """The run's command and logs, as long as real ones."""
    words = " \\\n  ".join(f"--{name} {value}" for name, value in experiment.arguments.items())
    (run_dir / "command.sh").write_text(f"#!/bin/bash\nset -euo pipefail\nexec python -m accelerate \\\n  {words}\n")
    lines = [f"{{'loss': {9 + n / 10:.2f}, 'grad_norm': 1.{n}, 'epoch': 0.{n:02}}}" for n in range(12)]
    (run_dir / "stdout.log").write_text("\n".join(lines) + "\n")
    (run_dir / "stderr.log").write_text("")


def write_series(run_dir: Path, experiment: Experiment, chance: random.Random, *, steps: int = 40) -> None:
    """Steps of each rank, the first one long, now and then a spike; and samples of each GPU."""
    for rank in range(experiment.num_gpus):
        usual = [0.31 * chance.gauss(1, 0.006) for _ in range(steps)]
        usual[0] = 1.4
        write_steps(
            run_dir, rank, [seconds * (1.5 if n in (19, 33) else 1) for n, seconds in enumerate(usual, start=1)]
        )
    write_samples(run_dir, experiment, chance)


def write_samples(run_dir: Path, experiment: Experiment, chance: random.Random, *, seconds: int = 30) -> None:
    """Samples from 12 s before the steps: memory that rises in steps, power that follows."""
    lines = ["time,gpu,what,value"]
    for tenth in range(seconds * 10):
        busy = 120 < tenth < seconds * 10 - 20
        for place in range(experiment.num_gpus):
            moment = BEGAN - 12 + tenth / 10
            power = 690 + chance.gauss(0, 30) if busy else 76
            lines.append(f"{moment:.4f},{place},power,{power:.3f}")
            if tenth % 5 == 0 or tenth in (121, 140):
                memory = 0 if tenth < 100 else 50_330_402_816 if busy else 4_000_000_000
                lines.append(f"{moment:.4f},{place},memory,{memory}")
    lines.append('# {"cpu_s": 0.6, "period_s": 0.01, "rss_bytes": 54000000}')
    (run_dir / "samples-nvml.csv").write_text("\n".join(lines) + "\n")


HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "<a href='https://example.org'>x</a>",
    "{{ 7 * 7 }} {% raw %}",
    "<!--<script>",
    "\u202eevil\u2066 \u2028 \x1b[31m\x00",
    "&lt;b&gt; %{x} @series-0",
)
"""Names that are attacks where somebody takes them for more than text."""


def hostile(root: Path) -> Path:
    """Experiments whose names, arguments, logs and causes are attacks."""
    evil = [
        replace(
            BASE,
            id=f"full-evil-{n:012x}",
            scenario=text,
            model=text[::-1] + text,
            num_gpus=1 + n % 2,
            device=Device.CUDA,
            framework=Framework(name=text, digest="1"),
            arguments={**BASE.arguments, "response_template": text},
            tags=(text,),
        )
        for n, text in enumerate(HOSTILE)
    ]
    numbers = {"tokens_per_s": 10.0, "peak_allocated_bytes": 1000, "startup_s": 1.0, "discarded_steps": 1}
    records = [
        (one, [ended(one, 1, **numbers), replace(failed(one, 2), cause=one.scenario, hint=one.scenario)])
        for one in evil
    ]
    stored(root, *records)
    for run_dir in root.glob("experiments/*/runs/*"):
        (run_dir / "stdout.log").write_text("\n".join(HOSTILE), encoding="utf-8")
        (run_dir / "command.sh").write_text("\n".join(HOSTILE), encoding="utf-8")
        (run_dir / "evil.html").write_text("<script>alert(1)</script>")
        (run_dir / "<img src=x onerror=alert(1)>").write_text("")
        write_series(run_dir, evil[0], random.Random(0))
    return root

"""Measure what monitors cost: many short trainings of one process, without a monitor and with each in turn.

    python benchmarks/short_trainings.py [hf_memory] [hf_memory_native] [nvml] [--rounds 30] [--steps 30]

Each round trains the same model without a monitor and with each, in an order that is shuffled by a seed. A training's
number is the median time of its steps after the first ten. Prints the change of each against the training without a
monitor in the same round, in per cent, with its 95 % interval over rounds. There is one process, because two
processes differ by more than this costs. NVML's sampler is a process of its own, as in a run, and lives as long as
the training. Uses a GPU if there is one.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from overhead import said
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, trainer

from orchestrator.monitors import nvml
from orchestrator.workers.instrument import stages

ON_GPU = torch.cuda.is_available()
WARM_UP_STEPS = 10
NATIVE = trainer.TrainerMemoryTracker
TRACKERS = {"hf_memory": stages.light(NATIVE, stages.Memory()), "hf_memory_native": NATIVE}
NVML = "nvml"


class Steps(transformers.TrainerCallback):  # type: ignore[misc]
    """Notes when each step ends. On CUDA it records an event, and reads the event at the end."""

    def __init__(self) -> None:
        self.ends: list[Any] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if not ON_GPU:
            self.ends.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.ends.append(event)

    def seconds(self) -> list[float]:
        if not ON_GPU:
            return [end - start for start, end in zip(self.ends, self.ends[1:], strict=False)]
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in zip(self.ends, self.ends[1:], strict=False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("monitors", nargs="*", choices=[*TRACKERS, NVML])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=2048)
    given = parser.parse_args()
    sizes = {"hidden_size": given.width, "intermediate_size": given.width * 11 // 4, "num_hidden_layers": given.layers}
    config = LlamaConfig(**sizes, num_attention_heads=32, num_key_value_heads=4, max_position_embeddings=given.tokens)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    ids = torch.randint(0, config.vocab_size, (64, given.tokens))
    data = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row.clone()} for row in ids]
    monitors = given.monitors or [*TRACKERS]
    found: dict[str, list[float]] = {kind: [] for kind in ("none", *monitors)}
    rng = random.Random(0)
    for done in range(given.rounds + 1):
        for kind in rng.sample(list(found), len(found)):
            with sampling() if kind == NVML else nullcontext():
                seconds = train(model, data, kind, steps=given.steps)
            found[kind] += [seconds] if done else []  # the first round is warm-up
    print(f"{given.rounds} rounds, {median(found['none']) * 1000:.2f} ms per step without")
    for kind in monitors:
        print(said(kind, [one / none for one, none in zip(found[kind], found["none"], strict=True)]))


@contextmanager
def sampling() -> Iterator[None]:
    """Run NVML's sampler next to this process; it reads the first GPU."""
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    sampler = subprocess.Popen([sys.executable, nvml.SAMPLER, str(nvml.PERIOD_S), uuid], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        sampler.terminate()
        if sampler.wait():
            raise SystemExit("the sampler failed")


def train(model: Any, data: list[Any], kind: str, *, steps: int) -> float:
    """Return the median seconds of a step."""
    trainer.TrainerMemoryTracker = TRACKERS.get(kind, NATIVE)
    noted = Steps()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=str(Path(folder)), max_steps=steps, per_device_train_batch_size=4, bf16=ON_GPU, logging_nan_inf_filter=False,
            logging_steps=10**6, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=not ON_GPU,
            skip_memory_metrics=kind not in TRACKERS,
        )  # fmt: skip
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=[noted]).train()
    return median(noted.seconds()[WARM_UP_STEPS:])


if __name__ == "__main__":
    main()

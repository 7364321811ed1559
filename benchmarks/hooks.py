"""Measure the seconds of host time that each hook of the instrument takes in a step of a real training.

    python benchmarks/hooks.py [--steps 200]

Trains six layers of a Llama of a billion parameters on a GPU if there is one, else a tiny Llama on the CPU. A loop
with only the hooks would show a tenth of their time, because in a training the caches are cold. On a GPU most
hooks run while the GPU computes and should cost nothing. The GPU waits for `note`, `on_step_begin` and `kept` in
every step, and for `on_log` when there is a log. Left out: the wrappers of `training_step` and `send_to_device`, and
the first call of each hook.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from orchestrator.machine.gpus import visible_gpus
from orchestrator.machine.provenance import this_machine
from orchestrator.plan.command import build_command
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import parse_selection
from orchestrator.records import RunFolder
from orchestrator.run import run_files
from orchestrator.run.data_preparation import prepare_data

SCENARIO = """\
data_processing: {dataset_name: "builtin:synthetic", samples: 512}
scenarios:
- name: hooks
  framework_config: [baseline]
  device: auto
  arguments: {per_device_train_batch_size: 4, max_steps: STEPS, logging_steps: 5, MODEL}
"""
MODELS = {
    True: "model_name_or_path: 'config:llama-1b', num_hidden_layers: 6, max_seq_len: 2048, dtype: bfloat16, bf16: true",
    False: "model_name_or_path: 'config:tiny-llama', max_seq_len: 64",
}
HOOKS = {
    "recorder": ("Recorder", ("on_step_begin", "on_step_end", "on_log", "look_at")),
    "meter": ("Meter", ("count", "harvest", "enter")),
    "counting": ("", ("counted", "note", "kept")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        spent = train(Path(name), steps=given.steps)
    for hook, seconds in spent.items():
        print(f"{hook:14} {seconds / given.steps * 1e6:6.0f} µs per step")
    print(f"{'together':14} {sum(spent.values()) / given.steps * 1e6:6.0f} µs per step, over {given.steps} steps")


def train(folder: Path, *, steps: int) -> dict[str, float]:
    """Return the seconds that each hook takes over a training in this process. The first call of a hook does not count."""
    file = folder / "scenarios.yaml"
    gpus = visible_gpus()[:1]
    text = SCENARIO.replace("STEPS", str(steps + 1)).replace("MODEL", MODELS[bool(gpus)])
    file.write_text(text, encoding="utf-8")
    (experiment,) = expand(load_suite(file), parse_selection(), this_machine()).experiments
    prepare_data([experiment])
    command = build_command(experiment, python=sys.executable, gpus=[gpu.uuid for gpu in gpus], run_dir=folder, port=0)
    run_files.write(command, RunFolder(folder))
    os.environ.update({name: value for name, value in command.env.items() if value is not None})
    start = next(i for i, word in enumerate(command.argv) if word.endswith("instrument.py"))
    instrument = loaded(command.argv[start])
    spent: dict[str, list[float]] = {}
    part = instrument.part

    def timed_part(name: str) -> ModuleType:
        module: ModuleType = part(name)
        kind, hooks = HOOKS.get(name, ("", ()))
        for hook in hooks:
            owner = getattr(module, kind) if kind else module
            setattr(owner, hook, timed(getattr(owner, hook), spent.setdefault(hook, [])))
        return module

    instrument.part = timed_part
    sys.argv = list(command.argv[start:])
    instrument.start()
    return {hook: sum(times) - times[0] for hook, times in spent.items()}


def loaded(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("instrument", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def timed(hook: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    @functools.wraps(hook)
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return hook(*args, **kwargs)
        finally:
            times.append(time.perf_counter() - began)

    return call


if __name__ == "__main__":
    main()

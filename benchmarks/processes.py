"""What measuring costs from process to process: whole trainings of a scenario file's cells, many times, in turn.

    python benchmarks/processes.py examples/instrument-cost.yaml --scenario cost-all-on --scenario cost-all-off \\
        --set arguments.max_steps=80 --set arguments.logging_steps=5 [--rounds 20] [--to rounds.jsonl]
    python benchmarks/processes.py --show rounds.jsonl [ANOTHER.jsonl]

Two processes of the very same kind differ by more than measuring costs, so that many are needed, and most of a run is its imports.
Here a process that has imported what a run imports, and has never touched a GPU, is forked for each: it makes its own CUDA
context, its own model and its own training, by the instrument and the trainer's script as they are, with the monitors of its
scenario beside it. What differs from a run: accelerate's launcher is left out, and imports are shared.

Each round makes every scenario once, and the one without measuring (`--off`) a second time, in an order shuffled by a seed. A run's
number is the median time between its logs, as in `overhead.py pairs`. Printed is each scenario's change against the two without
of its round, in per cent, with its 95 % interval over rounds; and the second without against the first, which should be nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import runpy
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from overhead import WARM_UP_LOGS, between_logs, said

from orchestrator import monitors
from orchestrator.config import load_suite
from orchestrator.gpus import visible_gpus
from orchestrator.launcher import THREADS, build_command
from orchestrator.matrix import expand
from orchestrator.preparation import prepare_data
from orchestrator.provenance import this_machine
from orchestrator.records import Device, Experiment, Gpu
from orchestrator.selection import parse_selection

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
os.environ[NVML_CHECK] = "1"  # asking whether there is a GPU must not touch it: a fork could not use it then
os.environ.setdefault("OMP_NUM_THREADS", THREADS[Device.CUDA])  # read when torch is imported

AGAIN = " again"
FEWEST_LOGS = WARM_UP_LOGS + 6
TRAINER = "transformers.trainer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", type=Path, nargs="?", help="a scenario file")
    parser.add_argument("--scenario", action="append", default=[], help="one of its scenarios, with one cell")
    parser.add_argument("--set", action="append", default=[], help="as tunebench takes it")
    parser.add_argument("--off", default="cost-all-off", help="the scenario without measuring")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=Path("rounds.jsonl"), help="a line a round is added here")
    parser.add_argument("--show", type=Path, nargs="+", help="files of rounds, to print all of them together")
    given = parser.parse_args()
    if given.scenarios:
        selection = parse_selection(scenarios=given.scenario, settings=given.set)
        planned = expand(load_suite(given.scenarios), selection, this_machine())
        arms = {one.scenario: one for one in planned.experiments}
        few = [name for name, one in arms.items() if logs(one) < FEWEST_LOGS]
        if few:
            parser.error(f"{few[0]} logs {logs(arms[few[0]])} times, and {FEWEST_LOGS} are needed: set logging_steps")
        if given.off not in arms or len(arms) < len(planned.experiments):
            parser.error(f"{given.scenarios}: each scenario must have one cell, and {given.off} must be one of them")
        for sentence in prepare_data(planned.experiments):
            parser.error(sentence)
        make_rounds(arms, given.off, rounds=given.rounds, seed=given.seed, to=given.to)
    elif not given.show:
        parser.error("name a scenario file, or --show files of rounds")
    show(given.show or [given.to], given.off)


def logs(experiment: Experiment) -> int:
    steps, every = (int(experiment.arguments.get(name, 1)) for name in ("max_steps", "logging_steps"))
    return steps // every


def make_rounds(scenarios: Mapping[str, Experiment], off: str, *, rounds: int, seed: int, to: Path) -> None:
    import_all()
    gpus = visible_gpus()[:1]
    rng = random.Random(seed)
    arms = {**scenarios, off + AGAIN: scenarios[off]}
    for done in range(-1, rounds):
        seconds = {name: seconds_a_step(arms[name], gpus) for name in rng.sample(list(arms), len(arms))}
        if done >= 0:  # the first round is the machine's warm-up
            line = {"round": done, "at": time.time(), "gpu": gpus[0].uuid if gpus else None, "s": seconds}
            with to.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def import_all() -> None:
    """All that a run imports. The Trainer's own module goes again: the instrument waits for its import."""
    import accelerate  # noqa: F401
    import peft  # noqa: F401
    import torch
    import transformers.trainer  # noqa: F401
    from transformers import AutoModelForCausalLM, LlamaForCausalLM, TrainingArguments  # noqa: F401

    del sys.modules[TRAINER]
    assert not torch.cuda.is_initialized()


def seconds_a_step(experiment: Experiment, gpus: Sequence[Gpu]) -> float:
    """One run in a process of its own, its monitors beside it."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        run_dir = Path(name)
        command = build_command(
            experiment, python=sys.executable, gpus=[gpu.uuid for gpu in gpus], run_dir=run_dir, port=0
        )
        for monitor in map(monitors.get, experiment.monitors):
            command = monitor.prepare(command, run_dir)
            stack.enter_context(monitor.watch(run_dir, gpus))
        instrument = next(i for i, word in enumerate(command.argv) if word.endswith("instrument.py"))
        child = os.fork()
        if not child:
            train(command.argv[instrument:], command.env, run_dir)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"{experiment.scenario}: {(run_dir / 'log').read_text(encoding='utf-8')[-2000:]}")
        return between_logs(run_dir)


def train(words: Sequence[str], env: Mapping[str, str | None], run_dir: Path) -> None:
    """The instrument and its target as they would run by themselves; never returns."""
    code = 1
    log = os.open(run_dir / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1), os.dup2(log, 2)
    try:
        del os.environ[NVML_CHECK]
        for name, value in env.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        os.chdir(run_dir)
        sys.argv = list(words)
        runpy.run_path(words[0], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def show(paths: Sequence[Path], off: str) -> None:
    lines = [json.loads(line)["s"] for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    for name in sorted({name for line in lines for name in line} - {off}):
        print(said(f"{name} against {off}", list(ratios(lines, name, off))))


def ratios(lines: Sequence[Mapping[str, float]], name: str, off: str) -> Iterator[float]:
    for line in lines:
        if name in line:
            without = line[off] if name == off + AGAIN else math.sqrt(line[off] * line[off + AGAIN])
            yield line[name] / without


if __name__ == "__main__":
    main()

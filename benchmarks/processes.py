"""Measure what measuring costs between processes: trainings in processes of their own take turns on one GPU.

    python benchmarks/processes.py examples/instrument-cost.yaml --scenario cost-all-on --scenario cost-all-off \\
        --set arguments.max_steps=600 --set arguments.logging_steps=5 [--groups 10] [--turns 20] [--to groups.jsonl]
    python benchmarks/processes.py --show groups.jsonl [ANOTHER.jsonl]

Trainings one after the other differ by more than measuring costs, because GPU and host change all the time. So a
group of trainings is in memory at the same time: one of every scenario, and another one without measuring (`--off`).
In each turn every training makes ten steps while the others wait, in an order that is shuffled by a seed. One step
before these ten, and the wait, are not timed.

Each training is a fork of a process that has imported what a run imports and has never touched a GPU. It makes its
own CUDA context, its own model and its own training, with the unchanged instrument and trainer script, and with the
monitors of its scenario. While others train, all its processes are stopped (SIGSTOP): the training with every thread,
and the programs of the monitors, which read at least once in each turn. It differs from a run in two ways: there is
no launcher, and imports are shared.

This compares the ways to measure memory, with the instrument in all of them:

    python benchmarks/processes.py examples/memory-probes.yaml --off probes-none \\
        --set arguments.max_steps=600 --set arguments.logging_steps=5 [--groups 8] [--turns 12]

A scenario's number in a group is the mean of logs, over turns, of its time against the two trainings without
measuring in that turn. Prints each scenario's change in per cent, with its 95 % interval over groups. The second
training without measuring against the first should be no change. An interpreter of its own makes each group: if a
step waits for the host, its speed depends on the layout of the process in memory, which all forks of one interpreter
share.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from statistics import geometric_mean, median
from typing import Any

import psutil
from hooks import loaded
from overhead import said

from orchestrator import monitors
from orchestrator.machine.gpus import visible_gpus
from orchestrator.machine.provenance import this_machine
from orchestrator.monitors import nvml
from orchestrator.plan.command import THREADS, build_command
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import parse_selection
from orchestrator.records import Device, Experiment, Gpu, RunFolder
from orchestrator.run import run_files
from orchestrator.run.data_preparation import prepare_data

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
os.environ[NVML_CHECK] = "1"  # asking whether there is a GPU must not touch it: a fork could not use it then
os.environ.setdefault("OMP_NUM_THREADS", THREADS[Device.CUDA])  # read when torch is imported
warnings.filterwarnings("ignore", message=".*use of fork", category=DeprecationWarning)  # the other threads are asleep

AGAIN = " again"
WARM_UP_STEPS, TURN_STEPS = 30, 10
TRAINER = "transformers.trainer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", type=Path, nargs="?", help="a scenario file")
    parser.add_argument("--scenario", action="append", default=[], help="one of its scenarios, with one cell")
    parser.add_argument("--set", action="append", default=[], help="as tunebench takes it")
    parser.add_argument("--off", default="cost-all-off", help="the scenario without measuring")
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=Path("groups.jsonl"), help="a line a group is added here")
    parser.add_argument("--show", type=Path, nargs="+", help="files of groups, to print all of them together")
    given = parser.parse_args()
    if given.scenarios and given.groups > 1:
        planned_arms(parser, given)
        make_groups(range(given.seed, given.seed + given.groups))
    elif given.scenarios:
        arms = planned_arms(parser, given)
        import_all()
        add_group(arms, visible_gpus()[:1], turns=given.turns, seed=given.seed, to=given.to)
        return
    elif not given.show:
        parser.error("name a scenario file, or --show files of groups")
    show(given.show or [given.to], given.off)


def planned_arms(parser: argparse.ArgumentParser, given: argparse.Namespace) -> dict[str, Experiment]:
    selection = parse_selection(scenarios=given.scenario, settings=given.set)
    planned = expand(load_suite(given.scenarios), selection, this_machine())
    arms = {one.scenario: one for one in planned.experiments}
    if given.off not in arms or len(arms) < len(planned.experiments):
        parser.error(f"{given.scenarios}: each scenario must have one cell, and {given.off} must be one of them")
    needed = WARM_UP_STEPS + (given.turns + 1) * (TURN_STEPS + 1)
    for name, one in arms.items():
        if int(one.arguments.get("max_steps", 0)) < needed:
            parser.error(f"{name}: {given.turns} turns need {needed} steps: --set arguments.max_steps={needed}")
    for sentence in prepare_data(planned.experiments):
        parser.error(sentence)
    return {**arms, given.off + AGAIN: arms[given.off]}


def make_groups(seeds: Sequence[int]) -> None:
    """Make each group with its own interpreter. Several GPUs make groups at once, each with its share of the cores."""
    gpus = [gpu.uuid for gpu in visible_gpus()] or [""]
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // len(gpus)
    free: SimpleQueue[tuple[str, str]] = SimpleQueue()
    for i, gpu in enumerate(gpus):
        free.put((gpu, ",".join(map(str, cores[i * share : (i + 1) * share]))))

    def make(seed: int) -> None:
        gpu, own = free.get()
        words = ["taskset", "-c", own, sys.executable, *sys.argv, "--groups", "1", "--seed", str(seed)]
        try:
            subprocess.run(words, env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu}, check=True)
        finally:
            free.put((gpu, own))

    with ThreadPoolExecutor(len(gpus)) as pool:
        list(pool.map(make, seeds))


def import_all() -> None:
    """Import everything that a run imports. Then remove the Trainer's own module, because the instrument waits for its import."""
    import accelerate  # noqa: F401
    import peft  # noqa: F401
    import torch
    import transformers.trainer  # noqa: F401
    from transformers import AutoModelForCausalLM, LlamaForCausalLM, TrainingArguments  # noqa: F401

    del sys.modules[TRAINER]
    assert not torch.cuda.is_initialized()


def add_group(arms: Mapping[str, Experiment], gpus: Sequence[Gpu], *, turns: int, seed: int, to: Path) -> None:
    rng = random.Random(seed)
    with ExitStack() as stack:
        training = {name: stack.enter_context(process(arms[name], gpus)) for name in rng.sample(list(arms), len(arms))}
        for one in training.values():
            one.warm_up()
        # The first turn is the machine's warm-up: while they start, they share it.
        seconds = [
            {name: training[name].turn() for name in rng.sample(list(arms), len(arms))} for _ in range(turns + 1)
        ]
    line = {"at": time.time(), "gpu": gpus[0].uuid if gpus else None, "turns": seconds[1:]}
    with to.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


class Training:
    """One training in its own process. The process is stopped until its turn."""

    def __init__(self, scenario: str, pid: int, gate: Connection, log: Path, samplers: set[int]) -> None:
        self.scenario, self.pid, self.gate, self.log, self.pids = scenario, pid, gate, log, {pid, *samplers}

    def warm_up(self) -> None:
        self.heard()
        self.signal(signal.SIGSTOP)

    def turn(self) -> float:
        """Return the seconds per step."""
        self.signal(signal.SIGCONT)
        self.gate.send(True)
        seconds = self.heard()
        self.signal(signal.SIGSTOP)
        return seconds

    def heard(self) -> float:
        try:
            return float(self.gate.recv())
        except EOFError:
            raise SystemExit(f"{self.scenario}: {self.log.read_text(encoding='utf-8')[-2000:]}") from None

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.gate.close()
        os.waitpid(self.pid, 0)

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            os.kill(pid, number)


@contextmanager
def process(experiment: Experiment, gpus: Sequence[Gpu]) -> Iterator[Training]:
    """Run one training with its monitors."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        run_dir, others = Path(name), own_samplers()
        command = build_command(
            experiment, python=sys.executable, gpus=[gpu.uuid for gpu in gpus], run_dir=run_dir, port=0
        )
        for monitor in map(monitors.get, experiment.monitors):
            command = monitor.prepare(command, run_dir)
            stack.enter_context(monitor.watch(run_dir, gpus))
        run_files.write(command, RunFolder(run_dir))
        instrument = next(i for i, word in enumerate(command.argv) if word.endswith("instrument.py"))
        ours, gate = Pipe()
        pid = os.fork()
        if not pid:
            ours.close()
            train(command.argv[instrument:], command.env, run_dir, gate)
        gate.close()
        training = Training(experiment.scenario, pid, ours, run_dir / "log", own_samplers() - others)
        try:
            yield training
        finally:
            training.end()


def own_samplers() -> set[int]:
    """Return NVML's samplers and nvidia-smi that this process has started. Groups on other GPUs have their own samplers."""
    alive = (child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE)
    return {child.pid for child in alive if {str(nvml.SAMPLER), "nvidia-smi"} & set(child.cmdline())}


def train(words: Sequence[str], env: Mapping[str, str | None], run_dir: Path, gate: Connection) -> None:
    """Run the instrument and its target as in a run, but with the gate. Never return."""
    code = 1
    log = os.open(run_dir / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1), os.dup2(log, 2)
    try:
        del os.environ[NVML_CHECK]
        for name, value in env.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        os.chdir(run_dir)
        sys.argv = list(words)
        sys.meta_path.insert(0, loaded(words[0]).AfterImport(TRAINER, lambda module: add_gate(module, gate)))
        runpy.run_path(words[0], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def add_gate(module: Any, gate: Connection) -> None:
    """Make the Trainer wait for its turns, with and without measuring. The gate is one more callback, the same in all trainings."""
    import torch

    def now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    class Gate(module.TrainerCallback):  # type: ignore[misc]
        left, began = WARM_UP_STEPS, 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.left -= 1
            if self.left == TURN_STEPS:
                self.began = now()
            elif self.left == 0:
                gate.send((now() - self.began) / TURN_STEPS)
                try:
                    self.left = gate.recv() + TURN_STEPS
                except EOFError:
                    control.should_training_stop = True

    module.DEFAULT_CALLBACKS.append(Gate)


def show(paths: Sequence[Path], off: str) -> None:
    groups = [json.loads(line)["turns"] for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    without = median(turn[off] for turns in groups for turn in turns)
    print(f"{len(groups)} groups, {without * 1000:.1f} ms per step without")
    for name in sorted({name for turns in groups for turn in turns for name in turn} - {off}):
        with_it = [turns for turns in groups if name in turns[0]]
        print(said(f"{name} against {off}", [geometric_mean(ratios(turns, name, off)) for turns in with_it]))


def ratios(turns: Sequence[Mapping[str, float]], name: str, off: str) -> Iterator[float]:
    for turn in turns:
        without = turn[off] if name == off + AGAIN else math.sqrt(turn[off] * turn[off + AGAIN])
        yield turn[name] / without


if __name__ == "__main__":
    main()

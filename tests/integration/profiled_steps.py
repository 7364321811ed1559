"""Trainings under the instrument and torch's profiler at once, and the parts of the same steps as both of them see the parts.

The training script sets ranges of its own around what the instrument divides. In the trace, a part ends on a GPU when the GPU has
done all work that was launched before, but not before the host has ended the part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from trainings import INSTRUMENT, SFT_FOLDER, WORKERS, Run, launched, start

FIRST, LAST = 10, 15  # the profiled steps; of a sharded model, the instrument watches every fifth step
PARTS = ("data", "forward", "backward", "optimizer")
WAITS = ("forward_comm", "backward_comm")
# A model whose passes keep a GPU busy, and one whose kernels are too short for that.
BUSY = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 8, "num_attention_heads": 16}
SMALL = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 24, "num_attention_heads": 4}
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")

SOURCE = f"""
import functools, os, sys
sys.path.insert(0, sys.argv.pop(1))
import sft, torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback

trainer = sft.build_trainer(sys.argv[1:])

def ranged(owner, name, part):
    call = getattr(owner, name)
    @functools.wraps(call)
    def own(*args, **kwargs):
        with record_function("part:" + part):
            return call(*args, **kwargs)
    setattr(owner, name, own)

class Profiled(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        with record_function(f"end:{{state.global_step}}"):
            pass
        if state.global_step == {FIRST - 2}:
            kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
            self.profiler = profile(activities=kinds)
            self.profiler.start()
        if state.global_step == {LAST}:
            self.profiler.stop()
            rank = os.environ.get("RANK", "0")
            self.profiler.export_chrome_trace(os.environ["TUNEBENCH_RUN_DIR"] + f"/trace-rank{{rank}}.json")

if "profiled" in os.environ["SPLIT_TEST"]:
    trainer.add_callback(Profiled())
    ranged(trainer, "get_batch_samples", "data")
    ranged(trainer, "training_step", "forward")
    ranged(trainer.accelerator, "backward", "backward")
trainer.train()
"""


def synthetic(folder: Path, rows: int, length: int) -> Path:
    """Prepare rows of one length, so that nothing has to be compiled again."""
    more = {"split": "train", "form": "tokens", "samples": rows, "max_length": length, "vocab_size": 4096}
    spec = {"source": "builtin:synthetic", "path": str(folder / "synthetic"), **more}
    (folder / "synthetic.json").write_text(json.dumps(spec))
    subprocess.run(
        [sys.executable, WORKERS / "prepare" / "prepare.py", folder / "synthetic.json"], check=True, timeout=120
    )
    return folder / "synthetic"


def trained(
    folder: Path, rows: Path, *options: str, processes: int = 1, sharded: bool = False, cpu: bool = False, **env: str
) -> Run:
    """Train a model and profile steps 9 to 15; step 9 is not used. `options` say how many steps there are, at least 16."""
    folder.mkdir()
    (folder / "profiled.py").write_text(SOURCE)
    launch = launched(folder, processes, cpu=cpu, sharded=sharded) if processes > 1 else []
    words = [*launch, INSTRUMENT, "--", str(folder / "profiled.py"), SFT_FOLDER]
    given = ["--training_data_path", str(rows), "--model_name_or_path", "config:tiny-llama", "--logging_steps", "1"]
    gpus = {} if cpu else {"CUDA_VISIBLE_DEVICES": visible(processes)}
    more = {"SPLIT_TEST": "profiled", **gpus, **env}
    run = start(folder / "run", [*words, *given, *options], cpu=cpu, **more)
    assert run.code == 0, run.last_line
    return run


def both(run: Run, rank: int = 0, middle: Callable[[Iterable[float]], float] = fmean) -> dict[str, tuple[float, float]]:
    """Return for each part the share of the profiled steps that it takes, by the instrument and by the trace.

    `middle` makes one number of those of the steps. The median leaves out a step in which the host was busy with something else.

    `comm` is the exposed communication of the steps in which the instrument watched it. `idle` is two different shares: the host's
    share by the instrument, and the time without work on the GPU by the trace.
    """
    lines = [line for line in run.steps(rank) if "parts" in line and FIRST <= line["step"] <= LAST]
    trace = of_trace(json.loads((run.folder / f"trace-rank{rank}.json").read_text()))
    total = middle(line["s"] for line in lines), middle(step["step"] for step in trace.values())
    shares = {
        part: (
            middle(line["parts"][part] for line in lines) / total[0],
            middle(step[part] for step in trace.values()) / total[1],
        )
        for part in PARTS
    }
    watched = [line for line in lines if WAITS[0] in line["parts"]]
    if watched:
        waits = middle(sum(line["parts"][wait] for wait in WAITS) for line in watched)
        seen = middle(trace[line["step"]]["comm"] for line in watched)
        shares["comm"] = waits / middle(line["s"] for line in watched), seen / total[1]
    if all("host" in line["parts"] for line in lines):
        shares["idle"] = (
            middle(line["parts"]["host"] for line in lines) / total[0],
            middle(step["idle"] for step in trace.values()) / total[1],
        )
    return shares


def of_trace(trace: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Return for each step the seconds of its parts, the step, the GPU's idle time, and exposed communication in passes."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    work = _Work(events)
    marks: list[tuple[float, str]] = []
    for event in events:
        kind, _, name = str(event.get("name")).partition(":")
        if event.get("cat") == "user_annotation" and kind in ("part", "end"):
            began, ended = event["ts"], event["ts"] + event["dur"]
            marks += [(began, name)] if kind == "part" else [(began, "end:" + name)]
            marks += [(ended, "optimizer")] if name == "backward" else [(ended, "rest")] if name == "data" else []
    steps: dict[int, dict[str, float]] = {}
    own: dict[str, float] = {}
    start: float | None = None
    at, part = 0.0, "between"
    for host, name in sorted(marks):
        moment = work.done(host)
        own[part] = own.get(part, 0.0) + max(0.0, moment - at)
        if part in ("forward", "backward"):
            own["comm"] = own.get("comm", 0.0) + work.exposed(at, moment)
        at, part = moment, name
        if name.startswith("end:"):
            if start is not None and int(name[4:]) >= FIRST:
                inside = {"step": moment - start, "idle": work.idle(start, moment)}
                found = {one: own.get(one, 0.0) for one in (*PARTS, "comm")} | inside
                steps[int(name[4:])] = {one: value / 1e6 for one, value in found.items()}
            start, own, part = moment, {}, "between"
    return steps


class _Work:
    """The work of a GPU in a trace, in microseconds. There is none in the trace of a CPU."""

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        launches = {
            event["args"]["correlation"]: event["ts"]
            for event in events
            if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
        }
        spans = [
            (
                launches.get(event["args"].get("correlation"), event["ts"]),
                event["ts"],
                event["ts"] + event["dur"],
                event,
            )
            for event in events
            if event.get("cat") in GPU_WORK
        ]
        spans.sort(key=lambda span: span[:3])
        self.launched = [launch for launch, *_ in spans]
        self.ended: list[float] = []
        for *_, end, _ in spans:
            self.ended.append(max(end, self.ended[-1] if self.ended else 0.0))
        self.all = _union((start, end) for _, start, end, _ in spans)
        shared, computing = _kinds(spans)
        waits = _union((launch, start) for launch, start, _, _ in computing if launch < start)
        self.waits = _common(waits, _union((start, end) for _, start, end, _ in shared))
        self.busy = _common(self.waits, _union((start, end) for _, start, end, _ in computing))

    def done(self, host: float) -> float:
        """Return when the GPU has done what was launched before this time of the host."""
        count = bisect_right(self.launched, host)
        return max(host, self.ended[count - 1]) if count else host

    def idle(self, start: float, end: float) -> float:
        return end - start - _inside(self.all, start, end)

    def exposed(self, start: float, end: float) -> float:
        """Return the time in which the stream that computes had its next work, but waited during communication."""
        return _inside(self.waits, start, end) - _inside(self.busy, start, end)


def _kinds(spans: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the spans of communication, and those of the stream that has most of the others."""
    shared = [span for span in spans if "nccl" in span[3]["name"].lower()]
    others = [span for span in spans if "nccl" not in span[3]["name"].lower()]
    streams = Counter(span[3]["args"].get("stream") for span in others).most_common(1)
    return shared, [span for span in others if span[3]["args"].get("stream") == streams[0][0]]


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for began, ended in sorted(spans):
        if found and began <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((began, ended))
    return found


def _common(some: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return what two unions share."""
    found, first, second = [], 0, 0
    while first < len(some) and second < len(others):
        (began, ended), (low, high) = some[first], others[second]
        if max(began, low) < min(ended, high):
            found.append((max(began, low), min(ended, high)))
        first, second = (first + 1, second) if ended < high else (first, second + 1)
    return found


def _inside(spans: Iterable[tuple[float, float]], start: float, end: float) -> float:
    return sum(max(0.0, min(end, high) - max(start, low)) for low, high in spans)


def table(names: Mapping[str, dict[str, tuple[float, float]]]) -> str:
    """Return the shares of several trainings as a table in per cent: the instrument's and the trace's, and their difference."""
    lines = [f"{'training':<14}{'part':<11}{'instrument':>11}{'trace':>8}{'points':>8}"]
    for name, shares in names.items():
        for part, (own, seen) in shares.items():
            lines.append(f"{name:<14}{part:<11}{100 * own:>11.1f}{100 * seen:>8.1f}{100 * (own - seen):>+8.1f}")
    return "\n".join(lines)


def visible(count: int) -> str:
    """Return CUDA_VISIBLE_DEVICES for so many of the visible GPUs."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    return ",".join(given.split(",")[:count])


def words(sizes: Mapping[str, int], *, batch: int, steps: int = 20) -> list[str]:
    """Return the options of a training in bfloat16."""
    given = {**sizes, "per_device_train_batch_size": batch, "max_steps": steps, "bf16": True}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]

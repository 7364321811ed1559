"""Where the time of a step goes, in real trainings whose parts are slowed down by sleeps of known lengths."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from profiled_steps import both, of_trace, table, trained
from trainings import INSTRUMENT, SFT_FOLDER, Run, at_once, launched, prepare, start, training

from orchestrator.measure import throughput

DATA_S, FORWARD_S, BACKWARD_S, OPTIMIZER_S, RANK_S = 0.06, 0.08, 0.1, 0.12, 0.2
# The work of a tiny model itself, on a machine with other work to do.
WORK_S = 0.15
STEPS = 12

PLANTED = f"""
import os, sys, time
sys.path.insert(0, sys.argv.pop(1))
import sft
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import Subset
from transformers import TrainerCallback

trainer = sft.build_trainer(sys.argv[1:])
collate = trainer.data_collator

def slow(rows):
    time.sleep({DATA_S})
    return collate(rows)

class Evaluating(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        trainer.evaluate(Subset(trainer.train_dataset, range(2)))

trainer.data_collator = slow
trainer.add_callback(Evaluating())
trainer.model.register_forward_pre_hook(lambda *_: time.sleep({FORWARD_S}))
trainer.model.get_input_embeddings().weight.register_hook(lambda _: time.sleep({BACKWARD_S}))
register_optimizer_step_pre_hook(lambda *_: time.sleep({OPTIMIZER_S}))
trainer.train()
"""

SLOW_RANK = f"""
import os, sys, time
sys.path.insert(0, sys.argv.pop(1))
import sft

trainer = sft.build_trainer(sys.argv[1:])
if os.environ["RANK"] == "1":
    trainer.model.register_forward_hook(lambda *_: time.sleep({RANK_S}))
trainer.train()
"""


def started(folder: Path, source: str, rows: Path, *options: str, processes: int = 1) -> Run:
    folder.mkdir()
    (folder / "planted.py").write_text(source)
    launch = launched(folder, processes) if processes > 1 else []
    words = [*launch, INSTRUMENT, "--", str(folder / "planted.py"), SFT_FOLDER]
    run = start(folder / "run", [*words, *training(rows, "--max_steps", str(STEPS), *options)])
    assert run.code == 0, run.last_line
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("parts")
    rows = prepare(folder, 120)
    return at_once(
        lambda: started(folder / "planted", PLANTED, rows, "--gradient_accumulation_steps", "2"),
        lambda: started(folder / "ranks", SLOW_RANK, rows, processes=2),
    )


def lines(run: Run, rank: int = 0) -> list[dict[str, Any]]:
    """The steps without the first ones, in which memory is laid out."""
    return [line for line in run.steps(rank) if "parts" in line][2:]


def test_each_part_has_the_time_that_was_planted_there(runs: list[Run]) -> None:
    """Two micro-batches a step: all of their passes are added up. The evaluation after each step is in none of the parts."""
    planted = {"data": 2 * DATA_S, "forward": 2 * FORWARD_S, "backward": 2 * BACKWARD_S, "optimizer": OPTIMIZER_S}
    for part, seconds in planted.items():
        found = [line["parts"][part] for line in lines(runs[0])]
        assert len(found) >= STEPS - 3
        assert seconds <= min(found) < seconds + WORK_S, part
    between = [line["wait_s"] - line["parts"]["data"] for line in lines(runs[0])]
    assert median(between) >= DATA_S + FORWARD_S, "the evaluation itself"


def test_the_parts_and_the_rest_are_the_step(runs: list[Run]) -> None:
    for rank, run in ((0, runs[0]), (0, runs[1]), (1, runs[1])):
        for line in lines(run, rank):
            parts = [line["parts"][name] for name in ("data", "forward", "backward", "optimizer")]
            rest = line["s"] - sum(parts) - (line["wait_s"] - line["parts"]["data"])
            assert -1e-5 < rest < line["s"] / 2


def test_the_run_has_its_times_and_the_reasons_for_those_that_are_missing(runs: list[Run]) -> None:
    reading = throughput.read(runs[0].folder, [{**runs[0].worker(), "measure": {"discard_steps": 2}}], world_size=1)
    known = {number.name: number for number in reading.measurements}
    assert known["forward_time_s"].value == pytest.approx(fmean(line["parts"]["forward"] for line in lines(runs[0])))
    assert known["exposed_comm_time_s"].why_missing == "a single process waits for no other process"
    assert known["host_bound_share"].why_missing == "on a CPU, the host does the work"
    times = [known[f"{name}_time_s"].value for name in ("data", "between", "forward", "backward", "optimizer")]
    assert sum(times) <= 1 / known["steps_per_s"].value


def test_ranks_wait_for_the_slowest_at_the_end_of_the_backward_pass(runs: list[Run]) -> None:
    waits = [median(line["parts"]["backward_comm"] for line in lines(runs[1], rank)) for rank in (0, 1)]
    assert waits[0] >= RANK_S / 2 > waits[1]
    reading = throughput.read(
        runs[1].folder, [{**runs[1].worker(rank), "measure": {"discard_steps": 2}} for rank in (0, 1)], world_size=2
    )
    known = {number.name: number.value for number in reading.measurements}
    assert known["exposed_comm_time_s"] == pytest.approx(known["forward_comm_time_s"] + known["backward_comm_time_s"])
    own = [row["exposed_comm_time_s"] for row in reading.ranks]
    assert known["exposed_comm_time_s"] == pytest.approx(sum(own) / 2)


def test_the_parts_are_those_of_a_profilers_trace(tmp_path: Path) -> None:
    """On a CPU; tests/gpu/test_step_parts_gpu.py has the same for GPUs.

    The trace counts as optimizer also what the instrument does after its own mark: in some steps it writes a file.
    """
    rows = prepare(tmp_path, 200)
    options = ["--gradient_accumulation_steps", "2", "--per_device_train_batch_size", "2", "--max_steps", "17"]
    shares = both(trained(tmp_path / "profiled", rows, *options, cpu=True), middle=median)
    print(table({"cpu": shares}))
    assert shares.keys() == {"data", "forward", "backward", "optimizer"}
    for part, (own, seen) in shares.items():
        assert abs(own - seen) < 0.02, part


def kernel(number: int, launched: float, start: float, end: float, name: str = "gemm") -> list[dict[str, Any]]:
    """A kernel in a trace, and its launch."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launched, "dur": 1.0}
    run = {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": end - start}
    return [{**event, "args": {"correlation": number}} for event in (call, run)]


def ranged(name: str, start: float, end: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": end - start, "args": {}}


def test_a_trace_is_divided_by_what_the_gpu_has_done() -> None:
    """The host is ahead; the GPU ends the forward pass at 500 and the backward pass at 1000.

    There is only communication from 850 to 1000, but the next computation is launched at 870. So 130 are exposed.
    """
    events = [
        ranged("end:9", 0, 0), ranged("part:data", 10, 20), ranged("part:forward", 30, 100), ranged("part:backward", 60, 90),
        *kernel(1, 40, 50, 500), *kernel(2, 70, 500, 850), *kernel(3, 80, 700, 1000, "ncclDevKernel_AllReduce"),
        *kernel(4, 870, 1000, 1100), ranged("end:10", 900, 900),
    ]  # fmt: skip
    (found,) = of_trace({"traceEvents": events}).values()
    expected = {"step": 1100, "data": 10, "forward": 470, "backward": 500, "optimizer": 100, "idle": 50, "comm": 130}
    assert {name: round(value * 1e6) for name, value in found.items()} == expected

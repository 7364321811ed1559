"""What is shown while a benchmark runs: a line for each end where nobody watches, a live line on a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.benchmark import Event, EventKind
from orchestrator.progress import Progress
from orchestrator.records import Device, Experiment, Job, Measurement, RunRecord, Status

EXPERIMENT = Experiment(
    id="s-m-0123456789ab",
    scenario="s",
    model="m",
    num_gpus=1,
    device=Device.CPU,
    trainer="huggingface",
    arguments={"max_steps": "20"},
)


def job(run_dir: Path, repeat: int) -> Job:
    return Job(experiment_id=EXPERIMENT.id, repeat=repeat, attempt=1, run_dir=run_dir / f"r{repeat}-t1")


def ended(one: Job, status: Status = Status.OK, **more: Any) -> Event:
    record = RunRecord(
        experiment_id=one.experiment_id,
        repeat=one.repeat,
        attempt=one.attempt,
        status=status,
        started_at=1.0,
        wall_s=2.5,
        **more,
    )
    return Event(kind=EventKind.ENDED, text="", jobs=(one,), record=record)


def handed_over(*jobs: Job) -> Event:
    return Event(kind=EventKind.HANDED_OVER, text="", jobs=jobs)


def test_each_end_is_a_line_that_counts_and_says_why(tmp_path: Path) -> None:
    told = io.StringIO()
    first, second = job(tmp_path, 1), job(tmp_path, 2)
    speed = Measurement(name="train_tokens_per_second", value=1234.5, source="trainer")
    with Progress(Console(file=told, width=40), [EXPERIMENT]) as progress:
        progress.say("preparing the data")
        progress.on_event(handed_over(first, second))
        progress.on_event(ended(first, measurements=(speed,)))
        progress.on_event(ended(second, Status.FAILED, kind="oom_cuda", cause="CUDA out of memory [1, 2]"))
        progress.on_event(Event(kind=EventKind.ATTACHED, text="another benchmark has r1"))
    lines = told.getvalue().splitlines()
    assert lines[0] == "preparing the data"
    assert lines[1].startswith("1/2 ok s-m-0123456789ab r1  2.5 s") and "1,23" in lines[1]
    assert lines[2] == "2/2 failed s-m-0123456789ab r2  2.5 s  oom_cuda: CUDA out of memory [1, 2]"
    assert lines[3] == "another benchmark has r1"


def test_nothing_but_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    told = io.StringIO()
    with Progress(Console(file=told), [EXPERIMENT]) as progress:
        progress.on_event(handed_over(job(tmp_path, 1)))
    assert told.getvalue() == ""


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "starting"),
        ([{"step": 6, "t": 1.0}, {"step": 7, "t": 2.0, "loss": 3.14159}], "step 7/20, loss 3.142"),
    ],
)
def test_the_live_line_says_what_runs_and_how_far_it_is(tmp_path: Path, steps: list[Any], said: str) -> None:
    told = io.StringIO()
    done, running = job(tmp_path, 1), job(tmp_path, 2)
    running.run_dir.mkdir()
    if steps:
        half = '{"step": 8, "t"'  # being written
        (running.run_dir / "steps-rank0.jsonl").write_text("\n".join([*map(json.dumps, steps), half]))
    console = Console(file=told, width=160, force_terminal=True)
    with Progress(console, [EXPERIMENT]) as progress:
        progress.on_event(handed_over(done, running))
        progress.on_event(ended(done))
    shown = told.getvalue()
    assert "1/2 runs" in shown and "to go" in shown
    assert f"{said} · {EXPERIMENT.id}" in shown

"""What is shown while a benchmark runs: a line for each end where nobody watches, live lines on a terminal."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from stored_results import ended as earlier
from stored_results import record_of, stored

from orchestrator.benchmark import Event, EventKind
from orchestrator.progress import Progress
from orchestrator.records import Device, Experiment, Job, Measurement, Status
from orchestrator.store import Store

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
    return Event(kind=EventKind.ENDED, text="", jobs=(one,), record=record_of(one, status, **more))


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
    assert lines[1].startswith("1/2 ok s-m-0123456789ab r1  2.5 s  1,23")
    assert lines[1].endswith(" tokens/s a device by the Trainer's clock")
    assert lines[2] == "2/2 failed s-m-0123456789ab r2  2.5 s  oom_cuda: CUDA out of memory [1, 2]"
    assert lines[3] == "another benchmark has r1"


@pytest.mark.parametrize(("steady", "said"), [(2000.0, "  2,000 tokens/s a device"), (None, "  no steady-state speed")])
def test_the_speed_of_a_run_is_that_of_the_report(steady: float | None, said: str, tmp_path: Path) -> None:
    told, one = io.StringIO(), job(tmp_path, 1)
    values = {"train_tokens_per_second": 1234.5, "tokens_per_s_per_gpu": steady}
    numbers = tuple(Measurement(name=name, value=value, source="") for name, value in values.items())
    with Progress(Console(file=told, width=120), [EXPERIMENT]) as progress:
        progress.on_event(handed_over(one))
        progress.on_event(ended(one, measurements=numbers))
    assert told.getvalue() == f"1/1 ok s-m-0123456789ab r1  2.5 s{said}\n"


def test_nothing_but_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    told = io.StringIO()
    with Progress(Console(file=told), [EXPERIMENT]) as progress:
        progress.on_event(handed_over(job(tmp_path, 1)))
    assert told.getvalue() == ""


def live(told: io.StringIO, width: int = 160) -> Console:
    return Console(file=told, width=width, force_terminal=True)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "preparing"),
        ([{"step": 6, "s": 0.5, "tokens": 100}, {"step": 7, "s": 0.5, "tokens": 300}, {"step": 7, "loss": 3.14159}],
         "warming up · step 7/20 · 500 ms/step · 400 tokens/s · loss 3.142"),
    ],
)  # fmt: skip
def test_the_live_view_says_what_runs_and_how_far_it_is(tmp_path: Path, steps: list[Any], said: str) -> None:
    told = io.StringIO()
    done, running, waiting = job(tmp_path, 1), job(tmp_path, 2), job(tmp_path, 3)
    running.run_dir.mkdir()
    if steps:
        half = '{"step": 8, "t"'  # being written
        (running.run_dir / "steps-rank0.jsonl").write_text("\n".join([*map(json.dumps, steps), half]))
    with Progress(live(told), [EXPERIMENT]) as progress:
        progress.on_event(handed_over(done, running, waiting))
        progress.on_event(ended(done))
    shown = told.getvalue()
    assert "1/3 runs" in shown and "about 5 s to go" in shown
    assert f"{said} · {EXPERIMENT.id} r2" in shown and f"{EXPERIMENT.id} r3" not in shown


def test_runs_side_by_side_have_a_line_each_and_end_in_any_order(tmp_path: Path) -> None:
    told = io.StringIO()
    jobs = [job(tmp_path, repeat) for repeat in range(1, 14)]
    for one in jobs[:12]:
        one.run_dir.mkdir()
    with Progress(live(told), [EXPERIMENT]) as progress:
        progress.on_event(handed_over(*jobs))
        progress.on_event(ended(jobs[1]))
        progress.on_event(ended(jobs[0]))
    last = told.getvalue()[told.getvalue().rindex("2/13 runs") :]
    assert re.findall(rf"{EXPERIMENT.id} r(\d+)", last) == [str(repeat) for repeat in range(3, 11)]
    assert "and 2 more" in last


def test_what_ended_in_earlier_sessions_says_how_long_it_will_take(tmp_path: Path) -> None:
    store = Store(stored(tmp_path / "results", (EXPERIMENT, [earlier(EXPERIMENT, 1)])))  # 12.5 s
    with_store, without = io.StringIO(), io.StringIO()
    for told, known in ((with_store, store), (without, None)):
        with Progress(live(told), [EXPERIMENT], store=known) as progress:
            progress.on_event(handed_over(store.job(EXPERIMENT.id, repeat=2, attempt=1)))
    assert "about 12.5 s to go" in with_store.getvalue()
    assert "time left unknown" in without.getvalue()


def test_a_run_that_was_lost_before_is_no_run_of_this_hand_over(tmp_path: Path) -> None:
    told = io.StringIO()
    with Progress(Console(file=told, width=40), [EXPERIMENT]) as progress:
        progress.on_event(ended(job(tmp_path, 1), Status.LOST, kind="lost", cause="gone"))
        progress.on_event(handed_over(job(tmp_path, 2)))
        progress.on_event(ended(job(tmp_path, 2)))
    assert [line.split()[:2] for line in told.getvalue().splitlines()] == [["lost", EXPERIMENT.id], ["1/1", "ok"]]


def test_later_hand_overs_count_on(tmp_path: Path) -> None:
    told = io.StringIO()
    with Progress(Console(file=told, width=40), [EXPERIMENT]) as progress:
        for repeat in (1, 2):
            progress.on_event(handed_over(job(tmp_path, repeat)))
            progress.on_event(ended(job(tmp_path, repeat)))
    assert [line.split()[0] for line in told.getvalue().splitlines()] == ["1/1", "2/2"]


def test_a_redraw_costs_next_to_nothing_beside_a_measurement(tmp_path: Path) -> None:
    """3000 runs are due and eight run, of 100,000 steps each; measured: 2 ms. Bounded at a tenth of a second, for slow machines."""
    jobs = [job(tmp_path, repeat) for repeat in range(1, 3001)]
    step = json.dumps({"step": 1, "s": 0.5, "tokens": 100}) + "\n"
    for one in jobs[:8]:
        one.run_dir.mkdir()
        (one.run_dir / "steps-rank0.jsonl").write_text(step * 100_000)
    progress = Progress(live(io.StringIO()), [EXPERIMENT])
    progress.on_event(handed_over(*jobs))
    progress.redraw()
    began = time.process_time()
    for _ in range(5):
        progress.redraw()
    assert (time.process_time() - began) / 5 < 0.1

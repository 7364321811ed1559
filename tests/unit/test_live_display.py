"""What is shown while a benchmark runs: a line for each end where nobody watches, live lines on a terminal."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from factories.claimed_runs import claimed
from factories.results import ended as earlier
from factories.results import experiment, failed, record_of, stored
from rich.console import Console

from orchestrator.campaign.live_display import Progress
from orchestrator.campaign.loop import Event, EventKind
from orchestrator.campaign.status.campaign import Reader
from orchestrator.campaign.status.experiment import RepeatState
from orchestrator.records import Job, Measurement, Status
from orchestrator.records.labels import labels
from orchestrator.results.store import Store, write_record

EXPERIMENT = experiment("m", arguments={"max_steps": "20"}, repeats=3)


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
    with Progress(Console(file=told, width=40)) as progress:
        progress.say("preparing the data")
        progress.on_event(handed_over(first, second))
        progress.on_event(ended(first, measurements=(speed,)))
        progress.on_event(ended(second, Status.FAILED, kind="oom_cuda", cause="CUDA out of memory [1, 2]"))
        progress.on_event(Event(kind=EventKind.ATTACHED, text="another benchmark has r1"))
    lines = told.getvalue().splitlines()
    assert lines[0] == "preparing the data"
    assert lines[1].startswith("1/2 ok s-m r1  2.5 s  1,23")
    assert lines[1].endswith(" tokens/s per device by the Trainer's clock")
    assert lines[2] == "2/2 failed s-m r2  2.5 s  oom_cuda: CUDA out of memory [1, 2]"
    assert lines[3] == "another benchmark has r1"


def test_a_line_has_the_values_that_distinguish_its_experiment(tmp_path: Path) -> None:
    told = io.StringIO()
    both = [experiment(rows, arguments={"max_steps": "5", "token": "s3cret", "rows": rows}) for rows in "12"]
    with Progress(Console(file=told), labels=labels(both)) as progress:
        for one in both:
            own = Job(experiment_id=one.id, repeat=1, attempt=1, run_dir=tmp_path / one.id)
            progress.on_event(ended(own))
    assert told.getvalue().splitlines() == [f"ok s-{rows} r1  rows={rows} (0123456789ab)  2.5 s" for rows in "12"]


@pytest.mark.parametrize("folders", [("base", "new"), ("a/results", "b/results")])
def test_a_line_names_the_results_folder_where_several_take_turns(folders: tuple[str, str], tmp_path: Path) -> None:
    told = io.StringIO()
    for folder in folders:
        (tmp_path / folder).parent.mkdir(exist_ok=True)
    stores = [Store(stored(tmp_path / folder, (EXPERIMENT, []))) for folder in folders]
    with Progress(Console(file=told), [Reader(store) for store in stores]) as progress:
        for store in stores:
            progress.on_event(ended(store.job(EXPERIMENT.id, repeat=4, attempt=1)))
    assert told.getvalue().splitlines() == [f"ok s-m r4 in {folder}  2.5 s" for folder in folders]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"train_tokens_per_second": 1234.5, "tokens_per_s_per_gpu": 2000.0}, "  2,000 tokens/s per device"),
        ({"train_tokens_per_second": 1234.5, "tokens_per_s_per_gpu": None}, "  no steady-state speed"),
        (
            {"tokens_per_s_per_gpu": 2000.0, "real_tokens_per_s_per_gpu": 1500.0, "tokens_per_s": 4000.0},
            "  1,500 tokens/s per device",
        ),
        ({"tokens_per_s": 4000.0}, "  4,000 tokens/s"),
        ({"train_samples_per_second": 12.5, "train_loss": 1.0}, "  12.5 samples/s"),
        ({"call_time_s": 2.5e-5, "first_call_s": 1.0}, "  25 µs a call"),
        ({"train_loss": 1.0}, ""),
    ],
)
def test_the_speed_of_a_run_is_that_of_the_report(numbers: dict[str, float | None], said: str, tmp_path: Path) -> None:
    told, one = io.StringIO(), job(tmp_path, 1)
    measured = tuple(Measurement(name=name, value=value, source="") for name, value in numbers.items())
    with Progress(Console(file=told, width=120)) as progress:
        progress.on_event(handed_over(one))
        progress.on_event(ended(one, measurements=measured))
    assert told.getvalue() == f"1/1 ok s-m r1  2.5 s{said}\n"


def test_nothing_but_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    told, store = io.StringIO(), Store(stored(tmp_path / "results", (EXPERIMENT, [])))
    with Progress(Console(file=told), [Reader(store)]) as progress:
        progress.on_event(handed_over(job(tmp_path, 1)))
    assert told.getvalue() == ""


def live(told: io.StringIO, width: int = 160) -> Console:
    return Console(file=told, width=width, force_terminal=True, color_system=None)


def shown_last(console: Console) -> str:
    """Return the last status that was drawn before the display was cleared."""
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    return shown.rpartition("results, after")[2]


def drawn_until(console: Console, said: str) -> None:
    deadline = time.monotonic() + 20
    while said not in shown_last(console):
        assert time.monotonic() < deadline, shown_last(console)
        time.sleep(0.02)


def test_a_terminal_shows_the_status_of_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended in earlier sessions says how long the rest will take."""
    monkeypatch.setattr("orchestrator.campaign.status.campaign.SHORTEST_PAUSE_S", 0.05)
    store = Store(stored(tmp_path / "results", (EXPERIMENT, [earlier(EXPERIMENT, 1)])))  # 12.5 s
    running = claimed(store, EXPERIMENT, 2)
    console = live(io.StringIO())
    with Progress(console, [Reader(store)]) as progress:
        progress.on_event(handed_over(running, store.job(EXPERIMENT.id, repeat=3, attempt=1)))
        drawn_until(console, "preparing · since")
        assert "1 of 3 done · 1 running · 0 failed · 1 pending · time left about 2" in shown_last(console)
        half = '{"step": 8, "t"'  # being written
        steps = [
            {"step": 6, "s": 0.5, "tokens": 100},
            {"step": 7, "s": 0.5, "tokens": 300},
            {"step": 7, "loss": 3.14159},
        ]
        (running.run_dir / "steps-rank0.jsonl").write_text("\n".join([*map(json.dumps, steps), half]))
        drawn_until(console, "warming up · step 7/20 · 500 ms/step · 400 tokens/s · loss 3.142 · since")
        assert write_record(running.run_dir, earlier(EXPERIMENT, 2))
        progress.on_event(ended(running))
        drawn_until(console, "2 of 3 done · 0 running")
    assert "1/2 ok s-m r2" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_user_who_may_start_no_more_threads_gets_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    store, console = Store(stored(tmp_path / "results", (EXPERIMENT, []))), live(io.StringIO())
    with Progress(console, [Reader(store)]) as progress:
        progress.say("a line")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a line" in text and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"


def test_a_failed_run_that_is_tried_again_is_pending_until_it_begins(tmp_path: Path) -> None:
    store = Store(stored(tmp_path / "results", (EXPERIMENT, [failed(EXPERIMENT, 1), failed(EXPERIMENT, 2)])))
    reader = Reader(store)
    assert reader.look().counts()[RepeatState.FAILED] == 2
    reader.expect([store.job(EXPERIMENT.id, repeat=1, attempt=2)])
    (again,) = (one for one in reader.look().of(RepeatState.PENDING) if one.attempt == 2)
    assert (again.repeat, again.kind) == (1, "oom_cuda")
    run_dir = store.run_dir(EXPERIMENT.id, 1, 2)
    run_dir.mkdir()
    assert write_record(run_dir, failed(EXPERIMENT, 1, attempt=2))
    assert [one.attempt for one in reader.look().of(RepeatState.FAILED)] == [2, 1]


def test_a_folder_that_is_gone_stops_no_benchmark(tmp_path: Path) -> None:
    with Progress(live(io.StringIO()), [Reader(Store(tmp_path / "results"))]) as progress:
        progress.say("goes on")


def test_a_run_that_was_lost_before_is_no_run_of_this_hand_over(tmp_path: Path) -> None:
    told = io.StringIO()
    with Progress(Console(file=told, width=40)) as progress:
        progress.on_event(ended(job(tmp_path, 1), Status.LOST, kind="lost", cause="gone"))
        progress.on_event(handed_over(job(tmp_path, 2)))
        progress.on_event(ended(job(tmp_path, 2)))
    assert [line.split()[:2] for line in told.getvalue().splitlines()] == [["lost", "s-m"], ["1/1", "ok"]]


def test_later_hand_overs_count_on(tmp_path: Path) -> None:
    told = io.StringIO()
    with Progress(Console(file=told, width=40)) as progress:
        for repeat in (1, 2):
            progress.on_event(handed_over(job(tmp_path, repeat)))
            progress.on_event(ended(job(tmp_path, repeat)))
    assert [line.split()[0] for line in told.getvalue().splitlines()] == ["1/1", "2/2"]

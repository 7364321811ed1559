"""The command of `notify:` in real campaigns: when it is told of what, and that it neither blocks nor changes a campaign."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from campaigns import tunebench
from trees import wait_until

from orchestrator.campaign.events.notices import MOST_BYTES, Notices
from orchestrator.campaign.loop import Event, EventKind, Summary
from orchestrator.results.store import Store

TRAINER = "import sys; print('{\"train_runtime\": 2.0}'); sys.exit(int(sys.argv[1]))"


def scenarios(folder: Path, notify: Any, *codes: int) -> None:
    """Write a file with an experiment for each exit code."""
    every = [
        {
            "name": f"s{number}",
            "trainer": "custom",
            "device": "cpu",
            "custom": {
                "command": ["{python}", "-c", TRAINER, str(code)],
                "launcher": "none",
                "metrics": {"train_runtime": {"key": "train_runtime"}},
            },
        }
        for number, code in enumerate(codes)
    ]
    (folder / "scenarios.yaml").write_text(json.dumps({"notify": notify, "scenarios": every}))


def keeping(folder: Path) -> list[str]:
    return [sys.executable, "-c", f"import sys; open({str(folder / 'told.jsonl')!r}, 'a').write(sys.stdin.read())"]


def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]


def test_the_command_is_told_of_the_first_failure_and_of_the_end(tmp_path: Path) -> None:
    scenarios(tmp_path, {"command": keeping(tmp_path)}, 0, 3, 4)
    done = tunebench(tmp_path, "run", "scenarios.yaml", "--yes")
    assert done.code == 1 and "notify" not in done.err
    failed, end = told(tmp_path)
    assert (failed["event"], failed["run"]["status"], failed["run"]["attempt"]) == ("failed", "failed", 1)
    assert (end["event"], end["runs"], end["exit_code"]) == ("ended", {"ok": 1, "failed": 2}, 1)
    assert failed["run"]["name"] == "s1-none.none.gpus1" and failed["run"]["experiment"].startswith(
        "s1-none.none.gpus1-"
    )
    assert failed["text"].startswith("s1-none.none.gpus1 r1-t1: failed (")
    assert end["text"] == "the campaign has ended: 2 failed, 1 ok" and end["answers"] == []
    assert {one["results"] for one in (failed, end)} == {str(tmp_path / "results")}
    assert (tmp_path / "results" / "report.html").stat().st_mtime < end["time"]


def test_the_end_of_a_race_names_the_winner(tmp_path: Path) -> None:
    speeds = "import sys; print('{\"tokens_per_s\": %s}' % sys.argv[1]); sys.exit(sys.argv[1] == '3')"
    scenario = {
        **{"name": "speeds", "trainer": "custom", "device": "cpu", "repeats": 1, "matrix": {"speed": [9, 6, 3]}},
        "custom": {
            "command": ["{python}", "-c", speeds, "{speed}"],
            "launcher": "none",
            "metrics": {"tokens_per_s": {"key": "tokens_per_s"}},
        },
    }
    document = {"notify": {"command": keeping(tmp_path)}, "scenarios": [scenario]}
    (tmp_path / "scenarios.yaml").write_text(json.dumps(document))
    done = tunebench(tmp_path, "tune", "scenarios.yaml", "--limit", "loss=+1%")
    failed, end = told(tmp_path)
    assert failed["text"].startswith("speeds-none.none.gpus1 speed=3 r1-t1: failed (")
    (answer,) = end["answers"]
    assert answer.startswith("speeds: 1 process: speed 9 is the fastest within the limits; speed 6, the next, is ")
    assert end["text"].endswith(f". {answer}") and f"{answer}\n" in done.out
    assert end["exit_code"] == done.code == 1


def test_a_command_that_fails_or_is_missing_is_said_once(tmp_path: Path) -> None:
    scenarios(tmp_path, {"command": ["bash", "-c", "echo hf_abcdefghijklmnopqrstuvwxyzabcdefgh; exit 7"]}, 3)
    done = tunebench(tmp_path, "run", "scenarios.yaml", "--yes")
    assert done.code == 1
    assert done.err.count("the command of notify: ended with exit code 7; its output is in ") == 1
    assert "(2 notices failed)" in done.err
    logs = [*(tmp_path / "results" / "notices").glob("*.log")]
    assert [log.read_text() for log in logs] == ["***\n", "***\n"]
    scenarios(tmp_path, {"command": ["/no/such/program"]}, 3)
    done = tunebench(tmp_path, "run", "scenarios.yaml", "--yes")
    assert done.err.count("the command of notify: could not be started: /no/such/program") == 1


def test_a_command_that_hangs_delays_no_run_and_is_ended(tmp_path: Path) -> None:
    root, pids = tmp_path / "results", tmp_path / "pids"
    Store.create(root, {})
    hang = ["bash", "-c", f"setsid sleep 600 & echo $! >{pids}; echo $$ >>{pids}; sleep 600"]
    with Notices(hang, root, scenarios=tmp_path, limit_s=1.0) as notices:
        began = time.monotonic()
        notices.on_event(Event(kind=EventKind.BUDGET, text="the budget of 2 GPU-hours is reached"))
        assert time.monotonic() - began < 0.5
        assert notices.problems()[0].startswith("the command of notify: was stopped after 1 s; its output is in ")
    living = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in living))
    (document,) = (root / "notices").glob("*.json")
    assert json.loads(document.read_text())["text"] == "the budget of 2 GPU-hours is reached"


def test_nothing_that_the_command_started_outlives_it_and_its_output_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon of the command, what this daemon would say later, and 80 MB of output."""
    monkeypatch.setenv("MY_TOKEN", "plain-but-secret-9431")
    root, pid = tmp_path / "results", tmp_path / "pid"
    Store.create(root, {})
    later = f"(sleep 5; echo $MY_TOKEN) & setsid sleep 600 & echo $! >{pid}"
    with Notices(
        ["bash", "-c", f"echo $MY_TOKEN; {later}; yes | head -c 80000000"], root, scenarios=tmp_path
    ) as notices:
        notices.on_event(Event(kind=EventKind.BUDGET, text="the budget is reached"))
        assert notices.problems() == []
    wait_until(lambda: not os.path.exists(f"/proc/{pid.read_text().strip()}"))
    (log,) = (root / "notices").glob("*.log")
    assert log.read_text().startswith("***\ny\ny\n") and log.stat().st_size < 2**20 + 100


def test_a_secret_at_the_end_of_the_log_is_not_cut_before_it_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2secretvalue1234")
    Store.create(tmp_path / "results", {})
    text = f"import os, sys; sys.stdout.write('x' * ({MOST_BYTES} - 10) + ' ' + os.environ['MY_TOKEN'] + ' more')"
    with Notices([sys.executable, "-c", text], tmp_path / "results", scenarios=tmp_path) as notices:
        notices.on_event(Event(kind=EventKind.BUDGET, text="the budget is reached"))
        assert notices.problems() == []
    (log,) = (tmp_path / "results" / "notices").glob("*.log")
    assert log.read_text().endswith("x *** more")


def test_a_command_that_still_runs_is_ended_with_the_campaign(tmp_path: Path) -> None:
    Store.create(tmp_path / "results", {})
    with Notices(["sleep", "600"], tmp_path / "results", scenarios=tmp_path) as notices:
        notices.ended(Summary(counts={}, records=()))
        began = time.monotonic()
    assert time.monotonic() - began < 20


def test_a_secret_reaches_neither_the_command_nor_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "plain-but-secret-9431")
    Store.create(tmp_path / "results", {})
    with Notices(keeping(tmp_path), tmp_path / "results", scenarios=tmp_path / "plain-but-secret-9431") as notices:
        notices.on_event(Event(kind=EventKind.BUDGET, text="plain-but-secret-9431 \x1b[31m"))
        assert notices.problems() == []
    text = (tmp_path / "told.jsonl").read_text()
    assert "9431" not in text and "\x1b" not in text and text.count("***") == 2


@pytest.mark.parametrize(
    ("notify", "sentence"), [({"command": []}, "command"), ({}, "command"), ({"command": ["x"], "on": 1}, "on")]
)
def test_mistakes_are_named(tmp_path: Path, notify: Any, sentence: str) -> None:
    scenarios(tmp_path, notify, 0)
    done = tunebench(tmp_path, "plan", "scenarios.yaml")
    assert done.code == 2 and "scenarios.yaml:1:" in done.err and sentence in done.err

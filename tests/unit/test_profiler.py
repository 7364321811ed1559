"""The profiler of the instrument: which steps it profiles, on which ranks, and what it says if it wrote no trace."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator import monitors
from orchestrator.measure.rank_files import why_wrong
from orchestrator.monitors.torch_profiler import MemorySnapshot, TorchProfiler
from orchestrator.records import Command

torch = pytest.importorskip("torch")
profiler = pytest.importorskip("profiler")


def made(folder: Path, *, rank: int = 0, world_size: int = 1, wait: int = 3, active: int = 2) -> Any:
    asked = {"folder": str(folder), "wait": wait, "active": active, "kinds": ["trace"]}
    return profiler.Profile(json.dumps(asked), rank=rank, world_size=world_size)


def trained(profile: Any, *, most_steps: int, steps: int) -> list[int]:
    """Train, and return the steps in which a trace was written."""
    profile.begin(most_steps)
    written = []
    for step in range(1, steps + 1):
        torch.ones(8, 8) @ torch.ones(8, 8)
        if profile.step():
            written.append(step)
    profile.end()
    return written


def profiled(trace: dict[str, Any]) -> set[str]:
    return {event["name"] for event in trace["traceEvents"] if str(event.get("name")).startswith("ProfilerStep#")}


def test_whole_steps_after_the_wait_and_the_warm_up_are_profiled(tmp_path: Path) -> None:
    profile = made(tmp_path)
    assert trained(profile, most_steps=20, steps=10) == [7]
    assert profile.notes["trace"] == {"first_step": 6, "last_step": 7, "file": "rank0.json"}
    assert profiled(json.loads((tmp_path / "rank0.json").read_text())) == {"ProfilerStep#5", "ProfilerStep#6"}
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.json"]


def test_a_short_training_waits_for_fewer_steps(tmp_path: Path) -> None:
    profile = made(tmp_path)
    assert trained(profile, most_steps=5, steps=5) == [5]
    assert profile.notes["trace"]["first_step"] == 4


def test_a_training_that_is_too_short_has_no_trace_and_says_why(tmp_path: Path) -> None:
    profile = made(tmp_path)
    assert trained(profile, most_steps=4, steps=4) == []
    assert profile.notes["trace"] == {"why_not": "the training has 4 steps, and a profile needs 5"}
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_ends_in_the_window_has_no_trace(tmp_path: Path) -> None:
    profile = made(tmp_path)
    assert trained(profile, most_steps=20, steps=6) == []
    assert profile.notes["trace"] == {"why_not": "the training ended before step 7"}
    assert list(tmp_path.iterdir()) == []


def test_only_the_first_and_the_last_rank_are_profiled(tmp_path: Path) -> None:
    chosen = [rank for rank in range(4) if made(tmp_path, rank=rank, world_size=4).chosen]
    assert chosen == [0, 3]
    middle = made(tmp_path, rank=1, world_size=4)
    assert trained(middle, most_steps=20, steps=10) == [] and middle.notes is None


def test_the_training_goes_on_if_the_trace_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    profile = made(tmp_path / "file")
    trained(profile, most_steps=20, steps=10)
    assert profile.notes["trace"]["why_not"].startswith("the profiler failed: ")


@pytest.mark.skipif(torch.cuda.is_initialized(), reason="CUDA is in use")
def test_without_cuda_there_is_no_history_of_memory_but_a_trace(tmp_path: Path) -> None:
    asked = {"folder": str(tmp_path), "wait": 3, "active": 2, "kinds": ["memory", "trace"]}
    profile = profiler.Profile(json.dumps(asked), rank=0, world_size=1)
    assert trained(profile, most_steps=20, steps=10) == [7]
    assert profile.notes["memory"] == {"why_not": "only CUDA has a history of its memory"}
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.json"]


# --- the monitor -----------------------------------------------------------------------------------------------------


def test_the_monitor_asks_the_instrument_and_leaves_other_commands_unchanged(tmp_path: Path) -> None:
    command = Command(argv=("python", "tunebench-instrument.py", "--", "sft.py"), env={}, cwd=tmp_path)
    asked = json.loads(TorchProfiler().prepare(command, tmp_path).env["TUNEBENCH_PROFILE"] or "")
    assert asked == {"folder": str(tmp_path / "profile"), "wait": 10, "active": 3, "kinds": ["trace"]}
    both = MemorySnapshot().prepare(TorchProfiler().prepare(command, tmp_path), tmp_path)
    assert json.loads(both.env["TUNEBENCH_PROFILE"] or "")["kinds"] == ["trace", "memory"]
    other = Command(argv=("my-trainer",), env={}, cwd=tmp_path)
    assert TorchProfiler().prepare(other, tmp_path) == other
    assert monitors.perturbing(["torch_profiler", "memory_snapshot", "nvml"]) == {"torch_profiler", "memory_snapshot"}


def test_a_trace_is_compressed_after_the_run(tmp_path: Path) -> None:
    written(tmp_path, 0, {"first_step": 13, "last_step": 15, "file": "rank0.json"})
    written(tmp_path, 1, None)
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "rank0.json").write_text('{"traceEvents": []}')
    (number,) = TorchProfiler().measurements(tmp_path)
    assert (number.name, number.value) == ("profiled_steps", 3)
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["rank0.json.gz"]
    with gzip.open(tmp_path / "profile" / "rank0.json.gz") as file:
        assert json.load(file) == {"traceEvents": []}
    (said,) = TorchProfiler().warnings(tmp_path)
    assert said.sentence == "the steady state includes profiled steps: torch_profiler, steps 13 to 15"


@pytest.mark.timeout(20)
def test_a_link_or_a_pipe_in_the_place_of_a_trace_stays(tmp_path: Path) -> None:
    """A run whose command made the pipe never ended, since nobody wrote into it."""
    folder, users = tmp_path / "profile", tmp_path / "mine"
    folder.mkdir()
    users.mkdir()
    (users / "rank0.json").write_text("mine")
    os.mkfifo(folder / "rank0.json")
    (folder / "rank1.json").symlink_to("/dev/zero")
    (folder / "rank2.json").write_text("{}")
    (folder / "rank2.json.gz.part").symlink_to(users / "rank0.json")
    TorchProfiler().measurements(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["rank0.json", "rank1.json", "rank2.json.gz"]
    (folder / "rank4.json").write_text("{}")
    (folder / "rank4.json.gz.part").mkdir()
    TorchProfiler().measurements(tmp_path)
    assert (folder / "rank4.json").exists()
    folder.rename(tmp_path / "aside")
    folder.symlink_to(users)
    TorchProfiler().measurements(tmp_path)
    assert [path.name for path in users.iterdir()] == ["rank0.json"] and (users / "rank0.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("note", "why"),
    [
        (
            {"why_not": "the training has 4 steps, and a profile needs 6"},
            "the training has 4 steps, and a profile needs 6",
        ),
        *(
            (odd, "no training that ended under the instrument, which starts the profiler")
            for odd in (
                None,
                {},
                {"file": "rank0.json"},
                {"file": "rank0.json", "first_step": "13", "last_step": 15},
                {"file": "rank0.json", "first_step": 16, "last_step": 15},
            )
        ),
    ],
)
def test_a_missing_trace_has_its_reason(tmp_path: Path, note: dict[str, Any] | None, why: str) -> None:
    written(tmp_path, 0, note)
    (number,) = TorchProfiler().measurements(tmp_path)
    assert (number.value, number.why_missing) == (None, f"torch_profiler: {why}")
    assert [caveat.sentence for caveat in TorchProfiler().warnings(tmp_path)] == [f"torch_profiler: {why}"]


@pytest.mark.parametrize("last", ["15", 15.5, 1e30, -1])
def test_steps_of_a_wrong_type_are_a_wrong_value_of_the_ranks_file(tmp_path: Path, last: object) -> None:
    written(tmp_path, 0, {"first_step": 13, "last_step": last, "file": "rank0.json"})
    assert str(why_wrong(tmp_path)).startswith("worker-rank0.json has a wrong value: ")
    written(tmp_path, 0, {"first_step": 13, "last_step": 15, "file": "rank0.json"})
    written(tmp_path, 1, None)
    assert why_wrong(tmp_path) is None


def written(run_dir: Path, rank: int, note: dict[str, Any] | None) -> None:
    (run_dir / f"worker-rank{rank}.json").write_text(json.dumps({"rank": rank, "profile": note and {"trace": note}}))

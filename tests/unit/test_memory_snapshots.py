"""Histories of a GPU's memory: the peak of the profiled steps, what holds it, and files that are no such history."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SelectionError
from orchestrator.report.profile.memory import BEFORE, WITHOUT_LINES, Held, Memory, read

Call = Callable[..., tuple[int, str, str]]
MODEL = {
    "filename": "/opt/torch/lib/site-packages/transformers/models/llama/modeling_llama.py",
    "line": 182,
    "name": "forward",
}
LINEAR = {"filename": "/opt/torch/lib/site-packages/torch/nn/functional.py", "line": 7, "name": "linear"}
ADAMW = {"filename": "/opt/torch/lib/site-packages/torch/optim/adamw.py", "line": 50, "name": "step"}
NATIVE = {"filename": "/opt/torch/lib/site-packages/torch/lib/allocator.cpp", "line": 0, "name": "malloc"}


def asked(address: int, size: int, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"action": "alloc", "addr": address, "size": size, "stream": 0, "frames": list(frames)}


def returned(address: int, size: int) -> list[dict[str, Any]]:
    """The events of a returned block. Its memory is free at the first one."""
    words = ("free_requested", "free_completed")
    return [{"action": word, "addr": address, "size": size, "stream": 0, "frames": []} for word in words]


def history(folder: Path, events: list[dict[str, Any]], last: dict[int, int]) -> Path:
    """Write a snapshot with these events on the second of two GPUs. `last` maps addresses to the blocks in use at the end."""
    blocks = [{"address": at, "size": size, "state": "active_allocated"} for at, size in last.items()]
    unused = {"address": 9000, "size": 5000, "state": "inactive"}
    segments = [
        {"address": 0, "device": 1, "blocks": [*blocks, unused]},
        {"address": 0, "device": 0, "blocks": [{"address": 8, "size": 70, "state": "active_allocated"}]},
    ]
    path = folder / "rank0-memory.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [[], events]}))
    return path


def test_the_peak_is_held_by_lines_of_python(tmp_path: Path) -> None:
    events = [
        {"action": "segment_alloc", "addr": 0, "size": 10_000, "stream": 0, "frames": []},
        asked(100, 30, LINEAR, MODEL),
        asked(200, 20, NATIVE, LINEAR, MODEL),
        asked(300, 5, LINEAR),
        asked(400, 7),
        asked(450, 8, ADAMW, MODEL),  # the peak: 1000 + 40 from before, and these 70
        *returned(500, 40),
        *returned(100, 30),
        asked(100, 60, MODEL),
        *returned(450, 8),
    ]
    found = read(history(tmp_path, events, {0: 1000, 100: 60, 200: 20, 300: 5, 400: 7}))
    assert found == Memory(
        peak_bytes=1110,
        events=13,
        held={
            BEFORE: Held(1040, 2),
            "models/llama/modeling_llama.py:182 forward": Held(50, 2),
            "torch/nn/functional.py:7 linear": Held(5, 1),
            WITHOUT_LINES: Held(7, 1),
            "torch/optim/adamw.py:50 step": Held(8, 1),
        },
    )


def test_a_history_without_events_has_what_is_in_use(tmp_path: Path) -> None:
    assert read(history(tmp_path, [asked(1, 4), *returned(1, 4)], {5: 300})).peak_bytes == 304


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 1000)), max_size=40),
    st.dictionaries(st.integers(0, 5), st.integers(1, 99)),
)
def test_what_holds_the_peak_adds_up_to_it(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int]], first: dict[int, int]
) -> None:
    """A random program: it returns a block if its address is in use, and otherwise asks for one."""
    live, events, sums = dict(first), [asked(99, 1), *returned(99, 1)], [sum(first.values()) + 1]
    for address, size in moves:
        if address in live:
            events += returned(address, live.pop(address))
        else:
            live[address] = size
            events.append(asked(address, size, MODEL))
        sums.append(sum(live.values()))
    found = read(history(tmp_path_factory.mktemp("history"), events, live))
    assert found.peak_bytes == max(sums) == sum(held.bytes for held in found.held.values())


def one_list_of_4_to_the_40() -> list[Any]:
    found: list[Any] = []
    for _ in range(40):
        found = [found] * 4
    return found


ODD_EVENTS: list[dict[str, Any]] = [
    *({"action": "alloc", "addr": 1, "size": size, "frames": []} for size in (10**5000, 1e300, -100, "5", None)),
    *(
        {"action": "alloc", "addr": 1, "size": 100, "frames": [{"filename": name, "line": line, "name": "f"}]}
        for name, line in ((one_list_of_4_to_the_40(), 3), ("/a.py", one_list_of_4_to_the_40()), (5, 5))
    ),
]


class Code:
    """A pickle of this runs a command when it is read."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.word,)


def test_the_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "rank0-memory.pickle"
    path.write_bytes(pickle.dumps(Code(f"touch {tmp_path}/ran")))
    with pytest.raises(SelectionError, match=r"system, and a history of memory has only data"):
        read(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        pickle.dumps([]),
        pickle.dumps({"segments": [], "device_traces": []}),
        pickle.dumps({"segments": 3}),
        *(pickle.dumps({"segments": [], "device_traces": [[event]]}) for event in ODD_EVENTS),
    ],
)
def test_another_file_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pickle").write_bytes(content)
    with pytest.raises(SelectionError, match=r"a\.pickle: this is not a history of a GPU's memory"):
        read(tmp_path / "a.pickle")
    with pytest.raises(SelectionError, match="there is no such file"):
        read(tmp_path / "b.pickle")


def test_the_command_shows_the_memory(in_process: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "profile").mkdir()
    history(tmp_path / "profile", [asked(100, 3 * 2**30, MODEL)], {0: 2**30, 100: 3 * 2**30})
    code, out, _ = in_process("profile", str(tmp_path / "profile"), "--snapshot")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[1:] == [
        "4.00 GiB at the peak, from 1 event",
        "",
        "place memory share blocks",
        "models/llama/modeling_llama.py:182 forward 3.00 GiB 75.0% 1",
        "before the first profiled step 1.00 GiB 25.0% 1",
    ]
    code, _, err = in_process("profile", str(tmp_path / "profile"))
    assert code == 2 and "profile: no run here has a trace" in err

"""Reads the history of a GPU's memory, which the monitor `memory_snapshot` writes, into a `Memory`: what holds it at its peak.

The file is PyTorch's own: a pickle of lists, dicts, texts and numbers. Nothing else is accepted, so that no code of a foreign file
can run. It has the blocks at the end, and the events before in order: each block that was asked for, with lines of Python, and each
that was returned. From these, the peak of the profiled steps follows. A block's place is its innermost line outside torch and
the instrument, or the innermost line if there is no other.

What the numbers leave out: memory outside torch's allocator; what the allocator adds to a block to round it up. Blocks from before
the first event have no place: the weights, mostly. Those of the backward pass have none either, because its thread has no Python.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.errors import SelectionError
from orchestrator.files import reading
from orchestrator.files.printable_text import one_line

MOST_BYTES = 1024 * reading.MIB
BEFORE, WITHOUT_LINES = "before the first profiled step", "the backward pass, and other code without lines of Python"
_TORCH = re.compile(r"-packages/torch/(?!optim/)|tunebench-instrument\.py$")
_LAST_PARTS, _LONGEST_NAME = 3, 200
_NO_GPU_HAS = 2**50


class Held(NamedTuple):
    """The memory that a place holds."""

    bytes: int
    blocks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """A GPU's memory at its peak. `held` has the places, `events` the number of events that are known."""

    peak_bytes: int
    events: int
    held: Mapping[str, Held]


class _Block(NamedTuple):
    size: int
    place: str


class _OnlyData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a history of memory has only data")


def read(path: Path) -> Memory:
    """Return the memory at its peak. Raise SelectionError if the file is not such a history."""
    try:
        with reading.opened(path) as file:
            document = _OnlyData(_Limited(file)).load()
        traces, segments = document["device_traces"], document["segments"]
        device = max(range(len(traces)), key=lambda number: len(traces[number]))
        return _peak(traces[device], list(_blocks(segments, device)))
    except FileNotFoundError:
        raise SelectionError(f"{path}: there is no such file; name a snapshot, or a folder with one") from None
    except Exception as error:  # a pickle may raise anything
        raise SelectionError(
            f"{path}: this is not a history of a GPU's memory ({type(error).__name__}: {one_line(str(error))}); profile again"
        ) from None


class _Limited:
    """A file that is read up to MOST_BYTES."""

    def __init__(self, file: Any) -> None:
        self.file, self.left = file, MOST_BYTES

    def read(self, count: int) -> bytes:
        return self._less(self.file.read(count))

    def readline(self) -> bytes:
        return self._less(self.file.readline(MOST_BYTES + 1))

    def _less(self, found: bytes) -> bytes:
        self.left -= len(found)
        if self.left < 0:
            raise ValueError(f"it has more than {MOST_BYTES // reading.MIB} MiB")
        return found


def _blocks(segments: Sequence[Mapping[str, Any]], device: int) -> Iterator[tuple[int, int]]:
    """Yield the address and the size of each block that is in use at the end."""
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"] if segment.get("device", device) == device else ():
            if block["state"] == "active_allocated":
                yield block.get("address", address), _size(block.get("requested_size", block["size"]))
            address += _size(block["size"])


def _size(number: Any) -> int:
    """Return a number of bytes. Raise ValueError if it is not one that a GPU can have."""
    if not isinstance(number, int) or not 0 <= number < _NO_GPU_HAS:
        raise ValueError("it has a block whose size is not a number of bytes")
    return number


def _peak(events: Sequence[Mapping[str, Any]], last: Sequence[tuple[int, int]]) -> Memory:
    """Go through the events twice: to the largest sum, and then to its place again."""
    first = _at_first(events, last)
    total = largest = sum(block.size for block in first.values())
    at = 0
    live = {address: block.size for address, block in first.items()}
    for number, event in enumerate(events, 1):
        if event["action"] == "alloc":
            live[event["addr"]] = _size(event["size"])
            total += _size(event["size"])
        elif event["action"] == "free_requested":
            total -= live.pop(event["addr"], 0)
        if total > largest:
            largest, at = total, number
    return Memory(peak_bytes=largest, events=len(events), held=_held(first, events[:at]))


def _at_first(events: Sequence[Mapping[str, Any]], last: Sequence[tuple[int, int]]) -> dict[int, _Block]:
    """Return the blocks from before the first event: those at the end that no event asked for, and those that were returned."""
    asked: set[int] = set()
    found: dict[int, _Block] = {}
    for event in events:
        address = event["addr"]
        if event["action"] == "alloc":
            asked.add(address)
        elif event["action"] == "free_requested" and address not in asked and address not in found:
            found[address] = _Block(_size(event["size"]), BEFORE)
    return {**{address: _Block(size, BEFORE) for address, size in last if address not in asked}, **found}


def _held(first: Mapping[int, _Block], events: Sequence[Mapping[str, Any]]) -> dict[str, Held]:
    live = dict(first)
    for event in events:
        if event["action"] == "alloc":
            live[event["addr"]] = _Block(_size(event["size"]), _place(event.get("frames") or ()))
        elif event["action"] == "free_requested":
            live.pop(event["addr"], None)
    sizes: Counter[str] = Counter()
    blocks: Counter[str] = Counter()
    for block in live.values():
        sizes[block.place] += block.size
        blocks[block.place] += 1
    return {place: Held(size, blocks[place]) for place, size in sizes.items()}


def _place(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the file, the line and the function of the innermost frame that is not torch's."""
    python = [(frame["filename"], frame) for frame in frames if frame["filename"].endswith(".py")]
    if not python:
        return WITHOUT_LINES
    own = [one for one in python if not _TORCH.search(one[0])]
    file, frame = (own or python)[0]
    return f"{'/'.join(Path(file).parts[-_LAST_PARTS:])}:{frame['line']:d} {frame['name'][:_LONGEST_NAME]}"

"""Profile three steps of a training: `torch_profiler` writes a trace of torch's profiler, `memory_snapshot` a history of memory.

How: the instrument starts to record after WAIT steps and two more to warm up (`workers/instrument/profiler.py`). For the first and
the last rank it writes files into the run's folder `profile/`, and does not read them. After the run, a trace is compressed:
`rank<R>.json.gz`. Perfetto's web viewer and Chrome's tracing page open it as it is. A history stays `rank<R>-memory.pickle`, which
PyTorch's memory viewer opens.

A profiled step is slower than others, so the run's speed is never compared with the speed of a run without these monitors.

What is left out: shapes and stacks in a trace, which would make it several times larger; ranks between the first and the last.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.monitors.monitor import Monitor
from orchestrator.records import Caveat, CaveatKind, Command, Measurement, RunFolder

FOLDER = "profile"
WAIT, ACTIVE = 10, 3
_INSTRUMENT = "instrument.py"
_PROFILE = "TUNEBENCH_PROFILE"
_NO_NOTES = "no training that ended under the instrument, which starts the profiler"


class _Profiler(Monitor):
    """A monitor that asks the instrument to record one kind of file."""

    name: str
    kind: str
    perturbs = True

    def prepare(self, command: Command, run_dir: Path) -> Command:
        """Return the command with a variable that makes the instrument profile. Other commands are not changed."""
        if not any(word.endswith(_INSTRUMENT) for word in command.argv):
            return command
        others = json.loads(command.env.get(_PROFILE) or "{}").get("kinds", [])
        asked = {"folder": str(run_dir / FOLDER), "wait": WAIT, "active": ACTIVE, "kinds": [*others, self.kind]}
        return replace(command, env={**command.env, _PROFILE: json.dumps(asked)})

    def warnings(self, run_dir: Path) -> Sequence[Caveat]:
        notes = _notes(run_dir, self.kind)
        steps = {f"{first} to {last}" for first, last in _written(notes)}
        profiled = [Caveat(kind=CaveatKind.PROFILED, detail=f"{self.name}, steps {text}") for text in sorted(steps)]
        return profiled + [Caveat(detail=f"{self.name}: {why}") for why in _lost(notes)]


class MemorySnapshot(_Profiler):
    """The monitor that asks for the history of CUDA's memory."""

    name, kind = "memory_snapshot", "memory"


class TorchProfiler(_Profiler):
    """The monitor that asks for traces."""

    name, kind = "torch_profiler", "trace"

    def measurements(self, run_dir: Path) -> list[Measurement]:
        """Compress the traces, and return the number of profiled steps."""
        folder = run_dir / FOLDER
        for trace in () if folder.is_symlink() else sorted(folder.glob("rank*.json")):
            _compress(trace)
        notes = _notes(run_dir, self.kind)
        steps = next((last - first + 1 for first, last in _written(notes)), None)
        missing = None if steps else Caveat(detail=f"torch_profiler: {_lost(notes)[0]}")
        return [Measurement(name="profiled_steps", value=steps, source="torch_profiler", missing=missing)]


def _notes(run_dir: Path, kind: str) -> list[Mapping[str, Any]]:
    """Return what each rank noted about files of this kind."""
    found = [notes.get(kind) for notes in _each(RunFolder(run_dir)) if isinstance(notes, Mapping)]
    return [note for note in found if isinstance(note, Mapping)]


def _lost(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why traces are missing, each reason once."""
    reasons = list(dict.fromkeys(str(note["why_not"]) for note in notes if note.get("why_not")))
    return reasons or ([] if _written(notes) else [_NO_NOTES])


def _written(notes: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Return the first and the last profiled step of each rank that wrote a file."""
    steps = [(note.get("first_step"), note.get("last_step")) for note in notes if note.get("file")]
    return [(first, last) for first, last in steps if type(first) is type(last) is int and first <= last]


def _each(folder: RunFolder) -> Iterator[Any]:
    for path in folder.all_workers().values():
        try:
            content = reading.read_json(path, limit=reading.RECORD_BYTES, finite=False)
        except (OSError, ValueError):
            continue
        yield content.get("profile") if isinstance(content, dict) else None


def _compress(trace: Path) -> None:
    """Replace a trace by its compressed file, which is about a tenth of its size. If the disk is full, the trace stays.

    A link or a pipe that the run's command put in its place stays, too.
    """
    packed = trace.with_name(trace.name + ".gz")
    part = packed.with_name(packed.name + ".part")
    try:
        part.unlink(missing_ok=True)
        with reading.opened(trace) as source, gzip.open(part, "xb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(part, packed)
        trace.unlink()
    except (OSError, reading.Unreadable):
        with suppress(OSError):
            part.unlink(missing_ok=True)

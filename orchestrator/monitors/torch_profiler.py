"""Profiles three steps of a training with torch's profiler. The traces lie in the run's folder `profile/`, one for each rank.

How: the instrument starts the profiler after WAIT steps and two more to warm it up (`workers/instrument/profiler.py`). It writes
a trace for the first and the last rank, `rank<R>.json`, and does not read it. After the run, the trace is compressed; perfetto's
web viewer and Chrome's tracing page open it as it is.

A profiled step is slower than others, so the run's speed is never compared with the speed of a run without this monitor.

The traces leave out: shapes, stacks and memory, which would make them several times larger; ranks between the first and the last.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.monitors.monitor import Monitor
from orchestrator.records import Caveat, Command, Measurement, RunFolder

FOLDER = "profile"
WAIT, ACTIVE = 10, 3
_INSTRUMENT = "instrument.py"
_PROFILE = "TUNEBENCH_PROFILE"
_NO_NOTES = "no training that ended under the instrument, which starts the profiler"


class TorchProfiler(Monitor):
    """The monitor that asks the instrument for traces."""

    perturbs = True

    def prepare(self, command: Command, run_dir: Path) -> Command:
        """Return the command with a variable that makes the instrument profile. Other commands are not changed."""
        if not any(word.endswith(_INSTRUMENT) for word in command.argv):
            return command
        asked = {"folder": str(run_dir / FOLDER), "wait": WAIT, "active": ACTIVE}
        return replace(command, env={**command.env, _PROFILE: json.dumps(asked)})

    def measurements(self, run_dir: Path) -> list[Measurement]:
        """Compress the traces, and return the number of profiled steps."""
        for trace in sorted((run_dir / FOLDER).glob("rank*.json")):
            _compress(trace)
        notes = _notes(run_dir)
        written = [note for note in notes if "file" in note]
        steps = written[0]["last_step"] - written[0]["first_step"] + 1 if written else None
        missing = None if steps else Caveat(detail=f"torch_profiler: {_lost(notes)[0]}")
        return [Measurement(name="profiled_steps", value=steps, source="torch_profiler", missing=missing)]

    def warnings(self, run_dir: Path) -> Sequence[Caveat]:
        return [Caveat(detail=f"torch_profiler: {why}") for why in _lost(_notes(run_dir))]


def _notes(run_dir: Path) -> list[Mapping[str, Any]]:
    """Return what each rank noted about its profile."""
    return [note for note in _each(RunFolder(run_dir)) if isinstance(note, Mapping)]


def _lost(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why traces are missing, each reason once."""
    return list(dict.fromkeys(str(note["why_not"]) for note in notes if "why_not" in note)) if notes else [_NO_NOTES]


def _each(folder: RunFolder) -> Iterator[Any]:
    for path in folder.all_workers().values():
        try:
            content = reading.read_json(path, limit=reading.RECORD_BYTES, finite=False)
        except (OSError, ValueError):
            continue
        yield content.get("profile") if isinstance(content, dict) else None


def _compress(trace: Path) -> None:
    """Replace a trace by its compressed file, which is about a tenth of its size. If the disk is full, the trace stays."""
    packed = trace.with_name(trace.name + ".gz")
    part = packed.with_name(packed.name + ".part")
    try:
        with trace.open("rb") as source, gzip.open(part, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(part, packed)
        trace.unlink()
    except OSError:
        part.unlink(missing_ok=True)

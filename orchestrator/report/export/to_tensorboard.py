"""Runs as TensorBoard's event files, one per run: FOLDER/<project>/<experiment>/<run>/events.out.tfevents.tunebench.

Measured numbers and series are scalars. Arguments are hyperparameters, and repeats are sessions of one trial. Tags and files are
texts. A file gets its name only when it is complete. The same run gives the same bytes. The time in a chart is the time of the run.

What it leaves out: TensorBoard stores scalars in 32 bits, about 7 digits; the texts have all digits.
"""

from __future__ import annotations

import io
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.files import writing
from orchestrator.files.reading import sound_number
from orchestrator.report.export.tracker import (
    Point,
    Status,
    Tracker,
    TrackerRun,
    as_code,
    outside_of_results,
    package_of,
)

DEFAULT_FOLDER = "tensorboard"
EVENTS_FILE = "events.out.tfevents.tunebench"
_LARGEST = 3.4e38
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


@contextmanager
def opened(destination: str | None, *, project: str, say: Callable[[str], None]) -> Iterator[Tracker]:
    """Open a folder for `tensorboard --logdir`. The default is `tensorboard/` in the working folder."""
    with package_of("tensorboard"):
        import tensorboard.summary.writer.record_writer  # noqa: F401
    yield _EventFiles(outside_of_results(Path(destination or DEFAULT_FOLDER)), project=project)


class _EventFiles:
    def __init__(self, folder: Path, *, project: str) -> None:
        self.place = f"tensorboard --logdir {folder}"
        self._root = folder / _file_name(project)

    def has(self, run: TrackerRun) -> bool:
        return self._file(run).exists()

    def add(self, run: TrackerRun) -> list[str]:
        from tensorboard.summary.writer.record_writer import RecordWriter

        content = io.BytesIO()
        writer = RecordWriter(content)
        for event in _events(run):
            writer.write(event.SerializeToString())
        _place(self._file(run), content.getvalue())
        beyond = dict.fromkeys(name for name, point in _points(run) if abs(point.value) > _LARGEST)
        return [f"{name} has values beyond the range of a 32-bit float; its chart leaves them out" for name in beyond]

    def _file(self, run: TrackerRun) -> Path:
        return self._root / _file_name(run.experiment) / _file_name(run.name) / EVENTS_FILE


def _file_name(text: str) -> str:
    """Return the text as the name of one folder, without separators."""
    return re.sub(r"[^\w.-]+", "-", text)[:150].strip(".") or "tunebench"


def _events(run: TrackerRun) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.plugins.text.summary_v2 import text_pb

    begin, end = run.started_at or 0.0, run.ended_at or run.started_at or 0.0
    params = {name: _number_or_text(text) for name, text in run.params.items()}
    yield Event(wall_time=begin, file_version="brain.Event:2")
    yield Event(wall_time=begin, summary=hparams_pb(params, trial_id=run.experiment, start_time_secs=begin))
    yield Event(wall_time=begin, summary=text_pb("tags", _as_table(run)))
    for name, text in run.texts.items():
        yield Event(wall_time=begin, summary=text_pb(name, as_code(text)))
    for name, point in _points(run):
        if abs(point.value) <= _LARGEST:
            value = Summary.Value(tag=name, simple_value=point.value)
            yield Event(wall_time=point.at, step=point.step, summary=Summary(value=[value]))
    yield Event(wall_time=end, summary=_ending(run, end))


def _points(run: TrackerRun) -> Iterator[tuple[str, Point]]:
    """Yield every number of a run: the series, then each single measurement as a point at the run's end."""
    yield from ((name, point) for name, points in run.series.items() for point in points)
    end = run.ended_at or run.started_at or 0.0
    yield from ((name, Point(step=0, at=end, value=value)) for name, value in run.metrics.items())


def _ending(run: TrackerRun, end: float) -> Any:
    """Return the summary that ends the session with success or failure."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    status = api_pb2.STATUS_SUCCESS if run.status is Status.OK else api_pb2.STATUS_FAILURE
    known = HParamsPluginData(session_end_info=SessionEndInfo(status=status, end_time_secs=end))
    content = metadata.create_summary_metadata(known)
    value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=content, tensor=metadata.NULL_TENSOR)
    return Summary(value=[value])


def _number_or_text(text: str) -> float | str:
    """Return the text as a number if it is a number, since TensorBoard can sort and draw numbers."""
    number = sound_number(float(text)) if _NUMBER.fullmatch(text) else None
    return text if number is None else number


def _as_table(run: TrackerRun) -> str:
    """Return tags and exact numbers as a Markdown table. The cells are escaped, so that TensorBoard shows them unchanged."""
    cells = {**run.tags, **{name: repr(value) for name, value in run.metrics.items()}}
    rows = "\n".join(f"| {_as_cell(name)} | {_as_cell(text)} |" for name, text in cells.items())
    return f"| name | value |\n|---|---|\n{rows}"


def _as_cell(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", " ".join(text.split()))


def _place(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.parent / f".{uuid.uuid4().hex}"  # TensorBoard does not take this name for an event file
    with writing.named(path):
        try:
            aside.write_bytes(content)
            os.replace(aside, path)
        finally:
            writing.remove_aside(aside)

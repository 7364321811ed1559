"""One experiment of a results folder as text for people: its command, its facts, a table of runs × metrics, the ends of its logs.

Logs are shown as the trainer wrote them, without secrets, colours and other terminal control characters. A folder from other
people may contain any text, so `files.reading` limits how much is read.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from orchestrator.files import reading
from orchestrator.files.printable_text import counted, one_line, printable, shell_word
from orchestrator.files.redaction import redact
from orchestrator.measure.metrics import DASH, METRICS, Where, metric, show
from orchestrator.records import Experiment, RunRecord, Start
from orchestrator.report.logs import log_end
from orchestrator.results.contents import StoredExperiment, StoredRun
from orchestrator.results.naming import find
from orchestrator.results.store import Store

TAIL_BYTES = 64 * 1024
# The most runs of the table. Of more runs, the last ones are shown.
MOST_RUNS = 6
_WIDTH, _GAP = 118, "   "
_SHOWN = Where.KEPT | Where.PAGE | Where.COMPARED | Where.SPEED


def experiment_view(store: Store, wanted: str, *, lines: int) -> Iterator[str]:
    """Yield the lines to show. Raise ResultsError unless `wanted` means exactly one experiment."""
    name = find(store, wanted)
    stored = StoredExperiment(experiment=store.experiment(name), runs=store.runs(name))
    files = _files(stored.runs[-1], lines) if stored.runs else ()
    parts = (
        _command(stored.runs),
        _facts(stored.experiment, has_run=bool(stored.records)),
        _runs(stored.runs),
        _table(stored.runs),
        files,
    )
    for text in chain([stored.experiment.id], *parts):
        yield printable(redact(text))


def _command(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield the command that repeats the last run, and the training's command in one line."""
    if not runs:
        return
    script = runs[-1].job.folder.script
    text = _text(script, partial(reading.read_tail, limit=TAIL_BYTES))
    if text:
        yield f"command: bash {shell_word(str(script))}"
        _, starts, training = text.rpartition("\nexec ")
        line = re.sub(r" \\\n\s*", " ", training).strip()
        yield f"  starts: {line}" if starts else text.rstrip()


def _facts(experiment: Experiment, *, has_run: bool) -> Iterator[str]:
    framework = experiment.framework.name if experiment.framework else "none"
    yield f"  scenario {experiment.scenario} · framework configuration {framework} · trainer {experiment.trainer}"
    if experiment.environment:
        content = "container" if experiment.environment.container else "packages"
        lock = f"{content} {experiment.environment.lock}" if experiment.environment.lock else "not built"
        yield f"  environment {experiment.environment.name} ({lock})"
    nodes = f" on {experiment.num_nodes} nodes" if experiment.num_nodes > 1 else ""
    processes = f"{experiment.num_gpus} × {experiment.device}{nodes}"
    yield f"  model {experiment.model} · {processes} · {experiment.repeats} repeat(s)"
    if experiment.script:
        place = "the scenario file's folder" if experiment.script.cwd else "the run's output folder"
        yield f"  script {experiment.script.module or experiment.script.path} · started in {place}"
    if experiment.data:
        yield f"  data {experiment.data.source} ({experiment.data_path})"
    for file, digest in experiment.sources.items():
        yield f"  file {file} (sha256 {digest}…)"
    elsewhere = (
        None if has_run else experiment.cannot_run_here
    )  # the machine of the last plan may not be the one of the runs
    for label, reason in (("skipped", experiment.skip), ("cannot run here", elsewhere)):
        if reason:
            yield f"  {label} ({reason.kind}): {reason.text}"
    values = {
        name: value if isinstance(value, str) else " ".join(value) for name, value in experiment.arguments.items()
    }
    for line in textwrap.wrap(", ".join(f"{name}={value}" for name, value in values.items()), _WIDTH - 2):
        yield f"  {line}"


def _runs(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield how each run ended, with its advice and warnings."""
    for run in runs:
        record = run.record
        if record is None:
            yield f"run {run.job.name}: {run.state}"
            continue
        cause = f" ({record.kind}: {record.cause})" if record.kind else ""
        how = record.provenance.get("start")  # earlier versions did not record it
        start = f", {how} start" if how in (Start.WARM, Start.COLD) else ""
        yield f"run {run.job.name}: {record.status}{cause}, {show('wall_s', record.wall_s)}{start}"
        if record.hint:
            yield f"  → {record.hint}"
        yield from (f"  warning: {caveat.sentence}" for caveat in record.warnings)
        reasons: dict[str, list[str]] = {}
        for one in record.measurements:
            if one.value is None:
                reasons.setdefault(one.why_missing or "", []).append(one.name)
        yield from (f"  missing: {', '.join(names)}: {why}" for why, names in reasons.items())


def _table(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield a table of metrics × runs: the metrics that tables show, and those that only this experiment has."""
    ended = [(run.job.name, record) for run in runs if (record := run.record) is not None and record.measurements]
    shown = ended[-MOST_RUNS:]
    names = dict.fromkeys(one.name for _, record in shown for one in record.measurements if one.value is not None)
    chosen = [name for name in names if name not in METRICS or metric(name).where & _SHOWN]
    if not chosen:
        return
    rows = [("metric", "unit", *(name for name, _ in shown))]
    rows += [(name, metric(name).unit or "", *(_value(record, name) for _, record in shown)) for name in chosen]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, unit, *values in rows:
        cells = [f"{name:{widths[0]}}", f"{unit:{widths[1]}}"]
        cells += [f"{value:>{width}}" for value, width in zip(values, widths[2:], strict=True)]
        yield _GAP.join(cells).rstrip()
    if len(ended) > len(shown):
        yield f"{counted(len(ended) - len(shown), 'earlier run')} in raw_summary.csv"
    if len(names) > len(chosen):
        yield f"{counted(len(names) - len(chosen), 'more metric')} in record.json of each run, and in raw_summary.csv"


def _value(record: RunRecord, name: str) -> str:
    value = next((one.value for one in record.measurements if one.name == name), None)
    return DASH if value is None else one_line(show(name, value), longest=40)


def _files(run: StoredRun, lines: int) -> Iterator[str]:
    folder = run.job.folder
    yield f"folder {folder.path}"
    for log in (folder.stdout, folder.stderr):
        end = _text(log, partial(log_end, limit=TAIL_BYTES)).splitlines()
        if end and lines:
            yield f"--- end of {log.name}"
            yield "\n".join(end[-lines:])


def _text(file: Path, read: Callable[[Path], str]) -> str:
    """Return the text of a file, "" if the file is missing, or a sentence if the file cannot be read."""
    try:
        return read(file)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return f"{file.name} is not shown: {reading.reason(error)}"

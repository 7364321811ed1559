"""One experiment of a results folder as text for people: its facts, its runs, its command, the ends of its logs.

Logs are shown as the trainer wrote them, without secrets, colours and other terminal control characters. A folder from other
people may contain any text, so `files.reading` limits how much is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from orchestrator.files import reading
from orchestrator.files.printable_text import printable, shell_word
from orchestrator.files.redaction import redact
from orchestrator.records import Experiment
from orchestrator.report.logs import log_end
from orchestrator.results.contents import StoredExperiment, StoredRun
from orchestrator.results.store import Store

TAIL_BYTES = 64 * 1024


def experiment_view(store: Store, wanted: str, *, lines: int) -> Iterator[str]:
    """Yield the lines to show. Raise ResultsError unless exactly one experiment's id contains `wanted`."""
    name = store.find(wanted)
    stored = StoredExperiment(experiment=store.experiment(name), runs=store.runs(name))
    files = _files(stored.runs[-1], lines) if stored.runs else ()
    for text in chain(_facts(stored.experiment), *map(_run, stored.runs), files):
        yield printable(redact(text))


def _facts(experiment: Experiment) -> Iterator[str]:
    framework = experiment.framework.name if experiment.framework else "none"
    yield experiment.id
    yield f"  scenario {experiment.scenario} · framework configuration {framework} · trainer {experiment.trainer}"
    yield f"  model {experiment.model} · {experiment.num_gpus} × {experiment.device} · {experiment.repeats} repeat(s)"
    if experiment.script:
        place = "the scenario file's folder" if experiment.script.cwd else "the run's output folder"
        yield f"  script {experiment.script.module or experiment.script.path} · started in {place}"
    if experiment.data:
        yield f"  data {experiment.data.source} ({experiment.data_path})"
    for file, digest in experiment.sources.items():
        yield f"  file {file} (sha256 {digest}…)"
    for label, reason in (("skipped", experiment.skip), ("cannot run here", experiment.cannot_run_here)):
        if reason:
            yield f"  {label} ({reason.kind}): {reason.text}"
    for name, value in experiment.arguments.items():
        yield f"  {name} = {value if isinstance(value, str) else ' '.join(value)}"


def _run(run: StoredRun) -> Iterator[str]:
    record = run.record
    if record is None:
        yield f"run {run.job.name}: {run.state}"
        return
    cause = f" ({record.kind}: {record.cause})" if record.kind else ""
    yield f"run {run.job.name}: {record.status}{cause}, {record.wall_s:.1f} s"
    if record.hint:
        yield f"  → {record.hint}"
    for measurement in record.measurements:
        shown = "-" if measurement.value is None else _rounded(measurement.value)
        source = measurement.why_missing if measurement.value is None else measurement.source
        yield f"  {measurement.name} = {shown}  [{source}]"
    yield from (f"  warning: {caveat.sentence}" for caveat in record.warnings)


def _rounded(value: object) -> object:
    """Return a number without its last digits, which are rounding errors of sums. All measured digits stay."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _files(run: StoredRun, lines: int) -> Iterator[str]:
    folder = run.job.folder
    yield f"folder {folder.path}"
    if text := _text(folder.script, partial(reading.read_tail, limit=TAIL_BYTES)):
        yield f"command: bash {shell_word(str(folder.script))}"
        yield text.rstrip()
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
        return f"{file.name} is not shown: {error}"

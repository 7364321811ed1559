"""One experiment of a results folder, for people: its facts, its runs, its command, the end of its logs. Values to text.

The trainer's logs are its own and stay as it wrote them; what is shown of them is without secrets, colours, and whatever else
steers a terminal. A folder from elsewhere may hold anything under the names of a run's files: see `untrusted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import ResultsError
from orchestrator.files import reading
from orchestrator.files.printable_text import printable, shell_word, without_styles
from orchestrator.files.redaction import redact, redact_end
from orchestrator.records import Experiment
from orchestrator.results.contents import StoredExperiment, StoredRun
from orchestrator.results.store import Store

TAIL_BYTES = 64 * 1024


def experiment_view(store: Store, wanted: str, *, lines: int) -> Iterator[str]:
    """The lines to show. Raises ResultsError where `wanted` names no experiment of the folder, or more than one."""
    found = _find(store, wanted)
    yield from (printable(redact(text)) for text in _every(found, lines))


def _every(found: StoredExperiment, lines: int) -> Iterator[str]:
    yield from _facts(found.experiment)
    for run in found.runs:
        yield from _run(run)
    if found.runs:
        yield from _files(found.runs[-1], lines)


def _find(store: Store, wanted: str) -> StoredExperiment:
    every = store.contents().experiments
    exact = [one for one in every if one.experiment.id == wanted]
    matches = exact or [one for one in every if wanted in one.experiment.id]
    if len(matches) == 1:
        return matches[0]
    ids = ", ".join(one.experiment.id for one in (matches or every)[:10]) or "none"
    said = (
        f"{len(matches)} experiments of {store.root} have {wanted!r} in their id"
        if matches
        else f"{store.root} has no experiment {wanted!r}"
    )
    raise ResultsError(
        f"{said}; {'they are' if matches else 'it has'}: {ids}{', …' if len(matches or every) > 10 else ''}"
    )


def _facts(experiment: Experiment) -> Iterator[str]:
    framework = experiment.framework.name if experiment.framework else "none"
    yield experiment.id
    yield f"  scenario {experiment.scenario} · framework configuration {framework} · trainer {experiment.trainer}"
    yield f"  model {experiment.model} · {experiment.num_gpus} × {experiment.device} · {experiment.repeats} repeat(s)"
    if experiment.data:
        yield f"  data {experiment.data.source} ({experiment.data_path})"
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
    for measurement in record.measurements:
        shown = "-" if measurement.value is None else _plain(measurement.value)
        source = measurement.why_missing if measurement.value is None else measurement.source
        yield f"  {measurement.name} = {shown}  [{source}]"
    yield from (f"  warning: {caveat.sentence}" for caveat in record.warnings)


def _plain(value: object) -> object:
    """With all digits that anybody measured, and none that sums of floats add."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _files(run: StoredRun, lines: int) -> Iterator[str]:
    folder = run.job.folder
    yield f"folder {folder.path}"
    if text := _text(folder.script):
        yield f"command: bash {shell_word(str(folder.script))}"
        yield text.rstrip()
    for log in (folder.stdout, folder.stderr):
        end = _log_end(log).splitlines()
        if end and lines:
            yield f"--- end of {log.name}"
            yield "\n".join(end[-lines:])


def _log_end(file: Path) -> str:
    """Redacted before it is cut into lines: half a secret is not known for one."""
    text = without_styles(_text(file))
    cut = file.is_file() and not file.is_symlink() and file.stat().st_size > TAIL_BYTES
    return redact_end(text, cut=cut)


def _text(file: Path) -> str:
    """The end of a file; empty where there is none, a sentence where it is no file to be read."""
    try:
        return reading.read_tail(file, limit=TAIL_BYTES)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return f"{file.name} is not shown: {error}"

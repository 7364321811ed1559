"""The cause of a failure of the reference system's runs, from their stderr. Pure; `reference_folder` reads the files.

A run with complete metrics succeeded, whatever its log says. For every other run, the cause is an exception of the trainer in the
log. The launcher's report of a dead child is not the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.measure.failures import verdict
from orchestrator.records import ProcessOutcome

_LAUNCHERS = ("ChildFailedError", "CalledProcessError")
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::.*)?")
_RANK = re.compile(r"^\[[^\]\s]*rank\d+\]: ?")
_USAGE = re.compile(r"(?:^|[\w.]+: )error: .+")


def failure(stderr: str) -> tuple[str, str]:
    """Return kind and cause of a run without complete metrics. The kinds are those of our own runs."""
    exceptions = [text for text in _exceptions(stderr) if not text.partition(":")[0].endswith(_LAUNCHERS)]
    out_of_memory = [text for text in exceptions if _OUT_OF_MEMORY.search(text)]
    usage = [line for line in stderr.splitlines() if _USAGE.match(line)]
    causes = [*out_of_memory[:1], *exceptions[-1:], *usage[-1:]]
    if not causes:
        return "no_metrics", "It left no final metrics and its log names no error: it was most likely killed."
    return _kind(causes[0]), causes[0]


def _kind(cause: str) -> str:
    """Return the kind of failure that `measure.failures` finds for a worker with this error and exit code 1."""
    name, _, message = cause.partition(": ")
    outcome = ProcessOutcome(exit_code=1, signal=None, started_at=0.0, ended_at=0.0)
    workers = [{"error": {"type": name, "message": message}}]
    return verdict(outcome, workers=workers, log="", complete=False).kind or "unknown"


def _exceptions(stderr: str) -> Iterator[str]:
    """Yield the last line of each traceback, without the prefix of the rank."""
    inside = False
    for raw in stderr.splitlines():
        line = _RANK.sub("", raw)
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and not line.startswith((" ", "\t")) and _EXCEPTION.fullmatch(line):
            inside = False
            yield line.strip().removesuffix(":")

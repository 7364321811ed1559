"""Why a run of the reference failed, by its stderr (pure, text to words).

Beside `reference`, which reads the files. A log never decides whether a run is good: complete metrics do. It only says
why one without them failed; an exception of the trainer counts, the launcher's own report of a dead child does not.
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
    """Kind and cause of a run without complete metrics, in the words that our own runs' failures have."""
    exceptions = [text for text in _exceptions(stderr) if not text.partition(":")[0].endswith(_LAUNCHERS)]
    out_of_memory = [text for text in exceptions if _OUT_OF_MEMORY.search(text)]
    usage = [line for line in stderr.splitlines() if _USAGE.match(line)]
    causes = [*out_of_memory[:1], *exceptions[-1:], *usage[-1:]]
    if not causes:
        return "no_metrics", "It left no final metrics and its log names no error: it was most likely killed."
    return _kind(causes[0]), causes[0]


def _kind(cause: str) -> str:
    """What `failures` calls it: the error is handed over as a worker of ours would tell it, 1 being its exit code."""
    name, _, message = cause.partition(": ")
    outcome = ProcessOutcome(exit_code=1, signal=None, started_at=0.0, ended_at=0.0)
    workers = [{"error": {"type": name, "message": message}}]
    return verdict(outcome, workers=workers, log="", complete=False).kind or "unknown"


def _exceptions(stderr: str) -> Iterator[str]:
    """The last line of each traceback; the ranks' prefixes are taken off."""
    inside = False
    for raw in stderr.splitlines():
        line = _RANK.sub("", raw)
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and not line.startswith((" ", "\t")) and _EXCEPTION.fullmatch(line):
            inside = False
            yield line.strip().removesuffix(":")

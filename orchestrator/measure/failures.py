"""The verdict on a run that ended: status, kind and cause. Pure.

Exit code, signal and completeness of the metrics decide the status. The workers' error files name the cause; the ends of the
logs name the cause only if no error file does. A traceback in a log is not a failure by itself: a successful run may have
handled the exception. The launcher's own exit code is not used: the launcher's last lines report the child's exit code. The kinds
are in `failure_kinds`.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.measure.failure_kinds import NO_METRICS, kind_of_text, known
from orchestrator.measure.metrics import show
from orchestrator.records import Limit, ProcessOutcome, Status

# The line below a traceback: an exception's name, and perhaps a message. A line of a log, such as `INFO: ...`, may be between.
_EXCEPTION = re.compile(r"^(?![A-Z]+:)[A-Za-z_][\w.]*(?:: .*|:?\s*)$")
_RANK, _TRACEBACK = re.compile(r"^\[rank\d+\]: ?"), "Traceback (most recent call last):"
_ERROR_LINE = re.compile(r"^(?:\[rank\d+\]:\s*)?(?P<line>(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit)\b|error:).*)$")
# The last line of argparse's message about an argument. Its first line begins with `usage:`.
_USAGE, _USAGE_ERROR = "usage: ", re.compile(r"^[^\n:]{1,200}: (?P<line>error: .*)$")
# Python's words for a script that does not exist.
_NO_SCRIPT = re.compile(r"^\S+: (?P<line>can't open file .*)$", re.MULTILINE)
_CHILD_ENDED = re.compile(
    r"(?:rank\s*:\s*(?P<rank>\d{1,9})[^\n]*\n\s*)?exitcode\s*:\s*(?P<code>-?\d{1,9})"
    r"|died with <?Signals\.(?P<name>SIG\w+)|returned non-zero exit status (?P<status>\d{1,9})"
)
# srun reports the end of each task. Once a task has failed, it ends the tasks on the other nodes.
_TASK_ENDED = re.compile(
    r"^srun: error: \S+: tasks? \S+: (?:Exited with exit code (?P<code>\d{1,9})|(?P<signal>\w[\w ]*))", re.MULTILINE
)
_SIGNAL_WORDS = {signals.strsignal(number): int(number) for number in signals.valid_signals()}
_PID = re.compile(r"\(pid: ?(\d{1,9})\)")
# torchrun reports the rank that failed first under this heading.
_ROOT_CAUSE = "Root Cause"
# A launcher ends its other ranks with one of these signals, and Tunebench ends a run with one of them. They are not the cause of a
# failure.
_ENDING = (signals.SIGTERM, signals.SIGINT)
_BROKEN_MEMORY = re.compile(r"malloc\(|free\(|double free|corrupt")
_LAUNCHER = re.compile(r"accelerate[./]commands|torchrun|torch[./]distributed[./](run|elastic|launcher)")
_CHILD_FAILED = re.compile(r"CalledProcessError|ChildFailedError|SignalException")
# A launcher's report after the error of its child: the launcher's own traceback, torchrun's table.
_LAUNCHERS_REPORT = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*"
    r"[\w.]*(?:CalledProcessError|ChildFailedError|SignalException)\b.*(?:\n=+\n(?:.*\n)*=+)?\s*\Z",
    re.MULTILINE,
)
# Lines that follow the error of a program that crashed: more of its message, or torch's words about its end.
_AFTER_AN_ERROR = re.compile(r"\s|(?:\[rank\d+\]: ?)?\[?[WEI]\d{3,4} \d\d:|.*torch\.distributed\.elastic")
_PROGRESS = re.compile(r"(?<!\d)\d{1,12}/\d{1,12} \[")
_NO_ROOM = "the disk of the results was full, or a quota on it was used up, when it ended"
_LONGEST_CAUSE, _TAIL_LINES, _TAIL_CHARACTERS = 500, 30, 6000


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The end of a run. `kind` is a word for programs, `cause` a sentence for people. Both are None for a successful run.

    `exit_code` and `signal` are the trainer's own, if its launcher reports them.
    """

    status: Status
    kind: str | None = None
    cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildEnd:
    """A launcher's report on the child that failed first: its exit code or signal number, and its rank."""

    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None


def verdict(
    outcome: ProcessOutcome,
    *,
    workers: Sequence[Mapping[str, Any]],
    log: str,
    complete: bool,
    out_of_memory: bool = False,
    disk_full: Callable[[], bool] = lambda: False,
    error_at_limit: str | None = None,
) -> Verdict:
    """Return the verdict. `workers` are the ranks' files in the order of their times. `log` is the end of stderr, else of stdout.

    `complete` means that all metrics of a result exist. `out_of_memory` means that the kernel killed a process of this
    container during the run because memory ran out. `disk_full` returns whether the disk has no room left for the run's error.
    `error_at_limit` is the `last_error` of the log at the time when the run reached a limit.
    """
    if outcome.cancelled:
        return Verdict(status=Status.CANCELLED, kind="cancelled", cause="the run was interrupted")
    if outcome.limit not in (None, Limit.MEASURED):
        over = _over_limit(outcome, outcome.limit)
        if error_at_limit is None or outcome.exit_code == 0:
            return over
        return replace(over, cause=f"{over.cause}; its log ended with {error_at_limit}"[:_LONGEST_CAUSE])
    if outcome.exit_code == 0 or outcome.limit is Limit.MEASURED:
        if complete:
            return Verdict(status=Status.OK)
        if disk_full():
            return Verdict(status=Status.FAILED, kind="disk_full", cause=_NO_ROOM)
        way = "with exit code 0" if outcome.limit is None else "early, by measure:,"
        cause = f"it ended {way} and without the metrics that make a result"
        return Verdict(status=Status.FAILED, kind=NO_METRICS, cause=cause)
    # A launcher that a signal ended has not reported its child's end: a report in its log is older.
    reported = child_end(log) if outcome.signal is None else None
    child = reported or ChildEnd(exit_code=outcome.exit_code, signal=outcome.signal)
    kind, cause = _why(outcome, workers, log, child)
    if kind == "killed" and out_of_memory:
        kind, cause = "oom_host", f"{cause}: the system ran out of memory"
    if kind in ("unknown", "launcher") and disk_full():
        kind, cause = "disk_full", f"{_NO_ROOM} ({cause})"
    ended = {"exit_code": child.exit_code, "signal": child.signal}
    return Verdict(status=Status.FAILED, kind=kind, cause=cause[:_LONGEST_CAUSE], **ended)


def _over_limit(outcome: ProcessOutcome, limit: Limit) -> Verdict:
    if limit is Limit.WALL:
        took = show("wall_s", outcome.wall_s)
        # A program that exits with 0 may have ended by itself while this process was stopped.
        cause = (
            f"it took {took}, longer than timeout_s"
            if outcome.exit_code == 0
            else f"it was ended after {took} by timeout_s"
        )
        return Verdict(status=Status.TIMEOUT, kind="timeout", cause=cause)
    what = "it had made no first step" if limit is Limit.STARTUP else "it made no step any more"
    cause = f"{what}, and was ended after {show('wall_s', outcome.wall_s)} by {limit.value}"
    return Verdict(status=Status.STALLED, kind="stalled", cause=cause)


def last_error(log: str) -> str | None:
    """Return the error with which a log ends. Return None if the program has written something else after its last error.

    A program may crash while its launcher still waits. A program that goes on after an error has handled it.
    """
    errors = [line for line in _error_lines(log) if not _CHILD_FAILED.search(line)]
    if not errors:
        return None
    before, _, later = log.rpartition(errors[-1])
    lines = _LAUNCHERS_REPORT.sub("", later).splitlines()
    return errors[-1] if all(_is_of_a_crash(line, before) for line in lines if line) else None


def _is_of_a_crash(line: str, before: str) -> bool:
    """Return whether a line may follow the error of a program that crashed. Its progress bar is shown once more, as it was."""
    progress = _PROGRESS.search(line)
    return progress[0] in before if progress else _AFTER_AN_ERROR.match(line) is not None


def child_end(log: str) -> ChildEnd | None:
    """Return the launcher's report from the last lines of its log; None if there is no report."""
    _, heading, rest = log.rpartition(_ROOT_CAUSE)
    matches = list(_CHILD_ENDED.finditer(rest if heading else log))
    if not matches:
        return _first_task_end(log)
    match = matches[0] if heading else matches[-1]
    later = _error_lines(log[log.rindex(match[0]) :])
    if any(not _CHILD_FAILED.search(line) and not known(kind_of_text(line)).follows for line in later):
        return None  # a report comes last; the program has handled this end of a child, and failed later
    rank = None if match["rank"] is None else int(match["rank"])
    if match["name"]:
        number = getattr(signals, match["name"], None)
        return ChildEnd(signal=None if number is None else int(number), rank=rank)
    code = int(match["code"] or match["status"])
    return ChildEnd(exit_code=code, rank=rank) if code >= 0 else ChildEnd(signal=-code, rank=rank)


def _first_task_end(log: str) -> ChildEnd | None:
    match = _TASK_ENDED.search(log)
    if match is None:
        return None
    if match["code"]:
        return ChildEnd(exit_code=int(match["code"]))
    number = _SIGNAL_WORDS.get(match["signal"].strip())
    return None if number is None else ChildEnd(signal=number)


def named_pids(log: str) -> frozenset[int]:
    """Return the process ids of the children that a launcher names: `exitcode: -9 (pid: 4242)`."""
    return frozenset(int(number) for number in _PID.findall(log))


def _why(outcome: ProcessOutcome, workers: Sequence[Mapping[str, Any]], log: str, child: ChildEnd) -> tuple[str, str]:
    """Return kind and cause of a failure: from a worker's error, else from a signal, else from the log."""
    errors = [_worker_error(worker) for worker in workers if isinstance(worker.get("error"), Mapping)]
    first = next((error for error in errors if not known(error[0]).follows), None)
    if first is not None:
        return first
    number = signals.SIGKILL if child.exit_code == 137 else child.signal
    kind, line = _log_error(log)
    # A rank is often aborted after the error of another one, which has closed its connection.
    may_follow = number == signals.SIGABRT and child.rank is not None and not _BROKEN_MEMORY.search(log)
    told = may_follow and kind is not None and not known(kind).follows
    if number is not None and number not in _ENDING and not told:
        who = "it" if child.rank is None else f"rank {child.rank}"
        return "killed", f"{who} was ended by {signal_name(number)}"
    # A rank's own error of an unknown kind is rather the cause than what follows on other ranks, such as a closed connection.
    own = next((error for error in errors if error[0] == "unknown"), next(iter(errors), None))
    if own is not None and (own[0] != "unknown" or kind is None or known(kind).follows):
        return own
    if number is not None:
        return kind or "killed", line or f"it was ended by {signal_name(number)}"
    if kind is None:
        launcher_itself = not workers and _LAUNCHER.search(log) and not _CHILD_FAILED.search(log)
        kind = "launcher" if launcher_itself else "unknown"
    return kind, line or f"it ended with exit code {child.exit_code}{_last_words(log)}"


def _last_words(log: str) -> str:
    """Return what a program without an error line wrote last, to follow its exit code. A launcher's report is not the program's."""
    if missing := _NO_SCRIPT.search(log):
        return f": {missing['line']}"
    last = "" if child_end(log) else log_tail(log).rpartition("\n")[2].strip()
    return f"; its last line: {last}" if last else ""


def _worker_error(worker: Mapping[str, Any]) -> tuple[str, str]:
    """Return kind and cause from the type and message of a rank's error. The traceback is not searched: it may quote anything."""
    error = worker["error"]
    kind = kind_of_text(f"{error.get('type')}: {error.get('message')}") or "unknown"
    message = next(iter(str(error.get("message") or "").strip().splitlines()), "")
    where = f"rank {worker.get('rank', 0)}" + (f", step {error['step']}" if error.get("step") is not None else "")
    name = str(error.get("type") or "error")
    without_name = name == "SystemExit" and message
    return kind, f"{where}: {message}" if without_name else f"{where}: {name}: {message}".rstrip(": ")


def _log_error(log: str) -> tuple[str | None, str | None]:
    """Return kind and line of the last error in a log.

    The program has handled the earlier errors, unless the last error is only their consequence. A launcher's error about its
    child counts only if there is no other error. Without an error line, the end of the log decides the kind.
    """
    every = _error_lines(log)
    lines = [line for line in reversed(every) if not _CHILD_FAILED.search(line)] or every[-1:]
    if not lines:
        return kind_of_text(log_tail(log)), None
    errors = [(kind_of_text(line), line) for line in lines]
    if not known(errors[0][0]).follows:
        return errors[0]
    causes = [error for error in errors if not known(error[0]).follows]
    return next((error for error in causes if error[0] is not None), next(iter(causes), errors[0]))


def _error_lines(log: str) -> list[str]:
    """Return the lines that name an error: those that look like one, and the line below each traceback, whatever its words are.

    Directly below the usage of a program, whose further lines are indented, `PROGRAM: error: ...` is one, too.
    """
    found: list[str] = []
    in_traceback = after_usage = False
    for text in map(_without_rank, log.splitlines()):
        of_usage = _USAGE_ERROR.match(text) if after_usage else None
        after_usage = text.startswith(_USAGE) or (after_usage and text.startswith(" "))
        if text.startswith(_TRACEBACK):
            in_traceback = True
        elif of_usage:
            found.append(of_usage["line"].strip())
        elif in_traceback and _EXCEPTION.match(text):
            found.append(text.strip())
            in_traceback = False
        elif match := _ERROR_LINE.match(text.strip()):
            found.append(match["line"].strip())
    return found


def _without_rank(text: str) -> str:
    return _RANK.sub("", text)


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def log_tail(text: str) -> str:
    """Return the last lines of a log, with only the last state of a progress bar."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in text.split("\n")]
    tail = "\n".join([line for line in lines if line.strip()][-_TAIL_LINES:])
    return tail[-_TAIL_CHARACTERS:]

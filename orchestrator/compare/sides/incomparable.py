"""The verdict on a pair that has no numbers to compare: a side is missing, failed, cannot be read, or is not comparable. Pure."""

from __future__ import annotations

from orchestrator.compare.comparison import Entry, Pair, Verdict
from orchestrator.records import Status

OK = Status.OK.value


def verdict_on_pair(pair: Pair) -> tuple[Verdict, str] | None:
    """Return the verdict on a pair without comparable numbers, and the reason. Return None if the pair has comparable numbers."""
    base, new = pair.base, pair.new
    if base is None:
        return Verdict.NEW, "only on the new side"
    if new is None:
        if is_unknown(base):
            return Verdict.UNKNOWN, f"only on base, where {_unreadable(base)}"
        failed = f", where it failed: {_failure(base)}" if is_failed(base) else ""
        return Verdict.UNTESTED if failed else Verdict.MISSING, f"only on base{failed}"
    if is_unknown(new) or is_unknown(base):
        return _without_records(base, new)
    if pair.disqualifying:
        return Verdict.NOT_COMPARABLE, f"other {', '.join(pair.disqualifying)}"
    if is_failed(base) and is_failed(new) and not base.status == OK == new.status:
        return Verdict.FAILED, f"on both sides: {_failure(new)}"
    if is_failed(base) == is_failed(new):
        return None
    return (Verdict.FAILED, _failure(new)) if is_failed(new) else (Verdict.NEW, f"failed on base: {_failure(base)}")


def _without_records(base: Entry, new: Entry) -> tuple[Verdict, str]:
    """Return the verdict on a pair if it is unknown how one of its sides ended. A failure of the other side is still a fact."""
    if is_unknown(base) and is_failed(new):
        return Verdict.FAILED, f"{_failure(new)}; on base, {_unreadable(base)}"
    sides = [
        f"on {side}, {_unreadable(entry)}"
        for side, entry in (("base", base), ("the new side", new))
        if is_unknown(entry)
    ]
    return Verdict.UNKNOWN, f"not compared: {', and '.join(sides)}"


def unknown_newly(pair: Pair) -> bool:
    """Return whether an experiment that ran on base is unknown on the new side, so that nothing rules out that it is worse."""
    base, new = pair.base, pair.new
    return base is not None and new is not None and is_unknown(new) and not (is_unknown(base) or is_failed(base))


def failed_newly(pair: Pair) -> bool:
    """Return whether an experiment fails on the new side, on comparable machines, and is not known to fail on base."""
    verdict = verdict_on_pair(pair)
    return verdict is not None and verdict[0] is Verdict.FAILED and pair.base is not None and not is_failed(pair.base)


def is_failed(entry: Entry) -> bool:
    """Return whether no repeat ended ok, or more repeats failed than ended ok.

    A single run that the machine disturbed does not make an experiment fail. A run whose record cannot be read may have ended ok.
    """
    if entry.unreadable_runs:
        return entry.failed_runs > len(entry.runs) + entry.unreadable_runs
    return entry.status != OK or entry.failed_runs > len(entry.runs)


def is_unknown(entry: Entry) -> bool:
    """Return whether it is unknown if an experiment fails, because records of its runs cannot be read."""
    is_open = not entry.runs or entry.failed_runs > len(entry.runs)
    return entry.unreadable_runs > 0 and is_open and not is_failed(entry)


def _unreadable(entry: Entry) -> str:
    count = entry.unreadable_runs
    total = count + entry.failed_runs + len(entry.runs)
    if total == 1:
        return "its record cannot be read"
    return f"the records of {count} of {total} runs cannot be read"


def _failure(entry: Entry) -> str:
    some = f"{entry.failed_runs} of {entry.failed_runs + len(entry.runs)} runs: " if entry.runs else ""
    return f"{some}{entry.failure or entry.status}"

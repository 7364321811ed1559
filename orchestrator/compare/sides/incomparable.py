"""Decide what cannot be compared: pairs without comparable numbers, and metrics that measure different things on the sides. Pure.

A pair has no comparable numbers if a side is missing, failed, cannot be read, or is not comparable. Metrics of other pairs measure
different things if an argument that differs changes the work or the padding, or if the runs started from other weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from orchestrator.compare.comparison import Difference, Entry, Pair, Verdict
from orchestrator.compare.rules import REAL_TOKENS, TOKENS
from orchestrator.compare.sides.environment import OF_DATA
from orchestrator.compare.sides.keys import EFFECTIVE
from orchestrator.measure.metrics import metric
from orchestrator.records import Status
from orchestrator.results.table.aggregate import LOSS
from orchestrator.results.table.baseline.other_work import (
    UNEXPLAINED_PADDING,
    counts_padding,
    is_speed_of_call,
    other_padding,
    other_source,
    other_work,
)
from orchestrator.results.table.doubts import ERROR, WRONG_RESULT
from orchestrator.results.table.rows import FINGERPRINT

OK = Status.OK.value
# A smaller difference between shares of padding does not count, if an argument or data explains it.
_PADDING = 0.001
# A change of the measured share of padding in a list of changes. It is not the name of an argument, so it decides nothing.
PADDING = "padded tokens"
# A change of the source of a metric in such a list: the steps of the run, or a number that it printed.
FROM_STEPS = "measured from steps"
# The number of warm-up steps, which each run with a speed from its steps has.
_WARM_UP = "discarded_steps"
# Packages that draw the random weights of a `config:` model.
_DRAW_WEIGHTS = ("torch", "transformers")


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


def unlike(pair: Pair, name: str) -> str:
    """Return why a metric measures different things on the two sides of a pair. Return an empty text if it does not."""
    argument = other_work(name, _changed(pair))
    if argument:
        return f"{argument} differs, which changes the work that it measures"
    if source := other_source(name, (one.name for one in pair.environment)):
        return f"{source} differs, so it may be another number"
    if metric(name).of_steady_state and (side := _side_with_steps(pair, name)):
        return f"only {side} says that it is measured from steps, so it may be another number"
    if name == LOSS:
        return _other_weights(pair)
    if is_speed_of_call(name) and (side := _wrong_side(pair)):
        return f"the operator's result is wrong on {side}, so it has no speed"
    return _other_padding(pair, name)


def _side_with_steps(pair: Pair, name: str) -> str:
    """Return the only side whose runs measured a metric from their steps. CSV files do not have the keys of a scenario."""
    base, new = (is_from_steps(entry, name) if entry else None for entry in (pair.base, pair.new))
    if base is None or new is None or base == new:
        return ""
    return "base" if base else "the new side"


def is_from_steps(entry: Entry, name: str) -> bool | None:
    """Return whether the runs measured a metric from their steps. Return None if they differ in this, or do not have the metric."""
    known = {_WARM_UP in run.numbers for run in entry.runs if name in run.numbers}
    return known.pop() if len(known) == 1 else None


def _wrong_side(pair: Pair) -> str:
    sides = (("base", pair.base), ("the new side", pair.new))
    wrong = [side for side, entry in sides if entry and any(has_wrong_result(run.numbers) for run in entry.runs)]
    return " and ".join(wrong)


def has_wrong_result(numbers: Mapping[str, float]) -> bool:
    """Return whether these numbers are those of an operator whose result is wrong."""
    return numbers.get(ERROR, 0.0) >= WRONG_RESULT


def other_padding_is_known(pair: Pair) -> bool:
    """Return whether the padding that tokens per second count has changed, and the speed without padding is known."""
    is_known = None not in (real_share(pair.base), real_share(pair.new))
    return is_known and bool(_other_padding(pair, TOKENS))


def _changed(pair: Pair) -> list[str]:
    return [one.name.removeprefix(EFFECTIVE) for one in pair.arguments]


def _other_padding(pair: Pair, name: str) -> str:
    """Return why a rate counts other padding on the two sides. Return an empty text if it does not.

    If the padding is unknown, only arguments count that change it for most data.
    """
    base, new = map(real_share, (pair.base, pair.new))
    if base is None or new is None:
        return _by(other_padding(name, _changed(pair)))
    if not counts_padding(name) or abs(new - base) <= _PADDING:
        return ""
    data = (one.name for one in pair.environment if one.name in OF_DATA)
    if cause := other_padding(name, _changed(pair), perhaps=True) or next(data, None):
        return _by(cause)
    measured = measured_padding(base, new)
    return f"it counts padding, which was {measured.base} and is {measured.new} of the tokens" if measured else ""


def _by(cause: str | None) -> str:
    return f"{cause} differs, which changes the padding that it counts" if cause else ""


def measured_padding(before: float | None, after: float | None) -> Difference | None:
    """Return the difference of two measured shares of padding if it is more than other rows make. The shares are of real tokens."""
    if before is None or after is None or abs(after - before) <= UNEXPLAINED_PADDING:
        return None
    return Difference(name=PADDING, base=f"{1 - before:.1%}", new=f"{1 - after:.1%}")


def real_share(entry: Entry | None) -> float | None:
    """Return the mean share of tokens that are not padding. It is None unless all runs with a speed know it."""
    runs = [run.numbers for run in entry.runs if run.numbers.get(TOKENS, 0.0) > 0] if entry else []
    if not runs or any(REAL_TOKENS not in numbers for numbers in runs):
        return None
    return fmean(numbers[REAL_TOKENS] / numbers[TOKENS] for numbers in runs)


def _other_weights(pair: Pair) -> str:
    """Return why the losses of a pair are not compared: its runs started from other weights, or they may have.

    Other versions of the packages that draw a model's random weights may draw others.
    """
    for one in pair.arguments:
        if one.name == FINGERPRINT and None not in (one.base, one.new):
            return (
                f"the runs started from other weights ({FINGERPRINT.removeprefix(EFFECTIVE)} {one.base} and {one.new})"
            )
    model = str(pair.base.key.get("model_name_or_path", "")) if pair.base else ""
    versions = [one.name for one in pair.environment if one.name in _DRAW_WEIGHTS]
    saved = pair.base is not None and "saved" in (pair.base.key.get("weights"), pair.base.arguments.get("weights"))
    if not model.startswith("config:") or not versions or saved:
        return ""
    others = " and ".join(versions)
    return (
        f"{model} has random weights, which another version of {others} may draw otherwise; `weights: saved` keeps them"
    )

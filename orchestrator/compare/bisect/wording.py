"""Say in lines and as JSON what a bisection measured and found. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.compare.bisect.checkout import Candidate
from orchestrator.compare.bisect.search import Decision, Found, State, most_probes
from orchestrator.compare.view import wording
from orchestrator.files.printable_text import counted
from orchestrator.files.redaction import masker
from orchestrator.measure import intervals
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import show

_DAY = len("2026-01-31")


@dataclass(frozen=True, kw_only=True)
class Words:
    """Words for the candidates of one bisection. `values` returns the measured values of a candidate."""

    candidates: Sequence[Candidate]
    noun: str
    metric: str
    values: Callable[[int], Sequence[float]]

    def ends(self, found: Ratio) -> Iterator[str]:
        """Yield a line for each end, and a line about their difference."""
        last = len(self.candidates) - 1
        for state, place in (("good end", 0), ("bad end", last)):
            yield self._line(state, place, "")
        left = f"{counted(last - 1, self.noun)} between them, about {counted(most_probes(last), 'probe')}"
        yield f"bad against good: {self.ratio(found)}; {left}"

    def decision(self, decision: Decision) -> str:
        """Return the line of a probe."""
        if decision.state is State.SKIPPED:
            return self._line(decision.state, decision.place, decision.why)
        against = f"{wording.change(decision.from_good)} against good, {wording.change(decision.from_bad)} against bad"
        doubt = "; in doubt: no clear difference from either" if decision.in_doubt else ""
        between = "; between them, so there is more than one step" if decision.between else ""
        return self._line(decision.state, decision.place, f"{against}{doubt}{between}")

    def _line(self, state: str, place: int, more: str) -> str:
        candidate, values = self.candidates[place], self.values(place)
        parts = (candidate.key, self._speed(values) if values and state != State.SKIPPED else "", more, candidate.title)
        return f"{state:8}  {'  '.join(filter(None, parts))}"

    def _speed(self, values: Sequence[float]) -> str:
        summary = intervals.mean_of_logs(values)
        shown = show(self.metric, summary.mean)
        if summary.interval is None:
            return shown
        return f"{shown} ({show(self.metric, summary.interval.low)} to {show(self.metric, summary.interval.high)})"

    def ratio(self, found: Ratio) -> str:
        return f"{wording.change(found)} ({wording.interval(found)})"

    def conclusion(self, found: Found, *, runs: int, gpu_hours: float) -> Iterator[str]:
        """Yield the lines that end a bisection."""
        if found.differ:
            yield from self.step(found)
        else:
            why = "bad is better than good" if found.is_better else "no clear difference between good and bad"
            yield f"No step: {why}, {self.ratio(found.ends)}."
        yield f"{counted(found.probes, 'probe')}, {counted(runs, 'run')}, {gpu_hours:.1f} GPU-hours"

    def step(self, found: Found) -> Iterator[str]:
        """Yield sentences about the step that was found."""
        assert found.ratio is not None, "a step has a ratio"
        good, bad = self.candidates[found.last_good], self.candidates[found.first_bad]
        doubt = " (in doubt)" if found.in_doubt else ""
        yield f"First bad {self.noun}{' that could be measured' if found.hidden else ''}{doubt}: {self._named(bad)}"
        yield f"{wording.heading(self.metric)}: {self.ratio(found.ratio)} against the last good {self.noun} {self._named(good)}"
        if found.hidden:
            skipped = ", ".join(self.candidates[place].key for place in found.hidden)
            yield f"The step is between {good.key} and {bad.key}; skipped between them: {skipped}."
        if any(one.between for one in found.decisions):
            yield "There is more than one step; this is the larger one of those that were seen. Bisect the rest again for others."

    def _named(self, candidate: Candidate) -> str:
        date = f"({candidate.date[:_DAY]})" if candidate.date else ""
        return " ".join(filter(None, (candidate.key, candidate.title, date)))

    def document(self, found: Found, *, runs: int, gpu_hours: float, page: str | None) -> str:
        """Return all that was found as a JSON document."""
        step = {
            "first_bad": self._candidate(found.first_bad),
            "last_good": self._candidate(found.last_good),
            "ratio": _as_json(found.ratio),
            "hidden": [self._candidate(place) for place in found.hidden],
            "in_doubt": found.in_doubt,
        }
        document = {
            "kind": "tunebench bisect",
            "metric": self.metric,
            "good": self._candidate(0),
            "bad": self._candidate(len(self.candidates) - 1),
            "ends": _as_json(found.ends),
            "found": found.differ,
            **(step if found.differ else {}),
            "probes": [{**self._candidate(one.place), **_decided(one)} for one in found.decisions],
            "runs": runs,
            "gpu_hours": gpu_hours,
            "page": page,
        }
        return json.dumps(masker()(document), indent=1, ensure_ascii=False) + "\n"

    def _candidate(self, place: int) -> dict[str, Any]:
        one = self.candidates[place]
        facts = {"subject": one.title, "date": one.date} if one.date else {}
        return {self.noun: one.name, **facts, "values": list(self.values(place))}


def _decided(decision: Decision) -> dict[str, Any]:
    return {
        "state": decision.state.value,
        "rounds": decision.rounds,
        "from_good": _as_json(decision.from_good),
        "from_bad": _as_json(decision.from_bad),
        "in_doubt": decision.in_doubt,
        "between": decision.between,
        "why": decision.why,
    }


def _as_json(ratio: Ratio | None) -> dict[str, float | None] | None:
    if ratio is None:
        return None
    low, high = (ratio.interval.low, ratio.interval.high) if ratio.interval else (None, None)
    return {"value": ratio.value, "low": low, "high": high}

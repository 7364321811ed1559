"""Measure the candidates of a bisection: make the runs that are due, and read the values of each round.

Each candidate has a results folder of its own. The records in these folders are the only state: a repeated call reads them, and
runs what is missing. A round is a run of each end and of the probe. In the n-th round, both ends make their n-th run. A run may
have no steady state by chance. Then it has no speed, and another run takes its place.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.campaign.loop import Event, EventKind, run_benchmark
from orchestrator.compare.bisect.checkout import Checkout, NotBuilt
from orchestrator.compare.bisect.evidence import Round
from orchestrator.compare.bisect.metric import Numbers, common, headline, on_padding
from orchestrator.compare.bisect.search import Unmeasured
from orchestrator.errors import OrchestratorError, ResultsError, SelectionError, suggestion
from orchestrator.executors import Executor
from orchestrator.files.printable_text import one_line
from orchestrator.measure.metrics import show
from orchestrator.records import Device, JobState, RunRecord, Status, unsteady
from orchestrator.results.contents import StoredExperiment
from orchestrator.results.due_runs import FAILURES, NO_RETRY, Retry, is_due_again
from orchestrator.results.folder import is_ours
from orchestrator.results.store import Store
from orchestrator.results.table import rows
from orchestrator.run import data_preparation

_LONGEST_REASON = 300
# A candidate cannot be measured if this number of runs in a row have no steady state.
MOST_UNSTEADY = 3
_CURE = "make the runs longer, or judge another number in a new folder (--metric wall_s:lower --results FOLDER)"


@dataclass(kw_only=True)
class Runs:
    """The runs of all candidates, in the results folders below `root`. `tell` gets a line for each run that ended.

    `left_out` counts the rounds of probes that were skipped later. `replaced` counts the runs of each candidate that had no steady
    state. `ends` are the numbers of a run of each end; they decide the metric.
    """

    root: Path
    checkout: Checkout
    executor: Executor
    tell: Callable[[str], None]
    metric: str = ""
    rounds: dict[int | None, list[Round]] = field(default_factory=dict)
    left_out: int = 0
    tried: set[tuple[int, int]] = field(default_factory=set)
    replaced: Counter[int] = field(default_factory=Counter)
    ends: tuple[Numbers, ...] = ()

    @property
    def last(self) -> int:
        return len(self.checkout.candidates) - 1

    def choose_metric(self, named: str | None) -> str:
        """Measure the ends once, and return the metric to judge: the named one, or the first speed that both ends have.

        A named metric must be in the run of the good end. Raise SelectionError if there is no such metric.
        """
        self.metric = named or ""
        if named:
            found = self._first_numbers(0)
            if named not in found:
                raise SelectionError(
                    f"--metric {named}: the run of the good end does not have it{suggestion(named, found)}"
                )
            return named
        self.ends = tuple(map(self._first_numbers, (0, self.last)))
        self.metric = headline(*self.ends)
        if not self.metric:
            cure = "judge another number in a new folder (--metric METRIC --results FOLDER)"
            raise SelectionError(
                f"the runs of both ends have no speed in common; {cure}{suggestion('', common(*self.ends))}"
            )
        return self.metric

    def _first_numbers(self, at: int) -> dict[str, float]:
        """Return the numbers of the first run of an end that has a steady state, or the named metric.

        If the first MOST_UNSTEADY runs have no steady state, but the speed of a whole run, return the numbers of the last one.
        """
        made = 0
        for repeat in itertools.count(1):
            record = self._record(at, repeat)
            if isinstance(record, Unmeasured):
                raise self._broken_end(at, record)
            found = self._numbers(at, record)
            is_last = repeat >= MOST_UNSTEADY and not self.metric and headline(found)
            if self.metric in found or is_last or not unsteady(record.warnings):
                break
            made += (at, repeat) in self.tried
            if made == MOST_UNSTEADY:
                raise self._broken_end(at, _never_steady(record))
        return found

    def measure(self, place: int | None, count: int) -> list[Round] | Unmeasured:
        """Return the first rounds of a probe, or the rounds of the ends before the first probe. Run what is missing."""
        known = self.rounds.setdefault(place, [])
        while len(known) < count:
            found = self._round(place, len(known) + 1)
            if isinstance(found, Unmeasured):
                self.left_out += len(known) + bool(known)
                del self.rounds[place]
                return found
            known.append(found)
        return known

    def _round(self, place: int | None, own: int) -> Round | Unmeasured:
        number = 1 + self.left_out + sum(map(len, self.rounds.values()))
        repeats = {0: number, self.last: number}
        order = random.Random(f"bisect:{number}").sample([*repeats], 2)
        if place is not None:  # a probe that fails must not cost runs of the ends
            repeats[place] = own
            order.insert(random.Random(f"bisect:{number}:probe").randrange(3) if own > 1 else 0, place)
        values: dict[int, float] = {}
        for at in order:
            found = self._value(at, repeats[at])
            if isinstance(found, Unmeasured) and at == place:
                return found
            if isinstance(found, Unmeasured):
                raise self._broken_end(at, found)
            values[at] = found
        return Round(good=values[0], bad=values[self.last], probe=None if place is None else values[place])

    def _broken_end(self, at: int, found: Unmeasured) -> OrchestratorError:
        option, candidate = "--bad" if at else "--good", self.checkout.candidates[at]
        cure = f"{found.cure}, or name another {self.checkout.noun}"
        return ResultsError(f"{option} {candidate.key} cannot be measured: {found.why}; {cure}")

    def _value(self, at: int, number: int) -> float | Unmeasured:
        """Return the value of a candidate's run of this number. Another run takes the place of one without a steady state.

        Of an end, only the runs of this call count for MOST_UNSTEADY, so the next call tries again.
        """
        in_a_row = 0
        while True:
            repeat = number + self.replaced[at]
            record = self._record(at, repeat)
            if isinstance(record, Unmeasured):
                return record
            value = self._numbers(at, record).get(self.metric, 0.0)
            if value > 0:
                return value
            if not unsteady(record.warnings):
                return Unmeasured(why=f"run {repeat} has no {self.metric}")
            self.replaced[at] += 1
            in_a_row += at not in (0, self.last) or (at, repeat) in self.tried
            if in_a_row == MOST_UNSTEADY:
                return _never_steady(record)

    def _numbers(self, at: int, record: RunRecord) -> dict[str, float]:
        store = self.store(at)
        assert store is not None, "a record is in a results folder"
        measured = rows.of_run(store.experiment(record.experiment_id), record).measured
        return {
            name: float(value)
            for name, value in measured.items()
            if isinstance(value, (int, float)) and not name.startswith("provenance_")
        }

    def _record(self, at: int, repeat: int) -> RunRecord | Unmeasured:
        """Return the record of a run that ended ok. Run it if it is missing. Each call tries failed runs of the ends again."""
        is_end = at in (0, self.last)
        record = self._recorded(at, repeat)
        fails_before = record is not None and record.status in FAILURES and is_end and (at, repeat) not in self.tried
        if record is None or fails_before:
            self.tried.add((at, repeat))
            try:
                self._run(at, repeat, retry=Retry(failed=True) if fails_before else NO_RETRY)
            except NotBuilt as error:
                return Unmeasured(why=one_line(error, longest=_LONGEST_REASON))
            record = self._recorded(at, repeat, final=True)
        if record is None:
            return Unmeasured(why=f"run {repeat} has no record; another process may be running it")
        if record.status is not Status.OK:
            cause = f" ({record.kind}: {record.cause})" if record.kind else ""
            return Unmeasured(why=one_line(f"run {repeat}: {record.status}{cause}", longest=_LONGEST_REASON))
        return record

    def _recorded(self, at: int, repeat: int, *, final: bool = False) -> RunRecord | None:
        """Return the last record of a repeat. Return None if it is due, unless the record is `final`."""
        store = self.store(at)
        ids = store.ids() if store else []
        found = [run for name in ids for run in (store.runs(name) if store else ()) if run.job.repeat == repeat]
        return found[-1].record if found and (final or not is_due_again(found[-1], NO_RETRY)) else None

    def _run(self, at: int, repeat: int, *, retry: Retry) -> None:
        experiment = self.checkout.experiment(at)
        candidate = self.checkout.candidates[at]
        experiment = replace(experiment, repeats=repeat, adaptive=None)
        for sentence in data_preparation.prepare_data([experiment], on_event=self.tell):
            raise NotBuilt(sentence)
        folder = self.root / candidate.key
        store = self.store(at) or Store.create(folder, {"bisect": candidate.name})
        if others := [name for name in store.ids() if name != experiment.id]:
            raise ResultsError(f"{folder}: the folder has another experiment, {others[0]}; name another --results")

        def on_event(event: Event) -> None:
            if event.kind is EventKind.ENDED and event.record is not None:
                self.tell(self._line(at, event.record))
            elif event.kind is not EventKind.HANDED_OVER:
                self.tell(event.text)

        run_benchmark(
            [experiment], store=store, executor=self.executor, repeats=(repeat,), retry=retry, on_event=on_event
        )

    def _line(self, at: int, record: RunRecord) -> str:
        found = self._numbers(at, record)
        is_unsteady = unsteady(record.warnings) is not None
        # The first runs are shown before they have decided the metric.
        metric = self.metric or ("" if is_unsteady else headline(found))
        shown = f"  {show(metric, found[metric])}" if metric in found else "  no steady-state speed" * is_unsteady
        cause = f"  {record.kind}: {record.cause}" if record.kind else ""
        key = self.checkout.candidates[at].key
        return one_line(f"{key} r{record.repeat} {record.status}  {record.wall_s:.1f} s{shown}{cause}", longest=300)

    def store(self, at: int) -> Store | None:
        """Return the results folder of a candidate, or None if it has none."""
        folder = self.root / self.checkout.candidates[at].key
        return Store.resume(folder) if is_ours(folder) else None

    def notes(self) -> Iterator[str]:
        """Yield a sentence if the experiment runs the same files at both ends, so that the candidates can hardly matter.

        Yield another one if the speed counts padding, and the padding of one end is unknown.
        """
        if self.ends:
            yield from on_padding(self.metric, *self.ends)
        stores = [store for at in (0, self.last) if (store := self.store(at))]
        names = {name for store in stores for name in store.ids()}
        if len(names) == 1:
            files = [*stores[0].experiment(names.pop()).sources]
            which = (
                f"the same content of {', '.join(files[:3])}" if files else "no file of the repository that is known"
            )
            yield (
                f"note: the experiment runs {which} at both ends; if it imports a package of the repository, "
                "the package must come from the folder of the scenario file, not from an installation"
            )

    def going_on(self) -> frozenset[int]:
        """Return the places of candidates with runs of a killed call that still go on."""
        living = (JobState.RUNNING, JobState.SILENT)
        stores = {at: store for at in range(self.last + 1) if (store := self.store(at))}
        return frozenset(
            at
            for at, store in stores.items()
            if any(run.state in living for name in store.ids() for run in store.runs(name))
        )

    def values(self, at: int) -> list[float]:
        """Return the values of a candidate in the rounds that were measured."""
        if at in (0, self.last):
            ends = [one for rounds in self.rounds.values() for one in rounds]
            return [one.bad if at else one.good for one in ends]
        return [one.probe for one in self.rounds.get(at, ()) if one.probe is not None]

    def gpu_hours(self) -> float:
        """Return the GPU-hours of all runs of this bisection, also of earlier calls. Runs on CPUs take none."""
        return sum(
            record.wall_s * stored.experiment.num_gpus / 3600
            for stored in self._stored()
            if stored.experiment.device is Device.CUDA
            for record in stored.records
        )

    def count(self) -> int:
        """Return the number of runs that ended."""
        return sum(len(stored.records) for stored in self._stored())

    def _stored(self) -> Iterator[StoredExperiment]:
        for at in range(len(self.checkout.candidates)):
            store = self.store(at)
            yield from store.contents().experiments if store else ()


def _never_steady(last: RunRecord) -> Unmeasured:
    why = unsteady(last.warnings)
    detail = f" (the last one: {why.detail})" if why else ""
    return Unmeasured(
        why=one_line(f"{MOST_UNSTEADY} runs in a row have no steady-state speed{detail}", longest=_LONGEST_REASON),
        cure=_CURE,
    )

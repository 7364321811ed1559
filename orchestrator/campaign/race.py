"""Find the fastest of the experiments that can be compared, with few runs (`tunebench tune`).

Experiments race in a place: those with the same scenario, model, device, data and number of GPUs, and, for an operator, with the
same work. The rules are those of `measure/intervals/race.py`. This module asks for the runs of a round, reads their speeds from
the records, and asks for the next round. The k-th repeat of an experiment is its k-th run in the race, so the runs of an
interrupted race count, and those of an earlier campaign in the folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.table import Table

from orchestrator.campaign.loop import Summary
from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure.intervals.race import Race, race
from orchestrator.records import Device, Experiment, RunRecord, Status
from orchestrator.records.labels import labels
from orchestrator.results.due_runs import NO_RETRY, can_run, is_due_again
from orchestrator.results.store import Store
from orchestrator.trainers import argument_names
from orchestrator.trainers.external.operators import NAME as OPERATORS
from orchestrator.trainers.external.operators import WORK
from orchestrator.trainers.external.pytest_benchmark import NAME as SUITE

# The first speed that any run of a place has is compared. The last ones are times: a shorter one is faster.
_TIMES = ("train_runtime", "call_time_s")
SPEEDS = (
    *("real_tokens_per_s", "tokens_per_s", "samples_per_s", "train_tokens_per_second", "train_samples_per_second"),
    *_TIMES,
)
_COMPILES = ("torch_compile",)
_MOST_LINES = 40

# Carries out the runs of these experiments that are due.
CarryOut = Callable[[Sequence[Experiment]], Summary]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The experiments that race against each other, the state of the race, and the number of runs of each experiment."""

    experiments: Sequence[Experiment]
    state: Race
    runs: Mapping[str, int]

    @property
    def first(self) -> Experiment:
        return self.experiments[0]


def refuse_suites(experiments: Iterable[Experiment]) -> None:
    """Raise SelectionError for a suite of benchmarks: it has a time for each benchmark, and no speed of its own."""
    name = next((one.scenario for one in experiments if one.trainer == SUITE), None)
    if name is not None:
        cure = "use `tunebench run` for it, and choose the others with --scenario"
        raise SelectionError(
            f"scenario {name!r}: trainer {SUITE} has many times and no speed, so it cannot race; {cure}"
        )


def tune(experiments: Sequence[Experiment], *, store: Store, run: CarryOut) -> Summary:
    """Carry out the races. Then carry out all repeats of each winner, because its mean in the race is biased upwards.

    Return the summary of all runs. If no run of a round ends, as after a failure with `--fail-fast`, the races stop.
    """
    while True:
        races = [*places(experiments, store)]
        due = {name for place in races for name in place.state.due}
        now = [_with_repeats(one, races, more=one.id in due) for one in experiments]
        summary = run([one for one in now if one.id in due] if due else now)
        if not due or [place.runs for place in races] == [place.runs for place in places(experiments, store)]:
            break
    winners = {place.state.racing[0] for place in races if place.state.racing and not place.state.due}
    if not winners:
        return summary
    both = zip(experiments, now, strict=True)
    return run([_with_all_repeats(one, raced) if one.id in winners else raced for one, raced in both])


def _with_all_repeats(experiment: Experiment, raced: Experiment) -> Experiment:
    """Return the experiment with the repeats of the scenario file, or with those of the race if these are more."""
    return experiment if experiment.adaptive else replace(experiment, repeats=max(experiment.repeats, raced.repeats))


def _with_repeats(experiment: Experiment, races: Iterable[Place], *, more: bool) -> Experiment:
    """Return the experiment with as many repeats as it has runs; with `more`, with one more. The folder then has no run due."""
    done = next((place.runs[experiment.id] for place in races if experiment.id in place.runs), 0)
    return replace(experiment, adaptive=None, repeats=max(1, done + more))


def places(experiments: Sequence[Experiment], store: Store) -> Iterator[Place]:
    """Yield the races, as the records in the folder have them."""
    groups: dict[object, list[Experiment]] = {}
    for one in can_run(experiments):
        groups.setdefault(_place(one), []).append(one)
    for group in groups.values():
        records = {one.id: _ended(store, one) for one in group}
        speed = _speed(record for of_one in records.values() for record in of_one)
        values = {name: [_value(record, speed) for record in of_one] for name, of_one in records.items()}
        slow = [one.id for one in group if any(argument_names.is_true(one.arguments.get(name)) for name in _COMPILES)]
        state = race([one.id for one in group], values, slow=slow)
        yield Place(experiments=group, state=state, runs={name: len(of_one) for name, of_one in records.items()})


def _place(one: Experiment) -> object:
    """Return the values that are the same for all experiments of a place."""
    work = tuple(one.arguments.get(name) for name in WORK) if one.trainer == OPERATORS else ()
    data = one.data and (one.data.source, one.data.split)
    return one.scenario, one.model, one.device, one.trainer, one.num_gpus, one.num_nodes, data, work


def _ended(store: Store, experiment: Experiment) -> list[RunRecord]:
    """Return the records of the first repeats, up to the first repeat that has not ended or must be tried again."""
    last = {run.job.repeat: run for run in store.runs(experiment.id)}
    found: list[RunRecord] = []
    while (run := last.get(len(found) + 1)) is not None and run.record is not None and not is_due_again(run, NO_RETRY):
        found.append(run.record)
    return found


def _speed(records: Iterable[RunRecord]) -> str:
    """Return the first of SPEEDS that any ok run has."""
    names = {
        measurement.name
        for record in records
        if record.status is Status.OK
        for measurement in record.measurements
        if measurement.value
    }
    return next((name for name in SPEEDS if name in names), SPEEDS[0])


def _value(record: RunRecord, name: str) -> float | None:
    """Return the logarithm of a run's speed. Return None if the run failed or has no such speed."""
    value = next((one.value for one in record.measurements if one.name == name), None)
    if record.status is not Status.OK or not isinstance(value, (int, float)) or not value > 0:
        return None
    return -math.log(value) if name in _TIMES else math.log(value)


def view(races: Sequence[Place]) -> Iterator[tuple[str, Table]]:
    """Yield a sentence and a table for each race: its experiments, how many runs they have, and why they left."""
    names = labels([one for place in races for one in place.experiments])
    yield from ((_title(place), _table(place, names)) for place in races)


def _title(place: Place) -> str:
    first = place.first
    model = f"{first.model}, " if first.model != "none" else ""
    on_cpu = first.device is Device.CPU
    processes = counted(first.num_gpus, *(("process", "processes") if on_cpu else ("GPU", "GPUs")))
    return one_line(f"{first.scenario}: {model}{processes}: {_in_words(place)}", longest=300)


def _table(place: Place, names: Mapping[str, str]) -> Table:
    state, table = place.state, Table(box=None, pad_edge=False, show_edge=False)
    for heading in ("experiment", "runs", "of the leader", ""):
        table.add_column(heading, justify="right" if heading in ("runs", "of the leader") else "left")
    speeds = state.standing.speeds if state.standing else {}
    left = sorted(state.left, key=lambda name: (-state.left[name].round, -speeds.get(name, 0.0), name))
    order = [*state.racing, *left]
    by_id = {one.id: one for one in place.experiments}
    for name in order[:_MOST_LINES]:
        framework = by_id[name].framework
        words = " ".join(filter(None, (framework.name if framework else "", names[name]))) or name
        table.add_row(one_line(words), str(place.runs[name]), _share(state, name), _what_became(state, name))
    if len(order) > _MOST_LINES:
        table.add_row(f"and {len(order) - _MOST_LINES} more", "", "", "")
    return table


def _in_words(place: Place) -> str:
    state = place.state
    made = sum(place.runs.values())
    if state.due:
        return f"the race is not over; {counted(made, 'run')} so far, and the same command goes on"
    left = f"{len(state.left)} of {len(place.experiments)} left"
    grid = sum(one.repeats for one in place.experiments)
    return f"{left}; {counted(made, 'run')} where the full grid has {grid}"


def _share(state: Race, name: str) -> str:
    speeds = state.standing.speeds if state.standing else {}
    if name not in speeds or not state.racing or state.racing[0] not in speeds:
        return "-"
    return f"{100 * math.exp(speeds[name] - speeds[state.racing[0]]):.1f} %"


def _what_became(state: Race, name: str) -> str:
    if name not in state.left:
        if state.due:
            return "in the race"
        return "leads" if name == state.racing[0] else "not clearly slower"
    left = state.left[name]
    return f"left in round {left.round}, " + (
        "without a speed" if left.at_most is None else f"at most {100 * left.at_most:.1f} %"
    )

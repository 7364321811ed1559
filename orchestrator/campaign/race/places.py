"""The races of a campaign: who races against whom, and the speeds of their runs.

Experiments race in a place: those with the same scenario, model, device, data and number of GPUs, and with the same work. The k-th
repeat of an experiment is its k-th run in the race, so the runs of an interrupted race count, and those of an earlier campaign in
the folder. Runs on another machine do not count (`comparable`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.campaign.race.aim import SPEED, Aim
from orchestrator.campaign.race.comparable import PADDED, REAL, Records, elsewhere, parts, speeds
from orchestrator.campaign.race.objective import Objective
from orchestrator.campaign.status.experiment import took
from orchestrator.errors import SelectionError
from orchestrator.measure.intervals.ordered import held_back
from orchestrator.measure.intervals.race import NoSpeed, Race, Rules, Runs, race
from orchestrator.measure.memory_logs import finite
from orchestrator.records import Experiment, JobState, RunRecord, Status, whole_number
from orchestrator.records.price import Per
from orchestrator.results.contents import StoredRun
from orchestrator.results.due_runs import NO_RETRY, can_run, is_due_again
from orchestrator.results.store import Store
from orchestrator.results.table.baseline import is_less_exact
from orchestrator.results.table.baseline.other_work import UNEXPLAINED_PADDING, counts_padding, is_per_gpu
from orchestrator.results.table.doubts import ERROR, WRONG_RESULT, raises_doubt
from orchestrator.trainers import argument_names
from orchestrator.trainers.external.operators import NAME as OPERATORS
from orchestrator.trainers.external.operators import WORK
from orchestrator.trainers.external.pytest_benchmark import NAME as SUITE

# Of these speeds, the one that most experiments of a place have is compared. The last one is a time: a shorter one is faster.
CALL_TIME = "call_time_s"
SPEEDS = (
    *(REAL, PADDED, "samples_per_s", "train_tokens_per_second", "train_samples_per_second"),
    CALL_TIME,
)
ENERGY = "energy_per_real_token_j"
LOWER_IS_BETTER = (CALL_TIME, ENERGY)
# A race may make as many runs as a grid with at least this number of repeats.
LEAST_REPEATS = 3
_COMPILES = ("torch_compile",)
# The implementation of operators that the others are held to.
PLAIN = "eager"
# With a larger value, the speed rises up to a plateau. Of several that differ, the first one is an order's.
_ORDERED = ("per_device_train_batch_size", "max_seq_len")
_NO_MEMORY = ("oom_cuda", "oom_host")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The experiments that race against each other, the state of their race, and the records of each experiment.

    `speed` is the metric that decides. `apart` are the arguments that change its work or its padding, so that the place has another
    race for other values. `elsewhere` has the machines of runs that do not count, because the newest run was on another machine.

    `values` has the logarithm of each run's number, or the reason why the run does not count. `took_s` has the seconds from the
    claim to the record of each experiment's runs, with the start and the end of the command.
    """

    experiments: Sequence[Experiment]
    state: Race
    records: Mapping[str, Records]
    values: Runs = field(default_factory=dict)
    took_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    speed: str = ""
    apart: tuple[str, ...] = ()
    elsewhere: Sequence[str] = ()

    @property
    def first(self) -> Experiment:
        return self.experiments[0]

    @property
    def runs(self) -> int:
        return sum(map(len, self.records.values()))

    @property
    def in_doubt(self) -> int:
        """The number of runs whose speed was in doubt, so they did not count."""
        return sum(value is NoSpeed.IN_DOUBT for of_one in self.values.values() for value in of_one)

    @property
    def leader(self) -> str | None:
        """The id of the fastest experiment that is in the race, or None if none in the race has a speed."""
        known = self.state.standing.speeds if self.state.standing else {}
        return next((name for name in self.state.racing if name in known or len(self.experiments) == 1), None)

    @property
    def winner(self) -> str | None:
        """The leader, if the race is over. There is none if no other experiment has a speed because all were in doubt.

        A race that is cut ends although some experiments are in the race without a speed.
        """
        known, left = self.state.standing.speeds if self.state.standing else {}, self.state.left
        rivals = [name for name in known if name not in left or left[name].why is None]
        is_open = len(self.state.racing) > 1 or any(one.why is NoSpeed.IN_DOUBT for one in left.values())
        return None if self.state.due or (len(rivals) < 2 and is_open) else self.leader

    @property
    def is_doubtful(self) -> bool:
        """True if more than half of the runs were in doubt. Then the others may be off by more than is assumed."""
        return 2 * self.in_doubt > sum(map(len, self.values.values()))


def refuse_suites(experiments: Iterable[Experiment]) -> None:
    """Raise SelectionError for a suite of benchmarks: it has a time for each benchmark, and no speed of its own."""
    name = next((one.scenario for one in experiments if one.trainer == SUITE), None)
    if name is not None:
        cure = "use `tunebench run` for it, and choose the others with --scenario"
        raise SelectionError(
            f"scenario {name!r}: trainer {SUITE} has many times and no speed, so it cannot race; {cure}"
        )


def places(experiments: Sequence[Experiment], store: Store, aim: Aim = SPEED) -> Iterator[Place]:
    """Yield the races, as the records in the folder have them."""
    for group in groups(experiments, aim):
        runs = {one.id: _ended(store, one) for one in group}
        records = {name: [run.record for run in of_one] for name, of_one in runs.items()}
        others = elsewhere(group, records)
        here = {
            name: [record for at, record in enumerate(of_one) if (name, at) not in others]
            for name, of_one in records.items()
        }
        number = ENERGY if aim.objective is Objective.ENERGY else _speed(here.values())
        for some, apart in parts(group, number, here):
            ids = [one.id for one in some]
            took_s = {one.id: [known.seconds for run in runs[one.id] if (known := took(one, run))] for one in some}
            values = _values(some, {name: here[name] for name in ids}, number, aim)
            yield Place(
                experiments=some,
                state=_state(some, values, elsewhere=sum(name in ids for name, _ in others)),
                records={name: records[name] for name in ids},
                values=values,
                took_s=took_s,
                speed=number,
                apart=apart,
                elsewhere=[machine for (name, _), machine in others.items() if name in ids],
            )


def _values(
    group: Sequence[Experiment], records: Mapping[str, Records], number: str, aim: Aim
) -> dict[str, list[float | NoSpeed]]:
    reasons = {**_inexact(group, records), **aim.exceeded(records)}
    return {
        one.id: [
            reasons.get((one.id, at)) or _value(record, number, times=_times(one, number, aim))
            for at, record in enumerate(records[one.id])
        ]
        for one in group
    }


def _state(group: Sequence[Experiment], values: Runs, *, elsewhere: int) -> Race:
    """Return the state of a race. It ends if more runs than a whole race makes were on other machines: its runs go to several."""
    slow = [one.id for one in group if any(argument_names.is_true(one.arguments.get(name)) for name in _COMPILES)]
    repeats = max(one.repeats for one in group)
    ids, in_order = [one.id for one in group], orders(group)
    most = most_runs(group)
    state = race(ids, values, slow=slow, orders=in_order, repeats=repeats, most=most)
    return replace(state, due=()) if elsewhere > most else state


def groups(experiments: Iterable[Experiment], aim: Aim = SPEED) -> list[list[Experiment]]:
    """Return the experiments that can run here, in groups that race."""
    found: dict[object, list[Experiment]] = {}
    for one in can_run([*experiments]):
        found.setdefault(_place(one, aim), []).append(one)
    return [*found.values()]


def orders(group: Sequence[Experiment]) -> list[list[str]]:
    """Return the ids of experiments that differ in their batch size or sequence length only, from the smallest value."""
    found: list[list[str]] = []
    rest = list(group)
    for name in _ORDERED:
        alike: dict[str, dict[int, str]] = {}
        for one in rest:
            if (value := whole_number(one.arguments.get(name))) is not None:
                others = {other: text for other, text in one.arguments.items() if other != name}
                same = replace(one, id="", arguments=others, global_batch=None, data_path=None, data=None)
                alike.setdefault(repr(same), {})[value] = one.id
        found += [[ids[value] for value in sorted(ids)] for ids in alike.values() if len(ids) > 1]
        ordered = {one for ids in found for one in ids}
        rest = [one for one in rest if one.id not in ordered]
    return found


def most_runs(group: Sequence[Experiment]) -> int:
    """Return the most runs that a race may make, with all repeats of its winner."""
    return sum(most_repeats(one) for one in group)


def fewest_runs(group: Sequence[Experiment]) -> int:
    """Return the fewest runs that a race makes, with all repeats of its winner."""
    repeats = max(one.repeats for one in group)
    if len(group) == 1:
        return repeats
    first = len(group) - len({name for order in orders(group) for name in held_back(order)})
    return first + min(Rules().fewest, first) + max(0, repeats - 2)


def most_repeats(one: Experiment) -> int:
    """Return the mean number of runs of an experiment that a race may make at most."""
    return max(LEAST_REPEATS, one.most_repeats)


def _place(one: Experiment, aim: Aim) -> object:
    """Return the values that are the same for all experiments of a place."""
    work = tuple(one.arguments.get(name) for name in WORK) if one.trainer == OPERATORS else ()
    data = one.data and (one.data.source, one.data.split)
    sizes = () if aim.is_over_gpus else (one.num_gpus, one.num_nodes)
    return one.scenario, one.model, one.device, one.trainer, sizes, data, work


def _times(one: Experiment, number: str, aim: Aim) -> float:
    """Return the factor that makes a speed per GPU one of all GPUs, and a speed one per cost if the cost decides."""
    devices = one.num_gpus if is_per_gpu(number) else 1
    if aim.objective is not Objective.COST:
        return devices
    return devices / (one.num_nodes if aim.per is Per.NODE_HOUR else one.num_gpus)


def _ended(store: Store, experiment: Experiment) -> list[StoredRun]:
    """Return the last runs of the first repeats, up to the first repeat that has not ended or must be tried again."""
    last = {run.job.repeat: run for run in store.runs(experiment.id)}
    found: list[StoredRun] = []
    while (
        (run := last.get(len(found) + 1)) is not None
        and run.state is JobState.ENDED
        and not is_due_again(run, NO_RETRY)
    ):
        found.append(run)
    return found


def _speed(records: Iterable[Records]) -> str:
    """Return the speed that most experiments have. Of several, return the first of SPEEDS.

    If experiments have other shares of padding, a speed that counts it does not compare them.
    """
    counts, shares = Counter[str](), list[float]()
    for of_one in records:
        numbers = [speeds(record, SPEEDS) for record in of_one]
        counts.update({name for found in numbers for name in found})
        shares += [found[REAL] / found[PADDED] for found in numbers if REAL in found and found.get(PADDED, 0.0) > 0]
    is_padded = bool(shares) and max(shares) - min(shares) > UNEXPLAINED_PADDING
    names = [name for name in SPEEDS if not (is_padded and counts_padding(name))]
    return max(names, key=lambda name: (counts[name], -SPEEDS.index(name)))


def _inexact(group: Sequence[Experiment], records: Mapping[str, Records]) -> dict[tuple[str, int], NoSpeed]:
    """Return NoSpeed.INEXACT for each run (id, place in its sequence) with a wrong result, or far less exact than eager."""
    operators = [one for one in group if one.trainer == OPERATORS]
    plain = [one for one in operators if one.arguments.get("implementation", PLAIN) == PLAIN]
    errors = [error for one in plain for record in records[one.id] if (error := _error(record)) is not None]
    return {
        (one.id, at): NoSpeed.INEXACT
        for one in group
        for at, record in enumerate(records[one.id])
        if (error := _error(record)) is not None
        and (
            error >= WRONG_RESULT
            or (one in operators and errors and is_less_exact(error, errors[-1], str(one.arguments.get("dtype"))))
        )
    }


def _error(record: RunRecord | None) -> float | None:
    numbers = record.measurements if record is not None and record.status is Status.OK else ()
    value = next((one.value for one in numbers if one.name == ERROR), None)
    return value if isinstance(value, (int, float)) else None  # an infinite error is the least exact


def _value(record: RunRecord | None, name: str, *, times: float) -> float | NoSpeed:
    """Return the logarithm of a run's number, the higher the better, or the reason why it has none that counts."""
    if record is None or record.status is not Status.OK:
        return NoSpeed.NO_MEMORY if record is not None and record.kind in _NO_MEMORY else NoSpeed.FAILED
    if any(raises_doubt(caveat) for caveat in record.warnings):
        return NoSpeed.IN_DOUBT
    value = finite(next((one.value for one in record.measurements if one.name == name), None))
    if value is None or not value > 0:
        return NoSpeed.MISSING
    return (-math.log(value) if name in LOWER_IS_BETTER else math.log(value)) + math.log(times)

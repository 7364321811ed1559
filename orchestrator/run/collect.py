"""Collects the numbers in the folder of a run that has ended: from its trainer, from the instrument and from the monitors.

This module reads files, and asks the trainer and the monitors. It judges nothing and writes nothing. If a monitor raises an
error, only the numbers of this monitor are lost. `run_one` catches the error of a trainer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

from orchestrator import trainers
from orchestrator.entry_points import WrongAnswer
from orchestrator.files.printable_text import quoted
from orchestrator.measure import metrics, steps, throughput
from orchestrator.measure.losses import target
from orchestrator.measure.metrics import limits
from orchestrator.measure.rank_files import ranks_per_batch, why_wrong, worker_files
from orchestrator.monitors import Monitor
from orchestrator.records import Caveat, CaveatKind, Device, Experiment, Gpu, Measurement, RunFolder, dump, load

_T = TypeVar("_T")
_UNREAD = "the program reported its steps, and nothing reads them; write 'steps: tunebench.steps' in the scenario"
_COMPUTED_FROM = {
    "device_peak_imbalance": "device_peak_used_bytes",
    "device_residue_bytes": "device_baseline_bytes",
    "energy_per_real_token_j": "energy_j",
}
_COSTS = ("monitor_cpu_s", "monitor_rss_bytes")

Watching = Sequence[tuple[str, Monitor]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """Everything in a run's files.

    `workers` are the contents of the ranks' files; the file that was written first comes first. `first` is the content of rank
    0's file. `complete`: the run has the metrics that a result needs. `impossible`: why the metrics exceed what this device can
    do. `contradiction`: why the metrics contradict each other or the run's time. `broken_promises` are caveats about promised
    metrics that are missing. These caveats matter only if the run ended well.
    """

    measurements: tuple[Measurement, ...] = ()
    ranks: tuple[Mapping[str, Any], ...] = ()
    devices: tuple[Mapping[str, Any], ...] = ()
    benchmarks: tuple[Mapping[str, Any], ...] = ()
    workers: tuple[Mapping[str, Any], ...] = ()
    first: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = False
    impossible: str | None = None
    contradiction: str | None = None
    warnings: tuple[Caveat, ...] = ()
    broken_promises: tuple[Caveat, ...] = ()


class _Asked:
    """Asks monitors about a run's folder. If a monitor fails, only its own numbers are lost."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.failures: list[str] = []

    def __call__(self, name: str, question: Callable[[Path], Iterable[_T]], kind: type | UnionType) -> Sequence[_T]:
        """Return the monitor's answers to a question, each of the type `kind`. Return no answers if the monitor fails."""
        try:
            answer = question(self.run_dir)
            answers: list[Any] = [answer] if isinstance(answer, str) else list(answer)
            for one in answers:
                _refuse_wrong(one, kind)
        except Exception as error:  # a plug may do anything, and the run went well without it
            self.failures.append(f"monitor {name} could not read its samples: {type(error).__name__}: {error}")
            return ()
        return answers


def _refuse_wrong(answer: object, kind: type | UnionType) -> None:
    """Raise TypeError or ValueError if a plug's answer is not of the type `kind`, or has a value that a record cannot have."""
    if not isinstance(answer, kind):
        raise TypeError(f"{quoted(answer)} is not of the type {getattr(kind, '__name__', kind)}")
    content = dict(answer) if isinstance(answer, Mapping) else answer
    try:
        load(type(content), dump(content))
    except ValueError as error:
        raise ValueError(f"{quoted(answer)}: {error}") from None


def _of_trainer(experiment: Experiment, method: str, answer: Iterable[_T], kind: type) -> Sequence[_T]:
    """Return the answers of the trainer's method. Raise WrongAnswer if they are not what a record can have."""
    answers = list(answer)
    try:
        for one in answers:
            _refuse_wrong(one, kind)
    except (TypeError, ValueError) as error:
        raise WrongAnswer(f"the answer of trainer {experiment.trainer}'s {method} is wrong: {error}") from None
    return answers


def read(
    experiment: Experiment, run_dir: Path, *, watching: Watching, gpus: Sequence[Gpu], wall_s: float | None = None
) -> Findings:
    """Return the findings in a run's folder. Its last process ended after `wall_s` seconds."""
    workers = _workers(run_dir)
    trainer = trainers.get(experiment.trainer)
    reading = _steps(experiment, run_dir, workers, wall_s)
    own = _of_trainer(experiment, "metrics", trainer.metrics(run_dir), Measurement)
    benchmarks = tuple(_of_trainer(experiment, "benchmarks", trainer.benchmarks(run_dir), Mapping))
    asked = _Asked(run_dir)
    sampled = [number for name, monitor in watching for number in asked(name, monitor.measurements, Measurement)]
    broken_by = partial(limits.broken_by_reading, wall_s=wall_s, gpu_bytes=_memory_of_one(gpus))
    watched = [_if_possible(number, broken_by) for number in _without_derived(sampled, broken_by)]
    numbers = [
        *_without_doubles(own, reading.measurements, steps_win=bool(experiment.custom)),
        *_cost_added_up(watched),
    ]
    to_target = _to_target(experiment, run_dir, workers)
    counted = _numbers(reading.measurements) if experiment.custom else {}
    numbers = [*_with_device_name(numbers, gpus), *to_target]
    return Findings(
        measurements=tuple(numbers),
        ranks=reading.ranks,
        devices=tuple(
            {name: value for name, value in row.items() if _why_impossible(name, value, broken_by) is None}
            for name, monitor in watching
            for row in asked(name, monitor.devices, Mapping)
        ),
        benchmarks=benchmarks,
        workers=tuple(workers),
        first=next((worker for worker in workers if worker.get("rank") == 0), {}),
        complete=_is_complete(experiment, numbers),
        impossible=reading.impossible,
        contradiction=(
            why_wrong(run_dir)
            or reading.contradiction
            or limits.longer_than_the_run(benchmarks, wall_s)
            or _broken_limit(experiment, own, reading, wall_s)
        ),
        broken_promises=tuple(_broken_promises(experiment, numbers)),
        warnings=(
            *reading.warnings,
            *(Caveat(detail=why) for why in limits.replaced(_numbers(own), counted)),
            *dict.fromkeys(number.missing for number in to_target if number.missing),
            *_monitor_warnings(experiment, asked, watching, watched),
        ),
    )


def _broken_limit(
    experiment: Experiment, own: Sequence[Measurement], reading: throughput.Reading, wall_s: float | None
) -> str | None:
    """Return a sentence that says why a number of the trainer or of the steps is impossible, or why two of them are.

    Return None if all numbers are possible.
    """
    reported = experiment.custom.metrics if experiment.custom else ()
    # A custom command may compute anywhere.
    cores = os.cpu_count() if experiment.device is Device.CPU and not experiment.custom else None
    for number in (*own, *reading.measurements):
        if isinstance(number.value, int | float) and number.name in metrics.METRICS:
            known, may_be_0 = metrics.METRICS[number.name], number.name not in reported
            limit = limits.broken_limit(
                known, number.value, wall_s=wall_s, devices=experiment.num_gpus, cores=cores, may_be_0=may_be_0
            )
            if limit is not None:
                return f"{number.name} is {number.value:.6g}, and {limit}"
    return limits.contradiction(_numbers(own), _numbers(reading.measurements))


def _numbers(measurements: Sequence[Measurement]) -> dict[str, float]:
    return {number.name: number.value for number in measurements if isinstance(number.value, int | float)}


_BrokenBy = Callable[[metrics.Metric, float], str | None]


def _memory_of_one(gpus: Sequence[Gpu]) -> int | None:
    """Return the memory of the run's largest GPU; None if the memory of a GPU is unknown."""
    known = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    return max(known) if known and len(known) == len(gpus) else None


def _why_impossible(name: str, value: object, broken_by: _BrokenBy) -> str | None:
    """Return why a monitor's value is impossible, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or name not in metrics.METRICS:
        return None
    limit = broken_by(metrics.METRICS[name], value)
    return None if limit is None else f"{name} is {value:.6g}, and {limit}"


def _if_possible(number: Measurement, broken_by: _BrokenBy) -> Measurement:
    """Return a monitor's number. An impossible value becomes a missing value with its reason."""
    why = _why_impossible(number.name, number.value, broken_by)
    return number if why is None else replace(number, value=None, missing=Caveat(detail=f"{number.source}: {why}"))


def _without_derived(numbers: Sequence[Measurement], broken_by: _BrokenBy) -> list[Measurement]:
    """Return the monitors' numbers, without those that were computed from an impossible number."""
    broken = {number.name for number in numbers if _why_impossible(number.name, number.value, broken_by)}
    return [number for number in numbers if _COMPUTED_FROM.get(number.name) not in broken]


def _steps(
    experiment: Experiment, run_dir: Path, workers: Sequence[Mapping[str, Any]], wall_s: float | None
) -> throughput.Reading:
    """Return the numbers from the run's steps, if the steps were reported."""
    expected = trainers.get(experiment.trainer).instrumented or experiment.steps is not None
    if not expected and not RunFolder(run_dir).all_steps():
        return throughput.Reading()
    if not expected and not workers:
        return throughput.Reading(warnings=(Caveat(detail=_UNREAD),))
    return throughput.read(
        run_dir, workers, world_size=experiment.num_gpus, wall_s=wall_s, one_clock=experiment.num_nodes == 1
    )


def _to_target(experiment: Experiment, run_dir: Path, workers: Sequence[Mapping[str, Any]]) -> tuple[Measurement, ...]:
    first = next((worker for worker in workers if worker.get("rank") == 0), None)
    if experiment.target is None or first is None:
        return ()
    common = steps.together(steps.read(run_dir), ranks_per_batch=ranks_per_batch(first))
    return target.measurements(experiment.target, first, common)


def _without_doubles(own: Sequence[Measurement], read: Sequence[Measurement], *, steps_win: bool) -> list[Measurement]:
    """Return the trainer's own numbers and the numbers from the steps. If a number is in both, the trainer's number counts.

    With `steps_win`, that of the steps counts, also if it is missing because the run has no steady state: other numbers follow from
    it, such as the speed per GPU, and all runs of an experiment must have their numbers from the same place.
    """
    known = {number.name for number in read if number.value is not None or steps_win}
    kept = [number for number in own if number.name not in known or not (number.value is None or steps_win)]
    taken = {number.name for number in kept}
    return [*kept, *(number for number in read if number.name not in taken)]


def _broken_promises(experiment: Experiment, numbers: Sequence[Measurement]) -> Iterator[Caveat]:
    """Yield a caveat for each missing metric that the custom command promised."""
    early = next((number.value for number in numbers if number.name == "stopped_early"), None)
    promised = experiment.custom.metrics if experiment.custom else ()
    for number in numbers:
        if number.value is None and number.name in promised:
            why = f"the run was ended early ({early})" if early else number.why_missing
            yield Caveat(detail=f"custom.metrics declares {number.name}, but the run has no value for it: {why}")


def _monitor_warnings(
    experiment: Experiment, asked: _Asked, watching: Watching, watched: Sequence[Measurement]
) -> Iterator[Caveat]:
    """Yield the caveats about monitors: a slowed run, missing numbers, the monitors' own warnings, and failed monitors."""
    for name in (name for name, monitor in watching if monitor.perturbs):
        yield Caveat(
            detail=f"monitor {name} slows the run: compare the speed only with runs that have the same monitor"
        )
    if experiment.device is Device.CUDA:
        missing: dict[str, list[str]] = {}
        for number in (number for number in watched if number.value is None):
            missing.setdefault(number.why_missing, []).append(number.name)
        for reason, names in missing.items():
            yield Caveat(kind=CaveatKind.MISSING, detail=f"{', '.join(names)} ({reason})")
    warnings = [caveat for name, monitor in watching for caveat in asked(name, monitor.warnings, Caveat | str)]
    for caveat in (*warnings, *asked.failures):
        yield caveat if isinstance(caveat, Caveat) else Caveat(detail=caveat)


def _cost_added_up(watched: Sequence[Measurement]) -> list[Measurement]:
    """Return the numbers. Replace the costs of single monitors by the sum of the costs of all monitors."""
    costs: dict[str, list[Measurement]] = {}
    for number in watched:
        if number.name in _COSTS and number.value is not None:
            costs.setdefault(number.name, []).append(number)
    sums = []
    for name, parts in costs.items():
        value = sum(float(part.value or 0) for part in parts)
        sums.append(Measurement(name=name, value=value, source=" + ".join(part.source for part in parts)))
    return [number for number in watched if number.name not in _COSTS] + sums


def _with_device_name(numbers: list[Measurement], gpus: Sequence[Gpu]) -> list[Measurement]:
    """Return the numbers with the GPU's name, even if no monitor has read the name."""
    if not gpus or any(number.name == "gpu_device_name" and number.value for number in numbers):
        return numbers
    others = [number for number in numbers if number.name != "gpu_device_name"]
    return [*others, Measurement(name="gpu_device_name", value=gpus[-1].name, source="nvml")]


def _is_complete(experiment: Experiment, numbers: Sequence[Measurement]) -> bool:
    """Return whether the run has a result: the trainer's result, reported steps, or a promised number of a custom command."""
    known = {number.name for number in numbers if number.value is not None}
    if trainers.get(experiment.trainer).result in known or (experiment.steps is not None and "steps" in known):
        return True
    if experiment.custom is None:
        return False
    return bool(known.intersection(experiment.custom.metrics)) or not (experiment.custom.metrics or experiment.steps)


def _workers(run_dir: Path) -> list[dict[str, Any]]:
    """Return the contents of the ranks' files, sorted by the time of writing.

    The rank that failed first has the cause of the failure.
    """

    def written_at(worker: Mapping[str, Any]) -> float:
        try:
            return RunFolder(run_dir).worker(worker.get("rank", 0)).stat().st_mtime
        except OSError:
            return float("inf")

    return sorted(worker_files(run_dir), key=written_at)

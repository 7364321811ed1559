"""Decide what a race can compare, as `tunebench compare` does: experiments of the same work, runs of the same machine. Pure.

The work depends on the speed that decides, so it is known after the first runs only. Until then, a place has one race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.measure.memory_logs import finite
from orchestrator.records import Device, Experiment, RunRecord, Status
from orchestrator.results.table.baseline.other_work import counts_padding, is_per_gpu, other_padding, work_of
from orchestrator.results.table.doubts import raises_doubt

REAL, PADDED = "real_tokens_per_s", "tokens_per_s"
# The last record of each of the first repeats. None: the record cannot be read.
Records = Sequence[RunRecord | None]
# The arguments that keep experiments apart, with their values as text.
_Work = tuple[tuple[str, str], ...]


def speeds(record: RunRecord | None, names: Iterable[str]) -> dict[str, float]:
    """Return the speeds of these names that an ok run has. A Trainer writes 0 for a speed that it does not know."""
    if record is None or record.status is not Status.OK:
        return {}
    known = ((number.name, finite(number.value)) for number in record.measurements if number.name in {*names})
    return {name: value for name, value in known if value}


def parts(
    group: Sequence[Experiment], speed: str, records: Mapping[str, Records]
) -> Iterator[tuple[list[Experiment], tuple[str, ...]]]:
    """Yield the experiments of a place that have the same work by a speed, and the names of the arguments that keep them apart.

    If the speed counts padding, and the padding of an experiment is unknown, arguments that change the padding keep apart, too.
    """
    works = {one.id: _work(one, speed) for one in group}
    if any(_hides_padding(speed, records[one.id]) for one in group):
        works = {one.id: (*works[one.id], *_padding(one, speed)) for one in group}
    found: dict[_Work, list[Experiment]] = {}
    for one in group:
        found.setdefault(works[one.id], []).append(one)
    apart = {name for work in found for name, value in work if any((name, value) not in other for other in found)}
    for some in found.values():
        yield some, tuple(sorted(apart))


def _work(one: Experiment, speed: str) -> _Work:
    sizes = {} if is_per_gpu(speed) else {"num_gpus": one.num_gpus}
    return work_of(speed, {**one.arguments, **sizes})


def _padding(one: Experiment, speed: str) -> _Work:
    """Return the arguments that change the padding of an experiment, with their values as text."""
    values = ((name, repr(value)) for name, value in one.arguments.items() if value is not None)
    return tuple(sorted(known for known in values if other_padding(speed, known[:1])))


def _hides_padding(speed: str, records: Records) -> bool:
    """Return whether a run that counts has a speed with padding, and does not know how much padding it has."""
    counted = (one for one in records if one is not None and not any(map(raises_doubt, one.warnings)))
    found = (speeds(one, (speed, REAL, PADDED)) for one in counted)
    return counts_padding(speed) and any(speed in one and not {REAL, PADDED} <= one.keys() for one in found)


def elsewhere(group: Sequence[Experiment], records: Mapping[str, Records]) -> dict[tuple[str, int], str]:
    """Return the machine of each run (id, place in its sequence) on another GPU model, or on another processor without a GPU.

    Such runs cannot be compared with the others. The newest run of the experiments decides which machine counts.
    """
    machines = {
        (one.id, at): (record.started_at, machine)
        for one in group
        for at, record in enumerate(records[one.id])
        if record is not None and (machine := machine_of(one, record))
    }
    here = max(machines.values(), default=(0.0, ""))[1]
    return {run: machine for run, (_, machine) in machines.items() if machine != here}


def machine_of(one: Experiment, record: RunRecord) -> str:
    """Return the GPU model of a run, or the processor of a run without a GPU. Return an empty text if it is unknown."""
    provenance: Mapping[str, Any] = record.provenance
    if one.device is Device.CPU:
        host = provenance.get("host")
        return _text(host.get("cpu")) if isinstance(host, dict) else ""
    gpus = provenance.get("gpus")
    models = (
        {_text(gpu.get("name")) for gpu in gpus if isinstance(gpu, dict)} if isinstance(gpus, (list, tuple)) else ()
    )
    return ", ".join(sorted(filter(None, models)))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

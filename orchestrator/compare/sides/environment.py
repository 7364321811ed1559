"""Where and with what an experiment ran, under short names, and which differences in it forbid a comparison. Pure.

Two measurements compare where the same work ran on like machines. A driver or a package that changed is what people compare *for*:
it is told before all numbers and forbids nothing. What forbids it is that the other side measured something else:

- `gpu`: GPUs of another model; `cpu` in its place where neither side names a GPU;
- `device`: a CPU against a GPU;
- `data` and what describes it (`data_split`, `data_formatting`, `data_samples`, `data_seed`, `data_fingerprint`);
- `neighbours`: packed runs, which share the machine with others, against runs that had it alone. How many they were is only told;
- `gpu_power_limit_w`, `gpu_sm_clock_max_mhz`: GPUs that may not run as fast;
- `monitors`: a monitor that slows the run watched only one side. A monitor that is not installed here counts as such.

What one side does not say forbids nothing: a CSV file names no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from orchestrator.compare.comparison import Difference, Entry
from orchestrator.monitors import perturbing
from orchestrator.records import DataSpec
from orchestrator.results.table.rows import PACKAGES, Value, cell

Cells = Mapping[str, Value]

GPU, CPU, DEVICE, NEIGHBOURS, MONITORING, DATA = "gpu", "cpu", "device", "neighbours", "monitors", "data"

_GPU_STATE = ("power_limit_w", "sm_clock_max_mhz", "persistence_mode", "ecc")
_DATA_FIELDS = ("split", "formatting", "samples", "seed", "fingerprint")

# Cell of a run → name here. Of two for one name the later stands.
_NAMES = {
    "device": DEVICE,
    "gpu_device_name": GPU,
    "provenance_gpus": GPU,
    "provenance_driver_driver": "driver",
    "provenance_driver_cuda": "driver_cuda",
    "provenance_worker_versions_cuda": "cuda",
    "provenance_python_version": "python",
    "provenance_host_name": "host",
    "provenance_host_cpu": CPU,
    "provenance_host_cpu_count": "cpu_count",
    "provenance_host_system": "system",
    "provenance_git_commit": "git_commit",
    "provenance_git_dirty": "git_dirty",
    "python": "interpreter",
    "monitors": MONITORING,
    "neighbours": NEIGHBOURS,
    "data": DATA,
    **{f"provenance_{package}": package for package in PACKAGES},
    **{f"provenance_gpu_{name}": f"gpu_{name}" for name in _GPU_STATE},
    **{f"provenance_data_{name}": f"data_{name}" for name in _DATA_FIELDS},
}

_WORKERS = "provenance_worker_versions_"
_OF_DATA = (DATA, *(f"data_{name}" for name in _DATA_FIELDS))
_OF_THE_GPUS = (GPU, "gpu_power_limit_w", "gpu_sm_clock_max_mhz")


def of_cells(cells: Cells) -> dict[str, Value]:
    """Return what the cells of a run or a CSV row say of its environment. A version that the worker saw itself wins over the
    package list of its interpreter."""
    found = {name: cells[source] for source, name in _NAMES.items() if cells.get(source) is not None}
    for source, value in cells.items():
        if source.startswith(_WORKERS) and value is not None:
            found[source.removeprefix(_WORKERS).replace("_", "-")] = value
    return {name: value for name, value in found.items() if value != ""}


def gpu_cells(states: object) -> dict[str, Value]:
    """Return how a run's GPUs were set, as cells, from `provenance.gpus` of its record, which may contain anything."""
    gpus = [state for state in states if isinstance(state, Mapping)] if isinstance(states, (list, tuple)) else []
    found: dict[str, Value] = {}
    for name in _GPU_STATE:
        values = [_in_whole_units(cell(state[name])) for state in gpus if state.get(name) is not None]
        if values:
            found[f"provenance_gpu_{name}"] = _joined(values)
    return found


def _in_whole_units(value: Value) -> Value:
    """Round to whole units: NVML gives 699.998 W for a limit of 700 W."""
    return round(value) if isinstance(value, float) else value


def data_cells(data: DataSpec | None) -> dict[str, Value]:
    """Return as cells what distinguishes one selection of the same source from another."""
    fields: dict[str, Any] = {name: getattr(data, name, None) for name in _DATA_FIELDS}
    return {f"provenance_data_{name}": value for name, value in fields.items() if value is not None}


def combined(environments: Sequence[Cells]) -> dict[str, Value]:
    """Return the environment of several runs. Values that differ are listed, separated by commas."""
    first, *others = environments or [{}]
    if all(one == first for one in others):
        return dict(first)
    names = dict.fromkeys(name for one in environments for name in one)
    return {name: _joined([one.get(name) for one in environments]) for name in names}


def _joined(values: Iterable[Value]) -> Value:
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else ", ".join(sorted(map(_word, distinct)))


def _word(value: Value) -> str:
    """Return one of several values as text. A CSV's numbers are floats, but a count is whole."""
    if value is None:
        return "?"
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def mixed(around: Cells) -> tuple[str, ...]:
    """Return the names in which runs of one experiment differ so much that they cannot be compared."""
    several = (name for name in _OF_THE_GPUS if ", " in str(around.get(name)))
    return (*several, *((NEIGHBOURS,) if _company(around.get(NEIGHBOURS)) == "mixed" else ()))


def differences(base: Entry, new: Entry) -> tuple[Difference, ...]:
    """Return the differences, first those that forbid a comparison.

    A name that one side lacks counts if both sides are results folders with an ok run. A run that failed early may not have
    recorded everything.
    """
    if base.environment == new.environment:
        return ()
    both_whole = base.whole and new.whole and bool(base.runs and new.runs)
    names = dict.fromkeys((*DISQUALIFYING, *base.environment, *new.environment))
    found = []
    for name in names:
        before, after = base.environment.get(name), new.environment.get(name)
        told = both_whole or (before is not None and after is not None)
        if told and _text(before) != _text(after):
            found.append(Difference(name=name, base=before, new=after))
    return tuple(sorted(found, key=lambda one: (_rank(one.name), one.name)))


def _rank(name: str) -> int:
    return _ORDER.get(name, len(_ORDER))


def disqualifying(base: Entry, new: Entry, told: Iterable[Difference]) -> tuple[str, ...]:
    """Return the names of the differences that forbid a comparison."""
    both_whole = base.whole and new.whole
    known = [
        one for one in told if (one.base is not None and one.new is not None) or (both_whole and one.name in _OF_DATA)
    ]
    no_gpu = base.environment.get(GPU) is None and new.environment.get(GPU) is None
    return tuple(
        one.name
        for one in known
        if one.name in DISQUALIFYING and (one.name != CPU or no_gpu) and DISQUALIFYING[one.name](one.base, one.new)
    )


def _text(value: Value) -> str | None:
    """Return a value as the same text, whether it comes from a record or a CSV file."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None else str(value)


def _always(base: Value, new: Value) -> bool:
    return True


def _company(value: Value) -> str:
    counts = set(str(value).split(", "))
    if "0" not in counts:
        return "packed"
    return "alone" if counts == {"0"} else "mixed"


def _other_company(base: Value, new: Value) -> bool:
    return _company(base) != _company(new)


def _other_disturbance(base: Value, new: Value) -> bool:
    return _slowing(base) != _slowing(new)


def _slowing(value: Value) -> frozenset[str]:
    """Return the monitors in a cell that slow a run; the cell separates differing runs by commas."""
    return perturbing({*str(value).replace(",", " ").split()} - {"none", "?"})


# Name → whether two values of it that are not alike forbid a comparison.
DISQUALIFYING: Mapping[str, Callable[[Value, Value], bool]] = {
    GPU: _always,
    CPU: _always,
    DEVICE: _always,
    **dict.fromkeys(_OF_DATA, _always),
    NEIGHBOURS: _other_company,
    **dict.fromkeys(_OF_THE_GPUS, _always),
    MONITORING: _other_disturbance,
}

_ORDER = {
    name: rank
    for rank, name in enumerate(
        (
            *DISQUALIFYING,
            *("driver", "driver_cuda", "cuda", "python", *PACKAGES, "git_commit", "git_dirty"),
            *("host", "cpu_count", "system"),
        )
    )
}

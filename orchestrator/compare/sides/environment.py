"""The environment of an experiment under short names, and the differences between environments that forbid a comparison. Pure.

Two measurements are comparable if the same work ran on similar machines. Users make comparisons to see the effect of a new driver
or package, or of an edited script. So such a difference is allowed, and is listed before the numbers. These differences forbid a
comparison:

- `gpu`: the models of GPU differ. If neither side names a GPU, `cpu` counts instead;
- `device`: one side ran on a CPU, and the other side on a GPU;
- `data` or its details (`data_split`, `data_formatting`, `data_samples`, `data_seed`, `data_fingerprint`);
- `neighbours`: only one side's runs shared the machine. Different numbers of neighbours are allowed;
- `gpu_power_limit_w`, `gpu_sm_clock_max_mhz`: the limits of the GPU's speed differ between the sides;
- `monitors`: a monitor that slows the run watched only one side. A monitor that is not installed here counts as slowing.

Of an experiment that names a software environment, all packages count, and each that differs is listed with both versions. The lock
of the environment is only listed if no package differs: then the same versions were built from other files.

A fact that only one side has does not forbid a comparison. For example, a CSV file of the reference names no GPU. The exception is
`data` between two results folders.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from orchestrator.compare.comparison import Difference, Entry
from orchestrator.monitors import perturbing
from orchestrator.records import DataSpec, Experiment
from orchestrator.results.table.rows import ASKED, PACKAGES, Value, cell

Cells = Mapping[str, Value]

GPU, CPU, DEVICE, NEIGHBOURS, MONITORING, DATA = "gpu", "cpu", "device", "neighbours", "monitors", "data"
LOCK, START = "environment_lock", "start"

_GPU_STATE = ("power_limit_w", "sm_clock_max_mhz", "persistence_mode", "ecc")
_DATA_FIELDS = ("split", "formatting", "samples", "seed", "fingerprint")

# Cell of a run → name in a comparison. If two cells have the same name, the later one counts.
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
    "provenance_start": START,
    "provenance_git_commit": "git_commit",
    "provenance_git_dirty": "git_dirty",
    "python": "interpreter",
    "environment_lock": LOCK,
    "monitors": MONITORING,
    "neighbours": NEIGHBOURS,
    "data": DATA,
    **{f"provenance_{package}": package for package in PACKAGES},
    **{f"provenance_gpu_{name}": f"gpu_{name}" for name in _GPU_STATE},
    **{f"provenance_data_{name}": f"data_{name}" for name in _DATA_FIELDS},
}

WORKERS = "provenance_worker_versions_"
_SOURCES, CONTENT, _PACKAGE = "provenance_sources_", "content of ", "provenance_package_"
# Keys that decide what runs and how it is measured. Their parts are facts, such as `measure.discard_steps`.
_KEYS = ("custom", "script", "accelerate", "measure", "steps", "target")
# The key that is itself a fact. `accelerate` without a dot is the package.
_WHOLE_KEY = "steps"
# A word of a command that needs no quotes to be read: as for shlex, and with the braces of `{python}`.
_PLAIN_WORD = re.compile(r"[\w@%+=:,./{}-]+", re.ASCII)
_OF_PLACES = {"folder", "files", "script", "module"}  # the names of scripts are in the keys of entries
OF_DATA = (DATA, *(f"data_{name}" for name in _DATA_FIELDS))
_OF_THE_GPUS = (GPU, "gpu_power_limit_w", "gpu_sm_clock_max_mhz")


def of_cells(cells: Cells) -> dict[str, Value]:
    """Return the environment from the cells of a run or a CSV row.

    A version that the worker recorded replaces the version in the package list of its interpreter.
    """
    facts = {name: cells[source] for source, name in _NAMES.items() if cells.get(source) is not None}
    for source, value in cells.items():
        if source.startswith(WORKERS) and value is not None:
            facts[source.removeprefix(WORKERS).replace("_", "-")] = value
        elif source.startswith(_PACKAGE):
            facts.setdefault(source.removeprefix(_PACKAGE), value)
        elif source.startswith(_SOURCES):
            facts[f"{CONTENT}{source.removeprefix(_SOURCES)}"] = value
        elif source.startswith(ASKED):
            facts[source.removeprefix(ASKED)] = value
    return {name: value for name, value in facts.items() if value != ""}


def gpu_cells(states: object) -> dict[str, Value]:
    """Return the settings of a run's GPUs as cells. `states` is `provenance.gpus` of a record, and may contain anything."""
    gpus = [state for state in states if isinstance(state, Mapping)] if isinstance(states, (list, tuple)) else []
    settings: dict[str, Value] = {}
    for name in _GPU_STATE:
        values = [_in_whole_units(cell(state[name])) for state in gpus if state.get(name) is not None]
        if values:
            settings[f"provenance_gpu_{name}"] = _joined(values)
    return settings


def _in_whole_units(value: Value) -> Value:
    """Round to whole units, because NVML reports 699.998 W for a limit of 700 W."""
    return round(value) if isinstance(value, float) else value


def data_cells(data: DataSpec | None) -> dict[str, Value]:
    """Return as cells the fields that distinguish two selections from the same data source."""
    fields: dict[str, Any] = {name: getattr(data, name, None) for name in _DATA_FIELDS}
    return {f"provenance_data_{name}": value for name, value in fields.items() if value is not None}


def source_cells(sources: Mapping[str, str]) -> dict[str, Value]:
    """Return the digests of a command's files as cells. With the prefix `sha256:`, no digest is read as a number."""
    return {f"{_SOURCES}{name}": f"sha256:{digest}" for name, digest in sources.items()}


def key_cells(experiment: Experiment) -> dict[str, Value]:
    """Return as cells the commands, the launcher's settings and the rules of measuring that the scenario file asks for."""
    return {f"{ASKED}{name}": value for key in _KEYS for name, value in _parts(key, getattr(experiment, key))}


def _parts(name: str, value: Any) -> Iterator[tuple[str, Value]]:
    if is_dataclass(value) and not isinstance(value, type):
        value = {part: one for part, one in asdict(value).items() if part not in _OF_PLACES}
    if isinstance(value, Mapping):
        for part, one in value.items():
            yield from _parts(f"{name}.{part}", one)
    elif value not in (None, ()):
        yield name, " ".join(map(_quoted, value)) if isinstance(value, (list, tuple)) else cell(value)


def _quoted(word: object) -> str:
    text = str(word)
    return text if _PLAIN_WORD.fullmatch(text) else shlex.quote(text)


def package_cells(packages: object) -> dict[str, Value]:
    """Return the versions of all packages as cells. `packages` is `provenance.packages` of a record, and may contain anything."""
    known = packages if isinstance(packages, Mapping) else {}
    return {f"{_PACKAGE}{name}": cell(version) for name, version in known.items()}


def combined(environments: Sequence[Cells]) -> dict[str, Value]:
    """Return the environment of several runs. Values that differ are listed, separated by commas."""
    first, *others = environments or [{}]
    if all(other == first for other in others):
        return dict(first)
    names = dict.fromkeys(name for facts in environments for name in facts)
    # All runs of an experiment have the same keys. A database has none of runs that an older Tunebench added.
    return {
        name: _joined([facts.get(name) for facts in environments if name in facts or not _is_key(name)])
        for name in names
    }


def _joined(values: Iterable[Value]) -> Value:
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else ", ".join(sorted(_text(value) or "?" for value in distinct))


def mixed(facts: Cells) -> tuple[str, ...]:
    """Return the names of facts in which runs of one experiment differ so much that the runs cannot be compared."""
    several = (name for name in _OF_THE_GPUS if ", " in str(facts.get(name)))
    return (*several, *((NEIGHBOURS,) if _sharing(facts.get(NEIGHBOURS)) == "mixed" else ()))


def differences(base: Entry, new: Entry) -> tuple[Difference, ...]:
    """Return the differences; the differences that may forbid a comparison come first.

    A name that one side lacks counts only if both sides are results folders with an ok run, because a run that failed early may not
    have recorded everything.
    """
    if base.environment == new.environment:
        return ()
    both_whole = base.whole and new.whole and bool(base.runs and new.runs)
    differing = []
    for name in dict.fromkeys((*DISQUALIFYING, *base.environment, *new.environment)):
        before, after = base.environment.get(name), new.environment.get(name)
        is_known = both_whole or (before is not None and after is not None)
        if is_known and _text(before) != _text(after):
            differing.append(Difference(name=name, base=before, new=after))
    if any(_is_version(difference.name) for difference in differing):
        differing = [difference for difference in differing if difference.name != LOCK]
    return tuple(sorted(differing, key=lambda difference: (_rank(difference.name), difference.name)))


def _is_version(name: str) -> bool:
    return name in PACKAGES or not (name in _NAMES.values() or _is_of_the_user(name))


def _is_of_the_user(name: str) -> bool:
    """Return whether a fact comes from the user's files: the content of a file, or a key of the scenario file."""
    return name.startswith(CONTENT) or _is_key(name)


def _is_key(name: str) -> bool:
    """Return whether a fact is a part of one of `_KEYS`, such as `accelerate.mixed_precision`, or the key `steps`."""
    key, dot, _ = name.partition(".")
    return name == _WHOLE_KEY or (bool(dot) and key in _KEYS)


def _rank(name: str) -> float:
    """Return the place of a name in a list. First are names that may forbid a comparison, then the user's files, then versions."""
    return len(DISQUALIFYING) - 0.5 if _is_of_the_user(name) else _ORDER.get(name, len(_ORDER))


def disqualifying(base: Entry, new: Entry, differences: Iterable[Difference]) -> tuple[str, ...]:
    """Return the names of the differences that forbid a comparison."""
    both_whole = base.whole and new.whole
    has_gpu = base.environment.get(GPU) is not None or new.environment.get(GPU) is not None
    forbidding = []
    for difference in differences:
        name, before, after = difference.name, difference.base, difference.new
        is_known = (before is not None and after is not None) or (both_whole and name in OF_DATA)
        if is_known and name in DISQUALIFYING and not (name == CPU and has_gpu):
            as_compared = DISQUALIFYING[name]
            forbidding += [name] if as_compared(before) != as_compared(after) else []
    return tuple(forbidding)


def _text(value: Value) -> str | None:
    """Return a value as text.

    The text is the same for a record and for a CSV file, although all numbers in a CSV file are floats.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None else str(value)


def _sharing(value: Value) -> str:
    counts = set(str(value).split(", "))
    if "0" not in counts:
        return "shared"
    return "exclusive" if counts == {"0"} else "mixed"


def _slowing(value: Value) -> frozenset[str]:
    """Return the monitors in a cell that slow a run. The cell may list the monitors of several runs, separated by commas."""
    return perturbing({*str(value).replace(",", " ").split()} - {"none", "?"})


# A mapping from a name to a function of its value. If the function's results differ between the sides, a comparison is forbidden.
DISQUALIFYING: Mapping[str, Callable[[Value], object]] = {
    **dict.fromkeys((GPU, CPU, DEVICE, *OF_DATA), _text),
    NEIGHBOURS: _sharing,
    **dict.fromkeys(_OF_THE_GPUS, _text),
    MONITORING: _slowing,
}

_VERSIONS = ("driver", "driver_cuda", "cuda", "python", *PACKAGES, "git_commit", "git_dirty")
_ORDER = {name: rank for rank, name in enumerate((*DISQUALIFYING, *_VERSIONS, "host", "cpu_count", "system"))}

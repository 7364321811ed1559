"""Find the names by which experiments of two sides are paired, and compare their values. Pure.

An experiment is first known by a few names, its *core*. For our results these are scenario, framework configuration, model, GPUs
and trainer. For the reference's files, and a CSV file of ours against them, these are the reference's five. Entries with the same
core are a *group*. Inside a group other names tell entries apart: arguments, the device, the data. So an experiment of another
group never changes how this one is paired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.compare.comparison import Entry
from orchestrator.errors import SelectionError, suggestion
from orchestrator.results.table.columns import BOOKKEEPING, FILE_NAMES
from orchestrator.results.table.rows import Value

Group = tuple[str | float | None, ...]

SCENARIO, FULLNAME = "scenario", "fullname"
OURS = (SCENARIO, "framework_config", "model_name_or_path", "num_gpus", "trainer")
REFERENCE = ("framework_config", "peft_method", "model_name_or_path", "num_gpus", "per_device_train_batch_size")

# Names that a whole entry lacks because there are none of that kind; any other that it lacks was not given to it.
FACTS = frozenset({*OURS, FULLNAME})

# Of an environment, what an experiment may be told from its neighbour by.
SETTLED = ("device", "data", "interpreter")

# Settings as they took effect: told where they differ, but what an experiment is, its arguments say.
EFFECTIVE = "effective_"

# The content of a framework configuration, which has a name that tells it from others; told where it changed under that
# name.
DIGEST = "framework_digest"

# Names of files and dates, which differ from run to run and make no experiment.
PLACES = frozenset({*BOOKKEEPING, *FILE_NAMES})


def cells(entry: Entry) -> dict[str, Value]:
    """Return everything that can tell an entry from others."""
    settled = {name: entry.environment[name] for name in SETTLED if name in entry.environment}
    return {**settled, **entry.arguments, **entry.key}


def is_known(name: str, entry: Entry, known: Mapping[str, Value]) -> bool:
    """Return whether an entry with these `cells` has an answer for a name, even if the answer is that nothing was set."""
    return name in known or (entry.whole and name not in FACTS)


_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{0,40})?([eE][+-]?\d{1,3})?")


def alike(value: Value) -> str | float | None:
    """Return the same result for the same meaning: 2e-5 as text or number, 1 and 1.0, an empty cell and the reference's `none`."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return float(value)
    if value is None or value in ("", "none"):
        return None
    return float(value) if _NUMBER.fullmatch(value) else value


def core(sides: Sequence[Sequence[Entry]]) -> tuple[str, ...]:
    """Return the names that pair entries of these sides: ours or the reference's, if every entry has an answer for them."""
    entries = [(entry, cells(entry)) for side in sides for entry in side]
    if not entries:
        return ()

    def everywhere(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if all(is_known(name, entry, known) for entry, known in entries))

    if everywhere((FULLNAME,)):
        return (FULLNAME,)
    if everywhere((SCENARIO,)):
        return everywhere(OURS)
    return everywhere(dict.fromkeys((*REFERENCE, *OURS)))


def groups(entries: Iterable[Entry], names: Sequence[str]) -> dict[Group, list[Entry]]:
    """Return the entries by their values of these names, both in their order."""
    found: dict[Group, list[Entry]] = {}
    for entry in entries:
        known = cells(entry)
        found.setdefault(tuple(alike(known.get(name)) for name in names), []).append(entry)
    return found


def telling(entry: Entry) -> list[tuple[str, Value]]:
    """Return the cells that may tell an entry from others."""
    return [(name, value) for name, value in cells(entry).items() if _may_tell_apart(name)]


def refuse_unknown(by: Sequence[str], sides: Sequence[Sequence[Entry]]) -> None:
    """Raise SelectionError for a name that no entry of a side has. A side without entries is not asked."""
    for entries in filter(None, sides):
        allowed = {name for entry in entries for name in cells(entry)}
        for name in by:
            if name not in allowed:
                raise SelectionError(f"--by: no experiment has {name!r}{suggestion(name, allowed)}")


def telling_apart(*sides: Sequence[Entry]) -> tuple[str, ...]:
    """Return the names in which entries of a side differ, among those that all entries answer.

    With two sides, names for which the sides share a value come first. If there are none, any name counts: the experiments are
    then different.
    """
    known = [[(entry, cells(entry)) for entry in side] for side in sides]
    names = {name for side in sides for entry in side for name, _ in telling(entry)}
    varying, shared = [], []
    for name in sorted(names):
        if not all(is_known(name, entry, cell) for side in known for entry, cell in side):
            continue
        values = [{alike(cell.get(name)) for _, cell in side} for side in known]
        if any(len(one) > 1 for one in values):
            varying.append(name)
            shared += [name] if set.intersection(*values) else []
    return tuple(shared or varying)


def _may_tell_apart(name: str) -> bool:
    return name not in PLACES and name != DIGEST and not name.startswith(EFFECTIVE)


def fewest(group: Sequence[Entry]) -> list[str]:
    """Return as few names as tell the entries of a group apart, those of the reference first. People read this key."""
    names: list[str] = []
    for name in sorted(telling_apart(group), key=lambda name: (name not in REFERENCE, name)):
        if len(groups(group, [*names, name])) > len(groups(group, names)):
            names.append(name)
    return names


def unlike(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the names in which entries of one side differ, whether or not other entries have an answer."""
    known = [dict(telling(entry)) for entry in entries]
    names = dict.fromkeys(name for cell in known for name in cell)
    return tuple(name for name in sorted(names) if len({alike(cell.get(name)) for cell in known}) > 1)


def label(key: Mapping[str, Value], *, on_cpu: bool = False) -> str:
    """Return a key as people read it. The trainer belongs to the scenario and is left out."""
    words = [_word(name, value, on_cpu=on_cpu) for name, value in key.items() if _is_said(name, value)]
    return " · ".join(words) or "the only experiment"


def _is_said(name: str, value: Value) -> bool:
    return name != "trainer" and (alike(value) is not None or name == "framework_config")


def _word(name: str, value: Value, *, on_cpu: bool) -> str:
    if name in (SCENARIO, FULLNAME, "framework_config", "peft_method", "model_name_or_path"):
        return "none" if value is None else str(value)
    if name == "num_gpus":
        one, many = ("process", "processes") if on_cpu else ("GPU", "GPUs")
        return f"{value} {one if alike(value) == 1 else many}"
    return f"batch {value}" if name == "per_device_train_batch_size" else f"{name}={value}"

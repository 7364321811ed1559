"""What makes an experiment: the names by which two sides are paired, and how their values are held against each other. Pure.

An experiment is known by a few names first (its *core*): scenario, framework configuration, model, GPUs and trainer for ours; the
reference's own five for its files, and for a CSV file of ours held against them. Entries that are alike in these are a *group*, and
within a group those of the other names tell entries apart that differ there: arguments, and what is an environment's otherwise
(the device, the data). So an experiment of another group never changes how this one is paired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.columns import BOOKKEEPING
from orchestrator.compare.values import Entry
from orchestrator.errors import SelectionError, suggestion
from orchestrator.rows import Value

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
PLACES = frozenset({*BOOKKEEPING, "training_data_path", "acceleration_framework_config_file", "error_messages"})


def cells(entry: Entry) -> dict[str, Value]:
    """Everything by which an entry can be told from others."""
    settled = {name: entry.environment[name] for name in SETTLED if name in entry.environment}
    return {**settled, **entry.arguments, **entry.key}


def is_known(name: str, entry: Entry, known: Mapping[str, Value]) -> bool:
    """Whether an entry, whose `cells` these are, has an answer for a name, be it that nothing was given."""
    return name in known or (entry.whole and name not in FACTS)


_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{0,40})?([eE][+-]?\d{1,3})?")


def alike(value: Value) -> str | float | None:
    """The same for what means the same: 2e-5 as a text and as a number, 1 and 1.0, an empty cell and the reference's `none`."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return float(value)
    if value is None or value in ("", "none"):
        return None
    return float(value) if _NUMBER.fullmatch(value) else value


def core(sides: Sequence[Sequence[Entry]]) -> tuple[str, ...]:
    """The names that pair entries of these sides: of ours or of the reference those that every entry has an answer for."""
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
    """The entries by their values of these names, both in their order."""
    found: dict[Group, list[Entry]] = {}
    for entry in entries:
        known = cells(entry)
        found.setdefault(tuple(alike(known.get(name)) for name in names), []).append(entry)
    return found


def telling(entry: Entry) -> list[tuple[str, Value]]:
    """The cells that may tell an entry from others, all that is known of it in itself."""
    return [(name, value) for name, value in cells(entry).items() if _may_tell_apart(name)]


def refuse_unknown(by: Sequence[str], sides: Sequence[Sequence[Entry]]) -> None:
    """Raises SelectionError for a name that no entry of a side has; a side without entries has nothing to ask."""
    for entries in filter(None, sides):
        allowed = {name for entry in entries for name in cells(entry)}
        for name in by:
            if name not in allowed:
                raise SelectionError(f"--by: no experiment has {name!r}{suggestion(name, allowed)}")


def telling_apart(*sides: Sequence[Entry]) -> tuple[str, ...]:
    """The names in which entries of a side differ, of those that all have an answer for.

    With two sides: those first of which the sides share a value. Where there is none, any: then they are other experiments.
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
    """Of the names that tell entries of one group apart as few as do it: a key that people read. The reference's come first."""
    names: list[str] = []
    for name in sorted(telling_apart(group), key=lambda name: (name not in REFERENCE, name)):
        if len(groups(group, [*names, name])) > len(groups(group, names)):
            names.append(name)
    return names


def unlike(entries: Sequence[Entry]) -> tuple[str, ...]:
    """The names in which entries of one side differ, whether or not others have an answer for them."""
    known = [dict(telling(entry)) for entry in entries]
    names = dict.fromkeys(name for cell in known for name in cell)
    return tuple(name for name in sorted(names) if len({alike(cell.get(name)) for cell in known}) > 1)


def label(key: Mapping[str, Value], *, on_cpu: bool = False) -> str:
    """How people call what a key names. The trainer is its scenario's and stays out."""
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

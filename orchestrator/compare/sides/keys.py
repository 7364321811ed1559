"""Find the names that pair the experiments of two sides, and compare the values of these names. Pure.

A few names identify an experiment roughly: its *core*. For results of Tunebench, the core has the scenario, framework
configuration, model, GPUs and trainer. If a side is from the reference, the core has the five names of the reference. Entries with
the same core are a *group*. Inside a group, other names distinguish entries: arguments, the device, the data. So an experiment
outside a group never affects the pairs of the group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from orchestrator.compare.comparison import Entry
from orchestrator.errors import SelectionError, suggestion
from orchestrator.results.table.column_choice import BOOKKEEPING, FILE_NAMES
from orchestrator.results.table.rows import Value, columns_named
from orchestrator.results.table.sources.database import DIGEST

Group = tuple[str | float | None, ...]
Form = Callable[[Value], str | float | None]

SCENARIO, FULLNAME = "scenario", "fullname"
NODES, SOFTWARE = "num_nodes", "environment"
OURS = (SCENARIO, "framework_config", "model_name_or_path", "num_gpus", NODES, SOFTWARE, "trainer")
REFERENCE = ("framework_config", "peft_method", "model_name_or_path", "num_gpus", "per_device_train_batch_size")

# If a whole entry lacks one of these names, its source has no such fact. If the entry lacks any other name, that name was not set.
FACTS = frozenset({*OURS, FULLNAME}) - {NODES, SOFTWARE}

# Facts of the environment that distinguish experiments.
SETTLED = ("device", "data", "interpreter")

# Prefix of effective settings. Differences in them are listed, but only arguments identify an experiment.
EFFECTIVE = "effective_"

# Names of files and dates, which differ from run to run and identify no experiment.
PLACES = frozenset({*BOOKKEEPING, *FILE_NAMES})

_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{0,40})?([eE][+-]?\d{1,3})?")


def cells(entry: Entry) -> dict[str, Value]:
    """Return all names and values that can distinguish an entry from others.

    One node is the same as none named. The software environment `none` is the same as none named, too.
    """
    settled = {name: entry.environment[name] for name in SETTLED if name in entry.environment}
    found = {**settled, **entry.arguments, **entry.key}
    if canonical(found.get(NODES)) == 1:
        del found[NODES]
    if SOFTWARE in found and canonical(found[SOFTWARE]) is None:
        del found[SOFTWARE]
    return found


def is_known(name: str, entry: Entry, known: Mapping[str, Value]) -> bool:
    """Return whether a name's value is in the entry's cells (`known`), or the name was certainly not set."""
    return name in known or (entry.whole and name not in FACTS)


def canonical(value: Value) -> str | float | None:
    """Return the common form of a value, so that equal values compare as equal.

    These values are equal, for example: 2e-5 as text and as a number; 1 and 1.0; an empty cell and the reference's `none`. A number
    that is too large for a float is compared as text.
    """
    if isinstance(value, bool):
        return str(value)
    if value is None or value in ("", "none"):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return value
    try:
        number = float(value)
    except OverflowError:
        return str(value)
    return str(value) if math.isinf(number) else number


def exact(value: Value) -> str | None:
    """Return a value as its own text. It distinguishes values that are equal as numbers, such as the versions 2.1 and 2.10."""
    return None if value is None or value == "" else str(value)


def core(sides: Sequence[Sequence[Entry]]) -> tuple[str, ...]:
    """Return the names that pair entries of these sides.

    These are names of Tunebench or of the reference. Each of them is known for every entry. The number of nodes is one of them only
    if an entry has several, and the software environment only if an entry has one.
    """
    entries = [(entry, cells(entry)) for side in sides for entry in side]
    if not entries:
        return ()
    unused = [name for name in (NODES, SOFTWARE) if not any(name in known for _, known in entries)]

    def everywhere(names: Iterable[str]) -> tuple[str, ...]:
        used = (name for name in names if name not in unused)
        return tuple(name for name in used if all(is_known(name, entry, known) for entry, known in entries))

    if everywhere((FULLNAME,)):
        return (FULLNAME,)
    if everywhere((SCENARIO,)):
        return everywhere(OURS)
    return everywhere(dict.fromkeys((*REFERENCE, *OURS)))


def groups(entries: Iterable[Entry], names: Sequence[str], form: Form = canonical) -> dict[Group, list[Entry]]:
    """Return the entries, grouped by their values of these names in this form. Groups and entries keep their order."""
    by_values: dict[Group, list[Entry]] = {}
    for entry in entries:
        known = cells(entry)
        by_values.setdefault(tuple(form(known.get(name)) for name in names), []).append(entry)
    return by_values


def named(by: Sequence[str], sides: Sequence[Sequence[Entry]]) -> tuple[str, ...]:
    """Return the names that the words of `--by` mean. As in a report, an argument may be called by its own name.

    Raise SelectionError if no entry of a side has a name that the word means. A side without entries is ignored.
    """
    known = [[cells(entry) for entry in entries] for entries in sides if entries]
    names = []
    for word in by if known else ():
        allowed = set.intersection(*({name for cell in side for name in cell} for side in known))
        found = columns_named(word, allowed, partial(_varies, known))
        if not found:
            raise SelectionError(f"--by: no experiment has {word!r}{suggestion(word, allowed)}")
        names.append(found[0])
    return tuple(names)


def _varies(sides: Iterable[Iterable[Mapping[str, Value]]], name: str) -> bool:
    """Return whether a name has several values within a side."""
    return any(len({exact(cell.get(name)) for cell in side}) > 1 for side in sides)


def distinctive(entry: Entry) -> dict[str, Value]:
    """Return the cells that may distinguish an entry from others in its group."""
    left_out = PLACES | {DIGEST}
    return {
        name: value for name, value in cells(entry).items() if name not in left_out and not name.startswith(EFFECTIVE)
    }


def distinguishing(*sides: Sequence[Entry], form: Form = canonical) -> tuple[str, ...]:
    """Return the names whose values, in this form, differ between entries of a side. Only names known for all entries count.

    If there are two sides, return only names with at least one value that both sides have. If there are no such names, return all
    names whose values differ: the sides then have different experiments.
    """
    known = [[(entry, cells(entry)) for entry in side] for side in sides]
    names = {name for side in sides for entry in side for name in distinctive(entry)}
    varying, shared = [], []
    for name in sorted(names):
        if not all(is_known(name, entry, cell) for side in known for entry, cell in side):
            continue
        values = [{form(cell.get(name)) for _, cell in side} for side in known]
        if any(len(side) > 1 for side in values):
            varying.append(name)
            shared += [name] if set.intersection(*values) else []
    return tuple(shared or varying)


def fewest(group: Sequence[Entry]) -> list[str]:
    """Return a few names whose values distinguish the entries of a group. The reference's names come first.

    Names whose values differ only as texts come last.
    """
    names: list[str] = []
    for form in (canonical, exact):
        for name in sorted(distinguishing(group, form=form), key=lambda name: (name not in REFERENCE, name)):
            if name not in names and len(groups(group, [*names, name], form)) > len(groups(group, names, form)):
                names.append(name)
    return names


def differing(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the names whose values differ between entries of one side. A name that some entries lack counts, too."""
    known = [distinctive(entry) for entry in entries]
    names = {name for cells in known for name in cells}
    return tuple(name for name in sorted(names) if len({canonical(cells.get(name)) for cells in known}) > 1)


def label(key: Mapping[str, Value], *, on_cpu: bool = False) -> str:
    """Return a key as text for people. The trainer is left out, because it belongs to the scenario."""
    shown = {
        name: value
        for name, value in key.items()
        if name != "trainer" and (canonical(value) is not None or name == "framework_config")
    }
    return " · ".join(_word(name, value, on_cpu=on_cpu) for name, value in shown.items()) or "the only experiment"


def _word(name: str, value: Value, *, on_cpu: bool) -> str:
    if name in (SCENARIO, FULLNAME, "framework_config", "peft_method", "model_name_or_path"):
        return "none" if value is None else str(value)
    if name == "num_gpus":
        singular, plural = ("process", "processes") if on_cpu else ("GPU", "GPUs")
        return f"{value} {singular if canonical(value) == 1 else plural}"
    if name == SOFTWARE:
        return str(value)
    if name == NODES:
        return f"{value} nodes"
    return f"batch {value}" if name == "per_device_train_batch_size" else f"{name}={value}"

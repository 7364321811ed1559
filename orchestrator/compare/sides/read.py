"""Read one side of a comparison: folders and files of several kinds, recognised by their content.

A side of several places has each experiment once, with the runs of all places. `halves` splits one place into two sides. A
comparison of these sides shows the noise. The amount that is read is limited, and no content is executed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.compare.comparison import Entry, Run, Side
from orchestrator.compare.sides import environment, experiments, folders, keys, pytest_benchmark
from orchestrator.compare.sides.experiments import Origin, Place
from orchestrator.compare.sides.same_runs import not_among
from orchestrator.errors import ResultsError
from orchestrator.files import gc_pause, reading
from orchestrator.files.printable_text import counted, refusal
from orchestrator.files.reading import Unreadable
from orchestrator.files.redaction import Redactor, redact_cells, redactor
from orchestrator.records import Device, Status
from orchestrator.records.experiment import SAFE_ID
from orchestrator.results.folder import SUITE_FILE, refuse_damaged
from orchestrator.results.table.rows import Row, Value, ambiguous
from orchestrator.results.table.sources import csv_file, database

ACCEPTED = (
    "a results folder (of tunebench or of the reference system), a database of runs or a Parquet file of them, a CSV file of "
    "results (benchmarks.csv, raw_summary.csv, or one that the reference published) or the JSON file of pytest-benchmark"
)
MOST_WARNINGS = 20

# An id of the reference is a number in a list of experiments. The same id in another list is another experiment.
_REFERENCE_ID = re.compile(r"exp_\d+")


def read(places: Sequence[Path], *, by: Sequence[str] = ()) -> Side:
    """Return folders and files as one side. `by` has the names of an experiment's key. If it is empty, `keys` chooses them.

    Raise ResultsError if a place is missing, is named twice, or cannot be compared. Raise SelectionError for a name in `by` that
    no experiment has.
    """
    (side,) = several([places], by=by)
    return side


def several(sides: Sequence[Sequence[Path]], *, by: Sequence[str] = ()) -> list[Side]:
    """Return several sides. All of them write a value in the same way. Raise the same errors as `read`."""
    with gc_pause.left_alone():
        chosen = [folders.without_own_tables(places) for places in sides]
        opened = [_opened(places) for places, _ in chosen]
        cells = ambiguous(row for one in opened for place in one if isinstance(place, Place) for row in place.rows)
        names = [", ".join(map(str, places)) for places, _ in chosen]
        read = [_side(one, cells, by, name=name) for one, name in zip(opened, names, strict=True)]
        return [
            replace(side, warnings=(*left_out, *side.warnings))
            for side, (_, left_out) in zip(read, chosen, strict=True)
        ]


def campaigns(place: Path, *, by: Sequence[str] = ()) -> list[Side]:
    """Return each campaign of a place as a side. Only a database has several. Raise the same errors as `read`."""
    if not database.is_place(place):
        return [read([place], by=by)]
    with gc_pause.left_alone():
        opened = _place(place)
        cells = ambiguous(row for one in opened if isinstance(one, Place) for row in one.rows)
        return [_side([one], cells, by, name=one.name) for one in opened]


def _opened(places: Sequence[Path]) -> list[Place | Side]:
    if not places:
        raise ResultsError(f"a side is empty; name {ACCEPTED}")
    if len({os.path.realpath(place) for place in places}) < len(places):
        raise ResultsError(
            "the same folder or file is named twice on a side, so its runs would count twice; name it once"
        )
    return [one for place in places for one in _place(place)]


def _side(opened: Sequence[Place | Side], cells: frozenset[tuple[str, Value]], by: Sequence[str], *, name: str) -> Side:
    read = [experiments.side(place, cells) if isinstance(place, Place) else place for place in opened]
    masked = redactor()
    sides = [_without_secrets(side, masked) for side in read]
    entries = _pooled([side.entries for side in sides])
    keyed, alike = _keyed(entries, keys.named(by, [entries]))
    name = masked(name)
    warnings = [f"{side.name}: {warning}" for side in sides for warning in _bounded(side.warnings)]
    warnings += [f"{name}: {warning}" for warning in (*_copied(sides, entries), *alike, *_mixed(entries))]
    screens = tuple(screen for side in sides for screen in side.screens)
    return Side(name=name, entries=keyed, warnings=tuple(warnings), screens=screens)


def _without_secrets(side: Side, masked: Redactor) -> Side:
    """Return the side with masked secrets in its texts, which comparisons and histories write into files."""
    return replace(
        side,
        name=masked(side.name),
        entries=tuple(_entry_without_secrets(entry, masked) for entry in side.entries),
        warnings=tuple(map(masked, side.warnings)),
    )


def _entry_without_secrets(entry: Entry, masked: Redactor) -> Entry:
    """Return the entry with masked secrets. An id that is masked names nothing, so the entry then has none."""
    return replace(
        entry,
        key=redact_cells(entry.key, masked),
        arguments=redact_cells(entry.arguments, masked),
        environment=redact_cells(entry.environment, masked),
        failure=masked(entry.failure) if entry.failure else None,
        id=entry.id if entry.id is None or masked(entry.id) == entry.id else None,
        folder=masked(entry.folder) if entry.folder else None,
    )


def halves(place: Path, *, by: Sequence[str] = ()) -> tuple[Side, Side]:
    """Return one place as two sides: the 1st, 3rd, 5th… ok runs of each experiment, and the 2nd, 4th, 6th… ok runs.

    Both sides have the same environment, so their differences are noise. Raise the same errors as `read`.
    """
    whole = read([place], by=by)
    enough = [entry for entry in whole.entries if len(entry.runs) > 1]
    left_out = len(whole.entries) - len(enough)
    warning = f"{left_out} of {len(whole.entries)} experiments have fewer than two ok runs, which cannot be split"
    warnings = (*whole.warnings, *((warning,) if left_out else ()))
    odd, even = (
        tuple(
            replace(entry, runs=entry.runs[start::2], failed_runs=0, unreadable_runs=0, failure=None)
            for entry in enough
        )
        for start in (0, 1)
    )
    return (
        Side(name=f"{whole.name} (odd rounds)", entries=odd, warnings=warnings),
        Side(name=f"{whole.name} (even rounds)", entries=even),
    )


def _place(place: Path) -> list[Place | Side]:
    """Return the content of a folder or file. A database has a place for each of its campaigns."""
    try:
        if database.is_place(place):
            return [_campaign(place, campaign) for campaign in database.campaigns(place)]
        if place.is_dir():
            if folders.holds_results(place):
                return [folders.read(place)]
            refuse_damaged(place)
            foreign = f"another program wrote its {SUITE_FILE}"
            raise Unreadable(foreign if (place / SUITE_FILE).exists() else "it is a folder without results")
        content = reading.read_bytes(Path(os.path.realpath(place)), limit=reading.LOG_BYTES)
        if content.lstrip()[:1] not in (b"{", b"["):
            return [_csv_file(place, content)]
        document = reading.parse_json(content, finite=False)
        if not pytest_benchmark.is_pytest_benchmark(document):
            raise Unreadable("it is JSON, but not from pytest-benchmark")
        return [pytest_benchmark.read(place, document)]
    except (FileNotFoundError, NotADirectoryError):
        found = "it is a pipe or a device" if os.path.exists(place) else "there is no such file or folder"
        raise ResultsError(f"{place}: {found}; name {ACCEPTED}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # a file in the place, or the place itself
            raise ResultsError(refusal(error)) from None
        raise ResultsError(f"{place}: cannot be compared: {reading.reason(error)}; name {ACCEPTED}") from None


def _campaign(place: Path, campaign: database.Campaign) -> Place:
    """Return a campaign of a database. Its rows are whole: they have what a comparison reads from the records."""
    groups = [database.for_comparisons(rows) for rows in campaign.groups]
    with_origin = [(rows, Origin(id=_own_id(rows[0]), whole=database.STARTED in rows[0].outcome)) for rows in groups]
    return Place(name=f"{place}: {campaign.name}", groups=with_origin, warnings=())


def _csv_file(place: Path, content: bytes) -> Place:
    groups, warnings = csv_file.read(content)
    with_origin = [(runs, Origin(id=_own_id(runs[0]))) for runs in groups]
    return Place(name=str(place), groups=with_origin, warnings=warnings)


def _own_id(row: Row) -> str | None:
    """Return the row's id if Tunebench made it. Such an id names the same experiment on any machine."""
    name = row.facts.get("id")
    return name if isinstance(name, str) and SAFE_ID.fullmatch(name) and not _REFERENCE_ID.fullmatch(name) else None


def _bounded(warnings: Sequence[str]) -> list[str]:
    """Return the first warnings, and the number of the rest. A folder of thousands of unreadable files must not fill the screen."""
    more = len(warnings) - MOST_WARNINGS
    return [*warnings[:MOST_WARNINGS], *([f"and {more} more warnings"] if more > 0 else [])]


def _pooled(read: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Return the entries of all places. An experiment with runs in several places is one entry with all runs.

    Entries of one place with the same cells stay separate, since they may differ in an unknown setting.
    """
    by_identity: dict[object, list[Entry]] = {}
    rough = [[_values(entry, keys.canonical) for entry in entries] for entries in read]
    several = {same for place in rough for same, times in Counter(place).items() if times > 1}
    for entries, place in zip(read, rough, strict=True):
        seen: Counter[object] = Counter()
        for entry, values in zip(entries, place, strict=True):
            same = _values(entry, keys.exact) if values in several else values
            by_identity.setdefault(entry.id or (same, seen[same]), []).append(entry)
            seen[same] += 1
    return [_joined(same) for same in by_identity.values()]


def _values(entry: Entry, form: keys.Form) -> frozenset[tuple[str, str | float | None]]:
    return frozenset((name, form(value)) for name, value in keys.distinctive(entry).items() if value is not None)


def _joined(same: Sequence[Entry]) -> Entry:
    """Join the entries of one experiment, one from each place. Return a single entry.

    The rounds of a later place follow the rounds of earlier places. The folder is that of the last place. A run that several places
    have counts only once.
    """
    if len(same) == 1:
        return same[0]
    ok = [entry for entry in same if entry.runs]
    runs: list[Run] = []
    for entry in ok:
        rounds = max((run.repeat for run in runs), default=0)
        runs += [replace(run, repeat=rounds + run.repeat) for run in not_among(entry.runs, runs)]
    folders_of = [entry.folder for entry in same if entry.folder is not None]
    return replace(
        (ok or same)[-1],
        status=experiments.status_of(ok, [entry for entry in same if entry.status == Status.FAILED.value]),
        runs=tuple(runs),
        failed_runs=sum(entry.failed_runs for entry in same),
        unreadable_runs=sum(entry.unreadable_runs for entry in same),
        failure=next((entry.failure for entry in reversed(same) if entry.failure), None),
        failed_at=min((entry.failed_at for entry in same if entry.failed_at is not None), default=None),
        environment=environment.combined([entry.environment for entry in ok or same]),
        folder=folders_of[-1] if folders_of else None,
    )


def _copied(sides: Sequence[Side], pooled: Sequence[Entry]) -> list[str]:
    """Return a warning if some runs are in several places."""
    copies = sum(len(entry.runs) for side in sides for entry in side.entries) - sum(len(entry.runs) for entry in pooled)
    return (
        [f"{counted(copies, 'copy', 'copies')} of runs in these folders or files: each run counts once"]
        if copies
        else []
    )


def _keyed(entries: Sequence[Entry], by: Sequence[str]) -> tuple[tuple[Entry, ...], list[str]]:
    """Return two values: the entries in their order, with key and label, and a list with a warning if some keys are equal."""
    core = tuple(by) or keys.core([entries])
    keyed: dict[int, Entry] = {}
    alike: list[str] = []
    for group in keys.groups(entries, core).values():
        names = dict.fromkeys((*core, *(keys.fewest(group) if len(group) > 1 else ())))
        for same in keys.groups(group, tuple(names), keys.exact).values():
            keyed |= {id(entry): _with_key(entry, names) for entry in same}
            alike += [keyed[id(same[0])].label] if len(same) > 1 else []
    warning = f"{len(alike)} experiment(s) occur more than once, and are paired in their order: {', '.join(alike[:3])}"
    return tuple(keyed[id(entry)] for entry in entries), [warning] if alike else []


def _with_key(entry: Entry, names: Iterable[str]) -> Entry:
    known = keys.cells(entry)
    key = {name: known.get(name) for name in names}
    rest = {name: value for name, value in {**entry.key, **entry.arguments}.items() if name not in key}
    label = keys.label(key, on_cpu=entry.environment.get(environment.DEVICE) == Device.CPU.value)
    return replace(entry, key=key, arguments=rest, label=label)


def _mixed(entries: Sequence[Entry]) -> list[str]:
    """Return a warning for each fact of the environment that differs between runs of one experiment, because this is not noise."""
    counts = Counter(name for entry in entries for name in environment.mixed(entry.environment))
    return [
        f"{count} experiment(s) have runs with more than one {name}: these runs differ by more than noise"
        for name, count in counts.items()
    ]

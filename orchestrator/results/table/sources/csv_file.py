"""Read a CSV file of results: `benchmarks.csv` (a row per experiment), `raw_summary.csv` (a row per run), or a reference table.

The name of a column determines its meaning: a metric of the registry, a known fact or outcome, else an argument. An empty cell
is missing, never 0. A table of the reference system does not state how runs ended: an experiment failed if the Trainer's run time
is missing. A spreadsheet writes `TRUE` where Python writes `True`; both are `True` here.

Files may come from anyone. Any other kind of table is refused. Implausible lines are left out and counted.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from orchestrator.files import reading
from orchestrator.files.printable_text import quoted
from orchestrator.files.reading import Unreadable
from orchestrator.measure.metrics import METRICS, Show
from orchestrator.records import Caveat, Status
from orchestrator.results.table.column_choice import BOOKKEEPING, FILE_NAMES
from orchestrator.results.table.foreign_rows import MAX_COLUMNS
from orchestrator.results.table.rows import NO_FRAMEWORK, Row, Value

_FACTS = frozenset(
    {
        *("scenario", "framework_config", "model_name_or_path", "num_gpus", "num_nodes", "trainer"),
        *("results", "id", "device", "python", "environment", "environment_lock", "monitors", "data", "sources"),
    }
)
_OUTCOME = frozenset({"repeat", "attempt", "status", "failure_kind", "failure_cause", "started_at", "runs", "runs_ok"})
_ENDED = frozenset({"repeat", "status"})
_ORDINALS, _COUNTS, _LARGEST = ("repeat", "attempt"), ("num_gpus", "num_nodes", "runs", "runs_ok"), 10**6
_NO_ARGUMENT = frozenset({*BOOKKEEPING, *FILE_NAMES, "tags", "failure_hint", "warnings", "exit_code", "signal"})
_OF_THE_PROCESS = ("effective_", "provenance_", "measured_")
_IDENTIFYING = ("model_name_or_path", "framework_config", "scenario", "id")

_WORDS = frozenset(name for name, metric in METRICS.items() if metric.show is Show.TEXT)
_NUMBERS = METRICS.keys() - _WORDS

_NOT_RUN = ("pending", "running", "silent", "skipped")
_RUN_TIME = "train_runtime"
# Metrics that a row has even if no run ended ok.
_NEIGHBOURS = "neighbours"
_OF_THE_PLAN = frozenset({"global_batch", "world_size", _NEIGHBOURS})

_PLUGIN, _PLUGIN_SUFFIX = "acceleration_framework_config_file", "-sample-configuration.yaml"
_WHOLE = re.compile(r"-?[1-9]\d{0,17}|0")
_OF_SPREADSHEETS = {"TRUE": "True", "FALSE": "False"}

# The first columns of ranks.csv and devices.csv, before `rank` or `gpu`.
_OF_PARTS = ("id", "repeat", "attempt", "status")

# The first bytes of gzip, as in a bundle.
_PACKED = b"\x1f\x8b"

# Enough for 20,000 runs with 250 columns; larger tables would take too much memory.
MAX_CELLS = 5_000_000

# The cells of a line that are not empty, by column.
Cells = Mapping[str, str]


def read(content: bytes) -> tuple[list[list[Row]], list[str]]:
    """Return two values: a list of rows for each experiment of a CSV file, and warnings. Raise Unreadable for other tables."""
    if content.startswith(_PACKED):
        raise Unreadable("it is packed; unpack it first, a bundle with `tar -xzf`, and name the folder that comes out")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8") from None
    wrong: Counter[str] = Counter()
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(lines, [])
        _refuse_header(header)
        rows = [_row(header, cells, number, wrong) for number, cells in _cells(lines, header, wrong)]
    except csv.Error as error:
        raise Unreadable(f"it is not a CSV file: {error}") from None
    are_means = "repeat" not in header
    groups = [[row] for row in rows] if are_means else _grouped(rows)
    wrong["experiment(s) have a run on two lines; the later line counts"] += sum(map(_has_a_run_twice, groups))
    warnings = [f"{count} {what}" for what, count in wrong.items() if count]
    if has_means(groups):
        warnings.append(
            "its rows are means over repeats, which cannot be tested, and it is unknown which runs were disturbed; use "
            "raw_summary.csv of the same folder, which has the runs"
        )
    return groups, warnings


def has_means(groups: Iterable[Sequence[Row]]) -> bool:
    """Return whether a row is the mean of several runs, as in benchmarks.csv."""
    return any(_count(row.outcome.get("runs_ok", row.outcome.get("runs"))) > 1 for group in groups for row in group)


def _grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the rows of runs, one list for each experiment, in the order of the experiments' first runs."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        name = row.facts.get("id")
        without_id = None if name is not None else (tuple(row.facts.items()), tuple(row.arguments.items()))
        groups.setdefault((row.facts.get("results"), name, without_id), []).append(row)
    return list(groups.values())


def _refuse_header(header: Sequence[str]) -> None:
    if len(header) > MAX_COLUMNS:
        raise Unreadable(f"it has more than {MAX_COLUMNS:,} columns")
    if header and header[0].lstrip().startswith(("{", "[")):
        raise Unreadable("it is not a CSV file; it looks like JSON")
    if (*header[:4],) == _OF_PARTS and header[4:5] in (["rank"], ["gpu"]):
        raise Unreadable(
            f"it has a row for each {header[4]} of a run; use raw_summary.csv of the same folder, which has the runs"
        )
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise Unreadable(f"it has the column {quoted(twice[0])} twice")
    if not any(name in _IDENTIFYING for name in header) or not any(name in _NUMBERS for name in header):
        raise Unreadable(f"its first line must name one of {', '.join(_IDENTIFYING)}, and a metric")


def _cells(lines: Iterable[list[str]], header: Sequence[str], wrong: Counter[str]) -> Iterator[tuple[int, Cells]]:
    """Yield two values for each line: its number, where the header is line 1, and its cells."""
    for number, line in enumerate(lines, start=2):
        if number * len(header) > MAX_CELLS:
            raise Unreadable(f"it has more than {MAX_CELLS:,} cells")
        if not line or line == header:  # joined files repeat the header
            continue
        if len(line) != len(header):
            wrong["line(s) that are cut short or too long are left out"] += 1
            continue
        cells = {name: cell for name, cell in zip(header, line, strict=True) if cell}
        if any(name in cells and not _whole(cells[name]) for name in _ORDINALS):
            wrong["line(s) with a repeat or attempt that is not a whole number from 1 are left out"] += 1
            continue
        yield number, cells


def _row(header: Sequence[str], cells: Cells, number: int, wrong: Counter[str]) -> Row:
    facts = {name: _known(name, cells.get(name)) for name in header if name in _FACTS}
    if "framework_config" not in facts and _PLUGIN in header:
        plugin = cells.get(_PLUGIN)  # a raw table of the reference system
        facts["framework_config"] = PurePosixPath(plugin).name.removesuffix(_PLUGIN_SUFFIX) if plugin else NO_FRAMEWORK
    outcome = {name: _known(name, cells[name]) for name in header if name in _OUTCOME and name in cells}
    numbers = _numbers(cells, wrong)
    words = {name: _value(cell) for name, cell in cells.items() if name.startswith(_OF_THE_PROCESS) or name in _WORDS}
    no_neighbours = {_NEIGHBOURS: 0} if _NEIGHBOURS in header else {}
    return Row(
        facts=facts,
        arguments={name: _value(cells.get(name)) for name in header if is_argument(name)},
        outcome=outcome if _ENDED.issubset(outcome) else {**outcome, **_ending(header, outcome, numbers, number)},
        measured={**no_neighbours, **words, **numbers},
        warnings=tuple(map(Caveat.of_sentence, cells.get("warnings", "").splitlines())),
    )


def set_by_frameworks(rows: Sequence[Row]) -> dict[str, frozenset[str]]:
    """Return the arguments that each framework configuration may set. Each of them has one value within each configuration.

    A CSV file does not say where an argument comes from. It may be a setting of the configuration, or an axis that changes
    together with the configuration.
    """
    by_framework: dict[Value, list[Row]] = {}
    for row in rows:
        by_framework.setdefault(row.facts.get("framework_config"), []).append(row)
    names = {name for row in rows for name in row.arguments}
    varying = {name for name in names if len({row.arguments.get(name) for row in rows}) > 1}
    fixed = frozenset(
        name
        for name in varying
        if all(len({row.arguments.get(name) for row in group}) == 1 for group in by_framework.values())
    )
    return {str(framework): fixed for framework in by_framework if framework is not None}


def is_argument(name: str) -> bool:
    known = name in METRICS or name in _FACTS or name in _OUTCOME or name in _NO_ARGUMENT
    return bool(name) and not known and not name.startswith(_OF_THE_PROCESS)


def _value(cell: str | None) -> Value:
    """Return the value of a cell. A whole number becomes an int, because counts are shown and compared as int."""
    return int(cell) if cell and _WHOLE.fullmatch(cell) else _OF_SPREADSHEETS.get(cell or "", cell)


def _known(name: str, cell: str | None) -> Value:
    """Return the value of a fact or an outcome. A count may be written as `1.0`, and a status in capitals and with spaces."""
    if cell and name in (*_ORDINALS, *_COUNTS) and (number := _whole(cell)) is not None:
        return number
    return cell.strip().lower() if cell and name == "status" else _value(cell)


def _whole(cell: str) -> int | None:
    """Return a whole number from 0, which pandas or a spreadsheet may have written as `1.0`. Return None for any other cell."""
    number = reading.number_in(cell)
    return int(number) if number is not None and 0 <= number <= _LARGEST and number.is_integer() else None


def _numbers(cells: Cells, wrong: Counter[str]) -> dict[str, Value]:
    numbers: dict[str, Value] = {}
    for name, cell in cells.items():
        if name not in _NUMBERS:
            continue
        found = reading.number_in(cell)
        number = None if found is None else reading.sound_number(found)
        if number is None:
            wrong["cell(s) of metrics are not valid numbers and count as missing"] += 1
        else:
            numbers[name] = number
    return numbers


def _ending(
    header: Sequence[str], outcome: Mapping[str, Value], numbers: Mapping[str, Value], number: int
) -> dict[str, Value]:
    """Return how a row ended that does not say this, or that is not a single run. It ended ok if it has numbers."""
    status, repeat = outcome.get("status"), outcome.get("repeat", 1)
    if status in _NOT_RUN:
        return {}
    by_run_time = status is None and _RUN_TIME in header
    is_ok = bool(numbers.keys() - _OF_THE_PLAN)
    if "runs_ok" in outcome:
        is_ok = is_ok and _count(outcome["runs_ok"]) > 0
    elif by_run_time:
        is_ok = _RUN_TIME in numbers
    if is_ok:
        return {"repeat": repeat, "status": Status.OK.value}
    cause = f"line {number} has no {_RUN_TIME if by_run_time else 'number'}"
    failure = {} if "failure_kind" in outcome else {"failure_kind": "no_metrics", "failure_cause": cause}
    return {"repeat": repeat, **failure, "status": Status.FAILED.value}


def _count(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _has_a_run_twice(runs: Sequence[Row]) -> bool:
    return len({(row.outcome.get("repeat"), row.outcome.get("attempt")) for row in runs}) < len(runs)

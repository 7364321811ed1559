"""Read a CSV file as a side: `benchmarks.csv` (a row for each experiment), `raw_summary.csv` (a row for each run), or the
reference's files.

The name of a column says what it is. A metric of the registry is a number of the run. Names of facts and outcomes are known. Any
other column is an argument. An empty cell is missing, never 0. A table of the reference does not say how runs ended: an
experiment failed if the Trainer's run time is missing.

Files come from anywhere. Another kind of table is refused in a sentence. Implausible lines are left out and counted.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from orchestrator.compare.comparison import Side
from orchestrator.compare.sides import experiments
from orchestrator.compare.sides.environment import NEIGHBOURS
from orchestrator.compare.sides.experiments import Origin
from orchestrator.compare.sides.keys import EFFECTIVE, OURS, PLACES
from orchestrator.files import reading
from orchestrator.files.reading import Unreadable
from orchestrator.measure.metrics import METRICS, Show
from orchestrator.records import Status
from orchestrator.records.experiment import TAME
from orchestrator.results.table.foreign_rows import MAX_COLUMNS
from orchestrator.results.table.rows import NO_FRAMEWORK, Row, Value

_FACTS = frozenset({*OURS, "results", "id", "device", "python", "monitors", "data"})
_OUTCOME = frozenset({"repeat", "attempt", "status", "failure_kind", "failure_cause", "started_at", "runs", "runs_ok"})
_NO_ARGUMENT = PLACES | {"tags", "failure_hint", "warnings", "exit_code", "signal"}
_OF_THE_PROCESS = (EFFECTIVE, "provenance_", "measured_")
_IDENTIFYING = ("model_name_or_path", "framework_config", "scenario", "id")

_NOT_RUN = ("pending", "running", "silent", "skipped")
_RUN_TIME = "train_runtime"
# Metrics by their registry that a row has although no run of it ended ok.
_OF_THE_PLAN = frozenset({"global_batch", "world_size", "neighbours"})

# A folder of the reference: a number in its list, so that another list's is another experiment.
_REFERENCE_ID = re.compile(r"exp_\d+")

_PLUGIN, _PLUGIN_SUFFIX = "acceleration_framework_config_file", "-sample-configuration.yaml"
_WHOLE = re.compile(r"-?[1-9]\d{0,17}|0")

# 20,000 runs with 250 columns: a table of more would take more memory than a comparison may.
MAX_CELLS = 5_000_000

# The cells of a line that are not empty, by column.
Cells = Mapping[str, str]


def read(place: Path, content: bytes) -> Side:
    """Return the experiments of a CSV file, in its order. Raises Unreadable if it is not a table of results."""
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
    return _side(place, rows, wrong, one_a_row="repeat" not in header)


def _side(place: Path, rows: list[Row], wrong: Counter[str], *, one_a_row: bool) -> Side:
    found = [[row] for row in rows] if one_a_row else experiments.grouped(rows)
    wrong["experiment(s) have a run on two lines; the later line counts"] += sum(map(_has_a_run_twice, found))
    warnings = [f"{count} {what}" for what, count in wrong.items() if count]
    if one_a_row and any(_count(row.outcome.get("runs_ok", row.outcome.get("runs"))) > 1 for row in rows):
        warnings.append("its rows are means over repeats; raw_summary.csv next to it has the runs, which can be tested")
    return experiments.side(str(place), ((runs, Origin(id=_id(runs[0]))) for runs in found), warnings)


def _refuse_header(header: Sequence[str]) -> None:
    if len(header) > MAX_COLUMNS:
        raise Unreadable(f"it has more than {MAX_COLUMNS:,} columns")
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise Unreadable(f"it has the column {twice[0]!r:.80} twice")
    if not any(name in _IDENTIFYING for name in header) or not any(map(_is_number, header)):
        raise Unreadable(f"its first line names none of {', '.join(_IDENTIFYING)} beside a metric")


def _cells(lines: Iterable[list[str]], header: Sequence[str], wrong: Counter[str]) -> Iterator[tuple[int, Cells]]:
    """Yield the number of each line, counted from the header, and its cells."""
    for number, line in enumerate(lines, start=2):
        if number * len(header) > MAX_CELLS:
            raise Unreadable(f"it has more than {MAX_CELLS:,} cells")
        if not line or line == header:  # files that were put together repeat the header
            continue
        if len(line) != len(header):
            wrong["line(s) that are cut short or too long are left out"] += 1
            continue
        yield number, {name: cell for name, cell in zip(header, line, strict=True) if cell}


def _is_number(name: str) -> bool:
    return name in METRICS and METRICS[name].show is not Show.TEXT


def _row(header: Sequence[str], cells: Cells, number: int, wrong: Counter[str]) -> Row:
    facts = {name: _value(cells.get(name)) for name in header if name in _FACTS}
    if "framework_config" not in facts and _PLUGIN in header:
        facts["framework_config"] = _framework(cells.get(_PLUGIN))
    outcome = {name: _value(cells.get(name)) for name in header if name in _OUTCOME and name in cells}
    numbers = _numbers(cells, wrong)
    words = {name: _value(cell) for name, cell in cells.items() if name.startswith(_OF_THE_PROCESS) or _is_word(name)}
    alone = {NEIGHBOURS: 0} if NEIGHBOURS in header else {}
    return Row(
        facts=facts,
        arguments={name: _value(cells.get(name)) for name in header if _is_argument(name)},
        outcome=outcome if "repeat" in outcome else {**outcome, **_ending(header, outcome, numbers, number)},
        measured={**alone, **words, **numbers},
    )


def _is_word(name: str) -> bool:
    return name in METRICS and METRICS[name].show is Show.TEXT


def _is_argument(name: str) -> bool:
    known = name in METRICS or name in _FACTS or name in _OUTCOME or name in _NO_ARGUMENT
    return bool(name) and not known and not name.startswith(_OF_THE_PROCESS)


def _value(cell: str | None) -> Value:
    """Return a cell as it is; a whole number as an int, since counts are shown and compared as such."""
    return int(cell) if cell and _WHOLE.fullmatch(cell) else cell


def _numbers(cells: Cells, wrong: Counter[str]) -> dict[str, Value]:
    numbers: dict[str, Value] = {}
    for name, cell in cells.items():
        if not _is_number(name):
            continue
        try:
            found = reading.sound_number(float(cell))
        except ValueError:
            found = None
        if found is None:
            wrong["cell(s) of metrics are not valid numbers and count as missing"] += 1
        else:
            numbers[name] = found
    return numbers


def _ending(
    header: Sequence[str], outcome: Mapping[str, Value], numbers: Mapping[str, Value], number: int
) -> dict[str, Value]:
    """Return how the experiment ended, for a row that is not a single run: ok if it has numbers, the means of its ok runs."""
    stated = outcome.get("status")
    if stated in _NOT_RUN:
        return {}
    has_any = bool(numbers.keys() - _OF_THE_PLAN)
    if "runs_ok" in outcome:
        is_ok = has_any and _count(outcome["runs_ok"]) > 0
    elif stated is None and _RUN_TIME in header:
        is_ok = _RUN_TIME in numbers
    else:
        is_ok = has_any
    if is_ok:
        return {"repeat": 1, "status": Status.OK.value}
    missing = _RUN_TIME if stated is None and _RUN_TIME in header else "number"
    said = {"failure_kind": "no_metrics", "failure_cause": f"there is no {missing} in line {number}"}
    return {"repeat": 1, **(said if "failure_kind" not in outcome else {}), "status": Status.FAILED.value}


def _count(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _framework(plugin: str | None) -> str:
    """Return the name of the plugin's file, from the reference's raw table."""
    return PurePosixPath(plugin).name.removesuffix(_PLUGIN_SUFFIX) if plugin else NO_FRAMEWORK


def _has_a_run_twice(runs: Sequence[Row]) -> bool:
    return len({(row.outcome.get("repeat"), row.outcome.get("attempt")) for row in runs}) < len(runs)


def _id(row: Row) -> str | None:
    """Return the id if it is one of ours: such an experiment is the same wherever it ran."""
    found = row.facts.get("id")
    return found if isinstance(found, str) and TAME.fullmatch(found) and not _REFERENCE_ID.fullmatch(found) else None

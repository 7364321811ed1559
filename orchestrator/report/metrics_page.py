"""docs/metrics.md, made from the registry: every column with its unit, direction, source and what it leaves out.

A function from the registry to text; a test compares the page in the repository with it.
"""

from __future__ import annotations

from orchestrator.column_types import OTHERS, known
from orchestrator.metrics import DASH, FACTS, METRICS, SETTINGS, Direction

_INTRODUCTION = """# Columns and metrics

Made from `orchestrator/metrics/`; a test holds the two together (`pytest --accept` writes this page anew).

`benchmarks.csv` has one row an experiment, whose `id` the other files have as well: every metric is the mean over its
repeats that ended ok, `runs_ok` of `runs` (the mean of their logarithms where *mean* says so). `raw_summary.csv` has one row
a run and every column, `ranks.csv` one a training process of each run, `devices.csv` one a watched GPU of each run. A
rank's tokens a second are its share of the run's: its own tokens in the time that all took together. Files
hold base units at full precision; an empty cell is a missing value, never 0. Besides the columns below, every argument of
the trainer is a column under its own name, as the text that the trainer received (list items separated by blanks, `[]` for
none; one that has the name of another column is `argument_<name>`), and where it ran stands in `provenance_<name>`. Two
sources of memory are two metrics: allocated (tensors) ≤ reserved (allocator) ≤ used on the device, and no constant converts
one into the other. Why three numbers are called tokens a second, and by how much they differ:
[method.md](method.md#why-three-numbers-called-tokens-a-second-differ).

*dtype* is the pandas type of a column: nullable, so that a missing value is NA in each. `tunebench.load` and Parquet files
(`--format parquet`) have exactly these. A CSV file has no types: `pandas.read_csv(file, dtype=tunebench.dtypes(),
keep_default_na=False, na_values=[""])` reads these, and plain `read_csv` guesses. An argument is `Int64` where it is a whole
number in every row, else `string`; `provenance_<name>` is `string` unless it stands below; a number of a custom trainer's own is
`Float64` or `Int64`. A column whose values do not go into its type (a custom trainer's word for a number) is `string`.
"""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The text of docs/metrics.md."""
    types = known()
    lines = [_INTRODUCTION, "## Metrics", ""]
    lines.append(_row("column", "unit", "dtype", "better", "mean", "what it is", "source", "what it leaves out"))
    lines.append(_row(*["---"] * 8))
    for m in METRICS.values():
        better = DASH if m.direction is Direction.NONE else m.direction.value
        mean = "of logs" if m.by_ratio else DASH
        cells = (m.unit or DASH, types[m.name], better, mean, m.description, m.source, m.leaves_out or DASH)
        lines.append(_row(f"`{m.name}`", *cells))
    lines += ["", "## What an experiment was, and how it ended", "", _row("column", "dtype", "what it is", "source")]
    lines.append(_row(*["---"] * 4))
    lines += [_row(f"`{fact.name}`", types[fact.name], fact.description, fact.source) for fact in FACTS.values()]
    lines += ["", "## What took effect", ""]
    lines += ["Read off the built model in the training process, not echoed from the arguments.", ""]
    lines += [_row("column", "dtype", "what it is"), _row(*["---"] * 3)]
    lines += [_row(f"`effective_{name}`", types[f"effective_{name}"], text) for name, (_, text) in SETTINGS.items()]
    lines += ["", "## Other columns", "", _row("column", "dtype", "what it is"), _row(*["---"] * 3)]
    lines += [_row(f"`{name}`", dtype, text) for name, (dtype, text) in OTHERS.items()]
    return "\n".join(lines) + "\n"

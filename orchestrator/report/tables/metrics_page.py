"""The text of docs/metrics.md, made from the registry of metrics. A test compares it with the page in the repository."""

from __future__ import annotations

from orchestrator.measure.metrics import DASH, FACTS, METRICS, SETTINGS, Direction
from orchestrator.results.table.column_types import OTHERS, known

_INTRODUCTION = """# Columns and metrics

Made from `orchestrator/measure/metrics/`. A test compares this page with that folder, and `pytest --accept` writes the page
again.

- `benchmarks.csv` has a row for each experiment. Every metric is the mean over the repeats that ended ok: `runs_ok`
  of `runs` repeats. If the column *mean* says "geometric", it is the geometric mean: the logarithms of the values are
  averaged, so that 2 % faster and 2 % slower cancel out. All other means are arithmetic.
- `raw_summary.csv` has a row for each run and every column.
- `ranks.csv` has a row for each training process of each run. A rank's tokens per second are its own tokens divided by
  the time of the run's steps. So the ranks of a run add up to the run's tokens per second.
- `devices.csv` has a row for each watched GPU of each run.

The column `id` is in all four files. Files have base units at full precision. An empty cell is a missing value, not
zero. Every argument of the trainer is a column too, under its own name, as the text that the trainer received. List
items are separated by blanks, `[]` is an empty list, and `""` is an empty text. If two values of an argument would have
the same cell, such as a list and a text of the same words, they are written as in JSON: `["a", "b"]` and `"a b"`.
If another column already has the name of an argument, the
argument's column is `argument_<name>`. This is also the column of the arguments `run_name` and `logging_dir`, and of
arguments whose names begin with `effective_`, `provenance_` or `measured_`. `--baseline`, `--pivot`, `--group-by`
and `--by` accept the argument's own name, too. The columns `provenance_<name>` describe the host and the software.

Memory from different sources is in different metrics: allocated (tensors) ≤ reserved (allocator) ≤ used on the device.
None of these metrics can be computed from another.
[method.md](method.md#why-three-numbers-called-tokens-per-second-differ) explains why three numbers are called tokens per
second, and by how much they differ.

*dtype* is the pandas type of a column. It is nullable: a missing value is NA. `tunebench.load` and Parquet files
(`--format parquet`) have these types. A CSV file has no types, and plain `read_csv` guesses them. To get the right ones,
use `pandas.read_csv(file, dtype=tunebench.dtypes(), keep_default_na=False, na_values=[""])`.

- A count of a run, such as `steps` or `discarded_steps`, is a whole number, but its mean over repeats may be 1.33. So
  its type is `Float64` here. `tunebench.load` and Parquet files have `Int64` if all values of the column are whole.
- An argument is `Int64` if it is a whole number in every row, else `string`.
- `provenance_<name>` is `string` unless it is listed below.
- A custom trainer's own number is `Float64` or `Int64`.
- If a value does not fit the type of its column (a word from a custom trainer, for example), the column is `string`.
"""


_SETTINGS = "The training process reads these from the built model, not from its arguments."


def _head(*titles: str) -> tuple[str, str]:
    return _row(*titles), _row(*["---"] * len(titles))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """Return the text of docs/metrics.md."""
    types = known()
    lines = [_INTRODUCTION, "## Metrics", ""]
    lines += _head("column", "unit", "dtype", "better", "mean", "what it is", "source", "what it leaves out")
    for m in METRICS.values():
        better = DASH if m.direction is Direction.NONE else m.direction.value
        mean = "geometric" if m.by_ratio else DASH
        cells = (m.unit or DASH, types[m.name], better, mean, m.description, m.source, m.leaves_out or DASH)
        lines.append(_row(f"`{m.name}`", *cells))
    lines += ["", "## Facts and outcome of an experiment", "", *_head("column", "dtype", "what it is", "source")]
    lines += [_row(f"`{fact.name}`", types[fact.name], fact.description, fact.source) for fact in FACTS.values()]
    lines += ["", "## Settings in effect", "", _SETTINGS, "", *_head("column", "dtype", "what it is")]
    lines += [_row(f"`effective_{name}`", types[f"effective_{name}"], text) for name, (_, text) in SETTINGS.items()]
    lines += ["", "## Other columns", "", *_head("column", "dtype", "what it is")]
    lines += [_row(f"`{name}`", dtype, text) for name, (dtype, text) in OTHERS.items()]
    return "\n".join(lines) + "\n"

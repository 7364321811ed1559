"""docs/metrics.md, made from the registry: every column with its unit, direction, source and what it leaves out.

A function from the registry to text; a test compares the page in the repository with it.
"""

from __future__ import annotations

from orchestrator.metrics import DASH, FACTS, METRICS, SETTINGS, Direction

_INTRODUCTION = """# Columns and metrics

Made from `orchestrator/metrics/`; a test holds the two together (`pytest --accept` writes this page anew).

`benchmarks.csv` has one row an experiment: every metric is the mean over its repeats that ended ok, `runs_ok` of
`runs` (the mean of their logarithms where *mean* says so). `raw_summary.csv` has one row a run and every column, `ranks.csv`
one a training process of each run, `devices.csv` one a watched GPU of each run. Files hold base units at full precision; an
empty cell is a missing value, never 0. Besides the columns below, every argument of the trainer is a column under its own
name, as the text that the trainer received (list items separated by blanks, `[]` for none; one that has the name of
another column is `argument_<name>`). Two sources of memory are two metrics: allocated (tensors) ≤ reserved
(allocator) ≤ used on the device, and no constant converts one into the other.
"""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The text of docs/metrics.md."""
    lines = [_INTRODUCTION, "## Metrics", ""]
    lines.append(_row("column", "unit", "better", "mean", "what it is", "source", "what it leaves out"))
    lines.append(_row(*["---"] * 7))
    for m in METRICS.values():
        better = DASH if m.direction is Direction.NONE else m.direction.value
        mean = "of logs" if m.by_ratio else DASH
        lines.append(_row(f"`{m.name}`", m.unit or DASH, better, mean, m.description, m.source, m.leaves_out or DASH))
    lines += ["", "## What an experiment was, and how it ended", "", _row("column", "what it is", "source")]
    lines.append(_row(*["---"] * 3))
    lines += [_row(f"`{fact.name}`", fact.description, fact.source) for fact in FACTS.values()]
    lines += ["", "## What took effect", ""]
    lines += ["Read off the built model in the training process, not echoed from the arguments.", ""]
    lines += [_row("column", "what it is"), _row(*["---"] * 2)]
    lines += [_row(f"`effective_{name}`", text) for name, text in SETTINGS.items()]
    return "\n".join(lines) + "\n"

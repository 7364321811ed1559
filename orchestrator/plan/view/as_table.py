"""A plan as a table for a terminal of any width."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text as Line

from orchestrator.files.printable_text import joined_lines
from orchestrator.files.redaction import Redactor, redactor
from orchestrator.plan.cells import ACCUMULATION, BATCH, EFFECTIVE, MODEL
from orchestrator.plan.expand import Plan, has_id
from orchestrator.records import Experiment
from orchestrator.records.labels import Cell, assignments, differing

if TYPE_CHECKING:  # most plans need no forecast
    from orchestrator.plan.forecast.outlook import Outlook

ROWS_SHOWN = 200
HEADINGS = (
    *("scenario", "environment", "framework", "model", "arguments", "nodes", "GPUs", "batch", "times", "trainer"),
    *("memory", "GPU-hours", "id", "state"),
)
NAMES = ("scenario", "environment", "framework", "model", "arguments", "trainer")
FLEXIBLE = frozenset({*NAMES, "memory", "state"})
TO_THE_RIGHT = ("nodes", "GPUs", "batch", "times", "GPU-hours")
# Columns whose values often have equal beginnings, such as config:llama-1b or max_seq_len=2048. They are cut in the middle, and
# keep one part of their beginning for each ENDS parts of their end.
ENDS_DIFFER, ENDS = frozenset({"model", "arguments"}), 2
GAP, MIN_WIDTH = "  ", 4
# If a column of names would be cut to fewer characters than this, the names have a line of their own.
READABLE = 8
GOOD_STATES, BOLD, YELLOW = ("ready", "runs"), Style(bold=True), Style(color="yellow")


def table(plan: Plan, *, width: int, outlook: Outlook | None = None) -> Group:
    """Return the first 200 experiments, one per row, for a terminal of `width` columns. A forecast (`outlook`) adds columns.

    Values that are the same in all rows appear once, above the table. If names would be cut until they look alike or cannot be
    read, each row has two lines: its names, then its other values.
    """
    shown = plan.experiments[:ROWS_SHOWN]
    axes = _shown_arguments(shown)
    redact = redactor()
    added = outlook.cells(shown) if outlook else [{}] * len(shown)
    pairs = zip(shown, added, strict=True)
    rows = [_row(experiment, axes[experiment.scenario], redact, added=texts) for experiment, texts in pairs]
    if all(experiment.num_nodes == 1 for experiment in shown):
        rows = [{**row, "nodes": ""} for row in rows]
    if all(experiment.environment is None for experiment in shown):
        rows = [{**row, "environment": ""} for row in rows]
    if not rows:
        return Group(Line())
    constant = {name for name in HEADINGS if len({row[name] for row in rows}) == 1}
    constant -= {"id", "framework", "GPUs", "state"}
    header = {name: name for name in HEADINGS if name not in constant and any(row[name] for row in rows)}
    needs = {name: max(cell_len(row[name]) for row in (header, *rows)) for name in header}
    flexible = FLEXIBLE - {"memory", "state"} if outlook and outlook.elsewhere else FLEXIBLE
    widths = _fitted(needs, flexible, width)
    above = [name for name in NAMES if name in needs] if _are_unclear(rows, needs, widths) else []
    indent = [Segment(GAP)] if above else []
    if above:
        others = {name: need for name, need in needs.items() if name not in above}
        widths = _fitted(others, flexible, width - len(GAP))
    # Each row is a finished line, because rich takes many times as long to lay out a table.
    segments = [*_names(header, above, width, style=BOLD), *indent, *_line(header, widths, style=BOLD, of_state=BOLD)]
    for row in rows:
        segments += [*_names(row, above, width), *indent]
        segments += _line(row, widths, of_state=None if row["state"] in GOOD_STATES else YELLOW)
    same = ", ".join(
        f"{name} {rows[0][name]}" for name in HEADINGS if name in constant and rows[0][name] not in ("", "-")
    )
    return Group(*([Line(f"Same for all: {same}\n")] if same else []), Segments(segments))


def _shown_arguments(experiments: Sequence[Experiment]) -> dict[str, set[str]]:
    """Return, for each scenario, the arguments that differ and are not told by other columns.

    The column `batch` tells the factors of the batch, unless experiments with the same batch and GPUs have different factors.
    """
    axes = differing(map(_cell, experiments))
    for scenario, names in axes.items():
        own = [one for one in experiments if one.scenario == scenario]
        factors = {(one.num_gpus, one.global_batch, *map(one.arguments.get, (BATCH, ACCUMULATION))) for one in own}
        are_told = len(factors) == len({(gpus, batch) for gpus, batch, *_ in factors})
        names -= {EFFECTIVE, MODEL, *((BATCH, ACCUMULATION) if are_told else ())}
    return axes


def _cell(experiment: Experiment) -> Cell:
    framework = experiment.framework
    name, own = (framework.name, framework.arguments) if framework else (None, ())
    return Cell(experiment.scenario, name, own, experiment.arguments)


def _fitted(needs: Mapping[str, int], flexible: Collection[str], width: int) -> dict[str, int]:
    """Return the widths of the columns. Narrow flexible columns get their full width. Wide flexible columns share the rest."""
    room = width - sum(len(GAP) + (0 if name in flexible else need) for name, need in needs.items())
    cut: dict[str, int] = {}
    wanted = sorted((need, name) for name, need in needs.items() if name in flexible)
    for need, name in wanted:
        share = (room - sum(cut.values())) // (len(wanted) - len(cut))
        cut[name] = max(MIN_WIDTH, min(need, share))
    return {name: cut.get(name, need) for name, need in needs.items()}


def _are_unclear(rows: Sequence[Mapping[str, str]], needs: Mapping[str, int], widths: Mapping[str, int]) -> bool:
    """Return whether a column of names is cut so much that different names look alike, or that the names cannot be read."""
    for name in (name for name in NAMES if name in needs and widths[name] < needs[name]):
        texts = {row[name] for row in rows}
        shown = {_cut(text, widths[name], to_the_right=False, end=name in ENDS_DIFFER) for text in texts}
        if widths[name] < READABLE or len(shown) < len(texts):
            return True
    return False


def _names(row: Mapping[str, str], above: Sequence[str], width: int, *, style: Style | None = None) -> list[Segment]:
    """Return the lines above a row: its full names, with as many names on a line as fit. Return no lines if `above` is empty."""
    lines: list[str] = []
    for text in (row[name] for name in above if row[name]):
        if lines and cell_len(f"{lines[-1]} · {text}") <= width:
            lines[-1] += f" · {text}"
        else:
            lines.append(text)
    return [part for line in lines for part in (Segment(line, style), Segment.line())]


def _line(
    row: Mapping[str, str], widths: Mapping[str, int], *, style: Style | None = None, of_state: Style | None
) -> list[Segment]:
    """Return a line of the table. The last column, the state, has a style of its own."""
    ends = ENDS_DIFFER if style is None else ()
    *cells, state = (
        _cut(row[name], width, to_the_right=name in TO_THE_RIGHT, end=name in ends) for name, width in widths.items()
    )
    return [Segment(GAP.join([*cells, ""]), style), Segment(state, of_state), Segment.line()]


def _cut(text: str, width: int, *, to_the_right: bool, end: bool) -> str:
    """Return the text, cut or filled to this width. If it is too long, an ellipsis replaces its middle (if `end`) or its end."""
    missing = width - cell_len(text)
    if missing < 0 and end:
        begin = (width - 1) // (1 + ENDS)
        return set_cell_size(text, begin) + "…" + set_cell_size(text[::-1], width - 1 - begin)[::-1]
    if missing < 0:
        return set_cell_size(text, width - 1) + "…"
    return " " * missing + text if to_the_right else text + " " * missing


def _row(
    experiment: Experiment, axes: Collection[str], redact: Redactor, *, added: Mapping[str, str]
) -> dict[str, str]:
    state = "ready" if has_id(experiment) else "to build"
    if experiment.skip:
        state = f"skip: {experiment.skip.kind}"
    elif experiment.cannot_run_here:
        state = f"not here: {experiment.cannot_run_here.kind}"
    repeats = f"{experiment.repeats}–{experiment.most_repeats}" if experiment.adaptive else str(experiment.repeats)
    texts = {
        "id": experiment.id.rsplit("-", 1)[-1] if has_id(experiment) else "-",
        "scenario": experiment.scenario,
        "environment": experiment.environment.name if experiment.environment else "none",
        "framework": experiment.framework.name if experiment.framework else "none",
        "model": experiment.model,
        "arguments": assignments(experiment, axes),
        "nodes": str(experiment.num_nodes),
        "GPUs": f"{experiment.num_gpus}{' (cpu)' if experiment.device == 'cpu' else ''}",
        "batch": str(experiment.global_batch or "-"),
        "times": f"{repeats}×",
        "trainer": experiment.trainer,
        "memory": "",
        "GPU-hours": "",
        **added,
    }
    return {name: joined_lines(redact(text)).expandtabs() for name, text in texts.items()} | {
        "state": added.get("state", state)
    }

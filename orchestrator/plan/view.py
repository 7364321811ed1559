"""A plan as a table, as one JSON document, or as a list of the runs' shell commands. Prints nothing.

The document and the commands are generators, so that a plan of 100,000 cells needs little memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text as Line

from orchestrator.files.printable_text import counted, printable, shell_word
from orchestrator.files.redaction import MASK, is_secret_name, redact_words, redactor
from orchestrator.plan.cells import ACCUMULATION, BATCH, EFFECTIVE, MODEL
from orchestrator.plan.command import build_command
from orchestrator.plan.expand import Plan
from orchestrator.records import Command, Experiment, Reason, as_items
from orchestrator.trainers import get as get_trainer

if TYPE_CHECKING:  # most plans need no forecast
    from orchestrator.plan.forecast.outlook import Outlook

ROWS_SHOWN = 200
HEADINGS = (
    *("id", "scenario", "framework", "model", "arguments", "GPUs", "batch", "times", "trainer", "memory", "GPU-hours"),
    "state",
)
FLEXIBLE = frozenset({"scenario", "framework", "model", "arguments", "trainer", "memory", "state"})
TO_THE_RIGHT = ("GPUs", "batch", "times", "GPU-hours")
# Columns whose values often begin alike: config:llama-1b, max_seq_len=2048.
ENDS_DIFFER = frozenset({"model", "arguments"})
GAP, MIN_WIDTH = "  ", 4
GOOD_STATES, BOLD, YELLOW = ("ready", "runs"), Style(bold=True), Style(color="yellow")
IN_COLUMNS = frozenset({EFFECTIVE, MODEL, BATCH, ACCUMULATION})
REASONS_SHOWN = 12
Redactor = Callable[[str], str]
RUN_DIR, GPUS, PORT = Path("{run_dir}"), "{gpus}", "{port}"


def planned_command(experiment: Experiment, python: str) -> Command:
    """Return the command of a run, with `{gpus}`, `{port}` and `{run_dir}` for values that are known only at launch."""
    return build_command(
        experiment, python=experiment.python or python, gpus=GPUS, run_dir=RUN_DIR, port=PORT, files=False
    )


def json_document(plan: Plan, python: str, *, outlook: Outlook | None = None) -> Iterator[str]:
    """Yield the pieces of one JSON document: `experiments`, `collapsed`, `notes`, and the totals of an outlook."""
    redact = redactor()
    masked = _masker(redact)
    yield '{"experiments": ['
    for index, experiment in enumerate(plan.experiments):
        document = _experiment(experiment, python, redact, masked)
        if outlook is not None:
            document |= outlook.document(experiment)
        yield (",\n" if index else "\n") + json.dumps(document)
    yield '\n],\n"collapsed": ['
    for index, duplicate in enumerate(plan.collapsed):
        yield (",\n" if index else "\n") + json.dumps(masked({"id": duplicate.id, **_cell(duplicate)}))
    yield "\n],\n"
    for name, value in (outlook.totals(plan.experiments) if outlook else {}).items():
        yield f'"{name}": {json.dumps(value)},\n'
    yield f'"notes": {json.dumps(masked(list(plan.notes)))}}}\n'


def _masker(redact: Redactor) -> Callable[[Any], Any]:
    """Return a function that masks all texts in a value.

    It caches the texts in mappings, because a large plan has millions of them.
    """

    @lru_cache(maxsize=65536)
    def named(name: str, text: str) -> str:
        return MASK if text and is_secret_name(name) else redact(text)

    def masked(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: named(name, item)
                if type(item) is str
                else MASK
                if item and is_secret_name(name)
                else masked(item)
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [masked(item) for item in value]
        return redact(value) if isinstance(value, str) else value

    return masked


def _cell(experiment: Experiment) -> dict[str, Any]:
    return {
        "scenario": experiment.scenario,
        "framework_config": experiment.framework.name if experiment.framework else None,
        "model_name_or_path": experiment.model,
        "num_gpus": experiment.num_gpus,
    }


def _experiment(experiment: Experiment, python: str, redact: Redactor, masked: Callable[[Any], Any]) -> dict[str, Any]:
    """Return an experiment's entry in the document, with secrets masked."""
    command = planned_command(experiment, python)
    received = get_trainer(experiment.trainer).arguments(experiment, RUN_DIR)
    stem, _, digest = experiment.id.rpartition("-")
    return {
        "id": f"{redact(stem)}-{digest}",  # the result for the stem is remembered; the digest contains nothing secret
        **masked(_cell(experiment)),
        "device": experiment.device,
        "trainer": experiment.trainer,
        "global_batch": experiment.global_batch,
        "arguments": masked(received),
        "environment": {name: redact(value) for name, value in _variables(command).items()},
        "command": redact_words(command.argv, redact),
        "repeats": asdict(experiment.adaptive) if experiment.adaptive else experiment.repeats,
        "skip": masked(_reason(experiment.skip)),
        "cannot_run_here": masked(_reason(experiment.cannot_run_here)),
    }


def _variables(command: Command) -> dict[str, str]:
    """Return the variables that are set, with secrets masked."""
    return {name: MASK if is_secret_name(name) else value for name, value in command.env.items() if value is not None}


def shell_line(command: Command, redact: Redactor) -> str:
    """Return the command as one shell line: variables, then argv; `env -u NAME` unsets a variable."""
    unset = [word for name, value in command.env.items() if value is None for word in ("-u", name)]
    variables = [f"{name}={shell_word(redact(value))}" for name, value in _variables(command).items()]
    words = map(shell_word, redact_words(command.argv, redact))
    return " ".join([*(["env", *unset] if unset else []), *variables, *words])


def _reason(reason: Reason | None) -> dict[str, str] | None:
    return {"kind": reason.kind, "reason": reason.text} if reason else None


def command_lines(experiments: Iterable[Experiment], python: str) -> Iterator[str]:
    """Yield for each experiment a comment with its id, and the shell line of its run."""
    redact = redactor()
    for experiment in experiments:
        reason = experiment.skip or experiment.cannot_run_here
        note = f"  ({'skipped' if experiment.skip else 'cannot run here'}: {reason.text})" if reason else ""
        yield f"# {experiment.id}{_one_line(note)}\n{shell_line(planned_command(experiment, python), redact)}\n"


def _one_line(text: str) -> str:
    """Return a text as one line. The second line of a comment would be a command. The second line of a cell would be a new row."""
    return printable(" ".join(text.splitlines()))


def table(plan: Plan, *, width: int, outlook: Outlook | None = None) -> Group:
    """Return the first 200 experiments, one per row, for a terminal of `width` columns. An outlook adds its own columns.

    Values that are the same in all rows appear once, above the table. A terminal of less than about 75 columns shows only the first
    columns.
    """
    shown = plan.experiments[:ROWS_SHOWN]
    axes = _axes(shown)
    redact = redactor()
    added = outlook.cells(shown) if outlook else [{}] * len(shown)
    pairs = zip(shown, added, strict=True)
    rows = [_row(experiment, axes[experiment.scenario], redact, added=texts) for experiment, texts in pairs]
    if not rows:
        return Group(Line())
    constant = {name for name in HEADINGS if len({row[name] for row in rows}) == 1}
    constant -= {"id", "framework", "GPUs", "state"}
    header = {name: name for name in HEADINGS if name not in constant and any(row[name] for row in rows)}
    widths = {name: max(cell_len(row[name]) for row in (header, *rows)) for name in header}
    flexible = FLEXIBLE - {"memory", "state"} if outlook and outlook.elsewhere else FLEXIBLE
    if outlook and outlook.elsewhere and sum(widths.values()) + len(GAP) * len(widths) > width:
        del widths["id"]  # no run has it, and the other columns need the room
    fixed = sum(len(GAP) + (0 if name in flexible else need) for name, need in widths.items())
    widths |= _fitted({name: need for name, need in widths.items() if name in flexible}, width - fixed)
    # Each row is a finished line: rich needs many times as long to lay out a table.
    segments = _line(header, widths, style=BOLD, of_state=BOLD)
    for row in rows:
        segments += _line(row, widths, of_state=None if row["state"] in GOOD_STATES else YELLOW)
    same = ", ".join(f"{name} {rows[0][name]}" for name in HEADINGS if name in constant and rows[0][name])
    return Group(*([Line(f"Same for all: {same}\n")] if same else []), Segments(segments))


def _fitted(needs: Mapping[str, int], room: int) -> dict[str, int]:
    """Return the widths of columns that may be cut: narrow columns get their full width, wide ones share the rest."""
    widths: dict[str, int] = {}
    for name, need in sorted(needs.items(), key=lambda item: item[1]):
        share = (room - sum(widths.values())) // (len(needs) - len(widths))
        widths[name] = max(MIN_WIDTH, min(need, share))
    return widths


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
    """Return the text in this width. A longer text is cut with an ellipsis: its beginning is cut if `end`, else its end."""
    missing = width - cell_len(text)
    if missing < 0 and end:
        return "…" + set_cell_size(text[::-1], width - 1)[::-1]
    if missing < 0:
        return set_cell_size(text, width - 1) + "…"
    return " " * missing + text if to_the_right else text + " " * missing


def _axes(experiments: Sequence[Experiment]) -> dict[str, set[str]]:
    """Return the arguments of each scenario that distinguish experiments with equal values in the other columns."""
    firsts: dict[tuple[Any, ...], Experiment] = {}
    axes: dict[str, set[str]] = {}
    for experiment in experiments:
        framework = experiment.framework and experiment.framework.name
        first = firsts.setdefault((experiment.scenario, experiment.model, experiment.num_gpus, framework), experiment)
        names = {name for name, _ in experiment.arguments.items() ^ first.arguments.items()}
        axes.setdefault(experiment.scenario, set()).update(names - IN_COLUMNS)
    return axes


def _row(
    experiment: Experiment, axes: Collection[str], redact: Redactor, *, added: Mapping[str, str]
) -> dict[str, str]:
    state = "ready"
    if experiment.skip:
        state = f"skip: {experiment.skip.kind}"
    elif experiment.cannot_run_here:
        state = f"not here: {experiment.cannot_run_here.kind}"
    repeats = f"{experiment.repeats}–{experiment.adaptive.max}" if experiment.adaptive else str(experiment.repeats)
    texts = {
        "id": experiment.id.rsplit("-", 1)[-1],
        "scenario": experiment.scenario,
        "framework": experiment.framework.name if experiment.framework else "none",
        "model": experiment.model,
        "arguments": " ".join(
            f"{name}={MASK if is_secret_name(name) else ','.join(as_items(value))}"
            for name, value in experiment.arguments.items()
            if name in axes
        ),
        "GPUs": f"{experiment.num_gpus}{' (cpu)' if experiment.device == 'cpu' else ''}",
        "batch": str(experiment.global_batch or "-"),
        "times": f"{repeats}×",
        "trainer": experiment.trainer,
        "memory": "",
        "GPU-hours": "",
        **added,
    }
    return {name: _one_line(redact(text)).expandtabs() for name, text in texts.items()} | {
        "state": added.get("state", state)
    }


def summary(plan: Plan, *, outlook: Outlook | None = None) -> list[str]:
    """Return the lines below the table: totals, duplicates, reasons for not running, the lines of an outlook, notes."""
    experiments = plan.experiments
    lines = [] if outlook and outlook.elsewhere else [_to_do(experiments)]
    if len(experiments) > ROWS_SHOWN:
        lines.append(f"The first {ROWS_SHOWN} rows are shown; use --json or --commands to see all {len(experiments)}.")
    if plan.collapsed:
        same = Counter(duplicate.id for duplicate in plan.collapsed)
        examples = ", ".join(f"{name} ({times + 1}×)" for name, times in same.most_common(3))
        more = ", …" if len(same) > 3 else ""
        lines.append(f"{counted(len(plan.collapsed), 'duplicate')} left out, each runs once: {examples}{more}")
    if not (outlook and outlook.elsewhere):
        lines += _reasons(experiments)
    if outlook is not None:
        lines += outlook.lines(experiments)
    return lines + [f"note: {note}" for note in plan.notes]


def _to_do(experiments: Sequence[Experiment]) -> str:
    ready = [experiment for experiment in experiments if not (experiment.skip or experiment.cannot_run_here)]
    least, most = sum(experiment.repeats for experiment in ready), sum(experiment.most_repeats for experiment in ready)
    runs = counted(least, "run") if least == most else f"{least:,} to {counted(most, 'run')}"
    return f"{counted(len(experiments), 'experiment')}, {runs} to do here."


def _reasons(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yield the reasons why experiments are skipped or cannot run here, the most frequent first."""
    skipped = Counter(experiment.skip for experiment in experiments if experiment.skip)
    elsewhere = Counter(
        experiment.cannot_run_here for experiment in experiments if experiment.cannot_run_here and not experiment.skip
    )
    for label, reasons in (("skipped", skipped), ("cannot run here", elsewhere)):
        for reason, times in reasons.most_common(REASONS_SHOWN):
            yield f"{label} ({reason.kind}), {times}×: {reason.text}"
        if len(reasons) > REASONS_SHOWN:
            yield f"{label}: {len(reasons) - REASONS_SHOWN} more reasons; use --json to see all"

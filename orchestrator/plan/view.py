"""A plan shown: as a table, as one JSON document, or as the shell line of every run. Values to text; prints nothing.

The document and the lines are made piece by piece, so that 100,000 cells stream.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text as Line

from orchestrator.files.printable_text import counted, printable, shell_word
from orchestrator.files.redaction import MASK, is_secret_name, redact_words, redactor
from orchestrator.plan.cells import Duplicate
from orchestrator.plan.command import build_command
from orchestrator.plan.expand import Plan
from orchestrator.records import Command, Experiment, Reason, as_items
from orchestrator.results.due_runs import most_repeats
from orchestrator.trainers import get as get_trainer

ROWS_SHOWN = 200
HEADINGS = ("id", "scenario", "framework", "model", "arguments", "GPUs", "batch", "times", "trainer", "memory", "state")
FLEXIBLE = ("scenario", "framework", "model", "arguments", "trainer", "memory", "state")
GAP, MIN_WIDTH = 2, 4
IN_COLUMNS = frozenset(
    {"effective_batch_size", "model_name_or_path", "per_device_train_batch_size", "gradient_accumulation_steps"}
)
Justify = Literal["left", "right"]
Masked = Callable[[str], str]
"""A text with its secrets masked."""

RUN_DIR, GPUS, PORT = Path("{run_dir}"), "{gpus}", "{port}"


def planned_command(experiment: Experiment, python: str) -> Command:
    """The command of a run, with `{gpus}` `{port}` `{run_dir}` for what is only known at launch."""
    return build_command(
        experiment, python=experiment.python or python, gpus=GPUS, run_dir=RUN_DIR, port=PORT, files=False
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """Whether memory is estimated, and the GPU's that it is held against, in bytes (None: against none)."""

    memory_bytes: int | None = None


def card(*, fit: bool, gpu_memory: str | None) -> Card | None:
    """What `--fit` and `--gpu-memory` ask for; the latter implies the former. Raises SelectionError for no amount of memory."""
    if gpu_memory is None:
        return Card() if fit else None
    from orchestrator.plan.memory_fit import parse_memory

    return Card(memory_bytes=parse_memory(gpu_memory))


def json_document(plan: Plan, python: str, *, fit: Card | None = None) -> Iterator[str]:
    """One JSON document, in pieces: `experiments`, `collapsed`, `notes`."""
    masked = redactor()
    yield '{"experiments": ['
    for index, experiment in enumerate(plan.experiments):
        document = _experiment(experiment, python, masked)
        if fit is not None:
            from orchestrator.plan.memory_fit import json_value

            document["memory"] = json_value(experiment, gpu_memory_bytes=fit.memory_bytes)
        yield (",\n" if index else "\n") + json.dumps(document)
    yield '\n],\n"collapsed": ['
    for index, duplicate in enumerate(plan.collapsed):
        yield (",\n" if index else "\n") + json.dumps(_masked(_duplicate(duplicate), masked))
    yield f'\n],\n"notes": {json.dumps(_masked(list(plan.notes), masked))}}}\n'


def _masked(value: Any, masked: Masked) -> Any:
    """A value with all its texts masked. Most stand in a mapping, and cost no call of their own: a large plan has millions."""
    if isinstance(value, dict):
        return {
            name: MASK
            if item and is_secret_name(name)
            else masked(item)
            if type(item) is str
            else _masked(item, masked)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_masked(item, masked) for item in value]
    return masked(value) if isinstance(value, str) else value


def _experiment(experiment: Experiment, python: str, masked: Masked) -> dict[str, Any]:
    """What the document says of an experiment, masked."""
    command = planned_command(experiment, python)
    received = get_trainer(experiment.trainer).arguments(experiment, RUN_DIR)
    document = {
        "id": experiment.id,
        "scenario": experiment.scenario,
        "framework_config": experiment.framework.name if experiment.framework else None,
        "model_name_or_path": experiment.model,
        "num_gpus": experiment.num_gpus,
        "device": experiment.device,
        "trainer": experiment.trainer,
        "global_batch": experiment.global_batch,
        "arguments": {name: list(value) if isinstance(value, tuple) else value for name, value in received.items()},
        "environment": _variables(command),
        "command": None,
        "repeats": asdict(experiment.adaptive) if experiment.adaptive else experiment.repeats,
        "skip": _reason(experiment.skip),
        "cannot_run_here": _reason(experiment.cannot_run_here),
    }
    return {**_masked(document, masked), "command": redact_words(command.argv, masked)}


def _variables(command: Command) -> dict[str, str]:
    """The variables that are set, secrets masked."""
    named = ((name, value) for name, value in command.env.items() if value is not None)
    return {name: MASK if is_secret_name(name) else value for name, value in named}


def shell_line(command: Command, masked: Masked) -> str:
    """The command as one line to read or paste: variables, then argv. What is unset stands as `env -u NAME`."""
    unset = [word for name, value in command.env.items() if value is None for word in ("-u", name)]
    variables = [f"{name}={shell_word(masked(value))}" for name, value in _variables(command).items()]
    words = map(shell_word, redact_words(command.argv, masked))
    return " ".join([*(["env", *unset] if unset else []), *variables, *words])


def _reason(reason: Reason | None) -> dict[str, str] | None:
    return {"kind": reason.kind, "reason": reason.text} if reason else None


def _duplicate(duplicate: Duplicate) -> dict[str, Any]:
    return {
        "id": duplicate.id,
        "scenario": duplicate.scenario,
        "framework_config": duplicate.framework,
        "model_name_or_path": duplicate.model,
        "num_gpus": duplicate.num_gpus,
    }


def command_lines(experiments: Iterable[Experiment], python: str) -> Iterator[str]:
    """A comment with the id and the shell line of each experiment's run."""
    masked = redactor()
    for experiment in experiments:
        reason = experiment.skip or experiment.cannot_run_here
        note = f"  ({'skipped' if experiment.skip else 'cannot run here'}: {reason.text})" if reason else ""
        yield f"# {experiment.id}{_one_line(note)}\n{shell_line(planned_command(experiment, python), masked)}\n"


def _one_line(text: str) -> str:
    """A comment that goes on in the next line would be a command there."""
    return printable(" ".join(text.splitlines()))


def table(plan: Plan, *, width: int, fit: Card | None = None) -> Group:
    """The first 200 experiments, a row each, for a terminal of `width` columns; with `fit` the memory that each would take.

    What is the same for all of them stands above the table, once.
    """
    shown = plan.experiments[:ROWS_SHOWN]
    apart = _told_apart(shown)
    memory = _memory(shown, fit)
    masked = redactor()
    rows = [_row(one, apart[one.scenario], masked, memory=cell) for one, cell in zip(shown, memory, strict=True)]
    constant = {name for name in HEADINGS if len({str(row[name]) for row in rows}) == 1}
    constant -= {"id", "framework", "GPUs", "state"}
    # One cell a column, a line a row: a table of rows would cost ten times as much to lay out.
    view = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    columns = [name for name in HEADINGS if name not in constant and any(str(row[name]) for row in rows)]
    widths = {name: max(cell_len(text) for text in (name, *(str(row[name]) for row in rows))) for name in columns}
    fitted = _fitted({name: widths[name] for name in columns if name in FLEXIBLE}, width - _taken(widths))
    for name in columns:
        justify: Justify = "right" if name in ("GPUs", "batch", "times") else "left"
        view.add_column(name, justify=justify, overflow="ellipsis", no_wrap=True, width=fitted.get(name, widths[name]))
    if rows:
        view.add_row(*(Line("\n").join(row[name] for row in rows) for name in columns))
    same = ", ".join(f"{name} {rows[0][name]}" for name in HEADINGS if name in constant and str(rows[0][name]))
    return Group(Line(f"Same for all: {same}\n"), view) if same else Group(view)


def _taken(widths: Mapping[str, int]) -> int:
    """The width of the columns that are never cut, and of the gaps."""
    return GAP * len(widths) + sum(width for name, width in widths.items() if name not in FLEXIBLE)


def _fitted(needs: Mapping[str, int], room: int) -> dict[str, int]:
    """Widths for columns that may be cut: the narrow ones get what they need, the wide ones share what is left."""
    given: dict[str, int] = {}
    for name, need in sorted(needs.items(), key=lambda item: item[1]):
        share = (room - sum(given.values())) // (len(needs) - len(given))
        given[name] = max(MIN_WIDTH, min(need, share))
    return given


def _told_apart(experiments: Sequence[Experiment]) -> dict[str, frozenset[str]]:
    """For each scenario, the arguments in which experiments differ that the other columns show alike: its axes."""
    alike: dict[tuple[Any, ...], Experiment] = {}
    differing: dict[str, set[str]] = {}
    for one in experiments:
        first = alike.setdefault((one.scenario, one.model, one.num_gpus, one.framework and one.framework.name), one)
        every = one.arguments.keys() | first.arguments.keys()
        names = {name for name in every if one.arguments.get(name) != first.arguments.get(name)}
        differing.setdefault(one.scenario, set()).update(names - IN_COLUMNS)
    return {scenario: frozenset(names) for scenario, names in differing.items()}


def _memory(shown: Sequence[Experiment], fit: Card | None) -> Sequence[str]:
    if fit is None:
        return [""] * len(shown)
    from orchestrator.plan.memory_fit import column

    return column(shown, gpu_memory_bytes=fit.memory_bytes)


def _row(experiment: Experiment, apart: frozenset[str], masked: Masked, *, memory: str) -> dict[str, Line]:
    state = Line("ready")
    if experiment.skip:
        state = Line(f"skip: {experiment.skip.kind}", style="yellow")
    elif experiment.cannot_run_here:
        state = Line(f"not here: {experiment.cannot_run_here.kind}", style="yellow")
    told = ((name, value) for name, value in experiment.arguments.items() if name in apart)
    texts = {
        "id": experiment.id.rsplit("-", 1)[-1],
        "scenario": experiment.scenario,
        "framework": experiment.framework.name if experiment.framework else "none",
        "model": experiment.model,
        "arguments": " ".join(
            f"{name}={MASK if is_secret_name(name) else ','.join(as_items(value))}" for name, value in told
        ),
        "GPUs": f"{experiment.num_gpus}{' (cpu)' if experiment.device == 'cpu' else ''}",
        "batch": str(experiment.global_batch or "-"),
        "times": f"{experiment.repeats}–{experiment.adaptive.max}×"
        if experiment.adaptive
        else f"{experiment.repeats}×",
        "trainer": experiment.trainer,
        "memory": memory,
    }
    # A text of several lines would push all other columns out of step.
    return {name: Line(_one_line(masked(text))) for name, text in texts.items()} | {"state": state}


def summary(plan: Plan, *, fit: Card | None = None) -> list[str]:
    """Totals, then each reason for not running with how many it concerns, what fits, then the notes."""
    ready = [one for one in plan.experiments if not (one.skip or one.cannot_run_here)]
    total = len(plan.experiments)
    least, most = sum(one.repeats for one in ready), sum(most_repeats(one) for one in ready)
    runs = counted(least, "run") if least == most else f"{least:,} to {counted(most, 'run')}"
    lines = [f"{counted(total, 'experiment')}, {runs} to do here."]
    if total > ROWS_SHOWN:
        lines.append(f"The first {ROWS_SHOWN} rows are shown; --json and --commands give all {total}.")
    if plan.collapsed:
        same = Counter(duplicate.id for duplicate in plan.collapsed)
        examples = ", ".join(f"{name} ({times + 1}×)" for name, times in same.most_common(3))
        lines.append(
            f"{counted(len(plan.collapsed), 'duplicate')} collapsed, each run once: {examples}{', …' if len(same) > 3 else ''}"
        )
    skipped = Counter((one.skip.kind, one.skip.text) for one in plan.experiments if one.skip)
    elsewhere = Counter(
        (one.cannot_run_here.kind, one.cannot_run_here.text)
        for one in plan.experiments
        if one.cannot_run_here and not one.skip
    )
    for label, reasons in (("skipped", skipped), ("cannot run here", elsewhere)):
        lines += [f"{label} ({kind}), {times}×: {text}" for (kind, text), times in reasons.most_common(12)]
        if len(reasons) > 12:
            lines.append(f"{label}: {len(reasons) - 12} more reasons, all in --json")
    if fit is not None and fit.memory_bytes is not None:
        from orchestrator.plan.memory_fit import summary as how_many_fit

        lines.append(how_many_fit(plan.experiments, gpu_memory_bytes=fit.memory_bytes))
    return lines + [f"note: {note}" for note in plan.notes]

"""The columns that people see, and their order: the same choice for the terminal, Markdown and `tunebench.load`. Pure.

A table has three parts: the facts that distinguish the experiments, the numbers that people ask for first, and the outcome. The
terminal leaves out further columns, which do not fit. `results.table.column_choice` has the rules for constant columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.measure.metrics import METRICS
from orchestrator.records.labels import Cell, differing
from orchestrator.report.highlights.gains import PADDING
from orchestrator.report.highlights.highlight import known_of
from orchestrator.report.highlights.scaling import doubtful_scalings
from orchestrator.results.table.axes import arguments_in, arguments_of
from orchestrator.results.table.baseline import COMPARED_WITH, ENERGY, STEADY_SPEEDS
from orchestrator.results.table.column_choice import (
    BOOKKEEPING,
    DETAILS,
    FILE_NAMES,
    WHOLE_SPEEDS,
    Split,
    always_shown,
    choose,
    column,
    for_people,
    has_values,
    headline,
    matches,
    speeds,
    varying,
)
from orchestrator.results.table.references import FRAMEWORK
from orchestrator.results.table.rows import NO_FRAMEWORK
from orchestrator.results.table.sources.costs import OF_TOKENS, TO_FINISH

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

# For each column whose values may be in doubt, whether the value of each row is.
Marks = Mapping[str, Sequence[bool]]

# These columns come before the other metrics if rows are padded, since speeds that count padding as work cannot be compared.
PADDED = ("real_tokens_per_s",)
OUTCOME = ("status", "runs_ok", "runs", "failure_kind", "failure_cause", "failure_hint")
# The notebook has these columns even if all rows agree: the run of a row, the number of its runs, and the key of the row.
_OF_THE_ROW, _KEY = ("repeat", "attempt", "runs_ok", "runs"), "id"
# The speeds and times that a doubt about their row makes doubtful, and what is computed with them.
DOUBTFUL = (
    *(*STEADY_SPEEDS, *WHOLE_SPEEDS, "labelled_tokens_per_s", "pairs_per_s", "steps_per_s", "train_steps_per_second"),
    *("tokens_per_s_per_gpu", "real_tokens_per_s_per_gpu", "tflops_per_s_per_gpu", "mfu", "hfu", ENERGY),
    *("reported_step_time_s", "reported_tokens_per_s", "reported_tflops_per_s_per_gpu", OF_TOKENS, TO_FINISH),
    *(
        "time_to_target_s",
        "cost_to_target",
        "host_time_s",
        "device_time_s",
        "operator_tflops_per_s",
        "operator_bytes_per_s",
    ),
)
_SCALING = "scaling_efficiency"
# The factors of the batch follow from the batch and the processes.
_FACTORS = ("per_device_train_batch_size", "gradient_accumulation_steps")


def for_markdown(
    frame: pd.DataFrame, *, keep: Iterable[str] = (), drop: Iterable[str] = ()
) -> tuple[Split, tuple[str, ...]]:
    """Return two values: the columns of the Markdown table, and the metrics that it shows in any case.

    `keep` and `drop` are the user's lists.
    """
    unwanted = tuple(drop)
    keep, drop = choose(keep, unwanted)
    first = always_shown(frame, drop=unwanted)
    return varying(frame, keep=(*keep, *first), drop=(*drop, *DETAILS)), first


def facts_and(metrics: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the columns in `names` that are not metrics, and those of the given metrics. The metrics may be patterns."""
    return [name for name in names if name not in METRICS or matches(name, metrics)]


def in_order(frame: pd.DataFrame, names: Iterable[str], *, own: Sequence[str] = ()) -> list[str]:
    """Return columns in the order of a table: facts, the first metrics, other metrics, the outcome.

    Metrics that only the user's scenarios define (`own`) follow the speeds.
    """
    shown = for_people(names)
    first = (*(PADDED if is_padded(frame) else ()), *speeds(frame), *own, *headline(frame))
    facts = [name for name in shown if name not in METRICS and name not in OUTCOME and name not in own]
    measured = [name for name in dict.fromkeys(first) if name in shown and name not in facts]
    others = [name for name in shown if name in METRICS and name not in measured]
    return [*facts, *measured, *others, *(name for name in OUTCOME if name in shown)]


def is_padded(frame: pd.DataFrame) -> bool:
    return "padding_share" in frame and bool((frame["padding_share"] > PADDING).any())


def short(frame: pd.DataFrame, *, keep: Sequence[str] = ()) -> list[str]:
    """Return the columns of a short view, in order: those of the Markdown table that have values, the row's runs, and its id.

    The columns in `keep` stay even if they have no values.
    """
    split, first = for_markdown(frame, keep=(*_OF_THE_ROW, *keep))
    wanted = (*first, COMPARED_WITH, *_OF_THE_ROW, *keep, *(PADDED if is_padded(frame) else ()))
    names = facts_and(wanted, map(str, split.shown.columns))
    shown = [name for name in names if name in keep or has_values(frame, name)]
    return [*in_order(frame, shown), _KEY]


def given(table: ResultsTable) -> list[str]:
    """Return the arguments that differ between experiments of a scenario, in reading order, without the factors of the batch.

    An argument of `include:` may differ only together with the framework or the counts, so no other column tells its values. If it
    is unknown what a framework configuration sets, it may set every argument.
    """
    frame, every = table.experiments, arguments_in(table)
    of_frameworks: Mapping[str, Collection[str]] = {NO_FRAMEWORK: (), **table.framework_arguments}
    places = (column(frame, name) for name in ("results", "scenario", FRAMEWORK))
    cells = (
        Cell((results, scenario), framework, of_frameworks.get(str(framework), every), dict(arguments))
        for results, scenario, framework, arguments in zip(*places, arguments_of(table), strict=True)
    )
    found = {name for names in differing(cells).values() for name in names}
    return for_people(found.difference(_FACTORS, FILE_NAMES, BOOKKEEPING))


def marks(table: ResultsTable) -> Marks:
    """Return which values are in doubt, so that they must not be compared. A reader sees a mark after them.

    A scaling is in doubt if the speed of its row or of the smallest count is.
    """
    known = known_of(table)
    doubted = [known.in_doubt(row) for row in range(len(table.experiments))]
    of_scaling = doubtful_scalings(known) if _SCALING in table.experiments else ()
    scaled = [is_doubted or row in of_scaling for row, is_doubted in enumerate(doubted)]
    return dict.fromkeys(DOUBTFUL, doubted) | {_SCALING: scaled}

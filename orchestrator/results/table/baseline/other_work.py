"""Decide which metrics cannot compare two experiments, because an argument that differs changes the work that they measure. Pure.

A larger batch makes more work of a step, so the times of its steps do not tell which experiment is faster. The same is true for
losses and for numbers of steps. Memory is compared in any case, and rates per token unless they count other padding. Arguments of
Tunebench's trainers are known by their whole names. For axes of other trainers, whole words of their names count, and the sections
before a name do not. Arguments of evaluation, logging and saving change no work that is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import cache

from orchestrator.measure.metrics import METRICS, metric
from orchestrator.results.table import aggregate
from orchestrator.results.table.rows import PREFIX


class Work(Enum):
    """The work that a metric measures, and that an argument may change."""

    STEP = auto()
    SAMPLE = auto()
    RUN = auto()  # how much is trained
    CALL = auto()  # one call of an operator
    ROUND = auto()  # one benchmark of pytest-benchmark
    GPUS = auto()  # the number of GPUs that a rate per GPU is divided by
    PADDING = auto()  # how many tokens of a batch are padding


# Patterns of whole names, whose words are joined by `_`, and the work that such an argument changes.
_ARGUMENTS: tuple[tuple[str, tuple[Work, ...]], ...] = (
    ("num_gpus|world_size", (Work.STEP, Work.CALL, Work.GPUS)),
    # The batches of a program that prepares data are none of a training. batch_size_per_device, train_micro_batch_size_per_gpu
    (
        "(?!.*(auto|dataset|precompute|preprocessing)_)(.*_)?(batch|batchsize|microbatch|minibatch|bs|accum|accumulation|grad_acc)"
        "(_(size|steps|tokens|rows|samples))?(_per_[a-z]+|_train|_training)?",
        (Work.STEP,),
    ),
    ("accumulate_grad_batches", (Work.STEP,)),
    # max_seq_len, max_length, cutoff_len, sequence_len, block_size, seq_len, context_length, max_tokens, packed_sequence_size
    (
        "((train|training|model|max|prompt|completion|data|datasets?|tokenizer|encoder|decoder|source|target|input|packed)_)*"
        "((seq|sequence|context|ctx|cutoff|block|row)_?(len|length|size|tokens)|len|length|tokens|seq|sequence|context)",
        (Work.STEP, Work.SAMPLE, Work.PADDING),
    ),
    ("tokens_per_sample", (Work.STEP, Work.SAMPLE, Work.PADDING)),
    (
        "((sample|neat|train|data|datasets?)_)*(pack|packing|packed)(_(rows|samples|sequences|strategy))?",
        (Work.STEP, Work.SAMPLE, Work.PADDING),
    ),
    ("(.*_)?padding(_free|_strategy)?|pad_to_[a-z_]+|group_by_length|train_sampling_strategy", (Work.PADDING,)),
    # max_steps, num_train_epochs, num_epochs, max_iters, train_steps, total_steps, steps
    ("((max|num|total|n|train|training|optimizer)_)*(steps?|epochs?|iters|iterations)(_per_epoch)?", (Work.RUN,)),
    ("((max|num|limit)_)?train_(samples|batches)|(max|num)_(samples|batches)|max_(updates?|duration)", (Work.RUN,)),
    ("operator|(.*_)?shapes?|equation|direction|rank", (Work.CALL,)),
    ("fullname|group", (Work.ROUND,)),
)
# Words of arguments, and of the sections around them, that change no work of a training.
_OF_NO_TRAINING = frozenset(
    (
        *("eval", "evaluation", "val", "valid", "validation", "test", "predict", "log", "logging", "save", "saving"),
        *("warmup", "profile", "profiler", "profiling", "checkpoint", "ckpt", "lr"),
        *("generation", "attention", "quant", "quantization"),
    )
)

# Metrics that measure other work than the other metrics of their unit. The first ones measure none of a training.
_METRICS: Mapping[str, tuple[Work, ...]] = {
    **dict.fromkeys(("startup_s", "model_load_s", "trainer_setup_s"), ()),
    **dict.fromkeys(("compile_s", "dynamo_compile_s", "inductor_compile_s", "other_compile_s"), ()),
    # How long it takes to learn as much is a fair question about batches and GPUs. Rows of other lengths have other losses.
    **dict.fromkeys(("time_to_target_s", "cost_to_target"), (Work.SAMPLE,)),
    **dict.fromkeys(("samples_per_s", "train_samples_per_second", "pairs_per_s"), (Work.SAMPLE,)),
    **dict.fromkeys(("steps_per_s", "train_steps_per_second"), (Work.STEP,)),
    **dict.fromkeys(("train_runtime", "train_loss", "wall_s", "cost_of_run", "cost_to_finish"), (Work.STEP, Work.RUN)),
    **dict.fromkeys(("call_time_s", "call_time_iqr_s", "first_call_s"), (Work.STEP, Work.CALL)),
    **dict.fromkeys(("host_time_s", "device_time_s", "device_span_s"), (Work.STEP, Work.CALL)),
    **dict.fromkeys(("max_error", "relative_error"), (Work.CALL,)),
    **dict.fromkeys(("round_time_s", "round_iqr_s"), (Work.STEP, Work.ROUND)),
    "train_tokens_per_second": (Work.GPUS,),
}
# Rates that count padding as work.
_COUNT_PADDING = ("tokens_per_s", "tokens_per_s_per_gpu", "train_tokens_per_second")
UNEXPLAINED_PADDING = aggregate.UNEXPLAINED_PADDING
_TIMES_OF_OWN_TRAINERS = re.compile(r".*(?<!_per)_(s|ms|us|ns)")


def other_work(name: str, arguments: Iterable[str]) -> str | None:
    """Return the first of these arguments that changes the work that a metric measures. Return None if none of them does.

    `arguments` differ between two experiments. They are names of arguments, of their columns, or of effective settings.
    """
    measured = _measured(name)
    return next((argument for argument in arguments if measured & _changed(argument)), None)


def work_of(
    name: str, arguments: Mapping[str, object], *, is_padding_known: bool = True
) -> tuple[tuple[str, str], ...]:
    """Return the arguments that change the work that a metric measures, with their values as text, sorted by name.

    Experiments can be compared by this metric if their results are the same. Arguments without a value are left out. If the padding
    that the metric counts is unknown, arguments that change it belong to the work.
    """
    values = ((argument, repr(value)) for argument, value in arguments.items() if value is not None)
    changes = (other_work,) if is_padding_known else (other_work, other_padding)
    return tuple(sorted(one for one in values if any(change(name, one[:1]) for change in changes)))


def by_work(
    name: str, rows: Sequence[int], arguments: Sequence[Mapping[str, object]]
) -> tuple[tuple[str, ...], list[list[int]]]:
    """Return the rows in groups with the same work of a metric whose padding is unknown, and the arguments that tell groups apart.

    `arguments` has those of each row, and may have its number of GPUs.
    """
    works = {row: dict(work_of(name, arguments[row], is_padding_known=False)) for row in rows}
    names = dict.fromkeys(one for work in works.values() for one in work)
    differing = tuple(one for one in names if len({work.get(one) for work in works.values()}) > 1)
    groups: dict[tuple[str | None, ...], list[int]] = {}
    for row, work in works.items():
        groups.setdefault(tuple(map(work.get, differing)), []).append(row)
    return differing, list(groups.values())


def is_speed_of_call(name: str) -> bool:
    """Return whether a metric is a time of an operator's call, or is computed with one."""
    return {Work.CALL, Work.STEP} <= _measured(name) or name in ("operator_tflops_per_s", "operator_bytes_per_s")


def is_per_gpu(name: str) -> bool:
    """Return whether a metric is a rate per GPU, so that the number of GPUs changes its work."""
    return Work.GPUS in _measured(name)


def counts_padding(name: str) -> bool:
    """Return whether a metric is a rate of tokens that counts padding."""
    return name in _COUNT_PADDING


def other_padding(name: str, arguments: Iterable[str], *, perhaps: bool = False) -> str | None:
    """Return the first of these arguments that changes how much padding a rate of tokens counts. Return None if none of them does.

    `perhaps`: an argument counts, too, if it changes the padding of some data only, such as the batch.
    """
    if not counts_padding(name):
        return None
    kinds = {Work.PADDING, Work.STEP} if perhaps else {Work.PADDING}
    return next((argument for argument in arguments if kinds & _changed(argument)), None)


def other_source(name: str, changed: Iterable[str]) -> str | None:
    """Return the first of these names that says where a metric comes from.

    For a metric of `custom:`, it is its pattern, key, column or unit, or the file. For a number of the steady state, it is the key
    `steps`, or the number of warm-up steps. The other rules of measuring only end the training, as the number of its steps does.
    """
    places = ["custom.results"]
    if metric(name).of_steady_state:
        places += ["steps", "measure.discard_steps"]
    elif name == "first_step_s":
        places.append("steps")
    return next((one for one in changed if one in places or one.startswith(f"custom.metrics.{name}.")), None)


@cache
def _measured(name: str) -> frozenset[Work]:
    """Return the work that a metric measures. A time or a number of steps measures that of a step, if nothing else is known."""
    is_own_time = name not in METRICS and bool(_TIMES_OF_OWN_TRAINERS.fullmatch(name))
    is_of_steps = is_own_time or metric(name).unit in ("s", "steps")
    return frozenset(_METRICS.get(name, (Work.STEP,) if is_of_steps else ()))


@cache
def _changed(argument: str) -> frozenset[Work]:
    """Return the work that an argument changes. Of `tokenizer.max_seq_len`, only the name after the sections must be known."""
    path = argument.removeprefix(PREFIX).removeprefix("effective_").lower()
    if not _OF_NO_TRAINING.isdisjoint(_words(path)):
        return frozenset()
    name = "_".join(_words(path.rpartition(".")[2]))
    return frozenset(work for pattern, changed in _ARGUMENTS if re.fullmatch(pattern, name) for work in changed)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text)

"""The search for the largest value of an argument that fits in memory, such as the largest per-device batch. One run per value.

The search begins where the estimate of memory says that the limit is. If the estimate is within ±30 % of the limit, at most five
runs find it. If the limit is elsewhere, or if there is no estimate, the value is doubled until it does not fit, then bisected.

Values up to 40 are found exactly. Larger values are tried in steps, which are powers of two and at most 5 % of the value: near
8192, every 256th length. So the result is a round number.

The probes are recorded runs in `searches/`, a results folder inside the campaign's folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator import trainers
from orchestrator.campaign.loop import OnEvent, run_benchmark
from orchestrator.campaign.probes.memory_probe import TOO_LARGE, is_instrumented, last_record, short, store_inside
from orchestrator.errors import SelectionError, suggestion
from orchestrator.executors import Executor
from orchestrator.files.cache import cache_folder
from orchestrator.plan.cells import ACCUMULATION, BATCH, TRAINER_BATCH_DEFAULT
from orchestrator.plan.data import data_path
from orchestrator.plan.forecast.memory_fit import Unknown, estimate
from orchestrator.plan.forecast.memory_fit.verdict import VISIBLE_SHARE
from orchestrator.records import Device, Experiment, RunRecord, Status, whole_number
from orchestrator.records.labels import labels
from orchestrator.results.due_runs import Retry
from orchestrator.results.store import Store
from orchestrator.trainers.external.custom import placeholders

SEARCHES = "searches"
LENGTH = "max_seq_len"
# The largest values that are tried.
LARGEST_BATCH, LARGEST = 4096, 1 << 20
# The search trusts an estimate to be within this share of the limit.
ESTIMATE_WITHIN = 0.3
# Values up to this one are found exactly.
EXACT_UP_TO = 40
# Rows of a probe must have at least this share of the length that is tried, on average.
FULL_ROWS = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """The values that are known before a cell's first probe.

    `axis` is the trainer's name of the argument. `start` is the cell's own value. `expected` is the largest value that fits by the
    estimate, or None without an estimate.
    """

    experiment: Experiment
    axis: str
    start: int
    expected: int | None
    is_length: bool = False

    @property
    def largest(self) -> int:
        return LARGEST_BATCH if self.axis == BATCH else LARGEST


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The result of the search for one cell.

    `value` is the largest value that fits, or None if no probe succeeded. `record` is the record of the probe with this value.
    `too_large` is the smallest value that did not fit. `failure` says why a probe failed for a reason other than memory. Such a
    failure ends the search.
    """

    search: Search
    value: int | None
    record: RunRecord | None
    too_large: int | None
    failure: str | None


def searches(experiments: Sequence[Experiment], axis: str, *, gpu_memory_bytes: int | None) -> list[Search]:
    """Return the searches for the cells that can run. `gpu_memory_bytes` is the memory of the smallest GPU, or None if unknown.

    Raises SelectionError if a cell has no whole number for the argument.
    """
    runnable = [one for one in experiments if one.skip is None and one.cannot_run_here is None]
    return [_search(one, axis, gpu_memory_bytes) for one in runnable]


def _search(experiment: Experiment, axis: str, gpu_memory_bytes: int | None) -> Search:
    name = _name_in(experiment, axis)
    start = min(_starting_value(experiment, axis, name), LARGEST_BATCH if name == BATCH else LARGEST)
    search = Search(
        experiment=experiment, axis=name, start=start, expected=None, is_length=name == _name_in(experiment, LENGTH)
    )
    if experiment.device is not Device.CUDA or not gpu_memory_bytes:
        return search
    return replace(search, expected=_expected(search, gpu_memory_bytes))


def _name_in(experiment: Experiment, axis: str) -> str:
    """Return the name that the experiment's trainer has for an argument."""
    names, _ = trainers.get(experiment.trainer).translate({axis: "1"})
    return next(iter(names)) if len(names) == 1 else axis


def _starting_value(experiment: Experiment, axis: str, name: str) -> int:
    value = experiment.arguments.get(name, str(TRAINER_BATCH_DEFAULT) if name == BATCH else None)
    place = f"scenario {experiment.scenario!r}: the search cannot begin"
    if value is None:
        numbers = [one for one, text in experiment.arguments.items() if whole_number(text) is not None]
        cure = f"add --set arguments.{axis}=N with a whole number, or name another argument{suggestion(axis, numbers)}"
        raise SelectionError(f"{place}, because its experiments have no argument {axis!r}; {cure}")
    if experiment.custom and placeholders(experiment.custom.command).isdisjoint((name, "arguments")):
        cure = f"write {{{name}}} where the value belongs"
        raise SelectionError(f"{place}, because its command has neither {{{name}}} nor {{arguments}}; {cure}")
    number = whole_number(value)
    if not number:
        raise SelectionError(f"{place} with {name} {value!r}; write a whole number from 1")
    return number


def _expected(search: Search, gpu_memory_bytes: int) -> int | None:
    """Return the largest value whose tensors fit by the estimate; None if all values fit, or if there is no estimate.

    The allocator's reserve does not count: the allocator frees it before memory runs out.
    """

    def fits(value: int) -> bool | None:
        memory = estimate(with_value(search, value, prepared=False))
        if isinstance(memory, Unknown):
            return None
        return memory.peak_allocated_bytes + memory.context_bytes <= gpu_memory_bytes * VISIBLE_SHARE

    largest, too_large = 0, search.largest
    if fits(too_large) is not False:
        return None
    while too_large - largest > 1:
        middle = (largest + too_large) // 2
        largest, too_large = (middle, too_large) if fits(middle) else (largest, middle)
    return max(largest, 1)


def largest_values(
    planned: Sequence[Search],
    *,
    store: Store,
    executor: Executor,
    retry: Retry,
    prepare: Callable[[Experiment], None],
    on_event: OnEvent,
) -> Iterator[Found]:
    """Carry out the searches, and yield their results. `prepare` makes the data of a probe.

    `retry` says which failed probes of an earlier call are tried again.
    """
    probes = store_inside(store, SEARCHES)

    def probed(search: Search, value: int) -> RunRecord | None:
        probe = with_value(search, value)
        prepare(probe)
        run_benchmark([probe], store=probes, executor=executor, retry=retry, on_event=on_event)
        return last_record(probes, probe.id)

    for search in planned:
        yield largest_value(search, probed)


def largest_value(search: Search, probed: Callable[[Search, int], RunRecord | None]) -> Found:
    """Return the result of one search. `probed` makes one probe and returns its record."""
    largest, too_large = 0, None
    fitting: RunRecord | None = None
    failure: str | None = None
    while (value := next_value(search, largest, too_large)) is not None:
        record = probed(search, value)
        if record is not None and record.status is Status.OK and not (failure := _short_rows(search, record, value)):
            largest, fitting = value, record
        elif record is not None and record.kind in TOO_LARGE:
            too_large = value
        else:
            failure = failure or ("its record cannot be read" if record is None else f"{record.kind}: {record.cause}")
            break
    return Found(search=search, value=largest or None, record=fitting, too_large=too_large, failure=failure)


def next_value(search: Search, largest: int, too_large: int | None) -> int | None:
    """Return the value of the next probe, or None at the end of the search.

    `largest` is the largest value that fitted (0: none did), and `too_large` the smallest value that did not fit.
    """
    step = step_of(largest)
    if search.expected is not None:
        grid, (lowest, highest) = step_of(search.expected), _bracket(search.expected)
        lower, upper = max(lowest, largest), min(highest, search.largest + grid, too_large or highest)
        if upper - lower > grid:
            return lower + (upper - lower) // grid // 2 * grid
        step = grid if lowest <= largest <= highest else step
    if too_large is None:
        bounded = min(2 * largest or search.start, search.largest)
        return bounded if bounded > largest else None
    if too_large - largest <= step:
        return None
    middle = (largest + too_large) // 2 // step * step
    return middle if middle > largest else middle + step


def step_of(value: int) -> int:
    """Return the distance of the values that are tried near this value: the smallest power of two from a 40th of the value."""
    return 1 << max(0, math.ceil(math.log2(max(value, 1) / EXACT_UP_TO)))


def _bracket(expected: int) -> tuple[int, int]:
    """Return two values, multiples of the step. If the estimate is right, the first one fits and the second one does not.

    At most 32 steps are between them, so five runs are enough.
    """
    step = step_of(expected)
    lowest, highest = math.floor(expected / (1 + ESTIMATE_WITHIN)), math.floor(expected / (1 - ESTIMATE_WITHIN))
    return max(0, lowest // step - 1) * step, (highest // step + 2) * step


def _short_rows(search: Search, record: RunRecord, value: int) -> str | None:
    """Return a sentence if the rows of a probe were too short to say that a length fits."""
    numbers = {number.name: number.value for number in record.measurements}
    tokens, rows = numbers.get("tokens_processed"), numbers.get("samples_processed")
    if not search.is_length or not isinstance(tokens, (int, float)) or not isinstance(rows, (int, float)) or not rows:
        return None
    if tokens / rows >= FULL_ROWS * value:
        return None
    return f"rows of the data have {tokens / rows:.0f} tokens on average, not {value}; use builtin:synthetic"


def with_value(search: Search, value: int, *, prepared: bool = True) -> Experiment:
    """Return a probe of the cell: it has this value, and its own id. If `prepared`, it also names the data for this value."""
    experiment = search.experiment
    probe = short(experiment) if is_instrumented(experiment) else replace(experiment, repeats=1, adaptive=None)
    arguments = {**experiment.arguments, search.axis: str(value)}
    if search.axis in (BATCH, ACCUMULATION):
        probe = replace(probe, global_batch=None)
    if prepared and search.is_length and probe.data is not None and probe.data.max_length is not None:
        data = replace(probe.data, max_length=value)
        probe = replace(probe, data=data, data_path=data_path(data, cache_folder()))
    return replace(probe, id=f"{experiment.id}.{search.axis}{value}", arguments=arguments)


def found_lines(results: Sequence[Found]) -> Iterator[str]:
    """Yield a line for each cell: its largest value, and the memory that this value needs."""
    names = labels([found.search.experiment for found in results])
    for found in results:
        search = found.search
        label = names[search.experiment.id]
        fits = f"{search.axis} {found.value} fits{_peak(found)}"
        if found.value is None:
            least = f"not even {search.axis} {found.too_large} fits"
            text = f"unknown, a probe failed ({found.failure})" if found.failure else least
        elif found.failure:
            text = f"{fits}, and a larger one could not be tried ({found.failure})"
        elif found.too_large:
            text = f"{fits}, {found.too_large} does not"
        else:
            text = f"{fits}, {search.largest} is the largest that is tried"
        yield f"{search.experiment.id}{label and f' ({label})'}: {text}"


def _peak(found: Found) -> str:
    values = {number.name: number.value for number in found.record.measurements} if found.record else {}
    peak = values.get("peak_reserved_bytes")
    return f" with {peak / 2**30:.1f} GiB reserved" if isinstance(peak, (int, float)) else ""

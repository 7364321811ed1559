"""Sides of a comparison for tests, made of plain numbers: no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulated.shapes import Shape, campaign, generator

from orchestrator.compare.comparison import Comparison, Entry, Fleet, Pair, Row, Run, Side, Verdict
from orchestrator.compare.rules import Correction, Rules
from orchestrator.compare.verdicts import compare
from orchestrator.results.table.rows import Value

SPEED, STEP, FIRST, MEMORY, LOSS = "tokens_per_s", "step_time_s", "first_step_s", "peak_allocated_bytes", "train_loss"
NOISY = (1000.0, 1004.0, 996.0, 1002.0, 998.0)
"""Five runs whose standard deviation is 0.32 %."""
MOVED = (Verdict.IMPROVED, Verdict.REGRESSED)


def entry(
    label: str,
    numbers: Mapping[str, Sequence[float]] | None = None,
    *,
    started_at: Sequence[float] | None = None,
    failure: str | None = None,
    failed_runs: int = 0,
    unreadable_runs: int = 0,
    environment: Mapping[str, Value] | None = None,
    arguments: Mapping[str, Value] | None = None,
) -> Entry:
    """An experiment by its runs' numbers, metric → one a run; failed where there are none."""
    numbers = numbers or {}
    count = max(map(len, numbers.values()), default=0)
    runs = tuple(
        Run(
            repeat=number + 1,
            numbers={name: float(values[number]) for name, values in numbers.items() if number < len(values)},
            started_at=None if started_at is None else float(started_at[number]),
        )
        for number in range(count)
    )
    return Entry(
        key={"scenario": label},
        label=label,
        status="ok" if runs else "unreadable" if unreadable_runs > failed_runs else "failed",
        runs=runs,
        failed_runs=failed_runs,
        unreadable_runs=unreadable_runs,
        failure=failure or (None if runs else "oom_cuda: no memory left"),
        environment=environment or {},
        arguments=arguments or {},
        id=f"{label}-0123456789ab",
        folder="results",
    )


def paired(base: Entry | None, new: Entry | None, **more: tuple[object, ...]) -> Pair:
    only = base or new
    assert only is not None
    return Pair(label=only.label, base=base, new=new, **more)  # type: ignore[arg-type]


def compared(*pairs: Pair, rules: Rules | None = None) -> Comparison:
    """The comparison of these pairs, whose sides are called main and branch."""
    base = tuple(pair.base for pair in pairs if pair.base is not None)
    new = tuple(pair.new for pair in pairs if pair.new is not None)
    sides = Side(name="main", entries=base), Side(name="branch", entries=new)
    return compare(*sides, pairs=pairs, rules=rules or Rules())


def simulated(shape: Shape, slower: Sequence[float] = (), *, count: int = 1, alone: bool = False) -> list[Comparison]:
    """The comparisons of campaigns of this shape. The first rows are slower by these shares. `alone`: without correction."""
    rng = generator(1, f"{shape} {slower}")
    rules = Rules(correction=Correction.NONE if alone else Correction.BH)
    return [compared(*campaign(rng, shape, slower), rules=rules) for _ in range(count)]


def share_of(rows: Sequence[Row] | Sequence[Fleet], *verdicts: Verdict) -> float:
    return sum(row.verdict in verdicts for row in rows) / len(rows)


def judged(metric: str, base: Sequence[float], new: Sequence[float], rules: Rules | None = None) -> Row:
    """The row of one metric of one experiment."""
    (row,) = compared(paired(entry("one", {metric: base}), entry("one", {metric: new})), rules=rules).rows
    return row

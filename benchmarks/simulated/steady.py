"""Measure the rules of a single run and of its repeats: steady state, intervals, adaptive repeats.

    python benchmarks/simulated/steady.py [--campaigns 2000] [--only targets]

Every figure is a share in per cent, with half the width of its 95 % interval. The figures of runs of 300 steps
are from a tenth of the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

import shapes
from figures import Share, Target, line, of_targets, options, share, table
from shapes import RUNS_OF_STEPS

from orchestrator.measure import steady_state
from orchestrator.measure.intervals import mean_of_logs
from orchestrator.measure.steady_state import Steady
from orchestrator.measure.steady_state.median_step import median_interval
from orchestrator.records import Caveat, Device, Measurement, Repeats, RunRecord, Status
from orchestrator.records.experiment import Experiment
from orchestrator.results import due_runs
from orchestrator.workers.instrument.ending import Stopping

LENGTHS, LONG = (20, 40, 100, 300), 300
STEP = 0.1
# A run looks every 10 steps whether it may end, and ends after 2,000 steps in any case.
LOOK_EVERY, LONGEST = 10, 2000
ID = "adaptive-0123456789ab"
# Shapes in which a speed needs a warning: how many runs of 40, 100 and 300 steps may have a speed without one.
RAMP = "plateau after 60 %, from +30 %"
SUSPICIOUS = {"shift of +10 % in the last fifth": (0.02, 0.02, 0.02), RAMP: (0.6, 0.37, 0.07)}
HARMLESS = ("plain", "ragged, 30 %", "period 2, 10 % apart", "spikes of +50 %, 1 step in 20", "drift of 3 %", "AR 0.8")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The steady states that were found in runs of one shape and length. Errors are relative to the truth."""

    all: int
    steady: tuple[Steady, ...]
    truths: tuple[float, ...]

    @property
    def reported(self) -> Share:
        return Share(hits=len(self.steady), of=self.all)

    @property
    def unwarned(self) -> Share:
        """The share of all runs that have a speed and no warning."""
        return Share(hits=sum(not found.warnings for found in self.steady), of=self.all)

    @property
    def misleading(self) -> Share:
        """The share of all runs that have no warning, and a mean step that is off by over 2 %."""
        off = (abs(found.mean_s / STEP - 1) > 0.02 and not found.warnings for found in self.steady)
        return Share(hits=sum(off), of=self.all)

    @property
    def covered(self) -> Share:
        """The share of the intervals that contain the truth."""
        pairs = [(found.interval, STEP * truth) for found, truth in zip(self.steady, self.truths, strict=True)]
        return share(interval.low <= truth <= interval.high for interval, truth in pairs if interval is not None)

    @property
    def without_width(self) -> Share:
        return share(found.interval is not None and found.interval.high == found.interval.low for found in self.steady)

    def bias(self, *, of_mean: bool) -> float:
        """Return the mean error of the median step, or of the mean step."""
        values = [found.mean_s if of_mean else found.median_s for found in self.steady]
        return fmean(value / STEP - 1 for value in values) if values else math.nan


@cache
def judged(name: str, steps: int, count: int, seed: int) -> Judged:
    rng, shape, found = shapes.generator(seed, f"{name} {steps}"), RUNS_OF_STEPS[name], []
    number = max(count // 10, 1) if steps >= LONG else count
    for seconds in shapes.steps_of(shape, rng, steps, number):
        result = steady_state.find(seconds)
        if not isinstance(result, Caveat):
            found.append(result)
    return Judged(all=number, steady=tuple(found), truths=(shape.truth,) * len(found))


def steady(count: int, seed: int) -> Iterator[str]:
    """Find the steady state of runs of many shapes."""
    yield from table(
        "runs of " + " / ".join(map(str, LENGTHS)) + " steps",
        "speed reported, %",
        "without a warning",
        "error of the median",
        "of the mean",
        "interval holds",
    )
    for name in RUNS_OF_STEPS:
        kinds = [judged(name, steps, count, seed) for steps in LENGTHS]
        shares = [
            [100 * part.value for part in parts]
            for parts in zip(*((k.reported, k.unwarned) for k in kinds), strict=True)
        ]
        biases = [[100 * kind.bias(of_mean=of_mean) for kind in kinds] for of_mean in (False, True)]
        covered = [100 * kind.covered.value for kind in kinds]
        yield line(
            name,
            *(_joined(values, "{:.0f}") for values in shares),
            *(_joined(v, "{:+.1f}") for v in biases),
            _joined(covered, "{:.0f}"),
        )


def _joined(values: Sequence[float], form: str) -> str:
    return " / ".join("–" if math.isnan(value) else form.format(value) for value in values)


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """Results of adaptive repeats: runs and half the width of the interval in the mean, and how often the interval holds, for all
    experiments and for those that met the target.
    """

    runs: float
    half_width: float
    held: Share
    met: Share
    held_of_met: Share


@cache
def repeated(rule: Repeats, sd: float, count: int, seed: int, *, cold: bool = False) -> Repeated:
    """Simulate experiments with adaptive repeats. If `cold`, the first run of each experiment is 5 to 14 % slow."""
    rng = shapes.generator(seed, f"repeated {rule} {sd}{' cold' if cold else ''}")
    planned = Experiment(
        id=ID,
        scenario="s",
        model="m",
        num_gpus=1,
        device=Device.CPU,
        trainer="huggingface",
        arguments={},
        adaptive=rule,
    )
    lengths, widths, held, met = [], [], [], []
    for _ in range(count):
        logs = sd * rng.standard_normal(rule.max + 1)
        logs[0] -= math.log1p(rng.uniform(*shapes.COLD)) if cold else 0.0
        values = (1000 * shapes.np.exp(logs)).tolist()
        records: list[RunRecord] = []
        while len(records) < (wanted := due_runs.wanted(planned, records)):
            records += [
                _record(len(records) + 1 + more, values[len(records) + more]) for more in range(wanted - len(records))
            ]
        left_out = len(records) - len(due_runs.without_cold_first(rule, records))
        interval = mean_of_logs(values[left_out : len(records)]).interval
        lengths.append(len(records))
        widths.append(math.log(interval.high / interval.low) / 2 if interval is not None else math.nan)
        held.append(interval is not None and interval.low <= 1000 <= interval.high)
        met.append(due_runs.agree(records[left_out:], within=rule.within or math.inf))
    of_met = share(one for one, is_met in zip(held, met, strict=True) if is_met)
    return Repeated(runs=fmean(lengths), half_width=fmean(widths), held=share(held), met=share(met), held_of_met=of_met)


def _record(repeat: int, speed: float) -> RunRecord:
    values = (Measurement(name="tokens_per_s", value=speed, source="simulated"),)
    return RunRecord(
        experiment_id=ID, repeat=repeat, attempt=1, status=Status.OK, started_at=1.0, wall_s=1.0, measurements=values
    )


def adaptive(count: int, seed: int) -> Iterator[str]:
    """Repeat until the runs agree."""
    yield from table(
        "adaptive repeats", "between runs", "runs in the mean", "the interval holds", "target met", "holds where met"
    )
    for least, within in ((3, 0.01), (5, 0.01), (3, 0.005), (5, 0.005)):
        for sd in (0.005, 0.01, 0.015):
            got = repeated(Repeats(min=least, max=10, within=within), sd, count, seed)
            name = f"`min: {least}, max: 10, within: {within:.1%}`"
            yield line(name, f"{sd:.1%}", f"{got.runs:.1f}", got.held, got.met, got.held_of_met)


def fixed(count: int, seed: int) -> Iterator[str]:
    """Repeat a fixed number of times."""
    yield from table("fixed repeats, 1.5 % between runs", "the interval holds")
    for runs in (2, 3, 5, 10):
        yield line(f"{runs} runs", repeated(Repeats(min=runs, max=runs), 0.015, count, seed).held)


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Runs that stopped early. `held` is how often the interval of the median step holds, and `near` how often the median is within
    the requested distance of the truth. `error` is the mean error of the median, and `steps` the mean number of steps.
    """

    held: Share
    near: Share
    error: float
    steps: float


@cache
def stopped(within: float, declared: bool, count: int, seed: int) -> Stopped:
    """Simulate runs that end by themselves. If the warm-up is not `declared`, the rule ignores the first half of the steps."""
    rng, held, errors, lengths = shapes.generator(seed, f"stopped {within} {declared}"), [], [], []
    for times in shapes.steps_of(RUNS_OF_STEPS["plain"], rng, LONGEST, count):
        rule, made = Stopping(0 if declared else None, None, within), 0
        for made, seconds in enumerate(times, start=1):
            rule.add(seconds)
            if made % LOOK_EVERY == 0 and rule.verdict()[0]:
                break
        interval = median_interval(times[:made])
        held.append(interval is not None and interval.low <= STEP <= interval.high)
        errors.append(median(times[:made]) / STEP - 1)
        lengths.append(made)
    near = share(abs(error) <= within for error in errors)
    return Stopped(held=share(held), near=near, error=fmean(errors), steps=fmean(lengths))


def early(count: int, seed: int) -> Iterator[str]:
    """End runs by `measure: {within: …}`."""
    yield from table(
        "`within`", "warm-up", "steps in the mean", "the interval holds", "at most `within` off", "mean error"
    )
    for within in (0.005, 0.01, 0.02):
        for declared in (True, False):
            got = stopped(within, declared, count, seed)
            name = "declared" if declared else "found"
            yield line(f"{within:.1%}", name, f"{got.steps:.0f}", got.held, got.near, f"{got.error:+.3%}")


def discarded(count: int, seed: int) -> Iterator[str]:
    """Run a cold first run again."""
    yield from table(
        "5 repeats, 1.5 % between runs", "first run", "runs in the mean", "half width", "the interval holds"
    )
    for discard in (None, "auto"):
        for cold in (False, True):
            got = repeated(Repeats(min=5, max=5, discard_first=discard), 0.015, count, seed, cold=cold)
            name = f"`discard_first: {discard}`" if discard else "without `discard_first`"
            yield line(name, "cold" if cold else "as the others", f"{got.runs:.2f}", f"{got.half_width:.1%}", got.held)


def targets(count: int, seed: int) -> Iterator[str]:
    yield from of_targets(_targets(count, seed))


def _targets(count: int, seed: int) -> Iterator[Target]:
    for name, bounds in SUSPICIOUS.items():
        for steps, bound in zip(LENGTHS[1:], bounds, strict=True):
            part = judged(name, steps, count, seed).unwarned
            yield Target(name=f"{name}, {steps} steps: a speed without a warning", share=part, at_most=bound)
    for steps, bound in zip(LENGTHS[1:], (0.1, 0.02, 0.01), strict=True):
        part = judged(RAMP, steps, count, seed).misleading
        yield Target(name=f"{RAMP}, {steps} steps: off by over 2 %, no warning", share=part, at_most=bound)
    for name in HARMLESS:
        kinds = [judged(name, steps, count, seed) for steps in LENGTHS]
        worst = max(
            (Share(hits=kind.all - len(kind.steady), of=kind.all) for kind in kinds), key=lambda part: part.value
        )
        yield Target(name=f"{name}: refused", share=worst, at_most=0.05)
    for steps in LENGTHS:
        near = share(
            abs(found.mean_s / STEP - 1) < 0.02
            for found in judged("compilation at step n/3", steps, count, seed).steady
        )
        yield Target(name=f"compilation at step n/3, {steps} steps: the mean is within 2 %", share=near, at_least=0.95)
    for name in ("plain", "period 2, 10 % apart", "AR 0.8"):
        for steps in (20, 40):
            part = judged(name, steps, count, seed).covered
            if part.of:
                yield Target(name=f"{name}, {steps} steps: the interval holds", share=part, at_least=0.92)
    clock = judged("a clock of 10 ms", 100, count, seed).without_width
    yield Target(name="a clock of 10 ms, 100 steps: an interval of width 0", share=clock, at_most=0.0)


TABLES = {
    "targets": targets,
    "steady": steady,
    "fixed": fixed,
    "adaptive": adaptive,
    "discarded": discarded,
    "early": early,
}


def main() -> None:
    asked = options(__doc__, 2000, *TABLES)
    print(f"{asked.campaigns} runs or experiments for each figure, seed {asked.seed}.")
    print("Steps of 100 ms, noise 2 %, AR(0.5), unless a row says otherwise.")
    for name in asked.only:
        for text in TABLES[name](asked.campaigns, asked.seed):
            print(text, flush=True)


if __name__ == "__main__":
    main()

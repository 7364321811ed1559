"""What measuring costs: the instrument and the monitors, on against off, by the results of runs that were made for it.

    python benchmarks/overhead.py blocks RESULTS     instrument on and off in alternating blocks of one run
    python benchmarks/overhead.py pairs RESULTS ON OFF    whole runs of two scenarios, paired by repeat
    python benchmarks/overhead.py sampler RESULTS         NVML's sampler stopped and continued in turn; begin it beside the run

`examples/instrument-cost.yaml` makes the runs for the first two. The third stops and continues the sampler's process while
training runs, and compares the steps of neighbouring spans; it needs a scenario with the monitor `nvml`. Each prints
the change of the step time with everything on, in per cent, with its 95 % interval over pairs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import statistics, steps
from orchestrator.records import RunRecord, Status
from orchestrator.store import Store

SPAN_S = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=["blocks", "pairs", "sampler"])
    parser.add_argument("results", type=Path)
    parser.add_argument("scenarios", nargs="*", help="pairs: the scenario with everything on, and the one without")
    parser.add_argument(
        "--metric", help="pairs: a metric to compare, instead of the time between the first and last log"
    )
    given = parser.parse_args()
    if given.how == "blocks":
        print(said("instrument, blocks of one run", list(block_ratios(given.results))))
    elif given.how == "pairs":
        on, off = given.scenarios
        what = given.metric or "time between logs"
        print(said(f"{on} against {off}, {what}", paired_ratios(given.results, on, off, given.metric)))
    else:
        print(said("NVML sampler, spans of one run", toggle_sampler(given.results)))


def said(what: str, ratios: Sequence[float]) -> str:
    """One line: how much longer it takes with measuring on, and how certain that is."""
    if len(ratios) < 2:
        return f"{what}: {len(ratios)} pair(s), too few"
    summary = statistics.mean_of_logs(ratios)
    assert summary.interval is not None
    low, high = ((bound - 1) * 100 for bound in (summary.interval.low, summary.interval.high))
    return f"{what}: {(summary.mean - 1) * 100:+.3f} % ({low:+.3f} to {high:+.3f}), {len(ratios)} pairs"


def block_ratios(root: Path) -> Iterator[float]:
    """Time of each block with the instrument on ÷ the mean of its two neighbours without it."""
    for path in sorted(root.glob("experiments/*/runs/*/blocks-rank0.jsonl")):
        blocks = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][2:]  # warm-up
        for before, block, after in zip(blocks, blocks[1:], blocks[2:], strict=False):
            if block["on"]:
                yield 2 * block["s"] / (before["s"] + after["s"])


def paired_ratios(root: Path, on: str, off: str, metric: str | None) -> list[float]:
    with_all, without = values(root, on, metric), values(root, off, metric)
    return [with_all[repeat] / without[repeat] for repeat in sorted(with_all.keys() & without.keys())]


def values(root: Path, scenario: str, metric: str | None) -> dict[int, float]:
    """Repeat → value of the runs of a scenario that ended well."""
    found: dict[int, float] = {}
    store = Store.resume(root)
    for stored in store.contents().experiments:
        ended_well = (record for record in stored.records if record.status is Status.OK)
        for record in ended_well if stored.experiment.scenario == scenario else ():
            folder = store.run_dir(record.experiment_id, record.repeat, record.attempt)
            value = measured(record, metric) if metric else between_logs(folder)
            if value is not None:
                found[record.repeat] = value
    return found


def measured(record: RunRecord, metric: str) -> float | None:
    value = next((one.value for one in record.measurements if one.name == metric), None)
    return float(value) if isinstance(value, (int, float)) else None


def between_logs(run_dir: Path) -> float:
    """Seconds a step from the first log to the last: the Trainer waits for the GPU there, measured or not."""
    times = json.loads((run_dir / "worker-rank0.json").read_text(encoding="utf-8"))["log_times"]
    (first, begun), (last, ended) = times[0], times[-1]
    return float(ended - begun) / (last - first)


def toggle_sampler(root: Path) -> list[float]:
    """Stops and continues the sampler until it is gone; then compares the steps of each span with its neighbours'."""
    spans: list[tuple[float, float, bool]] = []
    pid = None
    while pid is None:
        time.sleep(0.2)
        pid = sampler_pid()
    on = True
    while True:
        begun = time.time()
        time.sleep(SPAN_S)
        spans.append((begun, time.time(), on))
        on = not on
        try:
            os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)
        except ProcessLookupError:
            break
        if not on and training_ended(root):
            os.kill(pid, signal.SIGCONT)
            break
    return [*span_ratios(root, spans)]


def sampler_pid() -> int | None:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"nvml_sampler" in words and b"overhead.py" not in words:
            return int(folder.name)
    return None


def training_ended(root: Path) -> bool:
    return any(root.glob("experiments/*/runs/*/worker-rank0.json"))


def span_ratios(root: Path, spans: Sequence[tuple[float, float, bool]]) -> Iterator[float]:
    """Mean step time of each span with the sampler on ÷ the mean of its neighbours; steps lie whole inside a span."""
    (path,) = root.glob("experiments/*/runs/r1-t1/steps-rank0.jsonl")
    series = steps.read(path.parent)[0][20:]

    def mean(span: tuple[float, float, bool]) -> float:
        inside = [one.seconds for one in series if one.ended_at - one.seconds >= span[0] and one.ended_at <= span[1]]
        return sum(inside) / len(inside) if len(inside) >= 10 else math.nan

    means = [(mean(span), span[2]) for span in spans]
    for (before, _), (here, on), (after, _) in zip(means, means[1:], means[2:], strict=False):
        if on and math.isfinite(before + here + after):
            yield 2 * here / (before + after)


if __name__ == "__main__":
    main()

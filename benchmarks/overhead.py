"""Compute what measuring costs: the instrument and the monitors, on against off, from the results of runs made for it.

    python benchmarks/overhead.py blocks RESULTS          measuring on and off in alternating blocks of one run
    python benchmarks/overhead.py follow RESULTS          next to such a run: NVML's sampler sleeps through the blocks without
    python benchmarks/overhead.py pairs RESULTS...        whole runs of two scenarios, paired by repeat within each folder

`examples/instrument-cost.yaml` makes the runs. `blocks` and `pairs` print the change of the step time with measuring
on, in per cent, with its 95 % interval over the pairs of all folders.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from orchestrator.measure import intervals
from orchestrator.records import RunRecord, Status
from orchestrator.results.store import Store

WARM_UP_LOGS = 5
LOOK_EVERY_S = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=["blocks", "follow", "pairs"])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--on", default="cost-all-on", help="pairs: the scenario with everything on")
    parser.add_argument("--off", default="cost-all-off", help="pairs: the scenario without")
    parser.add_argument("--metric", help="pairs: a metric to compare, instead of the median time between logs")
    given = parser.parse_args()
    if given.how == "follow" and len(given.results) > 1:
        parser.error("follow: one folder, the results of the run next to it")
    if given.how == "blocks":
        print(said("blocks of one run", [ratio for root in given.results for ratio in block_ratios(root)]))
    elif given.how == "follow":
        follow_blocks(given.results[0])
    else:
        what = given.metric or "median time between logs"
        pairs = {root: paired_ratios(root, given.on, given.off, given.metric) for root in given.results}
        for root in (root for root, ratios in pairs.items() if not ratios):
            parser.error(f"{root}: no pair of {given.on} and {given.off}")
        print(said(f"{given.on} against {given.off}, {what}", [ratio for ratios in pairs.values() for ratio in ratios]))


def said(what: str, ratios: Sequence[float]) -> str:
    """Return one line: how much longer a step takes with measuring on, and how certain this is."""
    if len(ratios) < 2:
        return f"{what}: {len(ratios)} pair(s), too few"
    summary = intervals.mean_of_logs(ratios)
    assert summary.interval is not None
    low, high = ((bound - 1) * 100 for bound in (summary.interval.low, summary.interval.high))
    return f"{what}: {(summary.mean - 1) * 100:+.3f} % ({low:+.3f} to {high:+.3f}), {len(ratios)} pairs"


def block_ratios(root: Path) -> Iterator[float]:
    """Return, for each block with the instrument on, its time ÷ the mean time of its two neighbours without the instrument."""
    for path in sorted(root.glob("experiments/*/runs/*/blocks-rank0.jsonl")):
        blocks = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][2:]  # warm-up
        for before, block, after in zip(blocks, blocks[1:], blocks[2:], strict=False):
            if block["on"]:
                yield 2 * block["s"] / (before["s"] + after["s"])


def paired_ratios(root: Path, on: str, off: str, metric: str | None) -> list[float]:
    with_all, without = values(root, on, metric), values(root, off, metric)
    return [with_all[repeat] / without[repeat] for repeat in sorted(with_all.keys() & without.keys())]


def values(root: Path, scenario: str, metric: str | None) -> dict[int, float]:
    """Return repeat → value for the runs of a scenario that ended ok."""
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
    """Return the median over the logs. The value of a log is the seconds per step since the previous log.

    The Trainer waits for the GPU at each log, measured or not.
    """
    times = json.loads((run_dir / "worker-rank0.json").read_text(encoding="utf-8"))["log_times"]
    spans = [(ended - begun) / (last - first) for (first, begun), (last, ended) in pairwise(times)]
    return float(median(spans[WARM_UP_LOGS:]))


def follow_blocks(root: Path) -> None:
    """Make the sampler of a run sleep through the blocks without the instrument.

    The sampler is a step or two late, because the end of a block is written in the first step after the GPU has passed it.
    """
    for run_dir in started_runs(root):
        path, pid = run_dir / "blocks-rank0.jsonl", None
        blocks = 0
        while not (run_dir / "worker-rank0.json").exists():
            time.sleep(LOOK_EVERY_S)
            pid = pid or sampler_pid()
            seen = path.read_text(encoding="utf-8").count("\n") if path.exists() else 0
            if pid and seen != blocks:
                blocks = seen
                os.kill(pid, signal.SIGCONT if blocks % 2 == 0 else signal.SIGSTOP)
        if pid:
            os.kill(pid, signal.SIGCONT)


def started_runs(root: Path) -> Iterator[Path]:
    """Yield the folders of runs as they begin to train; end with the campaign."""
    known: set[Path] = set()
    while not (root / "benchmarks.csv").exists():
        time.sleep(LOOK_EVERY_S)
        for path in set(root.glob("experiments/*/runs/*/steps-rank0.jsonl")) - known:
            known.add(path)
            yield path.parent


def sampler_pid() -> int | None:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"nvml_sampler" in words and b"overhead.py" not in words:
            return int(folder.name)
    return None


if __name__ == "__main__":
    main()

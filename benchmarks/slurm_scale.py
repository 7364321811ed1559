"""Simulate a large campaign on a Slurm cluster, and measure the cost of the submitter.

    python benchmarks/slurm_scale.py [--experiments 100000] [--gpus 512] [--seconds 300] [--max-queued 1000]

The campaign loop, the executor `slurm` and the results folder are the real ones. Simulated are the clock, Slurm's programs, and the
runs: a run takes about `--seconds` on one GPU, and leaves the marks and the record of a real run. The table has the CPU time of the
submitter, without the simulated cluster. Left out: starting Slurm's programs, and waiting for the disk or the file server, since
nothing is synced.

On one core of a machine that other programs used, with the results in `/dev/shm`:

    100000 experiments, 512 GPUs, runs of 300 s, max_queued 1000: 16.4 hours
    CPU of the campaign                            928 s   1.6 % of a core
        submit                                     155 s
        ask squeue                                  20 s
        list the marks                             167 s
        look at runs, tell, plan                   587 s
    calls of scontrol                                  1   0.1 an hour
    calls of sbatch                                  199   12.2 an hour
    calls of squeue                                 1896   115.9 an hour
    most rows of squeue                             1532
    files and folders                             700998   7.0 an experiment
    CPU: write the experiments                    52.0 s
    CPU: call again: nothing is due              203.1 s
    CPU: list experiments/                         0.1 s
    CPU: list the marks of all batches             1.1 s
    CPU: read all batches                          0.6 s
    CPU: read all records, for a report          132.8 s

What breaks first beyond it:

1. The number of files. A real run leaves about 20 files and folders, so 100,000 experiments leave two million. Many clusters limit
   the files of a user.
2. The passes over all experiments. A call in which nothing is due reads the state and the record of each run eight times. If a run
   takes four requests of 1 ms to a file server, each pass of 100,000 runs takes about seven minutes.
3. The looks. Every two seconds, the executor asks for the record of each running element: 256 requests a second for 512 GPUs.

The calls of Slurm's programs do not grow with the number of experiments: `max_queued` bounds the rows, and `poll` the calls.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.campaign import loop
from orchestrator.executors.slurm import batches, client, executor, watched
from orchestrator.executors.slurm.batches import BatchFolder, Mark
from orchestrator.executors.slurm.executor import SlurmExecutor
from orchestrator.executors.slurm.site import Site
from orchestrator.records import Device, Experiment, Job, Measurement, RunRecord, Status
from orchestrator.results.store import Store, write_record

MAX_ARRAY = 1001
# Slurm lists an ended job for this time (MinJobAge).
LISTED_S = 300.0
SEED = 1


class Simulation:
    """A cluster with a clock. `cpu_s` is the simulation's own CPU time, and `calls` counts the calls of Slurm's programs."""

    def __init__(self, gpus: int, seconds: float) -> None:
        self.now, self.free, self.seconds = time.time(), gpus, seconds
        self.pending: deque[tuple[int, int]] = deque()
        self.running: dict[tuple[int, int], list[Job]] = {}
        self.ended: deque[tuple[float, int, int]] = deque()
        self.folders: dict[int, tuple[BatchFolder, Sequence[Sequence[str]], str]] = {}
        self.events: list[tuple[float, int, int]] = []
        self.rng = random.Random(SEED)
        self.cpu_s, self.calls, self.rows = 0.0, Counter[str](), 0

    # The clock: it has the functions of the module `time` that the executor calls.

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._aside():
            until = self.now + seconds
            while self.events and self.events[0][0] <= until:
                self.now, job_id, element = heapq.heappop(self.events)
                self._end_run(job_id, element)
            self.now = until

    # Slurm's programs.

    def called(self, argv: Sequence[str]) -> str:
        """Stand in for the function of `client` that starts Slurm's programs."""
        with self._aside():
            self.calls[argv[0]] += 1
            return {"sbatch": self._sbatch, "squeue": self._squeue, "scontrol": self._scontrol}[argv[0]](argv)

    def _sbatch(self, argv: Sequence[str]) -> str:
        folder = BatchFolder(Path(argv[-1]).parent)
        batch = folder.batch()
        assert batch is not None
        job_id = len(self.folders) + 1
        self.folders[job_id] = folder, batch.elements, batch.name
        self.pending += [(job_id, element) for element in range(len(batch.elements))]
        self._start()
        return f"{job_id}\n"

    def _squeue(self, _argv: Sequence[str]) -> str:
        while self.ended and self.ended[0][0] < self.now - LISTED_S:
            self.ended.popleft()
        states = [("PENDING", "Resources", self.pending), ("RUNNING", "None", self.running)]
        ended = [("COMPLETED", "None", [(job_id, element) for _, job_id, element in self.ended])]
        lines = [
            f"{job_id}|{element}|{state}|{reason}|N/A|{self.folders[job_id][2]}"
            for state, reason, elements in [*states, *ended]
            for job_id, element in elements
        ]
        self.rows = max(self.rows, len(lines))
        return "\n".join(lines)

    def _scontrol(self, _argv: Sequence[str]) -> str:
        return f"MaxArraySize            = {MAX_ARRAY}\n"

    # Its nodes.

    def _start(self) -> None:
        while self.pending and self.free:
            self.free -= 1
            job_id, element = self.pending.popleft()
            folder, elements, _ = self.folders[job_id]
            self._mark(job_id, element, Mark.STARTED)
            self.running[job_id, element] = folder.jobs(elements[element])
            self._begin_run(job_id, element)

    def _begin_run(self, job_id: int, element: int) -> None:
        takes_s = self.seconds * self.rng.uniform(0.5, 1.5)
        heapq.heappush(self.events, (self.now + takes_s, job_id, element))

    def _end_run(self, job_id: int, element: int) -> None:
        jobs = self.running[job_id, element]
        job = jobs.pop(0)
        job.run_dir.mkdir(parents=True)
        write_record(job.run_dir, _record(job, self.now, self.seconds))
        if jobs:
            return self._begin_run(job_id, element)
        self._mark(job_id, element, Mark.DONE)
        del self.running[job_id, element]
        self.ended.append((self.now, job_id, element))
        self.free += 1
        self._start()

    def _mark(self, job_id: int, element: int, mark: Mark) -> None:
        self.folders[job_id][0].mark(element, 0, mark)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.cpu_s += time.process_time() - began


def _record(job: Job, ended_at: float, seconds: float) -> RunRecord:
    values = {"tokens_per_s": 5000.0, "train_runtime": seconds, "train_loss": 2.5, "peak_allocated_bytes": 2**34}
    return RunRecord(
        experiment_id=job.experiment_id,
        repeat=job.repeat,
        attempt=job.attempt,
        status=Status.OK,
        started_at=ended_at - seconds,
        wall_s=seconds,
        measurements=tuple(Measurement(name=name, value=value, source="simulated") for name, value in values.items()),
        provenance={f"package_{number}": "1.2.3" for number in range(30)},
    )


def _experiment(number: int) -> Experiment:
    arguments = {"model_name_or_path": "m", "learning_rate": f"{number}e-9", "max_steps": "100", "bf16": "True"}
    return Experiment(
        id=f"scale-m.none.gpus1-{number:012x}",
        scenario="scale",
        model="m",
        num_gpus=1,
        device=Device.CUDA,
        trainer="huggingface",
        arguments=arguments,
        timeout_s=3600.0,
    )


class Costs:
    """CPU seconds of parts of the submitter. A part does not include the time of the simulation, and parts do not overlap."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.cpu_s: defaultdict[str, float] = defaultdict(float)

    def own_s(self) -> float:
        return time.process_time() - self.simulation.cpu_s

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = self.own_s()
        yield
        self.cpu_s[name] += self.own_s() - began

    def of(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, with its time counted as this part."""

        def counted(*args: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*args, **options)

        return counted


def simulate(results: Path, *, experiments: int, gpus: int, seconds: float, site: Site) -> None:
    """Run the campaign, and print the table."""
    os.fsync = lambda _descriptor: None  # type: ignore[assignment]
    cluster = Simulation(gpus, seconds)
    client._called = cluster.called  # type: ignore[assignment]
    for module in (batches, executor, watched):
        module.time = cluster  # type: ignore[attr-defined]
    costs = Costs(cluster)
    executor._Campaign.feed = costs.of("submit", executor._Campaign.feed)  # type: ignore[method-assign]
    watched.Queue.ask = costs.of("ask squeue", watched.Queue.ask)  # type: ignore[method-assign]
    executor.marks_of = costs.of("list the marks", executor.marks_of)  # type: ignore[assignment]
    due = [_experiment(number) for number in range(experiments)]
    store = Store.create(results, {})
    with costs.part("write the experiments"):
        store.add(due)
    began, began_at = costs.own_s(), cluster.now
    summary = loop.run_benchmark(due, store=store, executor=SlurmExecutor(site))
    took_s, hours = costs.own_s() - began, (cluster.now - began_at) / 3600
    assert summary.counts == {Status.OK: experiments}, summary.counts
    parts = {name: costs.cpu_s.pop(name) for name in ("submit", "ask squeue", "list the marks")}
    with costs.part("call again: nothing is due"):
        loop.run_benchmark(due, store=store, executor=SlurmExecutor(site))
    print(
        f"{experiments} experiments, {gpus} GPUs, runs of {seconds:.0f} s, max_queued {site.max_queued}: {hours:.1f} hours"
    )
    _print("CPU of the campaign", f"{took_s:.0f} s", f"{took_s / hours / 36:.1f} % of a core")
    for name, spent in {**parts, "look at runs, tell, plan": took_s - sum(parts.values())}.items():
        _print(f"    {name}", f"{spent:.0f} s")
    for name, count in cluster.calls.items():
        _print(f"calls of {name}", count, f"{count / hours:.1f} an hour")
    _print("most rows of squeue", cluster.rows)
    _files(results, experiments, costs)


def _files(results: Path, experiments: int, costs: Costs) -> None:
    count = sum(len(files) + len(folders) for _, folders, files in os.walk(results))
    _print("files and folders", count, f"{count / experiments:.1f} an experiment")
    with costs.part("list experiments/"):
        list(os.scandir(results / "experiments"))
    with costs.part("list the marks of all batches"):
        [folder.marks() for folder in batches.batch_folders(results)]
    with costs.part("read all batches"):
        watched.places(results)
    with costs.part("read all records, for a report"):
        Store(results).contents()
    for name, spent in costs.cpu_s.items():
        _print(f"CPU: {name}", f"{spent:.1f} s")


def _print(name: str, value: object, more: str = "") -> None:
    print(f"{name:42} {value:>9}   {more}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=100_000)
    parser.add_argument("--gpus", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--max-queued", type=int, default=1000)
    given = parser.parse_args()
    site = Site(max_queued=given.max_queued)
    with tempfile.TemporaryDirectory() as name:
        options = {"experiments": given.experiments, "gpus": given.gpus, "seconds": given.seconds}
        simulate(Path(name) / "results", **options, site=site)


if __name__ == "__main__":
    main()

"""The arrays that the executor `slurm` would submit for a plan: a line for each shape, and the batch scripts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.executors.slurm.batches import Batch
from orchestrator.executors.slurm.executor import RUN_ARRAY
from orchestrator.executors.slurm.script import batch_script, slurm_time
from orchestrator.executors.slurm.shapes import Element, Shape, common_limit, elements, work_of
from orchestrator.executors.slurm.site import Site
from orchestrator.files.printable_text import counted, rounded
from orchestrator.files.redaction import redactor
from orchestrator.plan.view.as_commands import RUN_DIR
from orchestrator.records import Device, Experiment, Job

# Placeholders for what is known only when an array is submitted: its name, and its folder.
NAME, FOLDER = "{name}", Path("{batch_dir}")
# Keys of the site file that the cluster may refuse.
_OF_THE_CLUSTER = (
    "partition",
    "account",
    "qos",
    "constraint",
    "time",
    "gpu_type",
    "cpus_per_gpu",
    "mem_per_gpu",
    "lines",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrays:
    """The allocations of each shape on the cluster of a site."""

    site: Site
    shapes: Mapping[Shape, Sequence[Element]]

    def lines(self) -> list[str]:
        """Return a line for each shape: its runs, its allocations, their time limit, the GPU-hours and their price.

        Then a line says how long jobs may wait if the site limits this, and a last line says what a plan does not check.
        """
        lines = [_line(shape, chosen, self.site) for shape, chosen in self.shapes.items()]
        return [*lines, *_waiting(self.site), _not_asked(self.site)] if lines else []

    def scripts(self, run_array: Sequence[str] = RUN_ARRAY) -> Iterator[str]:
        """Yield for each shape a comment and the batch script of its array, with placeholders such as `{name}`."""
        redact = redactor()
        for shape, chosen in self.shapes.items():
            runs = tuple(tuple(f"{work.job.experiment_id}/{work.job.name}" for work in one.work) for one in chosen)
            batch = Batch(name=NAME, shape=shape, time_s=common_limit(chosen), elements=runs, created_at=0.0)
            script = batch_script(batch, self.site, folder=FOLDER, run_array=run_array)
            yield f"\n# {_line(shape, chosen, self.site)}\n{redact(script)}"


def _waiting(site: Site) -> Iterator[str]:
    """Yield a sentence about the longest wait of a job that Slurm holds, if the site file has one."""
    if site.max_pending_s is not None:
        longest = slurm_time(site.max_pending_s)
        yield f"max_pending: a job that Slurm holds for a reason that stays is cancelled after {longest}"


def all_runs(experiments: Iterable[Experiment]) -> list[Job]:
    """Return the first runs of all experiments that can run."""
    ready = [experiment for experiment in experiments if not (experiment.skip or experiment.cannot_run_here)]
    return [
        Job(experiment_id=experiment.id, repeat=repeat, attempt=1, run_dir=RUN_DIR)
        for experiment in ready
        for repeat in range(1, experiment.repeats + 1)
    ]


def arrays_of(
    experiments: Iterable[Experiment], jobs: Iterable[Job], site: Site, took_s: Mapping[str, Sequence[float]]
) -> Arrays:
    """Return the arrays of these runs. `took_s` maps an experiment's id to the seconds of its earlier runs."""
    known = {experiment.id: experiment for experiment in experiments}
    works = (work_of(job, known[job.experiment_id], took_s.get(job.experiment_id, ())) for job in jobs)
    return Arrays(site=site, shapes=elements(works, site))


def _line(shape: Shape, chosen: Sequence[Element], site: Site) -> str:
    sizes = [len(element.work) for element in chosen]
    many = f" of up to {max(sizes)} runs" if max(sizes) > 1 else ""
    limit_s = common_limit(chosen)
    limit = "the partition's time limit" if limit_s is None else f"time limit {slurm_time(limit_s)}"
    runs = f"array: {counted(sum(sizes), 'run')} with {shape}, in {counted(len(sizes), 'allocation')}{many}, {limit}"
    return runs + _gpu_hours(shape, chosen, site)


def _not_asked(site: Site) -> str:
    keys = [f"`{key}:`" for key in _OF_THE_CLUSTER if key in site.places]
    *first, last = keys or ["its default partition", "your account"]
    what = f"{', '.join(first)} and {last}" if first else last
    cure = "`tunebench site check` compares the site file with the cluster"
    return f"note: a plan does not ask the cluster, so {what} {'are' if first else 'is'} not checked; {cure}"


def _gpu_hours(shape: Shape, chosen: Sequence[Element], site: Site) -> str:
    """Return the expected GPU-hours if earlier runs show them, else the largest that the time limit allows; "" if unknown."""
    expected = [work.expected_s for element in chosen for work in element.work]
    limit_s = common_limit(chosen)
    if shape.device is not Device.CUDA or (None in expected and limit_s is None):
        return ""
    word, seconds = (
        ("about", sum(filter(None, expected))) if None not in expected else ("at most", (limit_s or 0.0) * len(chosen))
    )
    hours = seconds * shape.num_gpus / 3600
    cost = site.price and site.price.of_time(seconds, gpus=shape.num_gpus, nodes=shape.num_nodes)
    return f", {word} {rounded(hours, 3)} GPU-hours" + (
        f", which cost {site.price.shown(cost)}" if site.price and cost else ""
    )

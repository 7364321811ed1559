"""The batch script of an array, and the allocations that runs are put into."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from factories.results import job
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.executors.slurm.batches import Batch
from orchestrator.executors.slurm.script import batch_script, slurm_time
from orchestrator.executors.slurm.shapes import Element, Shape, Work, elements
from orchestrator.executors.slurm.site import Site
from orchestrator.records import Device

RUN_ARRAY = ("/env/bin/python", "-P", "/env/orchestrator/__main__.py", "run-array")
SCRIPTS = {
    "plain": (Shape(device=Device.CUDA, num_gpus=1), 1, None, Site()),
    "cpu": (Shape(device=Device.CPU, num_gpus=4), 3, 600.0, Site(cpus_per_gpu=16, mem_per_gpu="64G")),
    "whole": (
        Shape(device=Device.CUDA, num_gpus=8),
        1001,
        90061.0,
        Site(
            partition="gpu",
            account="ml-bench",
            qos="long",
            constraint="nvlink&h100",
            lines=("--exclusive", "--comment=nightly"),
            prologue="module purge\nmodule load cuda/12.8\n",
            gpu_type="h100",
            cpus_per_gpu=16,
            mem_per_gpu="64G",
            scratch="/local/$USER scratch",
            throttle=20,
        ),
    ),
    "two-nodes": (Shape(device=Device.CUDA, num_gpus=16, num_nodes=2), 2, 7200.0, Site(gpu_type="a100")),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_golden(name: str, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    shape, count, time_s, site = SCRIPTS[name]
    runs = (("e/r1-t1",),) * count
    batch = Batch(name="tb-0a1b2c3d.0007", shape=shape, time_s=time_s, elements=runs, created_at=0.0)
    script = batch_script(batch, site, folder=Path("/home/me/it's here/slurm/0007"), run_array=RUN_ARRAY)
    golden(f"script/slurm-{name}.sh", script)
    (tmp_path / "job.sh").write_text(script)
    subprocess.run(["bash", "-n", tmp_path / "job.sh"], check=True)


@pytest.mark.parametrize(
    "seconds, text", [(1, "00:01:00"), (60, "00:01:00"), (61, "00:02:00"), (3600, "01:00:00"), (90061, "1-01:02:00")]
)
def test_time_limits_are_whole_minutes(seconds: float, text: str) -> None:
    assert slurm_time(seconds) == text


SHAPES = [Shape(device=Device.CUDA, num_gpus=number) for number in (1, 2, 8)]
WORK = st.lists(
    st.tuples(st.sampled_from(SHAPES), st.none() | st.floats(1, 7200), st.none() | st.floats(0.1, 300)), max_size=60
)
SITES = st.builds(
    Site,
    time_s=st.none() | st.floats(60, 86400),
    pilot=st.none() | st.integers(1, 12),
)


def works(of: list[tuple[Shape, float | None, float | None]]) -> list[Work]:
    return [
        Work(job=job(number + 1), shape=shape, limit_s=limit_s, expected_s=expected_s)
        for number, (shape, limit_s, expected_s) in enumerate(of)
    ]


@given(WORK, SITES)
def test_every_run_is_in_one_element_and_limits_hold(
    of: list[tuple[Shape, float | None, float | None]], site: Site
) -> None:
    due = works(of)
    planned = elements(due, site)
    for shape, own in planned.items():
        flat = [work for element in own for work in element.work]
        assert flat == [work for work in due if work.shape == shape], "in their order, each once"
        for element in own:
            within_limits(element, site)
    assert sum(len(element.work) for own in planned.values() for element in own) == len(due)


def within_limits(element: Element, site: Site) -> None:
    limits = [work.limit_s for work in element.work if work.limit_s is not None]
    bounded = len(limits) == len(element.work)
    assert element.work
    if site.time_s is not None:
        assert element.time_s == site.time_s
        assert len(element.work) == 1 or not bounded or sum(limits) < site.time_s
    else:
        assert element.time_s is None if not bounded else element.time_s is not None and element.time_s > sum(limits)
    if site.pilot is not None:
        assert len(element.work) <= site.pilot
    elif len(element.work) > 1:
        expected = [work.expected_s for work in element.work]
        assert all(time is not None and time < 120 for time in expected) and sum(filter(None, expected)) <= 600


def test_short_runs_share_an_allocation_only_if_they_are_known_to_be_short() -> None:
    one = SHAPES[0]
    assert [len(element.work) for element in elements(works([(one, 60.0, 30.0)] * 25), Site())[one]] == [20, 5]
    assert [len(element.work) for element in elements(works([(one, 60.0, None)] * 3), Site())[one]] == [1, 1, 1]
    assert [len(element.work) for element in elements(works([(one, None, None)] * 7), Site(pilot=3))[one]] == [3, 3, 1]

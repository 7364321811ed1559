"""Who gets which GPUs and cores, and who is next."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.executors.pool import Pool, Queue, Share
from orchestrator.machine import cores
from orchestrator.records import Gpu, Job


def gpus(count: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(index=index, uuid=f"GPU-{index}", name="X") for index in range(count))


def job(number: int, repeat: int = 1) -> Job:
    return Job(experiment_id=f"e{number}", repeat=repeat, attempt=1, run_dir=Path(f"/r/{number}/{repeat}"))


@given(st.integers(0, 8), st.integers(1, 8), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_no_gpu_and_no_place_is_given_out_twice(count: int, places: int, asked: list[tuple[int, bool]]) -> None:
    pool, held = Pool(gpus(count), places=places), list[Share]()
    for wanted, give_back in asked:
        share = pool.take(wanted)
        if share is None:
            assert len(held) == places or wanted > count - sum(len(one.gpus) for one in held)
        else:
            assert len(share.gpus) == wanted
            held.append(share)
        taken = [gpu for one in held for gpu in one.gpus]
        assert len(taken) == len(set(taken)) and len({one.place for one in held}) == len(held) <= places
        if give_back and held:
            pool.give_back(held.pop(0))
    for one in held:
        pool.give_back(one)
    assert pool.free == list(pool.gpus) and pool.places == list(range(places))


def test_the_idlest_comes_first_and_several_stand_together() -> None:
    busy_first = tuple(reversed(gpus(4)))
    assert [gpu.index for gpu in Pool(busy_first, places=4).take(1).gpus] == [3]
    pool = Pool(gpus(4), places=4)
    pool.free = [gpu for gpu in pool.gpus if gpu.index != 1]
    assert [gpu.index for gpu in pool.take(2).gpus] == [2, 3]


def test_a_runs_cores_are_those_of_its_gpus_or_of_its_place() -> None:
    own = {"GPU-0": (0, 1), "GPU-1": (2, 3)}
    pool = Pool(gpus(2), places=3, cores_of=own, cores_of_place=((0,), (1,), (2, 3)))
    assert pool.take(2).cores == (0, 1, 2, 3)
    assert pool.take(0).cores == (1,)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=30),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_everybody_runs_once_and_nobody_waits_for_ever(
    wanted: list[tuple[int, int]], count: int, random: object
) -> None:
    """Runs end in any order: still every job is taken, and one that waits is passed by a bounded number of others."""
    pool, patience = Pool(gpus(count), places=8), 2 * count
    queue = Queue(
        waiting=[(job(number, repeat), needs) for number, (needs, repeat) in enumerate(wanted)], patience=patience
    )
    running: list[Share | None] = []
    done, passes = list[Job](), 0
    while queue.waiting or running:
        head = min(queue.waiting, key=lambda entry: (entry[0].repeat, -entry[1]))[0] if queue.waiting else None
        taken = queue.take(pool) if queue.waiting else None
        if taken is None:
            share = running.pop(random.randrange(len(running)))  # type: ignore[attr-defined]
            if share is not None:
                pool.give_back(share)
            continue
        passes = passes + 1 if taken[0] != head and taken[1] is not None else 0
        assert passes <= patience
        done.append(taken[0])
        running.append(taken[1])
    assert sorted(one.experiment_id for one in done) == sorted(f"e{number}" for number in range(len(wanted)))


def test_a_rounds_largest_go_first_and_rounds_stay_in_order() -> None:
    queue = Queue(waiting=[(job(1), 1), (job(2), 4), (job(3, 2), 4), (job(4), 1)], patience=8)
    pool = Pool(gpus(4), places=4)
    order = []
    while queue.waiting:
        taken = queue.take(pool)
        if taken is None:
            pool = Pool(gpus(4), places=4)
            continue
        order.append(taken[0].experiment_id)
    assert order == ["e2", "e1", "e4", "e3"]


def test_a_job_that_could_never_fit_is_let_go_at_once() -> None:
    queue = Queue(waiting=[(job(1), 8)], patience=1)
    assert queue.take(Pool(gpus(2), places=1)) == (job(1), None)


@given(st.integers(1, 40), st.integers(1, 16))
def test_cores_are_dealt_evenly_and_once(count: int, shares: int) -> None:
    physical = [(number, number + count) for number in range(count)]
    found = cores.deal(physical, shares)
    assert len(found) == shares
    threads = [thread for share in found for thread in share]
    if count < shares:
        assert threads == []
    else:
        assert sorted(threads) == sorted(thread for core in physical for thread in core)
        sizes = {len(share) // 2 for share in found}
        assert max(sizes) - min(sizes) <= 1


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two nodes of two physical cores of two threads, a GPU beside each; thread 7 is not ours to use."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(7)), raising=False)
    for node, threads in enumerate(("0-1,4-5", "2-3,6-7")):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(threads + "\n")
        device = tmp_path / f"bus/pci/devices/0000:{node}f:00.0"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
    for thread in range(8):
        folder = tmp_path / f"devices/system/cpu/cpu{thread}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{thread % 4},{thread % 4 + 4}\n")
    return tmp_path


def test_a_gpus_cores_are_those_of_its_node(machine: Path) -> None:
    layout = cores.physical_cores(machine)
    assert layout == {0: [(0, 4), (1, 5)], 1: [(2, 6), (3,)]}
    both = gpus(2)
    nodes = cores.numa_nodes(both, {"GPU-0": "00000000:0F:00.0", "GPU-1": "00000000:1F:00.0"}, machine)
    assert nodes == {"GPU-0": 0, "GPU-1": 1}
    assert cores.cores_of_gpus(both, nodes, layout) == {"GPU-0": (0, 4, 1, 5), "GPU-1": (2, 6, 3)}
    assert cores.cores_of_gpus(both, {}, layout) == {"GPU-0": (0, 4, 1, 5), "GPU-1": (2, 6, 3)}


def test_what_is_no_list_of_cores_is_none() -> None:
    assert (cores.parse_cpu_list("0-2,8\n"), cores.parse_cpu_list(""), cores.parse_cpu_list("none")) == (
        [0, 1, 2, 8],
        [],
        [],
    )

"""The light memory tracker beside the installed transformers' own: the same keys, and the same bytes of a made-up GPU.

The GPU is an allocator of a few lines in the place of `torch.cuda`; a real one is asked in tests/gpu.
"""

from __future__ import annotations

import gc
import mmap
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
trainer_utils = pytest.importorskip("transformers.trainer_utils")
import stages  # noqa: E402
from stages import Memory  # noqa: E402

MIB = 2**20


class FakeCuda:
    """Memory of a GPU: bytes in use, bytes kept, and the highest of both since the last reset."""

    def __init__(self) -> None:
        self.now = self.kept = 0
        self.peaks = [0, 0]

    def take(self, size: int) -> None:
        self.now = max(0, self.now + size)
        self.kept = max(self.kept, self.now)
        self.peaks = [max(self.peaks[0], self.now), max(self.peaks[1], self.kept)]

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def memory_allocated(self) -> int:
        return self.now

    def max_memory_allocated(self) -> int:
        return self.peaks[0]

    def reset_peak_memory_stats(self) -> None:
        self.peaks = [self.now, self.kept]

    def empty_cache(self) -> None:
        self.kept = self.now

    def memory_stats(self) -> dict[str, int]:
        bytes_of = {"allocated": (self.now, self.peaks[0]), "reserved": (self.kept, self.peaks[1])}
        return {
            f"{kind}_bytes.all.{which}": value
            for kind, values in bytes_of.items()
            for which, value in zip(("current", "peak"), values, strict=True)
        }


class Trainer:
    """Asks its tracker where the real one does: stages go by the names of the methods. `work` are (what, bytes)."""

    def __init__(self, tracker: Any, memory: Memory, work: list[list[tuple[str, int]]], *, resets: bool) -> None:
        self.tracker, self.memory, self.work, self.resets = tracker, memory, work, resets
        self.tracker.start()
        self.do(work[0])
        self.tracker.stop_and_update_metrics()

    def do(self, work: list[tuple[str, int]]) -> None:
        for what, size in work:
            if what == "stage" and self.memory.stage is None:
                self.memory.begin(resets=self.resets)
            elif what == "stage":
                self.memory.close(following="steady")
            elif what == "evaluate":
                self.evaluate(size)
            else:
                torch.cuda.take(size)

    def evaluate(self, size: int) -> None:
        self.tracker.start()
        torch.cuda.take(size)
        torch.cuda.take(-size)
        self.tracker.stop_and_update_metrics({})

    def train(self) -> dict[str, Any]:
        self.tracker.start()
        metrics: dict[str, Any] = {}
        self.do(self.work[1])
        self._inner_training_loop(metrics)
        return metrics

    def _inner_training_loop(self, metrics: dict[str, Any]) -> None:
        self.tracker.stop_and_update_metrics(metrics)


def on_gpu(work: list[list[tuple[str, int]]], *, light: bool) -> tuple[dict[str, Any], Memory]:
    """GPU metrics of a training that does this work, with one tracker or the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "cuda", FakeCuda())
        patch.setattr(trainer_utils, "is_torch_cuda_available", lambda: True)
        patch.setattr(trainer_utils, "gc", SimpleNamespace(collect=lambda: None))
        memory = Memory()
        original = trainer_utils.TrainerMemoryTracker
        tracker = (stages.light(original, memory) if light else original)(False)
        torch.cuda.take(3 * MIB)
        metrics = Trainer(tracker, memory, work, resets=light).train()
        return {name: value for name, value in metrics.items() if "_gpu" in name}, memory


Work = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(-20, 40)),
        st.tuples(st.sampled_from(["stage", "evaluate"]), st.integers(1, 40)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(Work, Work)
def test_bytes_of_the_gpu_are_the_originals_whatever_is_reset_in_between(
    init: list[tuple[str, int]], train: list[tuple[str, int]]
) -> None:
    native, _ = on_gpu([init, train], light=False)
    light, _ = on_gpu([init, train], light=True)
    assert light == native
    assert set(native) >= {"before_init_mem_gpu", "init_mem_gpu_peaked_delta", "train_mem_gpu_alloc_delta"}


def test_stages_have_peaks_of_their_own() -> None:
    loading, first, later = [("take", 50), ("take", -40)], [("take", 7), ("take", -7)], [("take", 5), ("take", -3)]
    metrics, memory = on_gpu([loading, [("stage", 0), *first, ("stage", 0), *later]], light=True)
    start = 3 * MIB
    found = [memory.stages[name] or {} for name in ("after_load", "first_step", "steady")]
    assert [stage["allocated_bytes"] - start for stage in found] == [10, 10, 12]
    assert [stage["peak_allocated_bytes"] - start for stage in found] == [50, 17, 15]
    assert metrics["train_mem_gpu_peaked_delta"] == 17 - 12
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "cuda", FakeCuda())
        assert memory.over_process()["allocated_bytes"] == start + 50


def test_what_the_forward_pass_saves_is_read_once_before_the_backward_pass() -> None:
    cuda = FakeCuda()
    memory = stages.Memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "cuda", cuda)
        backward = memory.noting_saved(lambda loss, factor=1: loss * factor)
        assert backward(3, factor=2) == 6
        assert memory.over_process()["saved_for_backward_bytes"] is None, "no forward pass was announced"
        cuda.take(40)
        memory.forward_begins()
        cuda.take(30)
        cuda.take(-10)
        backward(1)
        cuda.take(70)
        backward(1)
        assert memory.over_process()["saved_for_backward_bytes"] == 20


def test_beside_the_native_tracker_stages_have_no_peaks() -> None:
    _, memory = on_gpu([[("take", 50)], [("stage", 0), ("take", 5)]], light=False)
    after_load = memory.stages["after_load"]
    assert after_load and after_load["allocated_bytes"] == 3 * MIB + 50
    assert after_load["peak_allocated_bytes"] is None


def test_where_no_stages_were_begun_the_tracker_closes_none() -> None:
    metrics, memory = on_gpu([[("take", 50)], [("take", 5)]], light=True)
    assert metrics["train_mem_gpu_alloc_delta"] == 5
    assert set(memory.stages.values()) == {None}


def pages(size: int) -> mmap.mmap:
    """Memory of its own, every page of it in use: what `malloc` has kept from earlier tests would not raise what is resident."""
    block = mmap.mmap(-1, size)
    for place in range(0, size, mmap.PAGESIZE):
        block[place] = 1
    return block


class OnCpu:
    """A stage that holds 64 MiB for a moment, and one that keeps 16 MiB."""

    def __init__(self, tracker: Any) -> None:
        self.tracker = tracker
        self.tracker.start()
        held = pages(64 * MIB)
        time.sleep(0.05)
        held.close()
        self.tracker.stop_and_update_metrics()

    def train(self) -> dict[str, Any]:
        self.tracker.start()
        self.kept = pages(16 * MIB)
        metrics: dict[str, Any] = {}
        self.tracker.stop_and_update_metrics(metrics)
        return metrics


@pytest.fixture
def threads() -> Iterator[list[str]]:
    """Names of the functions that threads were started with."""
    started: list[str] = []

    class Watched(threading.Thread):
        def __init__(self, *args: Any, target: Any, **kwargs: Any) -> None:
            started.append(target.__qualname__)
            super().__init__(*args, target=target, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_utils.threading, "Thread", Watched)
        yield started


def test_memory_of_the_host_is_told_alike(threads: list[str]) -> None:
    memory = Memory()
    gc.collect()  # earlier tests' garbage, which the trackers would collect in the midst of what they measure
    native = OnCpu(trainer_utils.TrainerMemoryTracker(False)).train()
    light = OnCpu(stages.light(trainer_utils.TrainerMemoryTracker, memory)(False)).train()
    assert light.keys() == native.keys()
    assert "LightMemoryTracker.peak_monitor_func" in threads[-1]
    for metrics in (light, native):
        assert metrics["train_mem_cpu_alloc_delta"] == pytest.approx(16 * MIB, abs=4 * MIB)
    if memory.restart_high_water():
        assert light["init_mem_cpu_peaked_delta"] == pytest.approx(64 * MIB, abs=8 * MIB)
        assert native["init_mem_cpu_peaked_delta"] == pytest.approx(64 * MIB, abs=8 * MIB)


def test_where_the_kernel_keeps_no_peak_the_readings_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr(memory, "restart_high_water", lambda: False)
    metrics = OnCpu(stages.light(trainer_utils.TrainerMemoryTracker, memory)(False)).train()
    assert 0 <= metrics["init_mem_cpu_peaked_delta"] < 8 * MIB
    assert metrics["train_mem_cpu_peaked_delta"] >= 0


def test_a_tracker_that_was_not_asked_for_does_nothing() -> None:
    tracker = stages.light(trainer_utils.TrainerMemoryTracker, Memory())(True)
    tracker.start()
    tracker.stop_and_update_metrics({})
    assert not hasattr(tracker, "cpu")

"""Whether a run has its GPUs to itself: what waiting, warning and failing come to, with a look that is told what it sees."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from factories.cases import cases
from fake_pynvml import FakeGpu, FakeNvml

from orchestrator.errors import LaunchError
from orchestrator.monitors.nvml_numbers import named
from orchestrator.records import Gpu
from orchestrator.run import gpu_access
from orchestrator.run.gpu_access import occupants, settle

GPUS = (Gpu(index=0, uuid="GPU-a", name="H100"), Gpu(index=3, uuid="GPU-b", name="H100"))
BUSY = "GPU 0 (H100) was in use (8.0 GiB, process 12 (python))"
GIB = 2**30


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_access, "_PAUSE_S", 0.01)


class Looks:
    """Sees these occupants in turn, the last ones for ever."""

    def __init__(self, *seen: tuple[str, ...]) -> None:
        self.seen, self.count = seen, 0

    def __call__(self, gpus: Sequence[Gpu]) -> tuple[str, ...]:
        self.count += 1
        return self.seen[min(self.count, len(self.seen)) - 1]


@pytest.mark.parametrize("policy", ["wait", "warn", "fail"])
def test_idle_gpus_are_looked_at_once_and_nothing_is_said(policy: str) -> None:
    look = Looks(())
    assert settle(GPUS, policy, look=look) == ()
    assert look.count == 1


@pytest.mark.parametrize("policy", ["wait", "warn", "fail"])
def test_without_gpus_nobody_looks(policy: str) -> None:
    look = Looks((BUSY,))
    assert settle((), policy, look=look) == ()
    assert look.count == 0


def test_warn_says_it_and_goes_on_at_once() -> None:
    look = Looks((BUSY, "GPU 3 (H100) was in use (2.0 GiB, by no visible process)"))
    assert settle(GPUS, "warn", look=look) == (
        f"{BUSY} when the run began",
        "GPU 3 (H100) was in use (2.0 GiB, by no visible process) when the run began",
    )
    assert look.count == 1


def test_fail_names_who_is_there_and_what_to_do() -> None:
    look = Looks((BUSY,), ())
    with pytest.raises(LaunchError) as caught:
        settle(GPUS, "fail", look=look)
    assert str(caught.value) == (
        f"{BUSY}; end the processes there, choose other GPUs with CUDA_VISIBLE_DEVICES, or set busy_gpus: warn"
    )
    assert look.count == 1


def test_wait_goes_on_as_soon_as_they_are_idle() -> None:
    look = Looks((BUSY,), (BUSY,), ())
    assert settle(GPUS, "wait", look=look) == ()
    assert look.count == 3


def test_patience_is_bounded_and_the_waiting_is_in_the_sentence() -> None:
    began = time.monotonic()
    assert settle(GPUS, "wait", patience_s=0.1, look=Looks((BUSY,))) == (
        f"{BUSY} when the run began after 0 s of waiting",
    )
    assert 0.1 <= time.monotonic() - began < 30


def test_the_last_look_is_the_one_that_is_told() -> None:
    look = Looks((BUSY, BUSY), (BUSY,))
    assert len(settle(GPUS, "wait", patience_s=0.05, look=look)) == 1


def test_a_run_that_is_cancelled_waits_no_longer() -> None:
    began, look = time.monotonic(), Looks((BUSY,))
    found = settle(GPUS, "wait", cancelled=lambda: look.count >= 3, patience_s=60, look=look)
    assert time.monotonic() - began < 30
    assert (look.count, len(found)) == (3, 1)
    assert "60 s" not in found[0], "it did not wait for so long"


@pytest.mark.parametrize(("seen", "words"), cases("gpu_access/a_process_in_words"))
def test_a_process_in_words(seen: str, words: str) -> None:
    assert named(seen) == words


# The look itself, with an NVML that is told what it says


def driver(monkeypatch: pytest.MonkeyPatch, **devices: FakeGpu) -> None:
    """An NVML that knows these devices, by UUID."""
    gpus = [replace(gpu, uuid=f"GPU-{name}") for name, gpu in devices.items()]
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(gpus))


HIGH = 2**31 - 1  # no process has this number


def test_memory_and_processes_make_a_gpu_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, a=FakeGpu(used=GIB // 2, pids=[HIGH]), b=FakeGpu(used=3 * GIB))
    assert occupants(GPUS) == (
        f"GPU 0 (H100) was in use (0.5 GiB, process {HIGH} of another container)",
        "GPU 3 (H100) was in use (3.0 GiB, by no visible process)",
    )


def test_a_displays_memory_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, a=FakeGpu(used=GIB // 2), b=FakeGpu(used=0))
    assert occupants(GPUS) == ()


def test_memory_tells_where_processes_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, a=FakeGpu(used=5 * GIB, pids=None), b=FakeGpu(used=0, pids=None))
    assert occupants(GPUS) == ("GPU 0 (H100) was in use (5.0 GiB, by no visible process)",)


def test_a_gpu_of_which_nothing_is_said_counts_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, b=FakeGpu(error=15))
    assert occupants(GPUS) == ()


def test_a_machine_without_a_driver_has_no_occupants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert occupants(GPUS) == ()

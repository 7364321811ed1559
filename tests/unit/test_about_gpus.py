"""What imports ask about the GPUs is answered in a fork, so that CUDA is not started in the warm starter."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import orchestrator

sys.path.append(str(Path(orchestrator.__file__).parent / "workers" / "warm"))
import about_gpus


class Gpus(ModuleType):
    """torch.cuda of a machine with GPUs of these capabilities.

    `started` tells whether this process has started CUDA, and `counted` whether it has counted the GPUs, which starts NVML. As
    torch does, it asks for the capabilities by their name again while it starts CUDA.
    """

    def __init__(self, *capabilities: tuple[int, int]) -> None:
        super().__init__("torch.cuda")
        self.capabilities, self.started, self.counted = capabilities, False, False

    def is_available(self) -> bool:
        return bool(sys.modules["torch.cuda"].device_count())

    def device_count(self) -> int:
        self.counted = True
        return len(self.capabilities)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        if not self.started:
            self.started = True
            for number in range(self.device_count()):
                sys.modules["torch.cuda"].get_device_capability(number)
        return self.capabilities[device or 0]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Gpus, ModuleType]]:
    """A function that makes a machine with GPUs, and its module with the question whether Triton can use them."""

    def made(*capabilities: tuple[int, int]) -> tuple[Gpus, ModuleType]:
        cuda, triton = Gpus(*capabilities), ModuleType("torch.utils._triton")
        triton.has_triton = lambda: cuda.get_device_capability() >= (7, 0)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
        monkeypatch.setitem(sys.modules, "torch.utils._triton", triton)
        return cuda, triton

    return made


def test_gpus_that_are_alike_are_asked_in_a_fork(machine: Callable[..., tuple[Gpus, Any]]) -> None:
    cuda, triton = machine((9, 0), (9, 0))
    with about_gpus.answered_in_forks(cuda):
        kept = cuda.get_device_capability
        assert [cuda.get_device_capability(1), cuda.get_device_capability(), triton.has_triton()] == [
            (9, 0),
            (9, 0),
            True,
        ]
    assert not cuda.started
    assert cuda.get_device_capability is not kept
    assert kept(1) == (9, 0) and cuda.started  # the imports are made: a run asks its own CUDA


def test_an_answer_may_be_no(machine: Callable[..., tuple[Gpus, Any]]) -> None:
    cuda, triton = machine((6, 0))
    with about_gpus.answered_in_forks(cuda):
        assert triton.has_triton() is False
    assert not cuda.started


def test_gpus_that_are_unlike_start_cuda_here(machine: Callable[..., tuple[Gpus, Any]]) -> None:
    """The starter then says that CUDA was started, and runs start cold."""
    cuda, _ = machine((9, 0), (8, 0))
    with about_gpus.answered_in_forks(cuda):
        assert cuda.get_device_capability(1) == (8, 0)
    assert cuda.started


def test_gpus_are_counted_in_a_fork(machine: Callable[..., tuple[Gpus, Any]]) -> None:
    cuda, _ = machine((9, 0), (9, 0))
    with about_gpus.answered_in_forks(cuda):
        assert (cuda.is_available(), cuda.device_count()) == (True, 2)
    assert not cuda.counted


def test_without_a_gpu_torch_answers(machine: Callable[..., tuple[Gpus, Any]]) -> None:
    cuda, triton = machine()
    triton.has_triton = lambda: False
    with about_gpus.answered_in_forks(cuda):
        assert (cuda.is_available(), cuda.device_count(), triton.has_triton()) == (False, 0, False)


def test_nothing_is_asked_where_no_import_asks(
    machine: Callable[..., tuple[Gpus, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda, _ = machine((9, 0))
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a fork was made"))
    with about_gpus.answered_in_forks(cuda):
        pass
    assert not cuda.counted


def test_a_question_that_fails_in_the_fork_has_no_answer() -> None:
    assert about_gpus.in_a_fork(lambda: 1 / 0) is None


def test_the_fork_makes_no_forks_of_its_own(machine: Callable[..., tuple[Gpus, Any]], tmp_path: Path) -> None:
    cuda, triton = machine((9, 0))
    forks, fork = tmp_path / "forks", os.fork

    def noted() -> int:
        with forks.open("a") as file:
            file.write("fork\n")
        return fork()

    os.fork = noted
    try:
        with about_gpus.answered_in_forks(cuda):
            assert (cuda.get_device_capability(), triton.has_triton()) == ((9, 0), True)
    finally:
        os.fork = fork
    assert forks.read_text() == "fork\nfork\n"


def test_an_older_torch_lacks_a_question(
    machine: Callable[..., tuple[Gpus, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda, _ = machine((9, 0))
    monkeypatch.setitem(sys.modules, "torch.utils._triton", None)
    with about_gpus.answered_in_forks(cuda):
        assert cuda.get_device_capability() == (9, 0)
    assert not cuda.started

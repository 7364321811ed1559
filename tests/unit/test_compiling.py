"""The compiler of the built-in trainer's model: none, Thunder, or one that the Trainer knows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from arguments import ArgumentError
from compiling import compile_by_thunder, without_own_backends
from settings import thunder_executors


class Compiler:
    """Stands for Thunder's: it runs the graphs as they are."""

    graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        type(self).graphs += 1
        return graph.forward  # type: ignore[no-any-return]


class Model(torch.nn.Module):
    """A module of the test. torch.compile leaves modules of torch itself alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.linear(rows) * 2


@pytest.mark.parametrize("backend", ["none", "None", "False", "no", "thunder"])
def test_the_trainer_hears_nothing_of_our_own_backends(backend: str) -> None:
    given = {"max_steps": 3, "torch_compile": True, "torch_compile_backend": backend, "torch_compile_mode": "default"}
    assert without_own_backends(given) == {"max_steps": 3}


@pytest.mark.parametrize("asked", [{"torch_compile_backend": "inductor"}, {"torch_compile_backend": None}, {}])
def test_it_hears_of_all_others(asked: dict[str, str | None]) -> None:
    given = {"torch_compile": True, **asked}
    assert without_own_backends(given) == given


def test_thunder_gets_the_graphs_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    package, part = ModuleType("thunder"), ModuleType("thunder.dynamo")
    monkeypatch.setattr(part, "ThunderCompiler", Compiler, raising=False)
    monkeypatch.setitem(sys.modules, "thunder", package)
    monkeypatch.setitem(sys.modules, "thunder.dynamo", part)
    model, rows = Model(), torch.ones(3, 4)
    plain = model(rows)
    compile_by_thunder(model, {"torch_compile_backend": "none"})
    assert torch.equal(model(rows), plain) and Compiler.graphs == 0
    compile_by_thunder(model, {"torch_compile_backend": "thunder"})
    assert torch.equal(model(rows), plain) and Compiler.graphs == 1
    model(rows).sum().backward()
    assert model.linear.weight.grad is not None


def test_the_executors_of_thunder_are_a_setting_in_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    trainer = SimpleNamespace(model_wrapped=model)
    monkeypatch.delitem(sys.modules, "thunder", raising=False)
    model.compile(backend=Compiler())
    assert thunder_executors(trainer) is None
    executors = [SimpleNamespace(name="sdpa"), SimpleNamespace(name="torchcompile_xentropy")]
    monkeypatch.setitem(sys.modules, "thunder", SimpleNamespace(get_default_executors=lambda: executors))
    assert thunder_executors(trainer) == "sdpa torchcompile_xentropy"
    assert thunder_executors(SimpleNamespace(model_wrapped=Model())) is None


def test_without_thunder_one_sentence_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "thunder", None)
    with pytest.raises(ArgumentError, match="needs lightning-thunder and a torch that fits it") as error:
        compile_by_thunder(torch.nn.Linear(1, 1), {"torch_compile_backend": "thunder"})
    assert "\n" not in str(error.value)

"""What a step's line says of torch.compile, by torch's own count of graphs, which the test sets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import compilations
import pytest

Graphs = Callable[[int], None]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    """Set the number of graphs that torch has compiled."""
    counters: dict[str, dict[str, int]] = {}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters=counters))

    def made(count: int) -> None:
        counters["stats"] = {"unique_graphs": count}

    return made


def batch(width: int) -> dict[str, Any]:
    return {"input_ids": SimpleNamespace(shape=(2, width))}


def steps(graphs: Graphs, *made: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """The fields of each step; a step has micro-batches, each with its width and the graphs by then."""
    seen = compilations.Compilations()
    fields = []
    for number, batches in enumerate(made, start=1):
        seen.begin()
        for width, count in batches:
            graphs(count)
            seen.batch(batch(width))
        fields.append(seen.end(first=number == 1))
    return fields


def test_the_first_step_compiles_and_later_ones_recompile(graphs: Graphs) -> None:
    found = steps(graphs, [(8, 3)], [(8, 3)], [(9, 5)], [(8, 5)], [(9, 6)])
    assert found == [{"compiled": 3}, {}, {"recompiled": 2, "new_width": True}, {}, {"recompiled": 1}]


def test_the_first_graph_of_the_process_is_expected_in_any_step(graphs: Graphs) -> None:
    assert steps(graphs, [(8, 0)], [(9, 1)], [(9, 2)]) == [{}, {"compiled": 1}, {"recompiled": 1}]


def test_the_first_step_is_expected_to_compile_whatever_came_before(graphs: Graphs) -> None:
    graphs(7)
    assert steps(graphs, [(8, 8)], [(9, 9)]) == [{"compiled": 1}, {"recompiled": 1, "new_width": True}]


def test_a_new_width_is_the_reason_only_of_the_batch_that_had_it(graphs: Graphs) -> None:
    found = steps(graphs, [(8, 1)], [(9, 1), (8, 2)], [(8, 2), (7, 3)])
    assert found == [{"compiled": 1}, {"recompiled": 1}, {"recompiled": 1, "new_width": True}]


def test_what_was_compiled_between_steps_is_no_step_s(graphs: Graphs) -> None:
    seen = compilations.Compilations()
    graphs(1)
    assert seen.end(first=True) == {"compiled": 1}
    graphs(4)  # an evaluation
    seen.begin()
    assert seen.end(first=False) == {}


def test_counts_that_were_set_to_zero_are_no_compilation(graphs: Graphs) -> None:
    assert steps(graphs, [(8, 5)], [(8, 0)], [(8, 1)]) == [{"compiled": 5}, {}, {"compiled": 1}]


@pytest.mark.parametrize("inputs", [None, {}, {"input_ids": [1, 2]}, {"input_ids": SimpleNamespace(shape=())}, "text"])
def test_a_batch_without_a_width_is_no_reason(graphs: Graphs, inputs: Any) -> None:
    assert compilations.width_of(inputs) is None
    seen = compilations.Compilations()
    for count in (1, 2):
        graphs(count)
        seen.batch(inputs)
    assert seen.end(first=False) == {"compiled": 2}


def test_torch_is_not_imported_to_ask_for_its_count() -> None:
    code = "import sys, compilations; assert compilations.graphs() == 0; print('torch' in sys.modules)"
    folder = str(compilations.__file__).rpartition("/")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

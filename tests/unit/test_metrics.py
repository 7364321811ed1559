"""The registry: values for people, and the page that is made of it."""

from __future__ import annotations

import pytest

from orchestrator.measure.metrics import FACTS, METRICS, SETTINGS, metric, show
from orchestrator.report.tables.metrics_page import page


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("mem_peak_torch_mem_alloc_in_bytes", 62894512960, "58.58 GiB"),
        ("mem_nvidia_mem_reserved", 40488.0, "39.54 GiB"),
        ("before_init_mem_cpu", 0, "0 B"),
        ("train_mem_gpu_alloc_delta", -8745884416, "-8.15 GiB"),
        ("train_runtime", 47.6604, "47.7 s"),
        ("train_runtime", 119.6, "120 s"),
        ("train_runtime", 3599.7, "1 h 00 min"),
        ("train_tokens_per_second", 17188.262, "17,188"),
        ("train_tokens_per_second", 428.342, "428.3"),
        ("train_loss", 1.0627506256103516, "1.063"),
        ("trainable_parameters", 1100048384, "1.10 B"),
        ("effective_trainable_parameters", 20971520, "20.97 M"),
        ("num_gpus", 8, "8"),
        ("gpu_device_name", "NVIDIA H200", "NVIDIA H200"),
        ("a_custom_metric", 0.00012345, "0.0001234"),
        ("a_custom_metric", True, "True"),
        ("train_loss", None, "-"),
    ],
)
def test_values_are_shown_with_their_unit(name: str, value: object, text: str) -> None:
    assert show(name, value) == text


def test_every_column_says_what_it_is() -> None:
    for entry in (*METRICS.values(), *FACTS.values()):
        assert entry.label and entry.description.endswith("."), entry.name
    assert all(text.endswith(".") for _, text in SETTINGS.values())
    assert not METRICS.keys() & FACTS.keys()


def test_an_unknown_name_is_allowed() -> None:
    assert metric("my_metric").label == "my_metric"
    assert metric("my_metric").unit is None


def test_the_page_in_docs_is_the_registry(golden) -> None:
    golden("../../docs/metrics.md", page())

"""Inputs that lie in tests/golden: tables of cases, and scenario files. The test file holds the behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

GOLDEN = Path(__file__).parents[1] / "golden"


def text(name: str) -> str:
    """Return the text of tests/golden/<name>."""
    return (GOLDEN / name).read_text(encoding="utf-8")


def document(name: str) -> Any:
    """Return what tests/golden/cases/<name>.yaml holds."""
    return yaml.safe_load(text(f"cases/{name}.yaml"))


def cases(name: str) -> list[tuple[Any, ...]]:
    """Return the rows of the file, each as the tuple of its values, for `pytest.mark.parametrize`."""
    return [tuple(row.values()) for row in document(name)]

"""Tables of cases that lie in tests/golden/cases, so that a test file holds the behaviour and the YAML file the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "golden" / "cases"


def document(name: str) -> Any:
    """Return what tests/golden/cases/<name>.yaml holds."""
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def cases(name: str) -> list[tuple[Any, ...]]:
    """Return the rows of the file, each as the tuple of its values, for `pytest.mark.parametrize`."""
    return [tuple(row.values()) for row in document(name)]

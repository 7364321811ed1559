"""Fixtures that several files of integration tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainings import prepare


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("prepared"), 200)


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So few rows that an epoch ends in the middle of a step."""
    return prepare(tmp_path_factory.mktemp("few"), 43)

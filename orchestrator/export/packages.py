"""What a target needs installed, as a sentence where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import OrchestratorError


@contextmanager
def package_of(target: str) -> Iterator[None]:
    """Around the imports of a target's room. Raises OrchestratorError, which names the extra, where one is missing."""
    try:
        yield
    except ImportError as error:
        raise OrchestratorError(
            f"--to {target}: a package is missing ({error}); pip install 'tunebench[{target}]' brings it."
        ) from error

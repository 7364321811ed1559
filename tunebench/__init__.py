"""Tunebench for notebooks: `tunebench.load("results")` and `tunebench.plot`. The code is in `orchestrator`.

`tunebench.steps` is for training scripts. That module must be fast to import, so this package imports `orchestrator` only at
the first use of one of its names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator import __version__, dtypes, load
    from tunebench import plot

__all__ = ["__version__", "dtypes", "load", "plot"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "plot":
        return import_module("tunebench.plot")
    import orchestrator

    return getattr(orchestrator, name)


def __dir__() -> list[str]:
    """Return the names that a notebook completes after `tunebench.`."""
    return __all__

"""Tunebench for notebooks: `import tunebench; tunebench.load("results")`. The code is in `orchestrator`.

`tunebench.steps` is for training scripts. That module must be fast to import, so this package imports `orchestrator` only at
the first use of one of its names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator import __version__, dtypes, load

__all__ = ["__version__", "dtypes", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import orchestrator

    return getattr(orchestrator, name)

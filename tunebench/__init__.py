"""Tunebench for notebooks: `import tunebench; tunebench.load("results")`. The code is in `orchestrator`."""

from orchestrator import __version__, dtypes, load

__all__ = ["__version__", "dtypes", "load"]

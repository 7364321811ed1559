"""The executors: a dict from name to instance. Every executor starts `python -m orchestrator run-one RUN_DIR`, here or elsewhere.

Other packages add executors under the entry-point group `tunebench.executors`. `FakeExecutor` is for tests; it is not registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.entry_points import Registry
from orchestrator.executors.executor import AttachingExecutor, Executor, ends
from orchestrator.executors.fake import FakeExecutor
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.slurm.executor import SlurmExecutor
from orchestrator.executors.slurm.site import Site
from orchestrator.executors.starters import Starters
from orchestrator.records import Job

__all__ = [
    "EXECUTORS",
    "LOCAL",
    "SLURM",
    "AttachingExecutor",
    "Executor",
    "FakeExecutor",
    "LocalExecutor",
    "SlurmExecutor",
    "ends",
    "get",
]

LOCAL, SLURM = "local", "slurm"

EXECUTORS: Mapping[str, Executor] = {LOCAL: LocalExecutor(), SLURM: SlurmExecutor()}

_REGISTRY = Registry(kind=Executor, group="tunebench.executors", ours=EXECUTORS)


def get(
    name: str,
    parallel: int = 1,
    *,
    site: Site | None = None,
    say: Callable[[str], object] = lambda sentence: None,
    may_start: Callable[[Job], bool] | None = None,
    starters: Starters | None = None,
) -> Executor:
    """Return the executor with this name. Raise SelectionError for an unknown name.

    `local` runs up to `parallel` jobs at once, and none after the first that `may_start` refuses. With `starters`, they start warm
    if they can. `slurm` submits them to the cluster of the site, and says so (`say`).
    """
    if name == LOCAL and (parallel > 1 or may_start or starters is not None):
        return LocalExecutor(parallel=parallel, may_start=may_start, starters=starters)
    return SlurmExecutor(site, say=say) if name == SLURM else _REGISTRY.get(name)

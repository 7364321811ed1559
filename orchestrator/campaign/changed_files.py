"""Find the files that changed since the runs of a results folder. Nothing is written.

Each planned experiment is compared with a stored experiment that differs from it only in the content of the user's files. If there
are several such stored experiments, the one with the newest run is used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.files.printable_text import counted
from orchestrator.measure.steps import LATEST
from orchestrator.monitors import perturbing
from orchestrator.plan.expand import Plan
from orchestrator.plan.identity.experiment_id import Digester
from orchestrator.plan.identity.sources import folder_of, listed
from orchestrator.records import Experiment
from orchestrator.results import folder
from orchestrator.results.contents import StoredExperiment
from orchestrator.results.store import Store


@dataclass(kw_only=True, slots=True)
class _Change:
    """The effect of a changed file: `cells` cells run again. `newest` is the start of the newest earlier run."""

    scenarios: dict[str, None] = field(default_factory=dict)
    cells: int = 0
    newest: float = 0.0


def changed_files(plan: Plan, root: Path) -> Iterator[str]:
    """Yield a sentence for each file whose change makes experiments of the plan run again.

    Yield nothing if the folder is not a results folder of Tunebench.
    """
    planned = [experiment for experiment in plan.experiments if experiment.sources]
    if not planned or not folder.is_ours(root):
        return
    stored = [stored for stored in Store.resume(root).contents().experiments if stored.records]
    ran, older = {stored.experiment.id for stored in stored}, _newest(stored)
    changes: dict[str, _Change] = {}
    for experiment in planned:
        before = older.get(_without_files(experiment))
        if before is None or experiment.id in ran:
            continue
        for text in _differences(before.experiment, experiment):
            change = changes.setdefault(text, _Change())
            change.scenarios[experiment.scenario] = None
            change.cells += 1
            change.newest = max(change.newest, _started_at(before))
    for text, change in changes.items():
        yield _sentence(text, change, root)


def _newest(stored: list[StoredExperiment]) -> dict[tuple[str, str], StoredExperiment]:
    """Return the newest stored experiment for each identity. An identity is all that an id depends on, except the user's files."""
    own = (item for item in stored if folder_of(item.experiment) is not None)
    return {_without_files(item.experiment): item for item in sorted(own, key=_started_at)}


def _without_files(experiment: Experiment) -> tuple[str, str]:
    digest = Digester(perturbing(experiment.monitors)).digest(replace(experiment, sources={}))
    return experiment.scenario, digest


def _started_at(stored: StoredExperiment) -> float:
    """Return the start of the newest run; 0 if no record has a time that can be valid."""
    return max((record.started_at for record in stored.records if 0 <= record.started_at < LATEST), default=0.0)


def _differences(old: Experiment, new: Experiment) -> Iterator[str]:
    """Yield the beginning of a sentence for each file that changed."""
    if not old.sources:
        yield f"no content of {listed([*new.sources])} is recorded for"
        return
    for name in dict.fromkeys((*new.sources, *old.sources)):
        if name not in old.sources:
            yield f"{name} is new since"
        elif name not in new.sources:
            yield f"{name} is not used any more since"
        elif new.sources[name] != old.sources[name]:
            yield f"{name} changed since"


def _sentence(text: str, change: _Change, root: Path) -> str:
    day = time.strftime(" (%d %b %Y)", time.localtime(change.newest)).replace("(0", "(") if change.newest else ""
    new = "1 experiment is new" if change.cells == 1 else f"{counted(change.cells, 'experiment')} are new"
    return f"{text} the runs of {', '.join(change.scenarios)} in {root}{day}: {new}; the older runs stay"

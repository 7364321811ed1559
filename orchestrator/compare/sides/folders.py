"""Read a results folder, ours or the reference's, as a side.

It reads through `store` or `reference`. The files may come from somebody else: what `vetting` rejects is left out and named. No
data frame is made, since a comparison looks at each number once. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.compare.comparison import Side
from orchestrator.compare.sides import environment, experiments
from orchestrator.compare.sides.experiments import Origin
from orchestrator.compare.sides.keys import DIGEST
from orchestrator.records import Experiment, Job, JobState, RunRecord
from orchestrator.results.contents import Contents, StoredExperiment
from orchestrator.results.folder import SUITE_FILE, is_ours
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows, reference_folder, rows
from orchestrator.results.table.rows import Row, Value


def holds_results(place: Path) -> bool:
    """Return whether a folder is a results folder, ours or the reference's."""
    return is_ours(place) or _of_reference(place) is not None


def read(place: Path) -> Side:
    """Return the experiments of a results folder in the order of the request. Raises ResultsError if it is not one."""
    theirs = _of_reference(place)
    if theirs is not None:
        return _read_reference(place, theirs)
    warnings: list[str] = []
    return experiments.side(str(place), _stored(place, Store.resume(place).contents(), warnings), warnings)


def _of_reference(place: Path) -> Path | None:
    return None if (place / SUITE_FILE).exists() else reference_folder.find(place)


def _stored(place: Path, contents: Contents, warnings: list[str]) -> Iterator[tuple[list[Row], Origin]]:
    """Yield the rows of each experiment. Implausible ones are left out and named in `warnings`."""
    folder = str(place.absolute())
    warnings += contents.warnings
    if contents.removed:
        warnings.append(f"{len(contents.removed)} experiment(s) that are no longer requested are not compared")
    for stored in contents.experiments:
        if stored.experiment.id in contents.removed:
            continue
        ended = foreign_rows.run_rows(stored, warnings)
        if ended is not None:
            yield _rows(stored, ended), Origin(id=stored.experiment.id, folder=folder, whole=True)


def _rows(stored: StoredExperiment, ended: Sequence[tuple[Job, RunRecord, Row]]) -> list[Row]:
    unseen = _unseen_arguments(stored.experiment)
    state = stored.runs[-1].state if stored.runs else JobState.PENDING
    return [_with_more(row, record, stored.experiment, unseen) for _, record, row in ended] or [
        foreign_rows.sound(rows.of_plan(stored.experiment, state))
    ]


def _with_more(row: Row, record: RunRecord, experiment: Experiment, unseen: dict[str, Value]) -> Row:
    """Return the row with the facts that a comparison needs and a table does not show."""
    more: dict[str, Value] = {
        "neighbours": len(record.beside),
        **environment.gpu_cells(record.provenance.get("gpus")),
        **environment.data_cells(experiment.data),
    }
    return replace(
        row,
        facts={"monitors": "none", **row.facts},
        arguments={**row.arguments, **unseen},
        outcome={**row.outcome, "started_at": record.started_at},
        measured={**row.measured, **more},
    )


def _unseen_arguments(experiment: Experiment) -> dict[str, Value]:
    """Return what an experiment has besides arguments: the digest of its framework configuration, and its variables."""
    unseen: dict[str, Value] = {}
    if experiment.framework is not None:
        unseen[DIGEST] = experiment.framework.digest
    if experiment.env:
        unseen["variables"] = " ".join(f"{name}={value}" for name, value in sorted(experiment.env.items()))
    return unseen


def _read_reference(place: Path, folder: Path) -> Side:
    read, said = reference_folder.read(folder)
    sound = [foreign_rows.sound(row) for row in read]
    names = dict.fromkeys(name for row in sound for name in row.arguments)
    whole = [replace(row, arguments={**dict.fromkeys(names), **row.arguments}) for row in sound]
    return experiments.side(str(place), (([row], Origin()) for row in whole), said)

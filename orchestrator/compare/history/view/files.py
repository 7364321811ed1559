"""The files of a history: its JSON document, and the folder into which all files are written.

The document has campaigns, series with their points and changes, and warnings. It also shows that Tunebench wrote the folder. A
history is written into a folder that is new, empty, or has an older history. Any other folder is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from orchestrator.compare.history.history import History
from orchestrator.compare.history.view import wording
from orchestrator.errors import ResultsError
from orchestrator.measure.metrics import metric
from orchestrator.report.tables import as_json
from orchestrator.results import folder as results_folder

DOCUMENT = "history"
JSON, POINTS, STEPS, PAGE = "history.json", "history.csv", "steps.csv", "history.html"


def document(history: History) -> str:
    """Return the JSON document. Numbers have full precision, and a missing number is null.

    `level` is the fitted level. `changes` of a point are the differences from the previous campaign.
    """
    fields = asdict(history)
    for written, series in zip([*fields["fleet"], *fields["series"]], wording.every_series(history), strict=True):
        written["unit"] = metric(series.metric).unit
        for name in wording.SORTS:
            for written_step, step in zip(written[name], getattr(series, name), strict=True):
                written_step["change"] = step.change
    return as_json.document(tool=results_folder.TOOL, document=DOCUMENT, **fields)


def is_history(path: Path) -> bool:
    """Return whether a file is a history that Tunebench wrote."""
    return (results_folder.read_ours(path) or {}).get("document") == DOCUMENT


def refuse_foreign(folder: Path) -> None:
    """Raise ResultsError if the folder has files that Tunebench did not make, or is inside a results folder."""
    absolute = folder.absolute()
    results = next((place for place in (absolute, *absolute.parents) if results_folder.is_ours(place)), None)
    if results is not None:
        raise ResultsError(f"{folder}: this is inside the results folder {results}; name another folder with --output")
    if folder.exists() and not folder.is_dir():
        raise ResultsError(f"{folder}: this is not a folder; name another folder with --output")
    if folder.is_dir() and any(folder.iterdir()) and not is_history(folder / JSON):
        raise ResultsError(
            f"{folder}: this folder has files, but no history that tunebench wrote; name another folder with --output"
        )


def write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write each text to the file of its name, and replace an older history. Raise ResultsError if writing fails."""
    refuse_foreign(folder)
    for name in sorted(texts, key=lambda name: name != JSON):  # the JSON file identifies the folder
        results_folder.write_into(folder, name, texts[name])
    return [folder / name for name in texts]

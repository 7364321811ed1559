"""Write a history into a folder that is new, empty, or has an older history. Any other folder is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.compare.history import as_json
from orchestrator.errors import ResultsError
from orchestrator.results import folder as results_folder

JSON, POINTS, STEPS, PAGE = "history.json", "history.csv", "steps.csv", "history.html"


def refuse_foreign(folder: Path) -> None:
    """Raise ResultsError if the folder has files that Tunebench did not make, or is inside a results folder."""
    absolute = folder.absolute()
    results = next((place for place in (absolute, *absolute.parents) if results_folder.is_ours(place)), None)
    if results is not None:
        raise ResultsError(f"{folder} is inside the results folder {results}; name another folder with --output")
    if folder.exists() and not folder.is_dir():
        raise ResultsError(f"{folder} is not a folder; name another folder with --output")
    if folder.is_dir() and any(folder.iterdir()) and not as_json.is_history(folder / JSON):
        raise ResultsError(
            f"{folder} has files, but no history that tunebench wrote; name another folder with --output"
        )


def write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write each text to the file of its name, and replace an older history. Raise ResultsError if writing fails."""
    refuse_foreign(folder)
    for name in sorted(texts, key=lambda name: name != JSON):  # the JSON file identifies the folder
        results_folder.write_into(folder, name, texts[name])
    return [folder / name for name in texts]

"""Write a history into its folder: a new one, an empty one, or one with an older history of ours; never another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.compare.history import as_json
from orchestrator.errors import ResultsError
from orchestrator.results import folder as results_folder

JSON, POINTS, STEPS, PAGE = "history.json", "history.csv", "steps.csv", "history.html"


def refuse_foreign(folder: Path) -> None:
    """Raise ResultsError if the folder has foreign files, or is inside a results folder."""
    absolute = folder.absolute()
    around = next((one for one in (absolute, *absolute.parents) if results_folder.is_ours(one)), None)
    if around is not None:
        raise ResultsError(f"{folder} is inside the results folder {around}; name another folder with --output")
    if folder.exists() and not folder.is_dir():
        raise ResultsError(f"{folder} is not a folder; name another one with --output")
    if folder.is_dir() and any(folder.iterdir()) and not as_json.is_one(folder / JSON):
        raise ResultsError(f"{folder} is not empty and has no history of tunebench; name another one with --output")


def write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write each text to its name, over an older history's. Raises ResultsError if that fails."""
    refuse_foreign(folder)
    for name in sorted(texts, key=lambda name: name != JSON):  # first the file by which the folder is known again
        results_folder.write_into(folder, name, texts[name])
    return [folder / name for name in texts]

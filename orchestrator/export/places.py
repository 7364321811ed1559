"""Where on this machine a target may write: anywhere but in a results folder, which holds results alone."""

from __future__ import annotations

from pathlib import Path

from orchestrator import results_folder
from orchestrator.errors import OrchestratorError


def outside_of_results(folder: Path) -> Path:
    """The folder. Raises OrchestratorError where it is a results folder of ours, or lies in one."""
    absolute = folder.resolve()
    around = next((one for one in (absolute, *absolute.parents) if results_folder.is_ours(one)), None)
    if around is not None:
        raise OrchestratorError(f"{folder} lies in the results folder {around}; name another folder with --dest")
    return folder

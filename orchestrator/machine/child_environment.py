"""The environment variables of a run: the inherited variables, except those that would disturb the run. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

# Every process of a run has this variable, so a process is found even after it has started a new session.
MARKER = "TUNEBENCH_RUN"

# The folder in which the workers inside a run write their files.
RUN_DIR = "TUNEBENCH_RUN_DIR"

_MARKER_FORM = re.compile("[0-9a-f]{32}")

# Variables that a run must not inherit: variables of launchers and of rendezvous, thread counts, and Tunebench's own variables.
LEAKS = (
    *(
        "ACCELERATE_*",
        "FSDP_*",
        "PARALLELISM_CONFIG_*",
        "TORCHELASTIC_*",
        "PET_*",
        "MASTER_*",
        "RANK",
        "LOCAL_RANK",
        "NODE_RANK",
        "GROUP_RANK",
    ),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_*", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    *("OMPI_COMM_WORLD_*", "PMI_*", "MV2_COMM_WORLD_*", "ACCELERATION_FRAMEWORK_*", MARKER, RUN_DIR),
    *(
        "TUNEBENCH_INSTRUMENT",
        "TUNEBENCH_MEASURE",
        "TUNEBENCH_MEMORY_TRACKER",
        "TUNEBENCH_PROFILE",
        "TUNEBENCH_TOGGLE_STEPS",
    ),
    "PYTEST_XDIST_*",  # a suite would take itself for a part of the tests that started Tunebench
)


def checked_marker(marker: object) -> str:
    """Return the marker if it has the form of a run's marker, else raise ValueError.

    A process without the variable TUNEBENCH_RUN has the marker None. So a search for None would find every process of the user.
    """
    if isinstance(marker, str) and _MARKER_FORM.fullmatch(marker):
        return marker
    raise ValueError(f"{marker!r:.100} is not the marker of a run; a marker has 32 hexadecimal digits")


def child_environment(changes: Mapping[str, str | None], parent: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment `parent` without the variables in LEAKS, and with `changes`. The value None unsets a variable."""
    inherited = os.environ if parent is None else parent
    kept = {name: value for name, value in inherited.items() if not any(fnmatchcase(name, leak) for leak in LEAKS)}
    return applied(changes, kept)


def applied(changes: Mapping[str, str | None], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return `inherited` with `changes`. The value None unsets a variable."""
    merged: dict[str, str | None] = {**inherited, **changes}
    return {name: value for name, value in merged.items() if value is not None}

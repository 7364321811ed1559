"""Models and data that a scenario names and that need no hub: by a path, or by a size that we know.

Paths are looked for beside the scenario file, then where we stand. A run works in its own folder, where a relative path would
lead nowhere, so what is found becomes an absolute one. Pure, but for the look.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orchestrator

_PATHS = (".", "/", "~")
DATA_FILES = (".json", ".jsonl", ".parquet")
CONFIGS_FILE = Path(orchestrator.__file__).parent / "workers" / "sft" / "configs.py"


@cache
def published() -> Mapping[str, Mapping[str, Any]]:
    """The configurations of the models named `config:NAME`, by their names."""
    configs: Mapping[str, Mapping[str, Any]] = runpy.run_path(str(CONFIGS_FILE))["CONFIGS"]
    return configs


def find(name: str, base: Path) -> Path | None:
    """What lies under a name, or None."""
    for candidate in (base / os.path.expanduser(name), Path(name)):
        if os.path.exists(candidate):  # unlike Path.exists, no exception for a name that no disk can hold
            return candidate.resolve()
    return None


def model(name: str, base: Path) -> str:
    """The folder of a model that lies here, else the name as it is: a hub's, a `config:`, or a path that leads nowhere."""
    found = None if name.startswith("config:") else find(name, base)
    return str(found) if found is not None and (found / "config.json").is_file() else name


def missing_model(name: str) -> str | None:
    """Why a name that can only be a path is no model, in a sentence."""
    if not name.startswith(_PATHS) or os.path.isfile(os.path.join(name, "config.json")):
        return None
    return f"there is no model in {name!r}; a local model is a folder with a config.json"


def missing_data(source: str) -> str | None:
    """Why a source that can only be a file or folder is no data, in a sentence."""
    is_path = source.startswith(_PATHS) or source.endswith(DATA_FILES)
    if not is_path or os.path.exists(source):
        return None
    return f"there is no file or folder {source!r}; data is looked for beside the scenario file, then where you stand"

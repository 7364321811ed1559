"""The paths of this package and of its programs that run in the training environment, and whether the package has changed."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
WORKERS = PACKAGE / "workers"
# The module that a training script may import (`tunebench.steps`).
STEPS_MODULE = PACKAGE.parent / "tunebench" / "steps.py"
_BEGAN_AT = time.time()


def has_changed(error: Exception) -> bool:
    """Return whether this package was changed or removed while the process ran, as by an upgrade. Then `error` is not a defect.

    A module is loaded when it is first needed, so it may belong to another version than the modules before it.
    """
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] in (
        PACKAGE.name,
        STEPS_MODULE.parent.name,
    ):
        return True
    modules = [*PACKAGE.rglob("*.py")]
    with suppress(OSError):  # it is being removed
        return not modules or any(path.stat().st_ctime > _BEGAN_AT for path in modules)
    return True

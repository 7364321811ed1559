"""The path of this package's folder, and the paths of its programs that run in the training environment."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
WORKERS = PACKAGE / "workers"
# The module that a training script may import (`tunebench.steps`).
STEPS_MODULE = PACKAGE.parent / "tunebench" / "steps.py"

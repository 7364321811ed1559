"""A small campaign that was run once, of which a case gets a copy."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from threading import Lock

from attack_cases.scene import Scene, new_scene

_LOCK = Lock()
_MADE: list[Path] = []
BODY = """\
for at in range(1, 31):
    time.sleep(0.002)
    print(json.dumps({"step": at, "seconds": 0.005 + at % 3 * 1e-5, "tokens": 100, "samples": 2}), flush=True)"""


def _make() -> Path:
    """Return the folder of a campaign of two experiments with two runs each; one experiment of it also has a report."""
    with new_scene() as scene:
        scene.scenario(BODY, numbers=2, repeats=2, steps="stdout")
        assert scene.run().code == 0
        kept = Path(tempfile.mkdtemp(prefix="attack-made-"))
        for name in ("results", "scenarios.yaml", "trainer.py"):
            copy = shutil.copytree if name == "results" else shutil.copy
            copy(scene.folder / name, kept / name)
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    return kept


def campaign(scene: Scene) -> None:
    """Put a copy of the campaign into the scene: `results`, and the same again as `good`."""
    with _LOCK:
        if not _MADE:
            _MADE.append(_make())
    for name in ("results", "good"):
        shutil.copytree(_MADE[0] / "results", scene.folder / name)
    for name in ("scenarios.yaml", "trainer.py"):
        shutil.copy(_MADE[0] / name, scene.folder / name)

"""Something planted into trainings that do not know of it: a function around the step of the Hugging Face Trainer.

By a `sitecustomize.py` in a folder of the PYTHONPATH, which Python runs at its start. It waits for the import of the Trainer, so
that nothing is imported earlier than it would be.
"""

from __future__ import annotations

from pathlib import Path

_HOOK = """
import importlib.abc, importlib.util, sys

class Planter(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "transformers.trainer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            module.Trainer.training_step = around(module.Trainer.training_step)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Planter())
"""


def around_steps(folder: Path, source: str) -> None:
    """Plants `around(step)`, which the source defines, for whoever has this folder on the PYTHONPATH."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(source + _HOOK)

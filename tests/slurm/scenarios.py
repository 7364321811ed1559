"""The scenario file of a test: trainings of no work (see `trainer.py`)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXT = """\
scenarios:
- name: c
  trainer: custom
  device: cpu
  num_gpus: {gpus}
  repeats: {repeats}
  matrix: {{kind: [{kinds}]}}
  custom:
    command: ['{{python}}', '{{scenario_dir}}/trainer.py', '{{kind}}', '{{scenario_dir}}']
    launcher: none
    results: log
    metrics: {{train_runtime: {{pattern: "'train_runtime': (.*)}}"}}}}
"""


def write(folder: Path, kinds: Sequence[str], *, gpus: object = 1, repeats: int = 1) -> None:
    """Write the trainer and a scenario file with an experiment for each kind of training."""
    shutil.copy(HERE / "trainer.py", folder)
    (folder / "scenarios.yaml").write_text(TEXT.format(kinds=", ".join(kinds), gpus=gpus, repeats=repeats))

"""The commented scenario files that `tunebench init` writes. Each runs on any machine without changes."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

from orchestrator.errors import ResultsError, SelectionError
from orchestrator.files.printable_text import one_line, with_bytes
from orchestrator.plan.config.own_script import PYTHON

STARTER = """\
# yaml-language-server: $schema=scenarios.schema.json
# A Tunebench scenario file.
# Show its experiments:                   tunebench plan {name}
# Run them:                               tunebench run {name} --results results
# Let your editor check and explain keys: tunebench schema > scenarios.schema.json

# The training data of all scenarios. `builtin:stdlib-docs` needs no download. Replace it by a local .jsonl file or a hub name.
data_processing:
  dataset_name: builtin:stdlib-docs

scenarios:
  - name: first
    # Framework configurations to compare; null means without. `tunebench plan` shows which cannot run here, and why.
    framework_config: [null, gradient-checkpointing]
    # cuda, cpu, or auto: GPUs if there are enough, else CPU processes.
    device: auto
    num_gpus: [1]
    repeats: 1
    # Arguments of the trainer: any field of transformers' TrainingArguments or of the built-in trainer.
    # A list of models is an axis.
    arguments:
      model_name_or_path: [config:tiny-llama]   # random weights; a local folder or a hub name loads real ones
      effective_batch_size: 8                   # samples per step on all GPUs; sets the per-device batch
      gradient_accumulation_steps: 1
      max_seq_len: 256
      max_steps: 20
      learning_rate: 2e-4
    # Any argument can be an axis:
    # matrix:
    #   max_seq_len: [256, 512]                 # then remove max_seq_len from arguments
"""


# The starter file for a training script of the user.
STARTER_FOR_SCRIPT = """\
# Benchmarks {script}. Show the trainings:   tunebench plan {name}
# Run them, and write a report:   tunebench run {name} --results results
scenarios:
  - name: own-script
    script: {script}
    device: auto                     # GPUs where there are enough, else CPU processes
    num_gpus: [1]                    # [1, 2]: also on two
    measure: {{within: 1%, at_most_steps: 100}}   # each training ends when its speed is known to 1 %, or after 100 steps
    # arguments: {{max_steps: 500}}    # what the script gets, as --name value
    # matrix:                        # any argument as an axis: each combination is one training
    #   gradient_checkpointing: [false, true]
"""


def write_starter(file: Path, *, script: Path | None = None) -> None:
    """Write the starter file. If a script is given, the file is for this script.

    Raises ResultsError if the file exists, and SelectionError if the script does not exist.
    """
    name = with_bytes(one_line(shlex.quote(file.name), longest=300))  # for a comment of one line
    text = STARTER.format(name=name) if script is None else _for_script(file, script, name=name)
    try:
        stream = file.open("x", encoding="utf-8")
        try:
            with stream:
                stream.write(text)
        except OSError:  # such as a full disk: what is left of the file would be in the way of the next try
            file.unlink()
            raise
    except FileExistsError:
        raise ResultsError(f"{file}: the file exists and was not changed; name another file") from None
    except OSError as error:
        raise ResultsError(f"{file}: cannot be written: {error.strerror}; name another file") from None


def _for_script(file: Path, script: Path, *, name: str) -> str:
    if not script.is_file():
        raise SelectionError(f"--script: there is no file {str(script)!r}; name your training script")
    if script.suffix not in PYTHON:
        raise SelectionError(
            f"--script: {str(script)!r} is not a Python script; write a scenario with 'trainer: custom'"
        )
    path = os.path.relpath(script, file.parent)
    if path != path.encode("utf-8", "replace").decode():
        raise SelectionError(
            f"--script: {path!r} is not valid UTF-8, so no scenario file can name it; rename the script"
        )
    return STARTER_FOR_SCRIPT.format(name=name, script=path if re.fullmatch(r"[\w./-]+", path) else json.dumps(path))

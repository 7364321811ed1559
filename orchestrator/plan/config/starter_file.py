"""The commented scenario file that `tunebench init` writes: a first campaign that runs on any machine as it stands."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import ResultsError

STARTER = """\
# yaml-language-server: $schema=scenarios.schema.json
# A Tunebench scenario file. Look at what it makes:   tunebench plan {name}
# and run it:                                         tunebench run {name} --results results
# Editors describe and check every key once this is done:   tunebench schema > scenarios.schema.json

# The training data of all scenarios here. `builtin:stdlib-docs` needs no download; a local .jsonl file or a hub name is
# what you will want next.
data_processing:
  dataset_name: builtin:stdlib-docs

scenarios:
  - name: first
    # Framework configurations to compare; null is 'without'. `tunebench plan` says which cannot run here, and why.
    framework_config: [null, gradient-checkpointing]
    # cuda, cpu, or auto: GPUs where there are enough of them, else CPU processes.
    device: auto
    num_gpus: [1]
    repeats: 1
    # Arguments of the trainer: any field of transformers' TrainingArguments, and those of the built-in trainer.
    # A list of models is an axis.
    arguments:
      model_name_or_path: [config:tiny-llama]   # random weights; a local folder or a hub name loads real ones
      effective_batch_size: 8                   # the per-device batch follows from it and the number of GPUs
      gradient_accumulation_steps: 1
      max_seq_len: 256
      max_steps: 20
      learning_rate: 2e-4
    # Any argument can be an axis, too:
    # matrix:
    #   max_seq_len: [256, 512]               # then take max_seq_len out of arguments
"""


def write_starter(file: Path) -> None:
    """Write the starter to `file`. Raises ResultsError where something stands there already."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(STARTER.format(name=file.name))
    except FileExistsError:
        raise ResultsError(f"{file} exists already and is left as it is; name another file") from None
    except OSError as error:
        raise ResultsError(f"{file} cannot be written: {error.strerror}; name another file") from None

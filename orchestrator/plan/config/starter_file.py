"""The commented scenario file that `tunebench init` writes: a first campaign that runs on any machine unchanged."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import ResultsError

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


def write_starter(file: Path) -> None:
    """Write the starter to `file`. Raises ResultsError if the file exists."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(STARTER.format(name=file.name))
    except FileExistsError:
        raise ResultsError(f"{file} exists and was not changed; name another file") from None
    except OSError as error:
        raise ResultsError(f"{file} cannot be written: {error.strerror}; name another file") from None

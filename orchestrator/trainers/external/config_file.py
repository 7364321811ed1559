"""Trainers that read a YAML file instead of a command line. The file is made from the arguments, in the run's folder.

The programs are built on the Hugging Face Trainer, so they run under `workers/instrument/`, which measures them. The file has their
own names. An argument is text; the file has the number, the yes or no, or the mapping that the text means.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.records import Experiment, Text
from orchestrator.records.run_folder import OUTPUT, path_text
from orchestrator.trainers import instrumented
from orchestrator.trainers.instrumented import InstrumentedTrainer

# Relative to the working folder: `command.sh` repeats a run in another folder, and its checkpoints belong there.
_OUTPUT_DIR = f"../{OUTPUT}"
_WORDS: Mapping[str, bool] = {"True": True, "true": True, "False": False, "false": False}
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?", re.ASCII)


class ConfigFileTrainer(InstrumentedTrainer):
    """A trainer whose command is `-m MODULE FILE.yaml`. `target` is `-m` and the module."""

    builds_models: bool = False

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        return {**experiment.arguments, "output_dir": _OUTPUT_DIR}

    @property
    def file_name(self) -> str:
        return f"{self.name}.yaml"

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        return instrumented.command(run_dir, *self.target, path_text(run_dir, self.file_name))

    def files(self, experiment: Experiment, run_dir: Path) -> Mapping[str, str]:
        return {self.file_name: file_text(self.arguments(experiment, run_dir))}


def file_text(arguments: Mapping[str, Text]) -> str:
    """Return arguments as the text of a YAML file."""
    import yaml

    content = {name: _value(value) for name, value in arguments.items()}
    return "# Written by tunebench for this run.\n" + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _value(text: Text) -> Any:
    """Return the value that a text means. A bare word such as `no` stays a text, because YAML's `no` became `False` before."""
    if not isinstance(text, str):
        return [_value(item) for item in text]
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return _nested(text) if text.startswith(("{", "[")) else text


def _nested(text: str) -> Any:
    """Return the mapping or list that `str()` turned into this text (see `argument_text`), or the text itself if it is neither."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return value if isinstance(value, (dict, list)) else text

"""The trainer `script`: the user's own training script or module, unchanged, under `workers/instrument/`.

The script gets the arguments that the user wrote, as `--name value`, under the user's names. No argument is added, because a script
may refuse unknown arguments. By default the script starts in the run's output folder, so files that it writes under relative paths
belong to the run. Therefore the script needs no `output_dir`. If the user gives an `output_dir`, the run's output folder replaces
its value.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.records import Experiment, Script, Text, as_items
from orchestrator.records.run_folder import OUTPUT, path_text
from orchestrator.trainers import argument_names, instrumented
from orchestrator.trainers.argument_values import types
from orchestrator.trainers.instrumented import InstrumentedTrainer

_FILES_OF_THE_TRAINER = frozenset(
    ("accelerator_config", "deepspeed", "fsdp_config", "parallelism_config", "resume_from_checkpoint")
)


class OwnScript(InstrumentedTrainer):
    """A script that uses the Hugging Face Trainer, or a class derived from it."""

    name = "script"
    requires: tuple[str, ...] = ("torch", "accelerate")
    table = argument_names.SCRIPT
    takes_defaults = False

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        script = _script(experiment)
        words = [_absolute(word, script) for word in script.words]
        words += instrumented.flags(self.arguments(experiment, run_dir))
        if script.module is None:
            return instrumented.command(run_dir, script.path, *words)
        return instrumented.command(run_dir, "-m", script.module, *words, modules_in=script.folder)

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        arguments = {
            name: _handed_over(name, value, _script(experiment)) for name, value in experiment.arguments.items()
        }
        if "output_dir" in arguments:
            arguments["output_dir"] = path_text(run_dir, OUTPUT)
        return arguments


def may_name_file(argument: str) -> bool:
    """Return whether an argument's value may be the path of an existing file. Few of the Trainer's arguments have such values."""
    return argument in _FILES_OF_THE_TRAINER or argument not in types("Trainer")


def _script(experiment: Experiment) -> Script:
    assert experiment.script is not None, "plan/expand/ refuses a scenario without a script"
    return experiment.script


def _handed_over(name: str, value: Text, script: Script) -> Text:
    """Return the value, with absolute paths for files that are next to the scenario file."""
    if not script.files or not may_name_file(name):
        return value
    items = tuple(_absolute(item, script) for item in as_items(value))
    return items[0] if isinstance(value, str) else items


def _absolute(text: str, script: Script) -> str:
    return os.path.normpath(os.path.join(script.folder, text)) if text in script.files else text

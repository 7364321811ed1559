"""The file of what the Trainer's arguments take, against the installed transformers of whatever version.

`--accept` writes the file anew, from the installed transformers and the built-in trainer.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing

import pytest
from arguments import CHOICES, Own

from orchestrator.trainers import argument_values
from orchestrator.trainers.argument_values import ANY, NUMBER, TRUTH, WHOLE

KINDS = {int: WHOLE, float: NUMBER, bool: TRUTH}


def kind(annotation: typing.Any) -> str:
    """Return what a field takes, in the words of the file."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = {*(typing.get_args(annotation) if is_union else (annotation,))} - {type(None)}
    return KINDS.get(members.pop(), ANY) if len(members) == 1 else ANY


def kinds(dataclass: typing.Any) -> dict[str, str]:
    hints = typing.get_type_hints(dataclass)
    return {field.name: kind(hints[field.name]) for field in dataclasses.fields(dataclass) if field.init}


def test_the_file_is_made_from_transformers_and_the_built_in_trainer(
    golden: typing.Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    transformers = pytest.importorskip("transformers")
    held = json.loads(argument_values.TYPES_FILE.read_text())
    made = {
        "transformers": transformers.__version__,
        "Trainer": kinds(transformers.TrainingArguments),
        "built-in trainer": {**kinds(Own), **{name: list(words) for name, words in CHOICES.items()}},
    }
    if request.config.getoption("--accept") or held["transformers"] == transformers.__version__:
        golden(str(argument_values.TYPES_FILE), json.dumps(made, indent=1) + "\n")
    assert held["built-in trainer"] == made["built-in trainer"]


def test_the_file_holds_for_the_installed_transformers() -> None:
    """A whole number may be a number in another version. Names that this version does not have are another version's."""
    transformers = pytest.importorskip("transformers")
    known, there = argument_values.types("Trainer"), kinds(transformers.TrainingArguments)
    both = {*known} & {*there}
    assert len(both) > 0.8 * len(known)
    for name in both:
        assert known[name] in (ANY, there[name]) or (known[name], there[name]) == (NUMBER, WHOLE), name
    assert [name for name in there if argument_values.meant(name)] == [], "no name of its own is taken for a slip"

"""The table of what the Trainer's arguments take, against the installed transformers, of whatever version."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from orchestrator.trainers import values


def test_the_table_agrees_with_the_installed_transformers() -> None:
    """Each name that it has takes what the table says; one that this version has not is another version's."""
    transformers = pytest.importorskip("transformers")
    there = {field.name for field in dataclasses.fields(transformers.TrainingArguments) if field.init}
    types = typing.get_type_hints(transformers.TrainingArguments)
    kinds = ((values.WHOLE, {int}), (values.NUMBER, {int, float}), (values.TRUTH, {bool}))
    for names, allowed in kinds:
        for name in names & there:
            members = {*(typing.get_args(types[name]) or (types[name],))} - {type(None)}
            assert members <= allowed, (name, members)
    known = values.WHOLE | values.NUMBER | values.TRUTH
    assert len(known & there) > 0.9 * len(known)
    assert [name for name in there if values.meant(name)] == [], "no name of its own is taken for a slip"

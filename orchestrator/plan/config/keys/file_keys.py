"""The pydantic models of the YAML files, apart from a single scenario (`scenario_keys`): keys, types, ranges and descriptions.

This module has no `from __future__ import annotations`, as `scenario_keys`.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.plan.config.keys import value_types
from orchestrator.plan.config.keys.environment_keys import Environments
from orchestrator.plan.config.keys.model import Model
from orchestrator.plan.config.keys.scenario_keys import Scenario
from orchestrator.plan.config.keys.value_types import Arguments, Variables, Whole, Words
from orchestrator.records import Device


class DataProcessing(Model):
    """The training data, and how rows become text. The data is prepared once, before the first run."""

    dataset_name: str = Field(
        "yahma/alpaca-cleaned",
        min_length=1,
        description="`builtin:stdlib-docs`, `builtin:synthetic`, a local file or folder, or a hub name.",
    )
    dataset_split: str = Field("train", description="Split, or a slice of a split (`train[:2000]`).")
    formatting: Literal["instruct", "none"] | None = Field(
        "instruct", description="Instruction template, if there is no chat template."
    )
    chat_template: str | None = Field(None, description="Jinja template over `messages`.")
    tokenize: bool = Field(
        False, description="Prepare token ids instead of text. The built-in trainer always gets token ids."
    )
    input_field: str = Field("input", description="Field with the context of the instruction.")
    dataset_text_field: str = Field("output", description="Field with the answer, and field of the prepared text.")
    response_field: str | None = Field(None, description="The loss is computed only on the text of this field.")
    response_template: str | None = Field(None, description="The loss is computed only on what follows this text.")
    samples: Whole | None = Field(None, description="Rows of `builtin:synthetic`.")
    seed: Annotated[int, BeforeValidator(value_types.refuse_bool)] = Field(
        0, ge=0, description="Seed of `builtin:synthetic`."
    )


class Notify(Model):
    """A command that hears of a few moments of a campaign."""

    command: Annotated[tuple[str, ...], AfterValidator(value_types.not_empty)] = Field(
        description="The command as a list. It gets a JSON object as its stdin, and at most 30 s."
    )


class SuiteFile(Model):
    """A Tunebench scenario file."""

    scenarios: Annotated[tuple[Scenario, ...], AfterValidator(value_types.not_empty)] = Field(
        description="What to benchmark."
    )
    data_processing: DataProcessing | None = Field(None, description="The training data of all scenarios in this file.")
    environments: Environments = Field(
        default_factory=dict, description="Name of a software environment → its packages."
    )
    experiment_tag: Annotated[str, AfterValidator(value_types.tag)] = Field(
        "{model}.{framework}.gpus{num_gpus}",
        description="Readable middle part of an experiment's id; in braces, a word or an argument.",
    )
    executor: str = Field(
        "local",
        min_length=1,
        description="Executor that starts the runs: `local` (this machine), `slurm`, or your own.",
    )
    notify: Notify | None = Field(
        None,
        description="Command to tell of the end of a campaign, of its first failure, and of a budget that is reached.",
    )


class FrameworkFile(Model):
    """A framework configuration: a named bundle of settings that make training fast."""

    description: str = Field("", description="One sentence on the effect of the configuration.")
    arguments: Arguments = Field(default_factory=dict, description="Trainer arguments; null removes an argument.")
    accelerate: dict[str, Any] = Field(default_factory=dict, description="Changes to the accelerate configuration.")
    env: Variables = Field(default_factory=dict, description="Environment variables; null unsets a variable.")
    requires: Annotated[Words, AfterValidator(value_types.requirements)] = Field(
        (), description="Packages that must be installed, with version ranges where needed."
    )
    environment: str | None = Field(None, description="Software environment that the configuration needs.")
    device: Literal[Device.CUDA, Device.CPU] | None = Field(
        None, description="The only device on which the configuration works."
    )
    min_gpus: Whole = Field(1, description="Smallest number of processes.")
    trainers: Annotated[Words, AfterValidator(value_types.not_empty)] | None = Field(
        None, description="Trainers that understand the arguments. Default: all."
    )


class FrameworkEntry(Model):
    """One line of CONTENTS.yaml. `plugins` marks an acceleration-framework plugin file, for trainer fms_hf_tuning."""

    shortname: str = Field(min_length=1)
    filename: str = Field(min_length=1)
    plugins: tuple[str, ...] | None = None


class FrameworkContents(Model):
    """The file frameworks/CONTENTS.yaml: short names and their files."""

    framework_configs: tuple[FrameworkEntry, ...]


def schema_text() -> str:
    """Return the JSON Schema of the scenario file, for editors and for the copy in `docs/`."""
    schema = SuiteFile.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"

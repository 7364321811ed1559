"""The YAML files, as pydantic models: which keys there are, of which types, and what each means.

Does: types, unknown keys, ranges. Does not: look across files (that is `suite`) or multiply anything (`matrix`). The
descriptions here are what `tunebench schema` prints and what editors show while a scenario file is written.
"""

from __future__ import annotations

import re
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from orchestrator.records import CustomCommand, Device, MetricSource


def _refuse_bool(value: Any) -> Any:
    """YAML's `yes` would pass for the number 1."""
    if isinstance(value, bool):
        raise ValueError(f"a number is expected, not {str(value).lower()}")
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _frameworks(value: Any) -> Any:
    if value is None:
        raise ValueError(
            "the list is blank; write [null] for 'without a framework configuration', or leave the key out"
        )
    return _as_tuple(value)


def _not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not value:
        raise ValueError("the list is empty; give at least one value")
    return value


def _environment(value: Any) -> Any:
    """Variables are text: numbers are taken as YAML reads them, null unsets."""
    if isinstance(value, dict):
        return {name: str(item) if isinstance(item, (int, float)) else item for name, item in value.items()}
    return value


def _variable_names(value: dict[str, str | None]) -> dict[str, str | None]:
    for name in value:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ValueError(f"{name!r} is no name of a variable; letters, digits and _ are allowed")
    return value


TAG_WORDS = ("model", "framework", "num_gpus", "trainer", "device")


def _tag(value: str) -> str:
    """Plain names alone: a width or an attribute in the braces could make any text of any length."""
    allowed = ", ".join(f"{{{word}}}" for word in TAG_WORDS)
    try:
        parts = list(Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is not understood ({error}); allowed in it are {allowed}") from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in TAG_WORDS or form or conversion):
            raise ValueError(f"{{{name}{':' if form else ''}{form}}} is not understood; allowed are {allowed}")
    return value


def _requirements(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        if not re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", text, re.ASCII):
            from packaging.requirements import InvalidRequirement, Requirement  # most are plain names

            try:
                Requirement(text)
            except InvalidRequirement:
                raise ValueError(
                    f"{text!r} is no package; write it like 'liger-kernel' or 'bitsandbytes>=0.45'"
                ) from None
    return value


def _results(value: str) -> str:
    if not re.fullmatch(r"stdout|log|file:.+\.(json|csv)", value):
        raise ValueError(f"{value!r} is not allowed. Allowed: stdout, log, file:NAME.json, file:NAME.csv")
    return value


def _one_or_many(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


Whole = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_refuse_bool)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_refuse_bool)]
Words = Annotated[tuple[str, ...], BeforeValidator(_as_tuple), _one_or_many({"type": "string"})]
Frameworks = Annotated[
    tuple[str | None, ...],
    BeforeValidator(_frameworks),
    AfterValidator(_not_empty),
    _one_or_many({"type": ["string", "null"]}),
]
GpuCounts = Annotated[
    tuple[Whole, ...],
    BeforeValidator(_as_tuple),
    AfterValidator(_not_empty),
    _one_or_many({"type": "integer", "minimum": 1}),
]
AxisValues = Annotated[
    tuple[Any, ...],
    BeforeValidator(_as_tuple),
    AfterValidator(_not_empty),
    WithJsonSchema({"type": "array", "minItems": 1}),
]
Environment = Annotated[dict[str, str | None], BeforeValidator(_environment), AfterValidator(_variable_names)]
Arguments = dict[str, Any]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Metric(Model):
    """Where one number of a custom trainer is read."""

    key: str | None = Field(None, description="Key in the JSON object, dots for nesting (`summary.tokens`).")
    column: str | None = Field(None, description="Column of the CSV file; the last row's value is taken.")
    pattern: str | None = Field(
        None, description="Regular expression with one group, searched in stdout; the last match counts."
    )
    unit: str | None = Field(
        None, description="Unit of the number there, where it is not the metric's own (`ms`, `GiB`)."
    )


class Custom(Model):
    """A training command of your own (`trainer: custom`)."""

    command: Annotated[tuple[str, ...], AfterValidator(_not_empty)] = Field(
        description="The command as a list; `{argument}` stands for an argument of the experiment."
    )
    launcher: Literal["accelerate", "none"] = Field(
        "accelerate", description="Start it through accelerate, or as it is."
    )
    results: Annotated[str, AfterValidator(_results)] = Field(
        "stdout",
        description="Where the numbers are: `stdout` (last line, JSON), `file:NAME.json`, `file:NAME.csv`, or `log`.",
        json_schema_extra={"pattern": r"^(stdout|log|file:.+\.(json|csv))$"},
    )
    metrics: dict[str, Metric] = Field(default_factory=dict, description="Our metric name → where it is read.")

    def record(self) -> CustomCommand:
        sources = {name: MetricSource(**metric.model_dump()) for name, metric in self.metrics.items()}
        return CustomCommand(command=self.command, launcher=self.launcher, results=self.results, metrics=sources)


class Scenario(Model):
    """A named set of experiments: axes that are crossed, and arguments that all of its cells share."""

    name: str = Field(min_length=1, description="Name by which the scenario is chosen; unique in the file.")
    framework_config: Frameworks = Field(
        (None,), description="Short names of framework configurations; null is 'without'."
    )
    slow: bool = Field(False, description="Run only when named.")
    arguments: Arguments = Field(
        default_factory=dict,
        description="Trainer arguments; a list for `model_name_or_path` is an axis, null takes a default away.",
    )
    matrix: dict[str, AxisValues] = Field(default_factory=dict, description="Any argument as an axis: name → values.")
    include: tuple[dict[str, Any], ...] = Field((), description="Cells to add, or arguments for the cells that match.")
    exclude: tuple[dict[str, Any], ...] = Field((), description="Cells to leave out: those that match every key given.")
    num_gpus: GpuCounts | None = Field(None, description="Training processes; one GPU each, or CPU processes.")
    device: Device = Field(
        Device.CUDA, description="`cuda`, `cpu`, or `auto`: GPUs where there are enough, else CPU processes."
    )
    trainer: str | None = Field(
        None, description="huggingface (default), fms_hf_tuning, trl, custom, or a plug of yours."
    )
    python: str | None = Field(None, description="Interpreter of the environment that trains; ours when left out.")
    repeats: Whole = Field(1, description="How often each cell is run.")
    monitors: Words = Field((), description="What is watched besides: hf_memory, nvidia_smi.")
    timeout_s: Seconds | None = Field(None, description="A run that takes longer is ended, in seconds.")
    keep: Literal["none", "all"] = Field("none", description="What of the run's output folder stays: nothing, or all.")
    tags: Words = Field((), description="Words to select and group by; they change nothing.")
    env: Environment = Field(default_factory=dict, description="Environment variables of the run; null unsets one.")
    custom: Custom | None = Field(None, description="The command of `trainer: custom`.")


class DataProcessing(Model):
    """What is trained on, and how rows become text. Prepared once, before anything is measured."""

    dataset_name: str = Field(
        "yahma/alpaca-cleaned",
        min_length=1,
        description="`builtin:stdlib-docs`, `builtin:synthetic`, a local file or folder, or a hub name.",
    )
    dataset_split: str = Field("train", description="Split, with a slice if wanted: `train[:2000]`.")
    formatting: Literal["instruct", "none"] | None = Field(
        "instruct", description="Instruction template, where there is no chat template."
    )
    chat_template: str | None = Field(None, description="Jinja template over `messages`.")
    tokenize: bool = Field(
        False, description="Prepare token ids rather than text (always so for the built-in trainer)."
    )
    input_field: str = Field("input", description="Field with the instruction's further context.")
    dataset_text_field: str = Field("output", description="Field with the answer, and with the text that is made.")
    response_field: str | None = Field(None, description="Field whose text alone bears loss.")
    response_template: str | None = Field(None, description="Text after which loss begins.")
    samples: Whole | None = Field(None, description="Rows of `builtin:synthetic`.")
    seed: Annotated[int, BeforeValidator(_refuse_bool)] = Field(0, description="Seed of `builtin:synthetic`.")


class SuiteFile(Model):
    """A Tunebench scenario file."""

    scenarios: Annotated[tuple[Scenario, ...], AfterValidator(_not_empty)] = Field(description="What to benchmark.")
    data_processing: DataProcessing | None = Field(None, description="The training data of all scenarios in this file.")
    experiment_tag: Annotated[str, AfterValidator(_tag)] = Field(
        "{model}.{framework}.gpus{num_gpus}", description="Readable middle part of an experiment's id."
    )


class FrameworkFile(Model):
    """A framework configuration: a named bundle of what makes training fast."""

    description: str = Field("", description="One sentence on what it does.")
    arguments: Arguments = Field(default_factory=dict, description="Trainer arguments; null takes one away.")
    accelerate: dict[str, Any] = Field(default_factory=dict, description="Changes to the accelerate configuration.")
    env: Environment = Field(default_factory=dict, description="Environment variables; null unsets one.")
    requires: Annotated[Words, AfterValidator(_requirements)] = Field(
        (), description="Packages that must be installed, with version ranges where needed."
    )
    device: Literal[Device.CUDA, Device.CPU] | None = Field(
        None, description="The only device on which it means anything."
    )
    min_gpus: Whole = Field(1, description="Fewer processes than this make no sense.")


class FrameworkEntry(Model):
    """One line of CONTENTS.yaml. `plugins` marks an acceleration-framework plugin file, for trainer fms_hf_tuning."""

    shortname: str = Field(min_length=1)
    filename: str = Field(min_length=1)
    plugins: tuple[str, ...] | None = None


class FrameworkContents(Model):
    """frameworks/CONTENTS.yaml: short names and their files."""

    framework_configs: tuple[FrameworkEntry, ...]

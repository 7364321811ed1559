"""The pydantic models of a scenario: keys, types, ranges and descriptions.

`tunebench schema` prints the descriptions, and editors show them. `suite` does the checks that need several files or keys. This
module has no `from __future__ import annotations`. That import would turn annotations into texts, and pydantic would compile these
texts at every start.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from orchestrator import records
from orchestrator.plan.config.check import COUNTS
from orchestrator.plan.config.keys import value_types
from orchestrator.plan.config.keys.model import Model
from orchestrator.plan.config.keys.value_types import (
    Arguments,
    AxisValues,
    Baseline,
    Counts,
    Frameworks,
    Names,
    Seconds,
    Share,
    Variables,
    Whole,
    Words,
    Zip,
)
from orchestrator.records import CustomCommand, Device, MetricSource, StepSource


class Metric(Model):
    """The source of one number of a custom trainer."""

    key: str | None = Field(None, description="Key in the JSON object; dots separate nested keys (`summary.tokens`).")
    column: str | None = Field(None, description="Column of the CSV file; the last row's value is taken.")
    pattern: str | None = Field(
        None, description="Regular expression with one group, searched in stdout; the last match counts."
    )
    unit: str | None = Field(None, description="Unit of the number (`ms`, `GiB`), if it is not the metric's own unit.")


class Custom(Model):
    """A training command of your own (`trainer: custom`)."""

    command: Annotated[tuple[str, ...], AfterValidator(value_types.not_empty)] = Field(
        description="The command as a list; `{NAME}` is replaced by the value of the experiment's argument NAME."
    )
    launcher: Literal["accelerate", "none"] = Field(
        "accelerate", description="`accelerate`: start the command through accelerate; `none`: start it unchanged."
    )
    results: Annotated[str, AfterValidator(value_types.results)] = Field(
        "stdout",
        description="Place of the numbers: `stdout` (its last line is JSON), `file:NAME.json`, `file:NAME.jsonl` (its last "
        "line), `file:NAME.csv`, or `log`.",
        json_schema_extra={"pattern": r"^(stdout|log|file:(?!/|(.*/)?\.\./).+\.(jsonl?|csv))$"},
    )
    metrics: Annotated[dict[str, Metric], AfterValidator(value_types.not_ours)] = Field(
        default_factory=dict, description="Name of a Tunebench metric → source of its value."
    )

    def record(self) -> CustomCommand:
        sources = {name: MetricSource(**metric.model_dump()) for name, metric in self.metrics.items()}
        return CustomCommand(command=self.command, launcher=self.launcher, results=self.results, metrics=sources)


class Measure(Model):
    """Settings of the steady state and of the early stop. A step is an optimizer step."""

    discard_steps: Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(value_types.refuse_bool)] | None = Field(
        None, description="Number of warm-up steps, which no speed includes. Default: detected."
    )
    at_least_steps: Whole | None = Field(
        None,
        description="Smallest number of steady steps: for a speed (default 10), or before an early stop (default 20).",
    )
    at_most_steps: Whole | None = Field(
        None, description="Training ends after this number of steps, even if max_steps is larger."
    )
    within: Share | None = Field(
        None, description="Training ends when the step time is known within ± this share, such as 1%."
    )
    at_least_s: Seconds | None = Field(
        None, description="Smallest duration of all steps before `within` ends training, in seconds. Default: none."
    )

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        if self.at_least_s is not None and self.within is None:
            raise ValueError("at_least_s has an effect only with within; add within: 1%, or remove at_least_s")
        warm_up, least, most = self.discard_steps or 0, self.at_least_steps or 0, self.at_most_steps
        if most is not None and most < warm_up + least:
            needed = " and ".join(
                f"{name} {value}" for name, value in (("discard_steps", warm_up), ("at_least_steps", least)) if value
            )
            raise ValueError(f"at_most_steps {most} is too small for {needed}; raise it to at least {warm_up + least}")
        return self

    def record(self) -> records.Measure:
        return records.Measure(**self.model_dump())


class Target(Model):
    """The loss that a training is to reach: the mean of the last 10 logged losses. Each repeat has its own seed."""

    loss: Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(value_types.refuse_bool)] = Field(
        description="Largest mean of the last 10 logged losses that counts as reached."
    )

    def record(self) -> records.Target:
        return records.Target(loss=self.loss)


class RepeatsRange(Model):
    """Repeat an experiment until the interval of its speed is within ± `within`: at least `min` times and at most `max` times."""

    min: Annotated[int, Field(ge=2, le=1000), BeforeValidator(value_types.refuse_bool)] = Field(
        3, description="Smallest number of runs."
    )
    max: Annotated[int, Field(ge=2, le=1000), BeforeValidator(value_types.refuse_bool)] = Field(
        10, description="Largest number of runs."
    )
    within: Share | None = Field(None, description="Repeats end when the speed's 95 % interval is within ± this share.")
    discard_first: Literal["auto"] | None = Field(None, description="auto: make one more run if the first run is slow.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}; swap them")
        if self.within is None and self.min < self.max:
            raise ValueError(
                "the key 'within' is missing; add it, such as within: 1%, or set min and max to the same number"
            )
        return self


def _repeats_kind(value: Any) -> str:
    return "range" if isinstance(value, (dict, RepeatsRange)) else "number"


class Scenario(Model):
    """A named set of experiments: axes that are crossed, and arguments that all cells share."""

    name: str = Field(min_length=1, description="Name that `--scenario` chooses; unique in the file.")
    framework_config: Frameworks = Field(
        (None,),
        description="Short names of framework configurations; an inner list combines its names; null means no configuration.",
    )
    slow: bool = Field(False, description="Run only if `--scenario` names it.")
    arguments: Arguments = Field(
        default_factory=dict,
        description="Trainer arguments; a list for `model_name_or_path` is an axis; null removes a default.",
    )
    matrix: dict[str, AxisValues] = Field(default_factory=dict, description="Any argument as an axis: name → values.")
    zip: Zip = Field(
        (),
        description="Axes that change together: the first values of all axes, then the second values; or a list of such groups.",
    )
    include: tuple[dict[str, Any], ...] = Field((), description="Cells to add, or arguments for the cells that match.")
    exclude: tuple[dict[str, Any], ...] = Field(
        (), description="Cells to leave out: all cells that match every key of an entry. `'>= 8192'` compares numbers."
    )
    num_gpus: Counts | None = Field(
        None, description="Training processes on all nodes: one for each GPU, or CPU processes."
    )
    num_gpus_per_node: Counts | None = Field(None, description="Training processes on each node, instead of num_gpus.")
    num_nodes: Counts | None = Field(None, description="Machines that share the processes equally. Default: 1.")
    device: Device = Field(
        Device.CUDA, description="`cuda`, `cpu`, or `auto` (GPUs if there are enough, else CPU processes)."
    )
    trainer: str | None = Field(
        None,
        description="huggingface (default), fms_hf_tuning, trl, trl_dpo, llamafactory, axolotl, litgpt, thunder, script, custom, "
        "or your own.",
    )
    script: Annotated[Words, AfterValidator(value_types.not_empty)] = Field(
        (), description="Your own training script, or a list: the script, then words that come before the arguments."
    )
    module: Annotated[Words, AfterValidator(value_types.module)] = Field(
        (), description="Your own training script as a module, such as `pkg.train`, for `python -m`."
    )
    cwd: Literal["scenario"] | None = Field(
        None, description="`scenario`: start the script in the scenario file's folder. Default: a folder of the run."
    )
    python: str | None = Field(
        None,
        description="Interpreter of the training environment: a path, absolute or from the scenario file's folder, or a "
        "program on PATH. Default: Tunebench's own.",
    )
    environment: Names | None = Field(
        None, description="Software environments of `environments:`, as an axis; null means Tunebench's own."
    )
    repeats: Annotated[
        Annotated[Whole, Tag("number")] | Annotated[RepeatsRange, Tag("range")], Discriminator(_repeats_kind)
    ] = Field(1, description="Number of runs of each cell, or a range such as `{min: 3, max: 10, within: 1%}`.")
    measure: Measure | None = Field(None, description="Settings of the steady state and of the early stop.")
    target: Target | None = Field(
        None, description="Loss to reach, such as {loss: 1.05}: time, tokens and steps until then become columns."
    )
    steps: StepSource | None = Field(
        None,
        description="How a program without a Trainer reports its steps: `stdout` (it prints lines) or `tunebench.steps`.",
    )
    monitors: Words = Field(
        (),
        description="Monitors: hf_memory, hf_memory_native, nvidia_smi, nvml, torch_profiler, memory_snapshot, or your own.",
    )
    busy_gpus: Literal["wait", "warn", "fail"] = Field(
        "wait", description="If others use the GPU: wait (one minute, then warn), warn, or fail the run."
    )
    timeout_s: Seconds | None = Field(None, description="Longest duration of a run, in seconds.")
    startup_timeout_s: Seconds | None = Field(
        None, description="Longest time from the start of a run to its first step, in seconds."
    )
    stall_timeout_s: Seconds | None = Field(
        None, description="Longest time without a step after the first step, in seconds."
    )
    keep: Literal["none", "all"] = Field(
        "none", description="Files of the run's output folder that are kept: none, or all."
    )
    tags: Words = Field((), description="Words for selecting and grouping; they do not change the experiment.")
    baseline: Baseline = Field(
        default_factory=dict,
        description="Values of axes that reports compare with, such as {optim: sgd}, or a framework configuration.",
    )
    env: Variables = Field(default_factory=dict, description="Environment variables; null unsets a variable.")
    custom: Custom | None = Field(None, description="The command of `trainer: custom`.")

    def trainer_name(self) -> str:
        """Return the name of the trainer. A scenario with `script:` or `module:` need not name its trainer."""
        return self.trainer or ("script" if self.script or self.module else "huggingface")

    @property
    def own_axes(self) -> dict[str, tuple[Any, ...]]:
        """The axes of `matrix:` and of `zip:`."""
        return {**self.matrix, **{name: values for group in self.zip for name, values in group.items()}}

    @property
    def counts(self) -> dict[str, tuple[int, ...]]:
        """The keys of the scenario that count processes and machines."""
        return {name: values for name in COUNTS if (values := getattr(self, name))}

    def how_often(self) -> dict[str, Any]:
        """Return two fields of an experiment: `repeats`, the smallest number of runs, and `adaptive`, the rule for further runs."""
        if isinstance(self.repeats, int):
            return {"repeats": self.repeats, "adaptive": None}
        return {"repeats": self.repeats.min, "adaptive": records.Repeats(**self.repeats.model_dump())}

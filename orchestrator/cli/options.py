"""The options and arguments of the command: names, types and help. `takes` passes the options to a function as one value.

This module has no `from __future__ import annotations`. That import would turn annotations into texts, and typer would compile
these texts at every start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Argument, Option

from orchestrator.campaign.race.objective import Objective
from orchestrator.errors import SelectionError
from orchestrator.report.format import Format

if TYPE_CHECKING:
    from orchestrator.records.price import Price

T = TypeVar("T")


class Memory(StrEnum):
    """The ways to measure memory, with the names of the reference system."""

    HUGGINGFACE = "huggingface"
    NVIDIA = "nvidia"
    ALL = "all"
    NONE = "none"


MONITORS_OF = {
    Memory.HUGGINGFACE: ("hf_memory",),
    Memory.NVIDIA: ("nvidia_smi",),
    Memory.ALL: ("hf_memory", "nvidia_smi", "nvml"),
    Memory.NONE: (),
}


AsJson = Annotated[bool, Option("--json", help="Print one JSON document.")]
AsCommands = Annotated[bool, Option("--commands", help="Print the shell command of each run.")]
RESULTS = Path("results")
Results = Annotated[Path, Option("--results", help="Results folder.")]
PriceOption = Annotated[
    str | None,
    Option(
        "--price",
        metavar="PRICE",
        help="Price of the machines' time, such as 2.50USD/GPUh, or 20USD/nodeh@2026-11-01 with its date. The report shows costs.",
    ),
]
Budget = Annotated[
    str | None,
    Option(
        metavar="AMOUNT",
        help="Start no run that may exceed this budget of the campaign: hours (2h), GPU-hours (8GPUh), or money (50USD).",
    ),
]
ConfirmAbove = Annotated[
    float, Option("--confirm-above", min=0, help="Ask before a campaign that may take more GPU-hours than this.")
]
Yes = Annotated[bool, Option("--yes", help="Start without asking.")]
Warm = Annotated[
    bool | None,
    Option(
        "--warm/--cold",
        help="Fork runs from a process that has imported torch and transformers, or start each run anew. [default: as the "
        "last run of the experiment in the folder; else warm for probes, --find and tune]",
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would run; write nothing and run nothing.")]
MoveAside = Annotated[
    bool, Option("--move-aside", help="Move an existing results folder aside instead of resuming it.")
]
NoDataProcessing = Annotated[
    bool, Option("--no-data-processing", help="Use the data that an earlier call prepared; prepare nothing.")
]
Gpus = Annotated[str | None, Option(help="Use only these GPUs: indices or UUIDs, separated by commas. [default: all]")]
ObjectiveOption = Annotated[
    Objective,
    Option(
        "--objective",
        help="Find the fastest, the cheapest per token (needs a price), or the one with the least energy per token. The last "
        "two also compare numbers of GPUs.",
    ),
]
Limits = Annotated[
    list[str] | None,
    Option(
        "--limit",
        metavar="NAME=VALUE",
        help="Drop an experiment that needs more memory per device than memory=80GiB, or whose loss is further above the "
        "lowest loss than loss=+1%; repeatable.",
    ),
]
By = Annotated[
    list[str] | None, Option("--by", help="Columns whose values identify an experiment, separated by commas.")
]
Folder = Annotated[Path, Argument(help="Results folder.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteOptions:
    """The options that `plan` and `run` share. They name the files, choose parts of them, and change values."""

    scenarios: Annotated[
        Path | None, Argument(help="Scenario file. [default: scenario 'quickstart' of the shipped file]")
    ] = None
    defaults: Annotated[Path | None, Option(help="File with the arguments that every scenario starts from.")] = None
    accelerate: Annotated[Path | None, Option(help="File with the settings of accelerate.")] = None
    frameworks: Annotated[Path | None, Option(help="Folder of framework configurations.")] = None
    num_gpus: Annotated[
        str | None, Option(help="Numbers of GPUs to run with, such as 1,2,4. Each GPU has one process.")
    ] = None
    scenario: Annotated[
        list[str] | None, Option(help="Use only this scenario; repeatable. [default: all but slow ones]")
    ] = None
    framework: Annotated[
        list[str] | None,
        Option(help="Use only experiments with this framework configuration (none: no configuration); repeatable."),
    ] = None
    model: Annotated[list[str] | None, Option(help="Use only experiments with this model; repeatable.")] = None
    cell: Annotated[
        list[str] | None, Option(help="Use only this experiment: its id, or a unique part of it; repeatable.")
    ] = None
    settings: Annotated[
        list[str] | None, Option("--set", help="Set one value, such as arguments.max_steps=20; repeatable.")
    ] = None
    axis: Annotated[
        list[str] | None, Option(help="Add an axis, such as per_device_train_batch_size=1,2,4; repeatable.")
    ] = None
    trainer: Annotated[str | None, Option(help="Use this trainer for all scenarios.")] = None
    repeats: Annotated[int | None, Option(min=1, help="Number of runs of each experiment.")] = None
    memory: Annotated[
        Memory | None,
        Option(
            help="How memory is measured: by the Trainer, by nvidia-smi, in all ways (also by NVML), or not at all."
        ),
    ] = None
    executor: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Start the runs with this executor. [default: the executor in the scenario file, else in the site file, else "
            "local]",
        ),
    ] = None
    fit_only: Annotated[
        bool,
        Option("--fit-only", help="Estimate the memory. Leave out experiments that do not fit, or perhaps do not fit."),
    ] = False
    price: PriceOption = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions(SuiteOptions):
    """The options of `plan`."""

    fit: Annotated[bool, Option("--fit", help="Estimate each experiment's GPU memory from its configuration.")] = False
    gpu_memory: Annotated[str | None, Option(help="Show which experiments fit a GPU of this size, such as 80GiB.")] = (
        None
    )
    assume: Annotated[
        str | None,
        Option(
            metavar="GPUS",
            help="Plan for another machine, such as 8xH100 or 8x80GiB: what fits, and its GPU-hours.",
        ),
    ] = None
    tune: Annotated[
        bool, Option("--tune", help="Show how many runs `tunebench tune` makes at most, and what they take and cost.")
    ] = False
    objective: ObjectiveOption = Objective.SPEED
    limit: Limits = None
    results: Annotated[
        Path | None,
        Option(
            help="Results folder. The plan shows which of your files changed after the runs in this folder, and --assume uses the "
            "speed of these runs."
        ),
    ] = None
    as_json: AsJson = False
    commands: AsCommands = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StartOptions(SuiteOptions):
    """The options that `run` and `tune` share: how the runs are made, and where their results go."""

    results: Results = RESULTS
    move_aside: MoveAside = False
    no_data_processing: NoDataProcessing = False
    retry_failed: Annotated[
        str | None,
        Option(metavar="[KINDS]", help="Repeat failed runs of these kinds, separated by commas, or all failed runs."),
    ] = None
    fail_fast: Annotated[
        bool,
        Option("--fail-fast", help="After the first run that fails, end the other runs in progress and start no more."),
    ] = False
    take_over: Annotated[
        bool, Option("--take-over", help="Take over runs of a host that has been silent for five minutes.")
    ] = False
    parallel: Annotated[
        str,
        Option(
            metavar="N|auto",
            help="Number of concurrent runs, each on its own GPUs and cores. auto: as many as fit; the slowdown is measured first.",
        ),
    ] = "1"
    gpus: Gpus = None
    warm: Warm = None
    screen: Annotated[
        bool,
        Option(
            "--screen",
            help="Measure this machine's own figures first (`tunebench screen`), and keep them with the results.",
        ),
    ] = False
    budget: Budget = None
    confirm_above: ConfirmAbove = 8.0
    yes: Yes = False
    json_lines: Annotated[
        bool, Option("--json-lines", help="Print a line of JSON for each run that is due, starts or ends.")
    ] = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions(StartOptions):
    """The options of `run`."""

    probe: Annotated[
        bool,
        Option(
            "--probe",
            help="Run two steps of each experiment first; experiments that do not fit in memory fail at once.",
        ),
    ] = False
    find: Annotated[
        str | None,
        Option(
            metavar="ARGUMENT",
            help="Find the largest value of this argument, such as max_seq_len, that fits in memory; measure nothing.",
        ),
    ] = None
    find_batch: Annotated[bool, Option("--find-batch", hidden=True)] = False  # --find per_device_train_batch_size
    submit_only: Annotated[
        bool, Option("--submit-only", help="Submit the runs to Slurm and do not wait. Repeat the command to wait.")
    ] = False
    dry_run: DryRun = False
    as_json: AsJson = False
    commands: AsCommands = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions(StartOptions):
    """The options of `tune`."""

    objective: ObjectiveOption = Objective.SPEED
    limit: Limits = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    """The options of `report`."""

    folders: Annotated[list[Path], Argument(help="Results folders, CSV files of results, or databases of runs.")]
    keep: Annotated[list[str] | None, Option(help="Columns to show even if they do not vary, separated by commas.")] = (
        None
    )
    drop: Annotated[list[str] | None, Option(help="Columns to leave out, separated by commas.")] = None
    form: Annotated[
        str | None,
        Option(
            "--format",
            metavar=",".join(form.value for form in Format),
            help="csv, markdown or json: print the report; without --output, write no file. html, parquet, or several formats: "
            "write files.",
        ),
    ] = None
    baseline: Annotated[
        list[str] | None,
        Option(
            metavar="[AXIS=]VALUE",
            help="Show speed and memory relative to this value of an axis (optim=sgd), or to this framework configuration; "
            "repeatable.",
        ),
    ] = None
    pivot: Annotated[
        str | None,
        Option(
            metavar="ROWS,COLUMNS[:METRIC]",
            help="Show a table of a metric's means, with a row for each value of ROWS and a column for each value of COLUMNS.",
        ),
    ] = None
    group_by: Annotated[
        str | None,
        Option(metavar="COLUMNS", help="Show the means of each group of rows that have equal values in these columns."),
    ] = None
    price: PriceOption = None
    output: Annotated[
        Path | None, Option(help="Folder for the files: a new folder, or a folder with an earlier report.")
    ] = None


def given_price(words: str | None) -> "Price | None":
    """Return the price of `--price`. Raise SelectionError if it is not a price."""
    from orchestrator.records.price import parse_price

    try:
        return None if words is None else parse_price(words)
    except ValueError as error:
        raise SelectionError(f"--price {error}") from None


def takes(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Return a decorator that makes a command from a function.

    The function takes one value of type `kind`. Each field of `kind` becomes an option of the command.
    """
    fields = signature(kind, eval_str=True)

    def decorated(function: Callable[[T], None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            function(kind(**values))

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = fields  # type: ignore[attr-defined]  # typer reads the options from it
        return command

    return decorated

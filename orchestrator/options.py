"""What the command's options and arguments are called, what they take, and what their help says. Values alone: no logic."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Memory(StrEnum):
    """Which memory is watched, in the reference's words."""

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


class Format(StrEnum):
    """How a report is written. `table` is for a terminal; `html` and `parquet` are files."""

    TABLE = "table"
    HTML = "html"
    CSV = "csv"
    MARKDOWN = "markdown"
    JSON = "json"
    PARQUET = "parquet"


Scenarios = Annotated[
    Path | None, typer.Argument(help="Scenario file; the shipped one, and in it 'quickstart', when left out.")
]
Defaults = Annotated[Path | None, typer.Option("--defaults", help="Arguments that every scenario starts from.")]
Accelerate = Annotated[Path | None, typer.Option("--accelerate", help="Launch settings.")]
Frameworks = Annotated[Path | None, typer.Option("--frameworks", help="Folder of framework configurations.")]
NumGpus = Annotated[str | None, typer.Option("--num-gpus", help="Process counts, one GPU each: 1,2,4.")]
ScenarioNames = Annotated[list[str] | None, typer.Option("--scenario", help="Run this scenario only; repeatable.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Set one value: arguments.max_steps=20; repeatable.")]
Axes = Annotated[
    list[str] | None, typer.Option("--axis", help="Add an axis: per_device_train_batch_size=1,2,4; repeatable.")
]
TrainerName = Annotated[str | None, typer.Option("--trainer", help="Trainer of all scenarios.")]
Repeats = Annotated[int | None, typer.Option("--repeats", min=1, help="How often each experiment is run.")]
MemoryKind = Annotated[
    Memory | None, typer.Option("--memory", help="Watch memory: by the Trainer, by nvidia-smi; all: both and NVML.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
AsCommands = Annotated[bool, typer.Option("--commands", help="Print the shell line of each run.")]
Fit = Annotated[bool, typer.Option("--fit", help="Estimate each cell's GPU memory from its configuration.")]
GpuMemory = Annotated[
    str | None, typer.Option("--gpu-memory", help="Say which cells fit a GPU of so much memory: 80GiB.")
]
Results = Annotated[Path, typer.Option("--results", help="Results folder.")]
MoveAside = Annotated[
    bool, typer.Option("--move-aside", help="Move an older results folder aside instead of resuming it.")
]
NoData = Annotated[
    bool, typer.Option("--no-data-processing", help="Use the data that was prepared before; prepare none.")
]
RetryFailed = Annotated[
    str | None,
    typer.Option("--retry-failed", metavar="[KIND,…]", help="Run again what failed before; of these kinds, or all."),
]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="End the campaign at the first run that fails.")]
Executor = Annotated[
    str | None,
    typer.Option(
        "--executor", metavar="NAME", help="What starts the runs. [default: the scenario file's executor, or local]"
    ),
]
Parallel = Annotated[
    str,
    typer.Option(
        "--parallel",
        metavar="N|auto",
        help="Runs at once, on GPUs and cores of their own; auto: as many as fit, once measured what that costs.",
    ),
]
Probe = Annotated[
    bool, typer.Option("--probe", help="Try two steps of each cell first; what does not fit fails at once.")
]
FindBatch = Annotated[
    bool, typer.Option("--find-batch", help="Measure nothing: find each cell's largest per-device batch that fits.")
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Run what a host had claimed of which nothing was heard for minutes.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, write and run nothing.")]
ConfirmAbove = Annotated[
    float, typer.Option("--confirm-above", min=0, help="Ask before a campaign of more GPU-hours than this.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Folder = Annotated[Path, typer.Argument(help="Results folder.")]
Folders = Annotated[list[Path], typer.Argument(help="Results folders.")]
Keep = Annotated[
    list[str] | None, typer.Option("--keep", help="Columns to keep though they do not vary; commas or repeated.")
]
Drop = Annotated[list[str] | None, typer.Option("--drop", help="Columns to leave out; commas or repeated.")]
Formats = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar=",".join(form.value for form in Format),
        help="csv, markdown or json alone: print it, write nothing. html, parquet, or several with commas: write files.",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", metavar="FRAMEWORK", help="Show speed and memory relative to this framework's."),
]
Pivot = Annotated[
    str | None,
    typer.Option("--pivot", metavar="ROWS,COLUMNS[:METRIC]", help="Show means of a metric by two columns' values."),
]
GroupBy = Annotated[
    str | None, typer.Option("--group-by", metavar="COLUMNS", help="Show means over what shares these columns' values.")
]
Output = Annotated[
    Path | None, typer.Option("--output", help="Folder for the files: a new one, or one that holds such a report.")
]
GpuNames = Annotated[str | None, typer.Option("--gpus", help="Indices or UUIDs, with commas; all when left out.")]
RunGpus = Annotated[str | None, typer.Option("--gpus", help="Use these GPUs only: indices or UUIDs, with commas.")]
Interval = Annotated[float, typer.Option("--interval", help="Seconds between two views, 0.1 to 60.")]
Watch = Annotated[bool, typer.Option("--watch", help="Look again until everything is done, or Ctrl-C.")]
Running = Annotated[
    list[str] | None, typer.Argument(help="Experiments by id, or a part that no other has; all when left out.")
]
JsonLines = Annotated[
    bool, typer.Option("--json-lines", help="Print a line of JSON for each run that is due, starts, ends.")
]
Once = Annotated[bool, typer.Option("--once", help="Show one view, then end.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each view.")]

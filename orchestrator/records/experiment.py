"""An experiment and its parts: the values that say what to run."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.records.environment import Environment

# The value that a trainer receives for one argument: a text, or the items of a list.
Text = str | tuple[str, ...]

# The number of steady steps that a speed needs, if `measure:` gives no number.
AT_LEAST_STEPS = 10

# The form of an experiment's id. Such an id is one word in a shell and a valid folder name on any disk, but never a path.
SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,250}")


# Between an experiment's id and the name of a benchmark. Together they identify a row of a table. An id has no such mark.
OF_BENCHMARK = "::"


def experiment_of(row_id: str) -> str:
    """Return the id of the experiment whose row has this id. The row may be that of a benchmark."""
    return row_id.partition(OF_BENCHMARK)[0]


def ids_named(word: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a user means by a word: the id that equals it, else the only id with this readable part, else the ids
    that contain it.

    So `a.gpus1` is a name, even if there is `a.gpus16`, too. The id of a benchmark's row means its experiment.
    """
    word, every = experiment_of(word), list(ids)
    named = [name for name in every if name.rpartition("-")[0] == word]
    if word in every:
        return [word]
    return named if len(named) == 1 else [name for name in every if word in name]


# From here, a float is not exact.
_TOO_LARGE = 1e15


def whole_number(value: Text | None) -> int | None:
    """Return the number from 0 that an argument is, as a trainer reads it: `1024`, `1024.0` and `1e3` are whole numbers.

    Return None for another value, and for a number from 1e15.
    """
    words = () if value is None else as_items(value)
    try:
        number = float(words[0]) if len(words) == 1 else math.nan
    except ValueError:
        return None
    return int(number) if number.is_integer() and 0 <= number < _TOO_LARGE else None


def as_items(value: Text) -> Sequence[str]:
    """Return one argument's value as the words of a command line."""
    return (value,) if isinstance(value, str) else value


class Device(StrEnum):
    """The device that trains. `auto` becomes `cuda` if the machine has enough GPUs, else `cpu`."""

    CUDA = "cuda"
    CPU = "cpu"
    AUTO = "auto"


class StepSource(StrEnum):
    """The way in which a program without a Trainer reports its steps: lines of stdout, or calls of `tunebench.steps.step`."""

    STDOUT = "stdout"
    CALLS = "tunebench.steps"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """The reason why an experiment is skipped: a word for programs, a sentence for people."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """A framework configuration: a named set of settings that make training fast.

    For trainer `fms_hf_tuning`, `plugin_file` is the plugin file of the acceleration framework; the trainer gets the whole file.
    `digest` is computed from the content, so that a changed configuration makes another experiment. `requires` has names of
    packages, some with a version range. The configuration has no effect on fewer than `min_gpus` GPUs, or on a device other than
    `device`. `environment` is the name of the software environment that it needs.
    """

    name: str
    digest: str
    arguments: Mapping[str, Text | None] = field(default_factory=dict)
    accelerate: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    device: Device | None = None
    min_gpus: int = 1
    environment: str | None = None
    plugin_file: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSpec:
    """The training data of an experiment, before its preparation; see `workers/prepare/prepare.py`.

    `source` is `builtin:…`, a local file or folder, or a hub name. `tokenizer` names the model that provides the tokenizer (None:
    the text is the same for all models). `form` is `tokens` for the built-in trainer, `text` for other trainers. `fingerprint` is
    computed from the content of a local source, so that an edited file is prepared anew. `tokenizer_fingerprint` is computed from
    the tokenizer of a local model. The path of the prepared data depends on it; the experiment's id does not.
    """

    source: str
    form: str
    split: str | None = None
    formatting: str | None = None
    chat_template: str | None = None
    tokenize: bool = False
    input_field: str = "input"
    text_field: str = "output"
    response_field: str | None = None
    response_template: str | None = None
    tokenizer: str | None = None
    vocab_size: int | None = None
    max_length: int | None = None
    samples: int | None = None
    seed: int = 0
    fingerprint: str | None = None
    tokenizer_fingerprint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """The rule that finds the steady state of a run and ends the training early. A step is an optimizer step.

    `discard_steps` is the number of warm-up steps (None: see `measure.steady_state`). Training ends after `at_most_steps` steps. It
    ends earlier if two conditions hold: the confidence interval of the step time is within ± `within` (0.01 is 1 %), and
    `at_least_steps` steps have followed the warm-up. `at_least_s` is a third condition: all steps have taken so many seconds.
    None of these fields is an argument of the trainer.
    """

    discard_steps: int | None = None
    at_least_steps: int | None = None
    at_most_steps: int | None = None
    within: float | None = None
    at_least_s: float | None = None

    def fields(self) -> dict[str, float | None]:
        """Return the fields for ids and for the training process. Ids from before `at_least_s` was added must not change."""
        return {name: value for name, value in asdict(self).items() if name != "at_least_s" or value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeats:
    """The rule for adaptive repeats: from `min` to `max` runs, until the interval of their speed is within ± `within`.

    If `min` is `max`, `within` may be None. If `discard_first` is `auto`, a cold first run does not count, and one more run is
    made.
    """

    min: int
    max: int
    within: float | None = None
    discard_first: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The loss that a training is to reach (`measure/losses/target.py`). Each repeat of such an experiment has its own seed."""

    loss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricSource:
    """The position of a number in a `custom` trainer's results: a JSON `key`, a CSV `column`, or a `pattern` with one group."""

    key: str | None = None
    column: str | None = None
    pattern: str | None = None
    unit: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CustomCommand:
    """A `custom` trainer: a command with `{argument}` placeholders, and the place of its results.

    `results` is `stdout` (its last line is a JSON object), `log` (regular expressions over stdout), `file:NAME.json`,
    `file:NAME.jsonl` (its last line) or `file:NAME.csv`. Such a file is in the working folder or in the run's folder. `metrics`
    maps each of Tunebench's metric names to the position and unit of its number. `folder` is the folder of the scenario file; the
    command names it `{scenario_dir}`. `folder` is a path, so it is not part of the experiment's identity.
    """

    command: tuple[str, ...]
    launcher: str = "accelerate"
    results: str = "stdout"
    metrics: Mapping[str, MetricSource] = field(default_factory=dict)
    folder: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """The training script of the user, for trainer `script`: a file (`script`) or a `module`, and the `words` before its arguments.

    If `cwd` is `scenario`, the script starts in the folder of the scenario file. If `cwd` is None, the script starts in a folder of
    the run. `folder` is the folder of the scenario file. `files` has the words and arguments that name files in `folder`; the
    script gets the absolute paths of these files. `folder` and `files` are paths, so they are not part of the experiment's
    identity.
    """

    script: str | None = None
    module: str | None = None
    words: tuple[str, ...] = ()
    cwd: str | None = None
    folder: str
    files: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the script or module in tables. A script outside the scenario file's folder is shown without its path."""
        name = self.module or self.script or ""
        return name.rsplit("/", 1)[-1] if name.startswith(("/", "~", "..")) else name.removeprefix("./")

    @property
    def path(self) -> str:
        """The absolute path of the script, even if the scenario file has a relative path."""
        return os.path.normpath(os.path.join(self.folder, os.path.expanduser(self.script or "")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One cell of the matrix: everything that a training run needs, and its identity.

    `num_gpus` counts the processes on all nodes, and `num_nodes` the machines that share them equally. `arguments` has the
    trainer's arguments, in order. `accelerate` is the launcher's configuration without values that are known only at launch.
    `env` has variables to set; the value None unsets a variable. `monitors` are names in `monitors.MONITORS`. `global_batch` is
    the number of samples per optimizer step over all data-parallel ranks (None: unknown). `data_path` is the file or folder of
    the prepared data. `sources` has the files of the user that a script or a `custom` command runs. It maps a path relative to
    the scenario file's folder to twelve digits of the content's SHA-256. `python` is the interpreter that trains (None: Tunebench's
    own); in a software `environment`, it is the environment's. `repeats` is the number of runs that are due from the
    start; `adaptive` is the rule for further runs. `busy_gpus` says what to do if other programs use a GPU: `wait`, `warn` or
    `fail`. `steps` says how a program without a Trainer reports its steps. `baseline` has values of axes; reports compare other
    rows with the rows that have these values. `skip` is the reason why no machine can run the experiment. `cannot_run_here` is
    the reason why this machine cannot run it.
    """

    id: str
    scenario: str
    model: str
    num_gpus: int
    num_nodes: int = 1
    device: Device
    trainer: str
    arguments: Mapping[str, Text]
    framework: Framework | None = None
    accelerate: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    custom: CustomCommand | None = None
    script: Script | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    environment: Environment | None = None
    monitors: tuple[str, ...] = ()
    data: DataSpec | None = None
    data_path: str | None = None
    global_batch: int | None = None
    measure: Measure | None = None
    target: Target | None = None
    steps: StepSource | None = None
    repeats: int = 1
    adaptive: Repeats | None = None
    busy_gpus: str = "wait"
    timeout_s: float | None = None
    startup_timeout_s: float | None = None
    stall_timeout_s: float | None = None
    keep: str = "none"
    tags: tuple[str, ...] = ()
    baseline: Mapping[str, Text | None] = field(default_factory=dict)
    skip: Reason | None = None
    cannot_run_here: Reason | None = None

    @property
    def processes_per_node(self) -> int:
        return self.num_gpus // self.num_nodes

    @property
    def most_repeats(self) -> int:
        """The largest number of repeats that the experiment may get."""
        return self.adaptive.max + bool(self.adaptive.discard_first) if self.adaptive else self.repeats

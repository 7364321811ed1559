"""The frozen values that travel between the steps of the journey.

Suite → Experiment → Job → Command → ProcessOutcome → RunRecord → ResultsTable. (`Suite` lives in `config`, being what
the YAML files say; `ResultsTable` in `table`, being a data frame.) Nothing here does anything: the steps are functions
elsewhere. Values that cross a file do so as JSON, by `dump` and `load`, which check every field's type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA_VERSION = 2
"""Of `record.json`. 1: up to 2026-11. 2: `hint`, `beside`, the status `stalled`; exit code and signal are the trainer's. What a
version does not know it leaves out, and a field that an older one lacks has its default: each version has a golden that is read.
"""

Text = str | tuple[str, ...]
"""What a trainer receives for one argument: a text, or the items of a list."""


class Device(StrEnum):
    """Where the training processes of an experiment run. `AUTO` is settled by `matrix.expand` and never runs."""

    CUDA = "cuda"
    CPU = "cpu"
    AUTO = "auto"


class Status(StrEnum):
    """How a run ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    LOST = "lost"
    INVALID = "invalid"


class Limit(StrEnum):
    """Which of a run's limits it went over, by the name that a scenario gives it."""

    WALL = "timeout_s"
    STARTUP = "startup_timeout_s"
    STALL = "stall_timeout_s"


class JobState(StrEnum):
    """Where a run stands, derived from the files of its folder. `SILENT`: on another host, of which nothing was heard."""

    PENDING = "pending"
    RUNNING = "running"
    SILENT = "silent"
    LOST = "lost"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why something is not so: a word for programs, a sentence for people."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One visible GPU. `index` is the number in NVML's order, which is CUDA's under CUDA_DEVICE_ORDER=PCI_BUS_ID."""

    index: int
    uuid: str
    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """A framework configuration: a named bundle of what makes training fast.

    `plugin_file` is set for an acceleration-framework plugin file (trainer `fms_hf_tuning`), which is handed over whole;
    everything else is ours. `digest` is over the content, so that a changed bundle is another experiment. `requires` are
    distribution names with optional version ranges; `min_gpus` and `device` say where the bundle means anything.
    """

    name: str
    digest: str
    arguments: Mapping[str, Text | None] = field(default_factory=dict)
    accelerate: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    device: Device | None = None
    min_gpus: int = 1
    plugin_file: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSpec:
    """What training data an experiment reads, before it is prepared; see `workers/prepare.py`.

    `source` is `builtin:…`, a local file or folder, or a hub name. `tokenizer` names the model whose tokenizer matters
    (None: the text is the same for all models). `form` is `tokens` for the built-in trainer, `text` for the others.
    `fingerprint` is over the content of a local source, so that an edited file is prepared anew.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """How the steady state of a run is to be found, and when enough of it was seen; all in optimizer steps.

    `discard_steps` declares the warm-up (None: it is found, see `steady`). Training ends early after `at_most_steps`, or
    once the interval of the step time is within ± `within` (a share: 0.01 is 1 %) of it and `at_least_steps` are behind
    the warm-up. None of these is an argument of the trainer.
    """

    discard_steps: int | None = None
    at_least_steps: int | None = None
    at_most_steps: int | None = None
    within: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeats:
    """Adaptive repeats: at least `min`, then more until the interval over runs is within ± `within`, at most `max`."""

    min: int
    max: int
    within: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One cell of the matrix: everything that one training run needs, and its identity.

    `arguments` is what the trainer receives, in order. `accelerate` is the launcher's configuration less what is known at
    launch. `env` are variables to set (None: to unset). `monitors` are names in `monitors.MONITORS`. `global_batch` is
    samples an optimizer step over all processes (None where it is the trainer's own default). `data_path` is the prepared
    data's folder or file. `repeats` are those that are owed at once, `adaptive` the rule for more of them. `busy_gpus` says
    what a GPU that others use means for a run: `wait`, `warn` or `fail`. `skip`: wrong anywhere; `cannot_run_here`: merely
    not on this machine.
    """

    id: str
    scenario: str
    model: str
    num_gpus: int
    device: Device
    trainer: str
    arguments: Mapping[str, Text]
    framework: Framework | None = None
    accelerate: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    custom: CustomCommand | None = None
    python: str | None = None
    monitors: tuple[str, ...] = ()
    data: DataSpec | None = None
    data_path: str | None = None
    global_batch: int | None = None
    measure: Measure | None = None
    repeats: int = 1
    adaptive: Repeats | None = None
    busy_gpus: str = "wait"
    timeout_s: float | None = None
    startup_timeout_s: float | None = None
    stall_timeout_s: float | None = None
    keep: str = "none"
    tags: tuple[str, ...] = ()
    skip: Reason | None = None
    cannot_run_here: Reason | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricSource:
    """Where a `custom` trainer's number is read: one of JSON `key`, CSV `column` or a `pattern` with one group."""

    key: str | None = None
    column: str | None = None
    pattern: str | None = None
    unit: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CustomCommand:
    """A `custom` trainer: a command with `{argument}` placeholders and where its results are.

    `results` is `stdout` (its last line is a JSON object), `file:NAME.json`, `file:NAME.csv` (relative to the run folder)
    or `log` (regular expressions over stdout). `metrics` maps our metric names to their place and unit. `folder` is the
    scenario file's, `{scenario_dir}` in the command; a path, so no part of the identity.
    """

    command: tuple[str, ...]
    launcher: str = "accelerate"
    results: str = "stdout"
    metrics: Mapping[str, MetricSource] = field(default_factory=dict)
    folder: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run that is owed: repeat and try are its name, its folder is where everything of it lies."""

    experiment_id: str
    repeat: int
    attempt: int
    run_dir: Path

    @property
    def name(self) -> str:
        return f"r{self.repeat}-t{self.attempt}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A process to start: argv, the changes to the parent's environment, and files to write beside it first.

    `env` sets a variable, or unsets it where the value is None. `files` maps a name in the run folder to its text.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    cwd: Path
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessOutcome:
    """How a process tree ended. `exit_code` is None when a signal ended it; times are seconds since the epoch.

    `limit` is the one that it was ended for; `survivors` name processes that could not be ended.
    `memory_kills`: processes of it that the kernel killed for memory, where it says so for this tree alone.
    """

    exit_code: int | None
    signal: int | None
    started_at: float
    ended_at: float
    limit: Limit | None = None
    cancelled: bool = False
    survivors: tuple[str, ...] = ()
    memory_kills: int = 0

    @property
    def wall_s(self) -> float:
        return self.ended_at - self.started_at

    @property
    def timed_out(self) -> bool:
        return self.limit is Limit.WALL


NOT_FINITE = "was no finite number"
"""The end of a measurement's source where the program gave NaN or infinity, which is kept as a missing value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One number (or word) of a run: its name in `metrics.METRICS`, its value in base units, what it was read from."""

    name: str
    value: float | int | str | None
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """What a run came to: written once, as the last act of the run, and never changed.

    `kind` is a word for the failure (None when ok), `cause` a sentence, `tail` the end of the log. `settings` are what
    really took effect, read off the built model. `ranks` are rows of each training process, `devices` of each GPU (cells by
    the names of `metrics`). `warnings` are sentences that belong beside the number; `beside` are the experiments whose runs went
    on beside it on its machine.
    """

    schema_version: int = SCHEMA_VERSION
    experiment_id: str
    repeat: int
    attempt: int
    status: Status
    kind: str | None = None
    cause: str | None = None
    hint: str | None = None
    tail: str | None = None
    started_at: float
    wall_s: float
    exit_code: int | None = None
    signal: int | None = None
    measurements: tuple[Measurement, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[Mapping[str, Any], ...] = ()
    devices: tuple[Mapping[str, Any], ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


T = TypeVar("T")


_adapters: dict[type, Any] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Building one costs far more than using it, and a results folder holds thousands of records."""
    if kind not in _adapters:
        from pydantic import TypeAdapter

        _adapters[kind] = TypeAdapter(kind)
    adapter: TypeAdapter[T] = _adapters[kind]
    return adapter


def dump(value: Any) -> str:
    """A record as JSON text, keys in the order of the fields."""
    return _adapter(type(value)).dump_json(value, indent=2).decode() + "\n"


def load(kind: type[T], text: str | bytes) -> T:
    """JSON text as a record of `kind`. Raises pydantic.ValidationError when a field is missing or has another type."""
    return _adapter(kind).validate_json(text)


def as_items(value: Text) -> Sequence[str]:
    """The command-line words of one argument's value."""
    return (value,) if isinstance(value, str) else value

"""What is to be run: an experiment, and what it is made of. Values alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# What a trainer receives for one argument: a text, or the items of a list.
Text = str | tuple[str, ...]

# What an experiment's id looks like: one word in a shell, one folder on any disk, no way out of the folder that holds it.
TAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,250}")


def as_items(value: Text) -> Sequence[str]:
    """The command-line words of one argument's value."""
    return (value,) if isinstance(value, str) else value


class Device(StrEnum):
    """Where the training processes of an experiment run. `AUTO` is settled by `matrix.expand` and never runs."""

    CUDA = "cuda"
    CPU = "cpu"
    AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why something is not so: a word for programs, a sentence for people."""

    kind: str
    text: str


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
    """What training data an experiment reads, before it is prepared; see `workers/prepare/prepare.py`.

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

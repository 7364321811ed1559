"""Values of a run: its job, its command, the end of its processes, its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from orchestrator.records.caveat import AcceptsSentence, Caveat
from orchestrator.records.run_folder import RunFolder

# The version of `record.json`. Version 1 was written up to 2026-11. Version 2 adds `hint`, the experiments on the same machine, and
# the status `stalled`. Since version 2, the exit code and the signal are those of the trainer. In version 3 `warnings` are
# caveats, and a missing measurement has its reason in `missing`. A reader ignores unknown fields and gives missing fields their
# defaults. Tests read a golden record of each version.
SCHEMA_VERSION = 3


class Status(StrEnum):
    """The way in which a run ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    LOST = "lost"
    INVALID = "invalid"


class Limit(StrEnum):
    """A limit that ends a run. Each value is a key of a scenario. At `MEASURED`, the run has made all requested steps."""

    WALL = "timeout_s"
    STARTUP = "startup_timeout_s"
    STALL = "stall_timeout_s"
    MEASURED = "measure"


class Start(StrEnum):
    """The way in which a training started: forked by a process that had imported everything (`workers/warm/`), or not."""

    WARM = "warm"
    COLD = "cold"


class JobState(StrEnum):
    """The state of a run, derived from the files of its folder. A run is `SILENT` if its heartbeat file is minutes old."""

    PENDING = "pending"
    RUNNING = "running"
    SILENT = "silent"
    LOST = "lost"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One visible GPU. `index` is its number in NVML, and in CUDA with CUDA_DEVICE_ORDER=PCI_BUS_ID."""

    index: int
    uuid: str
    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One due run. Its name consists of its repeat and attempt; its folder contains all its files."""

    experiment_id: str
    repeat: int
    attempt: int
    run_dir: Path

    @property
    def name(self) -> str:
        return f"r{self.repeat}-t{self.attempt}"

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.run_dir)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A process to start: argv, the changes to the parent's environment, and files to write first.

    `env` sets variables; the value None unsets a variable. `files` maps a name in the run folder to its text.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    cwd: Path
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessOutcome:
    """The end of a process tree. `exit_code` is None if a signal ended the process; times are seconds since the epoch.

    `ended_at` is the time when the process ended by itself, or when it reached a limit. Ending it then takes until `gone_at`.

    `pid` is the id of the process that was started. `limit` is the limit that the process tree reached. `survivors` are processes
    that could not be ended. `memory_kills` is the number of processes that the kernel killed because memory ran out. It is 0 if the
    kernel does not count such processes for this tree. `cold_because` says why a run that was to start warm started cold.
    """

    exit_code: int | None
    signal: int | None
    started_at: float
    ended_at: float
    gone_at: float | None = None
    pid: int | None = None
    limit: Limit | None = None
    cancelled: bool = False
    survivors: tuple[str, ...] = ()
    memory_kills: int = 0
    start: Start = Start.COLD
    cold_because: str | None = None

    @property
    def wall_s(self) -> float:
        return self.ended_at - self.started_at

    @property
    def until_gone_s(self) -> float:
        return (self.gone_at or self.ended_at) - self.started_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One number or word of a run: its name in `metrics.METRICS`, its value in base units, and its source.

    `missing` says why there is no value. Older records, and monitors from other packages, may give this reason in `source`.
    """

    name: str
    value: float | int | str | None
    source: str
    missing: Caveat | None = None

    @property
    def why_missing(self) -> str:
        return self.missing.sentence if self.missing else self.source


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """The result of a run. It is written once, at the end of the run, and never changed.

    `kind` is the kind of failure (None if the run is ok), `cause` is a sentence about the failure, and `tail` is the end of the
    log. `settings` are the settings in effect, read from the built model. `ranks` has a row for each training process. `devices`
    has a row for each GPU. `benchmarks` has a row for each benchmark of a suite: its `fullname`, its `params` and its numbers. The
    cells of these rows have names from `metrics`. `warnings` has caveats about the numbers. The last two fields describe the
    experiments that ran on the same machine at the same time. The first of the two fields has their ids. The second field has the
    largest number of their runs at one time (None in older records).
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
    benchmarks: tuple[Mapping[str, Any], ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[Annotated[Caveat, AcceptsSentence()], ...] = ()
    beside: tuple[str, ...] = ()
    beside_at_once: int | None = None

    @property
    def neighbours(self) -> int:
        """The largest number of other runs that were on the machine at one time.

        An older record does not have this number. Then the value is the number of other experiments during the whole run.
        """
        return len(self.beside) if self.beside_at_once is None else self.beside_at_once

"""The values of a run: job, command, the end of its processes, record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from orchestrator.records.caveat import Caveat, Door
from orchestrator.records.run_folder import RunFolder

# Of `record.json`. 1: up to 2026-11. 2: `hint`, `beside`, the status `stalled`; exit code and signal are the trainer's. 3:
# `warnings` are caveats, and a missing measurement has its reason in `missing`. What a version does not know it leaves out, and a
# field that an older one lacks has its default: each version has a golden that is read.
SCHEMA_VERSION = 3


class Status(StrEnum):
    """The end of a run, in a word."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    LOST = "lost"
    INVALID = "invalid"


class Limit(StrEnum):
    """The limit that a run exceeded, by its name in a scenario."""

    WALL = "timeout_s"
    STARTUP = "startup_timeout_s"
    STALL = "stall_timeout_s"


class JobState(StrEnum):
    """The state of a run, derived from the files of its folder. `SILENT`: its host has not been heard from."""

    PENDING = "pending"
    RUNNING = "running"
    SILENT = "silent"
    LOST = "lost"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One visible GPU. `index` is the number in NVML's order, which is CUDA's under CUDA_DEVICE_ORDER=PCI_BUS_ID."""

    index: int
    uuid: str
    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One due run: repeat and attempt are its name; its folder contains everything of it."""

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

    `env` sets a variable, or unsets it where the value is None. `files` maps a name in the run folder to its text.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    cwd: Path
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessOutcome:
    """The end of a process tree. `exit_code` is None when a signal ended it; times are seconds since the epoch.

    `pid` is that of the process that was started. `limit` is the one that it was ended for; `survivors` name processes that could
    not be ended.
    `memory_kills`: processes of it that the kernel killed for memory, where it says so for this tree alone.
    """

    exit_code: int | None
    signal: int | None
    started_at: float
    ended_at: float
    pid: int | None = None
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One number (or word) of a run: its name in `metrics.METRICS`, its value in base units, and its source.

    `missing` says why there is no value. Where it is None (older records, plugs of others), `source` may say so.
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
    """The result of a run: written once, as its last act, and never changed.

    `kind` is a word for the failure (None when ok), `cause` a sentence, `tail` the end of the log. `settings` are what
    really took effect, read off the built model. `ranks` are rows of each training process, `devices` of each GPU (cells by
    the names of `metrics`). `warnings` are what to know next to the numbers; `beside` are the experiments whose runs went
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
    warnings: tuple[Annotated[Caveat, Door()], ...] = ()
    beside: tuple[str, ...] = ()

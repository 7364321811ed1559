"""The warm starters of a campaign: a process for each environment that has imported what every training imports, and forks for it.

`connect` gives a run its connection. A starter begins when the first run needs it, and ends when this process ends, however it
ends: then its socket is closed. If a starter dies, or if its imports take longer than a run may, the later runs of its environment
start cold, and a sentence says so. If a package has changed since the imports, the next run gets a new starter.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from orchestrator.errors import LaunchError
from orchestrator.files.package import WORKERS
from orchestrator.machine import process
from orchestrator.machine.child_environment import MARKER, child_environment
from orchestrator.records import Experiment, RunRecord

PROGRAM = WORKERS / "warm" / "warm.py"
# Each starter needs about half a GiB of memory. The runs of further environments start cold.
MOST = 4
# The starter writes the marker of a run over this value, which no run has.
_UNMARKED = "0" * 32
# The exit code of a starter if a package has changed since its imports.
_CHANGED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """An environment in which a starter makes its imports: the interpreter, and changes to the variables of this process."""

    python: str
    variables: tuple[tuple[str, str | None], ...]


EnvironmentOf = Callable[[Experiment], Environment | str]


@dataclass(kw_only=True, slots=True)
class _Living:
    """A starter. `patience_s` is how long the most patient of its runs waits for its imports."""

    control: socket.socket
    child: subprocess.Popen[bytes]
    began: float
    patience_s: float = 0.0

    @property
    def is_ready(self) -> bool:
        """Tell whether the imports are made: the starter then says so by a byte, which stays unread."""
        with suppress(OSError):
            return bool(self.control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def end(self) -> None:
        """End the starter, and what its imports have started. Its runs have groups of their own, and go on."""
        self.control.close()
        if self.child.poll() is None:  # else the number may be that of other processes by now
            with suppress(OSError):
                os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


class Starters:
    """The starters of one executor. `environment_of` returns the reason, perhaps empty, for an experiment that must start cold."""

    def __init__(self, environment_of: EnvironmentOf, *, say: Callable[[str], object]) -> None:
        self.environment_of, self.say = environment_of, say
        self._known: dict[Environment, _Living | None] = {}
        self._reasons: set[str] = set()

    def connect(self, experiment: Experiment) -> socket.socket | None:
        """Return a new connection to the starter of this experiment. Return None if it must start cold."""
        environment = self.environment_of(experiment)
        if isinstance(environment, str):
            return None
        living = self._known.get(environment)
        if living is not None and living.child.poll() == _CHANGED:
            living.control.close()
            self._known.pop(environment)
        if environment not in self._known:
            self._known[environment] = self._begun(environment) if len(self._known) < MOST else None
        living = self._known[environment]
        if living is None:
            return None
        living.patience_s = max(living.patience_s, process.warm.patience_s(experiment.timeout_s))
        is_late = time.monotonic() - living.began > living.patience_s
        if is_late and living.child.poll() is None and not living.is_ready:
            living.end()
            self._leave(environment, f"the imports of the warm starter took more than {living.patience_s:g} s")
            return None
        ours, theirs = socket.socketpair()
        with theirs, suppress(OSError):
            if living.child.poll() is None:
                socket.send_fds(living.control, [b"\n"], [theirs.fileno()])
                return ours
        ours.close()
        living.end()
        self._leave(environment, "the warm starter has ended")
        return None

    def why_cold(self, experiment: Experiment) -> str:
        """Return why this experiment never starts warm; an empty text if it may, or if no one asked for it."""
        environment = self.environment_of(experiment)
        return environment if isinstance(environment, str) else ""

    def ended(self, record: RunRecord | None) -> None:
        """Say why this run started cold, once for each reason."""
        reason = record.provenance.get("cold_because") if record else None
        if isinstance(reason, str) and reason not in self._reasons:
            self._reasons.add(reason)
            self.say(f"a run started cold: {reason}")

    def _leave(self, environment: Environment, reason: str) -> None:
        self._known[environment] = None
        self.say(f"{reason}, so the following runs start cold")

    def _begun(self, environment: Environment) -> _Living | None:
        variables: Mapping[str, str | None] = dict(environment.variables)
        env = child_environment({**variables, MARKER: _UNMARKED})
        control, theirs = socket.socketpair()
        try:
            with theirs:
                child = process.start_starter([environment.python, str(PROGRAM)], env=env, stdin=theirs.fileno())
        except LaunchError as error:
            control.close()
            self.say(f"runs start cold: {error}")
            return None
        return _Living(control=control, child=child, began=time.monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the starters. Runs that they have started go on."""
        for living in filter(None, self._known.values()):
            living.end()
        self._known.clear()


def stdin_of(connection: socket.socket | None) -> int:
    """Return the descriptor that a run gets as its stdin."""
    return subprocess.DEVNULL if connection is None else connection.fileno()

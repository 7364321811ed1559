"""Runs a sampler: a program that monitors a run from a separate process and writes a file in the run's folder.

The sampler starts before the run, and the run waits for the sampler's first readings. The sampler ends after the run. Only the
monitor interprets the lines of this file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LaunchError
from orchestrator.files import reading
from orchestrator.machine import process
from orchestrator.records import RunFolder

if TYPE_CHECKING:
    import subprocess

# The longest wait for the first readings. After this time the run starts without them.
FIRST_READING_S = 20.0


def number_of_nodes(run_dir: Path) -> int:
    """Return the number of nodes of the run in this folder. On other nodes than the first one, watchers run the monitors."""
    from orchestrator.results import experiment_file

    try:
        return experiment_file.of_run(run_dir).num_nodes
    except (OSError, ValueError, IndexError):
        return 1


def on_all_nodes(run_dir: Path, name: str) -> dict[str, Path]:
    """Return node → a monitor's file, the first node first. A node whose monitor has written nothing is missing."""
    numbers: dict[str, int] = {}
    for facts in RunFolder(run_dir).nodes.glob("*/node.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            numbers[facts.parent.name] = int(reading.read_json(facts, limit=reading.RECORD_BYTES)["number"])
    files = {
        node: RunFolder(run_dir).nodes / node / name if number else run_dir / name for node, number in numbers.items()
    }
    return {node: files[node] for node in sorted(files, key=numbers.__getitem__) if files[node].exists()}


@contextmanager
def not_sampling(path: Path) -> Iterator[None]:
    """Give a file of samples another name if a run without GPUs wrote or copied it. No sampler watches such a run."""
    from orchestrator.results.folder import with_dated_name

    yield
    with suppress(OSError):
        if os.path.lexists(path):
            with_dated_name(path)


@contextmanager
def sampling(
    argv: Callable[[], Sequence[str]], path: Path, *, has_read: Callable[[str], bool]
) -> Iterator[subprocess.Popen[bytes] | None]:
    """Run the program with the command line `argv()` inside a `with` block. Write its output to `path`, and yield its process.

    Yield None if the program cannot be started, or if `argv` raises LaunchError. In these cases the reason is in the file.
    `has_read` returns whether a text has a reading of each device.
    """
    with ExitStack() as stack:
        try:
            sampler = stack.enter_context(process.sidecar(argv(), path))
        except LaunchError as error:
            path.write_text(f"{error}\n", encoding="utf-8")
            yield None
            return
        deadline = time.monotonic() + FIRST_READING_S
        while time.monotonic() < deadline and sampler.poll() is None:
            if has_read(reading.read_head(path, limit=reading.CLAIM_BYTES)):
                break
            time.sleep(0.05)  # the run has not started, so this loop disturbs nothing
        yield sampler

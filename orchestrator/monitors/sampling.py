"""What monitors share that read by a program beside the run: started before it, waited for until it has read once, ended after it.

Its output is a file in the run's folder; a program that can't be started leaves there why. What the lines mean is the monitors'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LaunchError
from orchestrator.files import reading
from orchestrator.machine import process

if TYPE_CHECKING:
    import subprocess

FIRST_READING_S = 20.0
"""How long a sampler is waited for; what it does not say by then, the run goes on without."""


@contextmanager
def sampling(
    argv: Callable[[], Sequence[str]], path: Path, *, has_read: Callable[[str], bool]
) -> Iterator[subprocess.Popen[bytes] | None]:
    """While entered, the program of these words writes into `path`; None where it can't be started, or `argv` raises LaunchError.

    `has_read` is asked whether what it wrote so far holds a reading of each device: the first one precedes the run.
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
            time.sleep(0.05)  # before the run: it disturbs nothing
        yield sampler

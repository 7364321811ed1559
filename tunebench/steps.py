"""Reports the steps of a training loop to Tunebench: `from tunebench.steps import step`, and a call after every optimizer step.

    for batch in batches:
        loss = train(batch)
        step(tokens=batch.numel(), samples=len(batch))

In a run of Tunebench, each call appends a line to `steps-rank<R>.jsonl` in the run's folder. The line has the time since the
previous call, and the counts. The first call only starts the clock. Each process counts its own tokens, and RANK (or
LOCAL_RANK) numbers the processes. Outside a run, a call does nothing.

A call reads the clock of the host. The GPU may still be busy at that time. Over many steps this makes no difference, since a host
that is ahead waits for the GPU. For exact single steps, first call something that waits for the GPU, such as `loss.item()`.

If torch.compile compiled since the previous call, the line says how many graphs: `recompiled`, or `compiled` if they are the first.

The module imports only the standard library. If the file cannot be written, the reporting ends with a line on stderr, and the
training goes on. A program may close all its files, and give their numbers to other files: then the file is opened again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress

__all__ = ["step"]


def _graphs() -> int:
    """Return the number of graphs that torch.compile has compiled in this process; 0 if it was never used."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    return int((counters.get("stats") or {}).get("unique_graphs", 0))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file. Raise OSError if it is a pipe without a reader, because opening such a pipe never ends."""
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


class _Reporter:
    """The steps of this process. Without a folder, nothing is written."""

    def __init__(self, folder: str | None) -> None:
        self.folder, self.number = folder, 0
        self.last, self.graphs = 0.0, 0
        self.path = ""
        self.file: int | None = None
        self.identity = (0, 0)

    def step(self, tokens: int | None, samples: int | None) -> None:
        now, at = time.perf_counter(), time.time()
        self.number += 1
        line: dict[str, object] = {"step": self.number, "t": round(at, 6)}
        if self.file is None:
            rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
            path = os.path.join(self.folder or "", f"steps-rank{rank}.jsonl")
            # The steps of an earlier process stay: steps that begin again make the run invalid.
            self.path = os.path.abspath(path)
            self._open()
        else:
            line["s"] = round(now - self.last, 9)
        self.last = now
        for name, count in (("tokens", tokens), ("samples", samples)):
            line[name] = None if count is None else int(count)
        graphs = _graphs()
        if graphs > self.graphs and "s" in line:
            line["recompiled" if self.graphs else "compiled"] = graphs - self.graphs
        self.graphs = graphs
        if not self._is_open():
            self._open()
        assert self.file is not None
        os.write(
            self.file, (json.dumps(line) + "\n").encode()
        )  # without a buffer, since a process can be killed at any moment

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self.file = _without_waiting(self.path, flags)
        self.identity = _identity(self.file)

    def _is_open(self) -> bool:
        """Return whether the number of the file still belongs to the file."""
        try:
            return self.file is not None and _identity(self.file) == self.identity
        except OSError:
            return False


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


_reporter = _Reporter(os.environ.get("TUNEBENCH_RUN_DIR"))


def step(tokens: int | None = None, samples: int | None = None) -> None:
    """Report that this process has ended an optimizer step, with the tokens and samples that it trained on."""
    if _reporter.folder is not None:
        try:
            _reporter.step(tokens, samples)
        except OSError as error:  # such as a full disk
            _reporter.folder = None
            with suppress(OSError, ValueError, AttributeError):
                print(f"tunebench: no more steps are reported: {error}", file=sys.stderr)

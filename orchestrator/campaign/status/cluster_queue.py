"""Sentences about the jobs in Slurm's queue, for `tunebench status`."""

from __future__ import annotations

import time
from pathlib import Path

from orchestrator.errors import LaunchError

_ASK_AGAIN_S = 30.0


class ClusterQueue:
    """The queue of a results folder, in sentences. A view may ask every second: squeue is called at most twice a minute."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._asked_at: float | None = None
        self._sentences: tuple[str, ...] = ()

    def __call__(self) -> tuple[str, ...]:
        from orchestrator.executors.slurm.batches import FOLDER
        from orchestrator.executors.slurm.in_queue import held_sentence, in_queue

        if not (self.root / FOLDER).is_dir():
            return ()
        if self._asked_at is None or time.monotonic() - self._asked_at >= _ASK_AGAIN_S:
            try:
                jobs = in_queue(self.root)
                held = [held_sentence(one.reason, one.held, self.root) for one in jobs if one.held and one.reason]
                self._sentences = (*map(str, jobs), *held)
            except LaunchError as error:
                self._sentences = (f"unknown: {error}",)
            self._asked_at = time.monotonic()
        return self._sentences

"""Results folders in which something goes on, for tests: runs claimed by this process, by one that is gone, by another host."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from factories.results import BASE
from orchestrator.records import Experiment, Job
from orchestrator.results import claims
from orchestrator.results.store import Store

ELSEWHERE = "node7"


def named(name: str, **fields: Any) -> Experiment:
    """An experiment of that name, unlike others by its arguments."""
    arguments = {**BASE.arguments, "max_steps": "40", "name": name}
    return replace(BASE, id=f"full-{name}-000000000000", arguments=arguments, **fields)


def claimed(store: Store, experiment: Experiment, repeat: int, *, attempt: int = 1) -> Job:
    """A run that this process has, and has taken over."""
    job = store.job(experiment.id, repeat=repeat, attempt=attempt)
    assert claims.claim(job, executor="local") is not None
    claims.take_over(job.run_dir)
    return job


def changed(file: Path, **fields: Any) -> None:
    """Another owner in `job.json` or `owner.json`."""
    content = json.loads(file.read_text())
    owner = content.get("owner", content)
    owner.update(fields)
    file.write_text(json.dumps(content))


def of_the_dead(job: Job) -> Job:
    """The run's process is one that was started at another time: gone, and its number somebody else's."""
    for file in (job.folder.claim, job.folder.owner):
        changed(file, start_time=1.0)
    return job


def of_another_host(job: Job, *, silent_s: float = 0.0) -> Job:
    for file in (job.folder.claim, job.folder.owner):
        changed(file, host=ELSEWHERE, boot_id="another")
        heard = time.time() - silent_s
        os.utime(file, (heard, heard))
    return job

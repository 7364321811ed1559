"""One short job that asks a node what it can do, for `tunebench doctor --executor slurm`.

The submitter makes a folder with a question. The node reads it there, and writes the answer next to it. So the answer also shows
that both share the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import LaunchError
from orchestrator.executors.slurm import client
from orchestrator.executors.slurm.batches import Batch, BatchFolder
from orchestrator.executors.slurm.cluster.refusals import refusal
from orchestrator.executors.slurm.judging import has_ended
from orchestrator.executors.slurm.script import batch_script
from orchestrator.executors.slurm.shapes import Shape
from orchestrator.executors.slurm.site import Site
from orchestrator.files import reading, writing
from orchestrator.records import Device

_QUESTION, _ANSWER = "question.json", "answer.json"
_TIME_S, _LONGEST_WAIT_S = 300.0, 300.0
_ASK_S, _LOOK_S = 5.0, 0.5
# After the end of the job, its answer may take this time to be seen on a file server.
_LATE_S = 60.0
_LOG_BYTES = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    """The end of a probe job. `answer` is what the node wrote; None with the `problem`, if it wrote nothing.

    `took_s` are the seconds from the submission to the answer, `offset_s` is the node's clock minus this machine's clock.
    """

    answer: Mapping[str, Any] | None
    took_s: float
    offset_s: float | None = None
    problem: str | None = None


@contextmanager
def probe_folder(parent: Path) -> Iterator[Path]:
    """Make a folder for the probe, and remove it after the `with` block. Raise LaunchError if it cannot be made."""
    folder = parent / f".tunebench-probe-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        text = f"{parent}: {error.strerror}; change to a folder that you may write and that the nodes share"
        raise LaunchError(text) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def probe(site: Site, folder: Path, *, command: Sequence[str], python: str | None) -> Probed:
    """Submit a job that runs `command FOLDER` on a node, with a GPU if the site's nodes have GPUs, and wait for its answer.

    Raise LaunchError if Slurm does not take the job. After five minutes, cancel the job and return the reason for its wait.
    """
    client.require()
    nonce = uuid.uuid4().hex
    name = f"{client.PREFIX}probe-{nonce[:8]}"
    writing.replace(folder / _QUESTION, json.dumps({"nonce": nonce, "python": python}))
    device = Device.CUDA if site.node or site.gpu_type else Device.CPU
    time_s = min(_TIME_S, site.time_s or _TIME_S)
    batch = Batch(
        name=name,
        shape=Shape(device=device, num_gpus=1),
        time_s=time_s,
        elements=((),),
        created_at=time.time(),
    )
    script = BatchFolder(folder).script
    writing.replace(script, batch_script(batch, site, folder=folder, run_array=command))
    began = time.monotonic()
    try:
        client.submit(script)
        return _awaited(folder, name, nonce, began)
    except LaunchError as error:
        raise refusal(error, site) from error
    finally:  # also if Slurm did not answer, because the job may exist
        with suppress(LaunchError):
            client.cancel(name)


def _awaited(folder: Path, name: str, nonce: str, began: float) -> Probed:
    asked, state, reason, ended_at = began, "PENDING", "", None
    while (passed_s := time.monotonic() - began) < _LONGEST_WAIT_S:
        if (answer := _answer(folder, nonce)) is not None:
            offset_s = float(answer.get("time") or 0.0) - time.time()
            return Probed(answer=answer, took_s=passed_s, offset_s=offset_s)
        if time.monotonic() - asked >= _ASK_S:
            asked = time.monotonic()
            with suppress(LaunchError):
                row = next((row for row in client.queue() if row.name == name), None)
                state, reason = (row.state, row.reason) if row else (state, reason)
        ended_at = ended_at or (time.monotonic() if has_ended(state) else None)
        if ended_at is not None and time.monotonic() - ended_at > (_LATE_S if state == "COMPLETED" else _ASK_S):
            problem = (
                f"the job ended without an answer (Slurm: {state}): {_log(folder) or 'its log is empty or not here'}"
            )
            return Probed(answer=None, took_s=passed_s, problem=problem)
        time.sleep(_LOOK_S)
    problem = f"the job did not answer within {_LONGEST_WAIT_S:.0f} s (Slurm: {state}{', ' + reason if reason else ''})"
    return Probed(answer=None, took_s=_LONGEST_WAIT_S, problem=problem)


def _answer(folder: Path, nonce: str) -> Mapping[str, Any] | None:
    os.listdir(folder)  # a file server's client looks again
    with suppress(OSError, ValueError):
        answer = reading.read_json(folder / _ANSWER, limit=reading.RECORD_BYTES)
        return answer if isinstance(answer, Mapping) and answer.get("nonce") == nonce else None
    return None


def _log(folder: Path) -> str:
    with suppress(OSError, ValueError):
        text = reading.read_tail(BatchFolder(folder).log(0), limit=_LOG_BYTES)
        return " ".join(text.split())[-400:]
    return ""


def question(folder: Path) -> Mapping[str, Any]:
    """Return the question in a probe's folder, on the node. Raise LaunchError if it is not there."""
    try:
        content = reading.read_json(folder / _QUESTION, limit=reading.CLAIM_BYTES)
    except (OSError, ValueError) as error:
        raise LaunchError(f"{folder / _QUESTION}: cannot be read on this node: {error}") from error
    return content if isinstance(content, Mapping) else {}


def answer(folder: Path, asked: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], *, node: str) -> None:
    """Write the node's answer: its findings, its clock, and whether link(2) works in the folder."""
    try:
        os.link(folder / _QUESTION, folder / f"link-{uuid.uuid4().hex}")
        links = True
    except OSError:
        links = False
    facts = {"nonce": asked.get("nonce"), "node": node, "links": links, "findings": list(findings), "time": time.time()}
    writing.replace(folder / _ANSWER, json.dumps(facts))

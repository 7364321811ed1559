"""`run_one` carries out one claimed run, from its `job.json` to its `record.json`. Every executor starts it in a separate process.

This module prints nothing, and does not choose how to run. `plan/command` builds the command, and `measure/failures` judges the
end. Every run gets a record, after the monitors have stopped. SIGTERM ends the training's process tree and leads to a cancelled
record.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator import monitors, trainers
from orchestrator.errors import BuildError, LaunchError, OrchestratorError, ResultsError
from orchestrator.files import reading
from orchestrator.files.redaction import redact
from orchestrator.machine import provenance
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.cores import host_load, use_only
from orchestrator.machine.environments.containers import in_container
from orchestrator.machine.environments.containers.removal import remove_container
from orchestrator.machine.environments.in_use import ChangedPackages, facts_of_container, in_use
from orchestrator.machine.stop_signals import StopSignals
from orchestrator.measure.failure_kinds import (
    ENVIRONMENT,
    FILES_CHANGED,
    NO_ENVIRONMENT,
    NO_METRICS,
    TEST_FAILED,
    hint,
    kind_of_text,
    known,
)
from orchestrator.measure.failures import Verdict, log_tail, verdict
from orchestrator.measure.metrics import show
from orchestrator.measure.rank_files import busy_host
from orchestrator.monitors import Monitor
from orchestrator.plan.command import build_command, step_on_each_node
from orchestrator.plan.identity.sources import why_changed
from orchestrator.records import (
    Caveat,
    Command,
    Device,
    Experiment,
    Gpu,
    ProcessOutcome,
    RunFolder,
    RunRecord,
    Status,
    dump,
    load,
)
from orchestrator.results import allocation_end, claims, experiment_file
from orchestrator.results.folder import bisected_commit, plain_path, read_suite
from orchestrator.results.store import Store, redact_files, set_record_aside, write_record
from orchestrator.run import collect, gpu_access, reported_steps, run_files
from orchestrator.run.collect import Findings
from orchestrator.run.data_preparation import why_missing
from orchestrator.run.nodes import communication, companions
from orchestrator.run.nodes.rendezvous import meeting_point
from orchestrator.run.training import Trained, start_facts, train
from orchestrator.run.validity import gave_up, invalid, of_gone_folder, worth_saying
from orchestrator.trainers.instrumented import with_own_seed

# A cluster that ends an allocation signals its processes one after the other. The training, or the program that searches its log,
# may die before this process gets a signal.
_LATE_SIGNAL_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evidence:
    """Everything that is known about a run after its processes have ended."""

    outcome: ProcessOutcome
    verdict: Verdict
    hint: str | None = None
    findings: Findings = field(default_factory=Findings)
    warnings: tuple[Caveat, ...] = ()
    more_facts: Mapping[str, Any] = field(default_factory=dict)


def run_one(run_dir: Path) -> RunRecord:
    """Carry out the claimed run of this folder, and return its record. If the folder has a record already, only return this record.

    If another results folder has taken the place of the run's, and its run has a record, this record stays. Raise ResultsError
    for a folder without a claim or an experiment.
    """
    folder = RunFolder(plain_path(run_dir))
    if folder.record.exists():
        return _record_in(folder)
    claim = claims.read_claim(folder.path)
    if claim is None:
        raise ResultsError(
            f"{folder.path}: this folder contains no claimed run: {folder.claim.name} is missing or damaged"
        )
    experiment = with_own_seed(Store(folder.results).experiment(claim.experiment_id), claim.repeat)
    experiment_file.of_run(folder.path)  # the trainer asks for it at the end, when the file may be gone
    made_at = _made_at(folder)
    with StopSignals() as stop, _marked(claim.marker):
        claims.take_over(folder.path)
        run_files.keep_room(folder)
        record = _carry_out(experiment, folder, claim, stop)
        if run_files.is_gone(folder, claim.marker):
            record = of_gone_folder(record, folder, experiment)
            if folder.record.exists() and _made_at(folder) != made_at:
                run_files.give_room(folder)
                return record
        elif experiment.keep == "none":
            record = replace(record, warnings=(*record.warnings, *run_files.remove_output(folder)))
        run_files.remove_empty_work(folder)
        run_files.give_room(folder)
        if aside := set_record_aside(folder.path, unless=partial(gave_up, claim)):
            foreign = Caveat(
                detail=f"the command wrote a {folder.record.name} into the run's folder; this file is now {aside}"
            )
            record = replace(record, warnings=(*record.warnings, foreign))
        _write(folder, record)
    return _record_in(folder)


def _made_at(folder: RunFolder) -> Any:
    """Return when the results folder was made. Return None if it is gone, or cannot be read."""
    return (read_suite(folder.results) or {}).get("created")


def _record_in(folder: RunFolder) -> RunRecord:
    return load(RunRecord, reading.read_bytes(folder.record, limit=reading.RECORD_BYTES))


def _write(folder: RunFolder, record: RunRecord) -> None:
    try:
        load(RunRecord, dump(record))  # a number of a plug or of a worker's file may have a type that no one could read
        write_record(folder.path, record, reserved=folder.kept_record)
    except (ValueError, TypeError) as error:  # every run must end in a record
        cause = f"its record could not be written: {error}"
        bare = replace(record, status=Status.FAILED, kind="unknown", cause=redact(cause), tail=None, warnings=())
        bare = replace(bare, measurements=(), settings={}, provenance={}, ranks=(), devices=(), benchmarks=())
        write_record(folder.path, bare, reserved=folder.kept_record)


@contextmanager
def _marked(marker: str) -> Iterator[None]:
    """Set the run's marker in the environment of sidecars. If this process is killed, the marker shows which sidecars it left."""
    before = os.environ.get(MARKER)
    os.environ[MARKER] = marker
    try:
        yield
    finally:
        del os.environ[MARKER]
        if before is not None:
            os.environ[MARKER] = before


def _carry_out(experiment: Experiment, folder: RunFolder, claim: claims.Claim, stop: StopSignals) -> RunRecord:
    gpus: tuple[Gpu, ...] = ()
    started_at = time.time()
    try:
        gpus = _own_gpus(experiment, claim)
        use_only(claim.details.get("cores") or ())
        with in_use(experiment):
            evidence = _evidence(experiment, folder, gpus, claim=claim, stop=stop)
    except ChangedPackages as error:
        evidence = replace(_not_started(started_at, kind=ENVIRONMENT, cause=str(error)), hint=error.cure)
    except BuildError as error:
        evidence = _not_started(started_at, kind=NO_ENVIRONMENT, cause=str(error))
    except OrchestratorError as error:
        evidence = _not_started(started_at, kind="launcher", cause=str(error))
    except Exception as error:  # a defect of Tunebench or of a plug; the run must still have its record
        # Only the number decides the kind: the text may quote a path, and a path may contain anything.
        kind = kind_of_text(f"[Errno {error.errno}]") if isinstance(error, OSError) else None
        evidence = _not_started(started_at, kind=kind or "unknown", cause=f"{type(error).__name__}: {error}")
    outcome, judged, findings = evidence.outcome, evidence.verdict, evidence.findings
    ended = outcome if (judged.exit_code, judged.signal) == (None, None) else judged
    beside, beside_at_once = claims.neighbours(folder.path)
    return RunRecord(
        experiment_id=claim.experiment_id,
        repeat=claim.repeat,
        attempt=claim.attempt,
        status=judged.status,
        kind=judged.kind,
        cause=_cause(judged, folder, claim),
        hint=redact(evidence.hint) if evidence.hint else None,
        tail=None if judged.status is Status.OK else log_tail(run_files.log_end(folder)) or None,
        started_at=outcome.started_at,
        wall_s=outcome.wall_s,
        exit_code=ended.exit_code,
        signal=ended.signal,
        measurements=findings.measurements,
        settings=findings.first.get("settings") or {},
        ranks=findings.ranks,
        devices=findings.devices,
        benchmarks=findings.benchmarks,
        provenance={
            **_facts(experiment, folder, gpus),
            **evidence.more_facts,
            "worker_versions": versions if isinstance(versions := findings.first.get("versions"), dict) else {},
        },
        warnings=evidence.warnings,
        beside=beside,
        beside_at_once=beside_at_once,
    )


def _facts(experiment: Experiment, folder: RunFolder, gpus: tuple[Gpu, ...]) -> dict[str, Any]:
    """Return what is known of the host, the software and the code of a run."""
    of_container = facts_of_container(experiment)
    facts = {**provenance.collect(None if of_container else experiment.python, gpus, experiment.env), **of_container}
    if commit := bisected_commit(folder.results):  # a probe runs in a worktree, not in the current folder
        facts["git"] = {"commit": commit, "dirty": False}
    return facts


def _cause(judged: Verdict, folder: RunFolder, claim: claims.Claim) -> str | None:
    by_slurm = allocation_end.cause(claim, folder.results) if judged.status is Status.CANCELLED else None
    cause = by_slurm or judged.cause
    return redact(cause) if cause else None


def _not_started(started_at: float, *, kind: str, cause: str) -> _Evidence:
    outcome = ProcessOutcome(exit_code=None, signal=None, started_at=started_at, ended_at=time.time())
    judged = Verdict(status=Status.FAILED, kind=kind, cause=cause)
    advice = known(kind).hint
    return _Evidence(outcome=outcome, verdict=judged, hint=advice if isinstance(advice, str) else None)


def _evidence(
    experiment: Experiment, folder: RunFolder, gpus: Sequence[Gpu], *, claim: claims.Claim, stop: StopSignals
) -> _Evidence:
    if no_data := why_missing(experiment):
        return _not_started(time.time(), kind="data", cause=no_data)
    watching = [(name, monitors.get(name)) for name in experiment.monitors]
    command = _command(experiment, folder, gpus, watching=watching)
    command = replace(command, env={**command.env, MARKER: claim.marker})
    outside = len(step_on_each_node(experiment))
    command = in_container(command, experiment, run_dir=folder.path, outside=outside)
    with ExitStack() as stack:
        watchers = stack.enter_context(companions.accompany(experiment, folder, claim.marker))
        look = partial(companions.occupants, watchers)
        disturbed = gpu_access.settle(
            gpus, experiment.busy_gpus, cancelled=lambda: stop.received is not None, look=look
        )
        if edited := why_changed(experiment, "after the plan of this run"):  # checked last, since the wait may be long
            return _not_started(time.time(), kind=FILES_CHANGED, cause=edited)
        run_files.write(command, folder)
        taken_before, core_time_before = gpu_access.memory_taken(gpus), host_load.core_time()
        companions.watch(watchers)
        for _, monitor in watching:
            stack.enter_context(monitor.watch(folder.path, gpus))
        trained = train(experiment, command, folder, claim=claim, stop=stop, watchers=watchers)
        if trained.outcome.exit_code is None:
            remove_container(folder)
    outcome, residue = trained.outcome, gpu_access.given_back(gpus, taken_before)
    redact_files(folder)
    findings = collect.read(experiment, folder.path, watching=watching, gpus=gpus, wall_s=outcome.until_gone_s)
    judged = _judged(experiment, folder, trained, findings, claim)
    if judged.status is Status.FAILED and "slurm" in claim.details and stop.comes_within(_LATE_SIGNAL_S):
        outcome = replace(outcome, cancelled=True)
        judged = _judged(experiment, folder, replace(trained, outcome=outcome), findings, claim)
    # If the instrument ran (a custom command may start it, too), it measured the wait for a core itself.
    share = None if any(worker.get("core_wait") for worker in findings.workers) else trained.core_wait_share
    of_host = (*host_load.measurements(core_time_before), *host_load.core_wait(share))
    at_end = (*_survivors(outcome), *residue, *_edited(experiment))
    before, after = ([Caveat(detail=text) for text in texts] for texts in (disturbed, at_end))
    broken = findings.broken_promises if judged.status is Status.OK or judged.kind == NO_METRICS else ()
    return _Evidence(
        outcome=outcome,
        verdict=judged,
        hint=hint(judged.kind, _errors_and_log(findings, folder), experiment),
        findings=replace(findings, measurements=(*findings.measurements, *of_host)),
        more_facts={
            **companions.facts(folder, watchers),
            **_communication(experiment, folder),
            **start_facts(outcome, claim),
        },
        warnings=(*before, *worth_saying(findings, judged), *busy_host(share), *broken, *after),
    )


def _survivors(outcome: ProcessOutcome) -> Iterator[str]:
    return (f"process {name} could not be ended and may still hold memory" for name in outcome.survivors)


def _edited(experiment: Experiment) -> Iterator[str]:
    return filter(None, [why_changed(experiment, "during the run, so it is unknown which content was in use")])


def _communication(experiment: Experiment, folder: RunFolder) -> dict[str, Any]:
    found = communication.facts(experiment, folder)
    return {"communication": found} if found else {}


def _judged(
    experiment: Experiment, folder: RunFolder, trained: Trained, findings: Findings, claim: claims.Claim
) -> Verdict:
    judged = verdict(
        trained.outcome,
        workers=findings.workers,
        log=run_files.log_end(folder),
        complete=findings.complete,
        out_of_memory=trained.out_of_memory,
        disk_full=partial(run_files.is_disk_full, folder),
        error_at_limit=trained.error_at_limit,
    )
    if trained.cut_short and judged.kind == "timeout":
        shown = show("wall_s", trained.outcome.wall_s)
        cause = f"it was ended after {shown}, shortly before the end of its allocation; give `time:` in the site file more time"
        return replace(judged, cause=cause)
    allocation = claim.details.get("slurm")
    if trained.out_of_memory and judged.kind == "oom_host" and isinstance(allocation, Mapping):
        from orchestrator.executors.slurm.judging import more_memory

        return replace(judged, cause=f"{judged.cause}; {more_memory(allocation.get('memory_mb'))}")
    exit_code = trained.outcome.exit_code if judged.status is Status.FAILED else None
    own = trainers.get(experiment.trainer).failure(folder.path, exit_code) if exit_code is not None else None
    if own is not None:
        return replace(judged, kind=kind_of_text(own) or TEST_FAILED, cause=own)
    # A loss that is not finite may be the only metric, so a run without metrics may be invalid, too.
    if judged.status is Status.OK or judged.kind == NO_METRICS:
        judged = invalid(experiment, findings) or judged
    if judged.kind == NO_METRICS and findings.broken_promises:
        return replace(judged, cause=f"{judged.cause}; {findings.broken_promises[0].detail}")
    return judged


def _errors_and_log(findings: Findings, folder: RunFolder) -> str:
    """Return a text with the full errors of the ranks and the end of the log."""
    errors = [str((worker.get("error") or {}).get("message") or "") for worker in findings.workers]
    return "\n".join([*errors, run_files.log_end(folder)])


def _command(
    experiment: Experiment, folder: RunFolder, gpus: Sequence[Gpu], *, watching: Sequence[tuple[str, Monitor]]
) -> Command:
    python = os.path.expanduser(experiment.python) if experiment.python else sys.executable
    ids = [gpu.uuid if gpu.uuid.startswith("MIG-") else str(gpu.index) for gpu in gpus]
    several = experiment.num_nodes > 1
    host, port = meeting_point(experiment.num_nodes) if several else ("127.0.0.1", free_port())
    command = build_command(experiment, python=python, gpus=ids, run_dir=folder.path, host=host, port=port)
    for _, monitor in watching:
        command = monitor.prepare(command, folder.path)
    return reported_steps.prepare(command, experiment, folder.path)


def _own_gpus(experiment: Experiment, claim: claims.Claim) -> tuple[Gpu, ...]:
    """Return one GPU per process of this node: the GPUs in the claim, or else the first visible GPUs."""
    if experiment.device is not Device.CUDA:
        return ()
    visible = provenance.visible_gpus()
    if own := claim.details.get("gpus"):
        visible = tuple(gpu for gpu in visible if gpu.uuid in own)
    needed = experiment.processes_per_node
    if len(visible) < needed:
        raise LaunchError(f"{needed} GPUs are needed and {len(visible)} are visible")
    return visible[:needed]


def free_port() -> int:
    """Return a port that is free now. If another process takes it before the run does, the run fails and is tried again."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])

"""The training of a run: starts its processes, watches them, and returns how they ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from orchestrator import trainers
from orchestrator.files.writing import make_writable
from orchestrator.machine import cgroup, kernel_log, process, process_tree, stacks
from orchestrator.machine.cores import host_load
from orchestrator.machine.process import warm
from orchestrator.machine.stop_signals import StopSignals
from orchestrator.measure.failures import last_error, named_pids
from orchestrator.records import Command, Experiment, Limit, ProcessOutcome, RunFolder, Start
from orchestrator.results import claims
from orchestrator.run import reported_steps, run_files, watchdog
from orchestrator.run.nodes import companions

_FIRST_BEAT_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The end of a training.

    `out_of_memory`: the kernel killed a process of the training because memory ran out. `core_wait_share`: the share of time
    for which a process waited for a core. It is None if the instrument measures this time. `cut_short`: the training could not use
    its whole `timeout_s`, because its allocation on a cluster ended before. `error_at_limit`: the error with which its log ended
    when it reached a limit.
    """

    outcome: ProcessOutcome
    out_of_memory: bool
    core_wait_share: float | None
    cut_short: bool = False
    error_at_limit: str | None = None


def train(
    experiment: Experiment,
    command: Command,
    folder: RunFolder,
    *,
    claim: claims.Claim,
    stop: StopSignals,
    watchers: companions.Companions,
) -> Trained:
    """Run the training until it ends, reaches a limit or is stopped."""
    logs = {"stdout": folder.stdout, "stderr": folder.stderr}
    reported = reported_steps.of_run(experiment, folder, partial(run_files.is_gone, folder, claim.marker))
    limit_s, cut_short = _time_limit(experiment, claim)
    group, core_wait = cgroup.create(claim.marker), host_load.CoreWait()
    note = partial(process_tree.note, folder, claim.marker, group)
    watch = _watch(experiment, folder, reported, note=note, core_wait=core_wait)

    logs_at_limit: list[str] = []

    def at_limit(limit: Limit) -> None:
        logs_at_limit.append(run_files.log_end(folder))
        if limit in (Limit.STARTUP, Limit.STALL):
            with suppress(OSError):  # even on a full disk, the tree must be ended
                elsewhere = companions.stacks(watchers, folder.stderr, cancelled=lambda: stop.received is not None)
                stacks.save(claim.marker, folder, elsewhere)
            # A stack may be in the log now. But the training may also have crashed meanwhile.
            logs_at_limit.append(run_files.log_end(folder))

    note()
    with kernel_log.open_kernel_log() as kernel:
        killed_before = cgroup.memory_kills_around()
        try:
            outcome = process.run(
                command,
                **logs,
                timeout_s=limit_s,
                watch=watch,
                before_ending=at_limit,
                group=group,
                stop=stop,
                starter=_starter(experiment, claim),
            )
        finally:
            if group is not None:  # also if the run could not be started
                group.remove()
        if not outcome.cancelled:  # else Slurm ends the job, and soon
            outcome = replace(outcome, survivors=(*outcome.survivors, *companions.end(watchers)))
        make_writable(folder.path)
        if reported is not None:
            reported.finish(outcome)
        counted = outcome.memory_kills > 0 or cgroup.memory_kills_around() > killed_before
        killed = counted or out_of_memory(kernel.read(), outcome, folder)
        return Trained(
            outcome=outcome,
            out_of_memory=killed,
            core_wait_share=core_wait.share,
            cut_short=cut_short,
            error_at_limit=next(filter(None, map(last_error, logs_at_limit)), None),
        )


def _starter(experiment: Experiment, claim: claims.Claim) -> warm.Starter | None:
    """Return the starter that the executor has connected with this process, or None for a cold start."""
    connection = warm.inherited() if claim.details.get("start") == Start.WARM else None
    return warm.Starter(connection=connection, processes=experiment.num_gpus) if connection else None


def start_facts(outcome: ProcessOutcome, claim: claims.Claim) -> dict[str, str]:
    """Return how the training started, and why it started cold although it was to start warm."""
    reason = outcome.cold_because or claim.details.get("cold_because")
    return {"start": outcome.start.value, **({"cold_because": str(reason)} if reason else {})}


def _time_limit(experiment: Experiment, claim: claims.Claim) -> tuple[float | None, bool]:
    """Return the seconds that the training may take (None: unlimited), and whether its allocation on a cluster sets this limit."""
    until = claim.details.get("until")
    if not isinstance(until, (int, float)):
        return experiment.timeout_s, False
    left_s = max(0.0, until - time.time())
    if experiment.timeout_s is not None and experiment.timeout_s <= left_s:
        return experiment.timeout_s, False
    return left_s, True


def _watch(
    experiment: Experiment,
    folder: RunFolder,
    reported: reported_steps.ReportedSteps | None,
    *,
    note: Callable[[], None],
    core_wait: host_load.CoreWait,
) -> watchdog.Watch:
    """Return the watch over the training. It also keeps the claim and the notes of its processes fresh (`note`).

    If no instrument does it, it looks at the cores.
    """
    instrumented = reported is None and trainers.get(experiment.trainer).instrumented
    by_output = partial(watchdog.by_output, folder.stdout, folder.stderr)
    by_files = partial(watchdog.by_steps, folder.path) if instrumented else by_output

    def beat() -> None:
        claims.beat(folder.path)
        note()

    def look_at_cores() -> None:
        if reported is None or reported.signs().begun:
            core_wait.look(process_tree.descendants())

    # The first beat notes the training's processes soon after their start. Another user cannot find them otherwise.
    chores = [watchdog.Chore(beat, pause_s=lambda passed_s: claims.HEARTBEAT_S if passed_s else _FIRST_BEAT_S)]
    if not instrumented:
        chores.append(watchdog.Chore(look_at_cores, pause_s=host_load.look_pause_s))
    return watchdog.Watch(
        reported.signs if reported else by_files,
        startup_timeout_s=experiment.startup_timeout_s,
        stall_timeout_s=experiment.stall_timeout_s,
        late_s=watchdog.WRITTEN_LATE_S if instrumented else 0.0,
        ending=reported,
        chores=chores,
    )


def out_of_memory(log: str, outcome: ProcessOutcome, folder: RunFolder) -> bool:
    """Return whether the kernel's `log` says that the kernel killed a process of this run because memory ran out.

    This is for machines without a control group.
    """
    killed = kernel_log.killed_for_memory(log)
    return bool(killed) and not killed.isdisjoint(
        {outcome.pid, *run_files.pids(folder), *named_pids(run_files.log_end(folder))}
    )

"""Reasons why a run's numbers do not count: they are invalid, the run's folder is gone, or another benchmark gave up the run.

Also: which warnings about them are worth saying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from orchestrator.measure.failure_kinds import FOLDER_GONE, NO_METRICS, hint
from orchestrator.measure.failures import Verdict
from orchestrator.records import Caveat, CaveatKind, Experiment, RunFolder, RunRecord, Status
from orchestrator.results.claims import Claim
from orchestrator.run import settings_check
from orchestrator.run.collect import Findings


def invalid(experiment: Experiment, findings: Findings) -> Verdict | None:
    """Return why the numbers of a run that ended well are invalid. Return None if they are valid.

    The reasons are settings that were not requested, a loss that is not finite, numbers that contradict each other, and more work
    than the device can do.
    """
    wrong = settings_check.of_ranks(experiment, findings.workers)
    if wrong:
        return Verdict(status=Status.INVALID, kind="not_in_effect", cause="; ".join(wrong))
    losses = [number.missing for number in findings.measurements if number.name == "train_loss" and number.missing]
    if losses and losses[0].kind is CaveatKind.NOT_FINITE:
        return Verdict(status=Status.INVALID, kind="nan_loss", cause=f"the loss is not finite: {losses[0].detail}")
    steps = [worker["nonfinite_step"] for worker in findings.workers if worker.get("nonfinite_step") is not None]
    if steps:
        cause = f"the loss was not finite by step {min(steps)}: the speed is that of a failed training"
        return Verdict(status=Status.INVALID, kind="nan_loss", cause=cause)
    if findings.contradiction:
        return Verdict(status=Status.INVALID, kind="impossible", cause=findings.contradiction)
    if findings.impossible:
        return Verdict(status=Status.INVALID, kind="overcounted", cause=findings.impossible)
    return None


def worth_saying(findings: Findings, judged: Verdict) -> Iterator[Caveat]:
    """Yield the warnings. A run that was interrupted or failed has no steady state for that reason, so this is left out.

    A loss of exactly 0 is worth a warning, too: the cross entropy of a text is larger.
    """
    ended_well = judged.status in (Status.OK, Status.INVALID) or judged.kind == NO_METRICS
    yield from (one for one in findings.warnings if ended_well or one.kind is not CaveatKind.NO_STEADY_SPEED)
    if any(number.name == "train_loss" and number.value == 0 for number in findings.measurements):
        yield Caveat(detail="the loss is exactly 0: perhaps no token of the data counts for it, so nothing is learned")


def of_gone_folder(record: RunRecord, folder: RunFolder, experiment: Experiment) -> RunRecord:
    """Return the record of a run whose folder was removed: failed, because its logs and numbers are gone."""
    if record.status is Status.CANCELLED:
        return record
    cause = f"{folder.path} was removed, renamed or emptied while the run went on"
    return replace(record, status=Status.FAILED, kind=FOLDER_GONE, cause=cause, hint=hint(FOLDER_GONE, "", experiment))


def gave_up(claim: Claim, record: RunRecord) -> bool:
    """Return whether another benchmark gave up this run, and wrote this record."""
    ours = (claim.experiment_id, claim.repeat, claim.attempt, claim.claimed_at)
    theirs = (record.experiment_id, record.repeat, record.attempt, record.started_at)
    return record.status in (Status.LOST, Status.CANCELLED) and theirs == ours

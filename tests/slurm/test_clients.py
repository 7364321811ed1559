"""Slurm's clients hang, lie or break, in front of a real Slurm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster import Campaign, Cluster

# Each answers badly for the first calls.
BROKEN = {
    "hangs": "sleep 100",
    "is empty": "",
    "fails": 'echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1',
    "is garbled": 'echo "1|0|RUN"; printf "\\xff\\x00|"',
    "forgets": '"$REAL" "$@" | sed 1d',
}
FIRST_CALLS = 'echo >> "$HERE/calls"; if (($(wc -l < "$HERE/calls") > 3)); then exec "$REAL" "$@"; fi\n'


@pytest.mark.parametrize("how", BROKEN)
def test_squeue(campaign: Callable[..., Campaign], how: str) -> None:
    some = campaign("sleep8-1", "sleep8-2", "quick", throttle=2)
    some.fake("squeue", FIRST_CALLS + BROKEN[how])
    code, said = some.run()
    assert code == 0 and some.statuses() == ["r1-t1 ok"] * 3, said
    assert set(some.starts().values()) == {1}


def test_a_job_that_sbatch_submitted_without_an_answer_is_found(
    campaign: Callable[..., Campaign], cluster: Cluster
) -> None:
    some = campaign("quick-1", "quick-2")
    some.fake("sbatch", 'echo >> "$HERE/calls"; "$REAL" "$@" > /dev/null; sleep 100')
    code, said = some.run()
    assert code == 0 and some.statuses() == ["r1-t1 ok"] * 2, said
    assert (some.folder / "calls").read_text().count("\n") == 1


AWAY = 'echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)" >&2; exit 1'


def test_a_controller_that_is_away_for_a_while(campaign: Callable[..., Campaign]) -> None:
    """The second array is submitted while the controller does not answer."""
    some = campaign("sleep4", "quick", gpus="[1, 2]")
    some.fake(
        "sbatch", f'echo >> "$HERE/calls"; if (($(wc -l < "$HERE/calls") == 2)); then {AWAY}; fi; exec "$REAL" "$@"'
    )
    code, said = some.run()
    assert code == 0 and some.statuses() == ["r1-t1 ok"] * 4, said


def test_a_controller_that_is_not_there(campaign: Callable[..., Campaign]) -> None:
    some = campaign("quick")
    some.fake("sbatch", AWAY)
    code, said = some.run(seconds=60)
    assert code == 2 and "Unable to contact slurm controller" in said and some.batches() == []

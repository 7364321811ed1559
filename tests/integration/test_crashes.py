"""Our own processes are killed at random moments: nothing is lost, nothing is counted twice, nobody is left alive."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from crashes import FIRST_KILLS, check, crash


@pytest.mark.parametrize("orchestrators", [1, 2])
def test_a_campaign_that_is_killed_again_and_again_ends_whole(tmp_path: Path, orchestrators: int) -> None:
    signals = [signal.SIGKILL, signal.SIGINT][:orchestrators]
    hosts = [None] * orchestrators
    outcome = crash(tmp_path, experiments=6, kills=8, hosts=hosts, seed=orchestrators, pause_s=0.6, signals=signals)
    check(tmp_path, 6)
    # A fast machine may be done before the eighth; how many were struck after the first is its own affair.
    assert outcome.records["ok"] == 6 and outcome.killed.total() >= FIRST_KILLS

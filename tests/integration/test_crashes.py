"""Our own processes are killed at random moments: nothing is lost, nothing is counted twice, nobody is left alive."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashes import check, crash


@pytest.mark.parametrize("orchestrators", [1, 2])
def test_a_campaign_that_is_killed_again_and_again_ends_whole(tmp_path: Path, orchestrators: int) -> None:
    outcome = crash(tmp_path, experiments=6, kills=10, orchestrators=orchestrators, seed=orchestrators)
    check(tmp_path, 6)
    assert outcome.records["ok"] == 6 and outcome.killed.total() >= 5

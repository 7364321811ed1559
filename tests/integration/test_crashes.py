"""Our own processes are killed at random moments: nothing is lost, nothing is counted twice, nobody is left alive."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from crashes import FIRST_KILLS, check, crash
from warm_kills import WATCH, leaked


@pytest.mark.parametrize("orchestrators", [1, 2])
def test_a_campaign_that_is_killed_again_and_again_ends_whole(tmp_path: Path, orchestrators: int) -> None:
    signals = [signal.SIGKILL, signal.SIGINT][:orchestrators]
    hosts = [None] * orchestrators
    outcome = crash(tmp_path, experiments=6, kills=8, hosts=hosts, seed=orchestrators, pause_s=0.6, signals=signals)
    check(tmp_path, 6)
    # A fast machine may be done before the eighth; how many were struck after the first is its own affair.
    assert outcome.records["ok"] == 6 and outcome.killed.total() >= FIRST_KILLS


def test_a_campaign_of_warm_runs_ends_whole_and_leaks_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    outcome = crash(tmp_path, experiments=2, kills=4, hosts=[None], seed=3, pause_s=0.6, warm=True)
    check(tmp_path, 2)
    assert outcome.records["ok"] == 2 and outcome.aim is not None and outcome.aim.in_runs
    assert len(list((tmp_path / WATCH).glob("*.json"))) >= 3, "each training has noted its variables"


def test_a_leaked_variable_is_found(tmp_path: Path) -> None:
    (tmp_path / WATCH).mkdir()
    ours = {"TUNEBENCH_RUN": "a", "TUNEBENCH_RUN_DIR": "/one", "MASTER_PORT": "1"}
    for number, (folder, env) in enumerate(
        [("/one", ours), ("/other", {**ours, "TUNEBENCH_RUN_DIR": "/other", "LEAK": "1"}), ("/third", ours)]
    ):
        (tmp_path / WATCH / f"{number}.json").write_text(json.dumps({"path": f"{folder}/steps", "env": env}))
    assert leaked(tmp_path) == [
        "/third: its variable says /one",
        "the marker a is in ['/one', '/other', '/third']",
        "LEAK differs between runs",
    ]

"""The submitter is killed at any moment, and the same command resumes its campaign."""

from __future__ import annotations

import signal
from collections.abc import Callable

from cluster import Campaign, Cluster, waited
from moments import killed

KILLS = 10


def test_no_run_is_lost_and_none_is_carried_out_twice(campaign: Callable[..., Campaign]) -> None:
    many = campaign(*(f"quick-{number}" for number in range(10)), gpus="[1, 2, 4]", repeats=5, pilot=10, max_queued=4)
    many.note_calls()
    hit = killed(many, KILLS)
    assert len(hit) > 1, f"the kills hit only one kind of moment: {hit}"
    code, said = many.run(seconds=600)
    assert code == 0, said
    assert many.statuses() == sorted(f"r{repeat}-t1 ok" for repeat in range(1, 6) for _ in range(30))
    assert len(many.starts()) == 150 and set(many.starts().values()) == {1}


def test_an_interrupted_call_leaves_its_jobs_and_the_next_call_waits_for_them(
    campaign: Callable[..., Campaign],
) -> None:
    some = campaign("sleep6", "quick")
    process = some.begin()
    waited(lambda: len(some.starts()) == 2)
    process.send_signal(signal.SIGINT)
    assert some.end(process)[0] == 130 and "Traceback" not in some.end(process)[1]
    code, said = some.run()
    assert code == 0 and some.statuses() == ["r1-t1 ok"] * 2 and len(some.batches()) == 1, said
    assert set(some.starts().values()) == {1}


def test_two_submitters_of_one_folder_share_the_runs(campaign: Callable[..., Campaign]) -> None:
    some = campaign("quick-1", "sleep3", "quick-2")
    processes = [some.begin(), some.begin()]
    for process in processes:
        code, said = some.end(process)
        assert code == 0, said
    assert some.statuses() == ["r1-t1 ok"] * 3 and set(some.starts().values()) == {1}


def test_fail_fast_cancels_the_rest_and_the_next_call_carries_it_out(
    campaign: Callable[..., Campaign], cluster: Cluster
) -> None:
    some = campaign("bad", "sleep15", repeats=3, throttle=2)
    code, said = some.run("--fail-fast")
    assert code == 1 and cluster.listed() == [], said
    assert len(some.records()) < 6 and "failed" in str(some.statuses())
    some.site = {}
    code, said = some.run()
    last = {name.rpartition("-t")[0]: record.status.value for name, record in some.records().items()}
    assert code == 1 and sorted(last.values()) == ["failed"] * 3 + ["ok"] * 3, said
    causes = [str(record.cause) for record in some.records().values() if record.status == "cancelled"]
    assert not any("before the run began" in cause for cause in causes), (
        "what never began has no record of the first call"
    )

"""`rerun` adds runs on the cluster that its site file describes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

from cluster import Campaign, waited

from orchestrator.compare.comparison import Comparison, Entry, Pair, Row, Run, Verdict
from orchestrator.compare.view import as_json

RERUN = ("rerun", "--from", "comparison.json", "--executor", "slurm", "--runs", "1")


def compared(campaign: Campaign) -> Campaign:
    """Carry out the campaign, and write a comparison with a CSV file that leaves its only experiment open."""
    assert campaign.run()[0] == 0
    ((name, _),) = campaign.records().items()
    base = Entry(key={}, label="one", status="ok")
    seen = (Run(repeat=1, numbers={}),)
    new = replace(base, runs=seen, id=name.partition("/")[0], folder=str(campaign.results))
    row = Row(label="one", metric="train_runtime", verdict=Verdict.INCONCLUSIVE, needs=1)
    pair = Pair(label="one", base=base, new=new)
    found = Comparison(base="b", new="n", pairs=(pair,), rows=(row,), fleet=())
    (campaign.folder / "comparison.json").write_text(as_json.text(found))
    return campaign


def test_a_further_run_is_submitted_to_the_site(campaign: Callable[..., Campaign]) -> None:
    some = compared(campaign("quick", lines=["--comment=ours"]))
    code, said = some.end(some.command(*RERUN))
    assert code == 0 and some.statuses() == ["r1-t1 ok", "r2-t1 ok"], said
    assert "submitted job" in said and len(some.batches()) == 2
    assert all("--comment=ours" in (batch / "job.sh").read_text() for batch in some.batches())


def test_an_interrupted_rerun_says_that_its_job_goes_on(campaign: Callable[..., Campaign]) -> None:
    some = compared(campaign("sleep4"))
    process = some.command(*RERUN)
    waited(lambda: len(some.starts()) == 2)
    process.send_signal(signal.SIGINT)
    code, said = some.end(process)
    assert code == 130 and "Submitted jobs go on." in said and "Traceback" not in said, said
    waited(lambda: len(some.records()) == 2)
    assert some.end(some.command(*RERUN))[0] == 0
    assert some.statuses() == ["r1-t1 ok", "r2-t1 ok"] and len(some.batches()) == 2

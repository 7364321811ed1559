"""Large campaigns on a Slurm on this machine, for docs/clusters.md. They take too long for the tests.

    python tests/slurm/by_hand.py load [RUNS]     2,000 quick runs; everything is stopped and started again in the middle
    python tests/slurm/by_hand.py kills [KILLS]   500 quick runs; the submitter is killed at 100 moments of a fixed seed

Each prints a line of JSON: how often Slurm's clients were called, and whether a run was lost or carried out twice.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cluster import Campaign, Cluster
from moments import killed
from scenarios import write


@contextmanager
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="tb", dir="/tmp"))
    one = Cluster.started(folder)
    try:
        yield one
    finally:
        one.script("slurm-down.sh")
        shutil.rmtree(folder, ignore_errors=True)


def campaign(folder: Path, on: Cluster, runs: int, **site: Any) -> Campaign:
    """Make a campaign of this number of quick runs, whose submitter notes each call of a client of Slurm."""
    write(folder, [f"quick-{number}" for number in range(runs // 10)], repeats=10)
    one = Campaign(folder=folder, cluster=on, site={"poll": "30s", "grace": "60s", **site})
    one.note_calls()
    return one


def load(folder: Path, runs: int) -> dict[str, Any]:
    """Carry out the runs. In the middle kill the submitter and the controller, and start both again."""
    with cluster() as on:
        many, began = campaign(folder, on, runs), time.time()
        process, first = many.begin(), 0.0
        while len(list(folder.glob("started-*"))) < runs // 2:
            assert process.poll() is None, process.communicate()
            if not first and list(folder.glob("started-*")):
                first = time.time() - began
            time.sleep(1)
        process.kill()
        process.communicate()
        on.kill("slurmctld")
        for node in (1, 2, 3):
            on.kill(f"slurmd-n{node}")
        on.script("slurm-up.sh")
        code, said = many.run(seconds=7200)
        return {"first_run_s": round(first, 1), **outcome(many, code, said, time.time() - began, runs)}


def kills(folder: Path, count: int) -> dict[str, Any]:
    """Kill the submitter at moments of a fixed seed, and resume its campaign each time. Few elements are in the queue at once."""
    began, runs = time.time(), 5 * count
    with cluster() as on:
        many = campaign(folder, on, runs, poll="2s", grace="5s", max_queued=6, pilot=1)
        hit = killed(many, count)
        left = runs - len(many.records())
        code, said = many.run(seconds=7200)
        return {"kills": dict(hit.most_common()), "left": left, **outcome(many, code, said, time.time() - began, runs)}


def outcome(many: Campaign, code: int, said: str, took_s: float, runs: int) -> dict[str, Any]:
    statuses, starts = Counter(record.status.value for record in many.records().values()), many.starts()
    calls = many.calls()
    by_client = Counter(client for _, client in calls)
    polls = [float(at) for at, client in calls if client == "squeue"]
    in_a_minute = (sum(at <= other < at + 60 for other in polls) for at in polls)
    if code:
        print(said[-3000:], file=sys.stderr)
    return {
        "runs": runs,
        "took_s": round(took_s),
        "exit_code": code,
        "statuses": dict(statuses),
        "lost": runs - statuses["ok"],
        "twice": sum(count > 1 for count in starts.values()),
        "batches": len(many.batches()),
        "allowed_sbatch": math.ceil(runs / 1001) + 3,
        "calls": dict(by_client),
        "most_squeue_in_a_minute": max(in_a_minute, default=0),
        "slurm": many.cluster.call("sbatch", "--version").strip(),
    }


if __name__ == "__main__":
    what, default = {"load": (load, 2000), "kills": (kills, 100)}[sys.argv[1]]
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(what(Path(temporary), int(sys.argv[2]) if sys.argv[2:] else default)))

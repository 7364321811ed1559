"""Campaigns on a real Slurm that nobody disturbs, and the limits and refusals of a site."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import Campaign, Cluster, waited

from orchestrator.results import claims


def outcomes(campaign: Campaign) -> set[tuple[str, str, str | None]]:
    return {(name, record.status, record.kind) for name, record in campaign.records().items()}


def test_a_campaign_is_the_same_as_here(campaign: Callable[..., Campaign]) -> None:
    on_slurm = campaign("quick", "bad", gpus="[1, 2]", repeats=2)
    code, said = on_slurm.run()
    there = outcomes(on_slurm)
    claimed = [claims.read_claim(run_dir) for run_dir in on_slurm.results.glob("experiments/*/runs/*")]
    assert {claim.executor for claim in claimed if claim} == {"slurm"}
    assert len(on_slurm.batches()) == 2, "one array for each shape"
    shutil.move(on_slurm.results, on_slurm.folder / "there")
    assert on_slurm.run("--executor", "local")[0] == code == 1, said
    assert outcomes(on_slurm) == there and len(there) == 8


def test_at_most_max_queued_elements_are_in_the_queue(campaign: Callable[..., Campaign], cluster: Cluster) -> None:
    few = campaign(*(f"quick-{number}" for number in range(12)), max_queued=5)
    process, seen = few.begin(), [0]
    while process.poll() is None:
        seen.append(len(cluster.listed()))
    assert few.end(process)[0] == 0
    assert 1 < max(seen) <= 5 and few.statuses() == ["r1-t1 ok"] * 12


def test_a_prologue_that_fails_does_so_three_times(campaign: Callable[..., Campaign]) -> None:
    broken = campaign("quick-1", "quick-2", prologue="echo module cuda/99 is unknown\nexit 7")
    code, said = broken.run()
    assert code == 1 and len(broken.batches()) == 3, said
    for record in broken.records().values():
        assert (record.status, record.kind) == ("failed", "launcher")
        assert "ended 3 times before the run began" in str(record.cause) and "NonZeroExitCode" in str(record.cause)
        assert str(record.tail).count("module cuda/99 is unknown") == 1
    assert broken.run()[0] == 1 and len(broken.batches()) == 3, "the second call repeats nothing"


@pytest.mark.parametrize(
    ("site", "cure"),
    [
        ({"partition": "nowhere"}, "Invalid partition name specified; change `partition:`; "),
        ({"constraint": "gone"}, "Invalid feature specification; change `constraint:`; "),
        ({"lines": ["--mem=9000T"]}, "Requested node configuration is not available; change `lines:`; "),
        ({"lines": ["--reservation=gone"]}, "Requested reservation is invalid; change `lines:`; "),
        ({"lines": ["--unknown"]}, "unrecognized option '--unknown'; change `lines:`; "),
    ],
)
def test_a_refused_job_is_one_error_with_the_line_of_the_site_file(
    campaign: Callable[..., Campaign], cluster: Cluster, site: dict[str, str], cure: str
) -> None:
    refused = campaign("quick", **site)
    code, said = refused.run()
    assert (code, said.count("error:")) == (2, 1), said
    assert f"error: site.yaml:1:31: Slurm refused the job: {cure}`tunebench site check` shows" in said
    assert "Traceback" not in said
    assert refused.batches() == [] and refused.records() == {} and cluster.listed() == []


LIMITED = """\
elements=$(($(sed -n 's/.*--array=0-\\([0-9]*\\).*/\\1/p' "${@: -1}") + 1))
queued=$(squeue --noheader --array --user="$(id -u)" --states=pending,running,completing | wc -l)
if ((elements + queued > 4)); then
    echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2
    echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or" \\
        "time limits)" >&2
    exit 1
fi
exec "$REAL" "$@"
"""


def test_a_low_submit_limit_of_the_cluster_is_found(campaign: Callable[..., Campaign]) -> None:
    limited = campaign(*(f"quick-{number}" for number in range(8)))
    limited.fake("sbatch", LIMITED)
    assert limited.run()[0] == 0
    assert limited.statuses() == ["r1-t1 ok"] * 8


def test_a_submit_limit_that_no_job_meets_is_an_error(campaign: Callable[..., Campaign]) -> None:
    limited = campaign("quick-1", "quick-2")
    limited.fake("sbatch", LIMITED.replace("> 4", "> 0"))
    code, said = limited.run(seconds=60)
    assert code == 2 and "submit limit" in said and "Traceback" not in said
    assert limited.batches() == []


def test_the_submitters_variables_stay_with_it(campaign: Callable[..., Campaign]) -> None:
    """A submitter may be a job of Slurm itself. Its variables would be options of sbatch, and would reach the runs."""
    nested = campaign("quick", prologue="env > ../../../env-of-the-job")
    own = {"SBATCH_PARTITION": "nowhere", "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "3", "SQUEUE_FORMAT": "%i"}
    nested.env |= {**own, "SLURM_STEP_GPUS": "3", "SRUN_DEBUG": "3"}
    assert nested.run()[0] == 0
    job = (nested.folder / "env-of-the-job").read_text().splitlines()
    assert not {f"{name}={value}" for name, value in nested.env.items() if name != "PATH"} & {*job}


def test_a_secret_reaches_the_job_and_is_in_no_file(campaign: Callable[..., Campaign]) -> None:
    secret = "hf_Tr0ub4dorAnd3xtraLettersOfAToken"
    some = campaign("quick", prologue='[[ $HF_TOKEN == hf_Tr0* ]] || { echo "it is missing"; exit 3; }')
    some.env["HF_TOKEN"] = secret
    code, said = some.run()
    assert code == 0 and secret not in said, said
    files = [path for path in some.results.rglob("*") if path.is_file()]
    assert {"job.sh", "batch.json", "record.json"} <= {path.name for path in files}
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_a_folder_with_an_odd_name(campaign: Callable[..., Campaign], tmp_path: Path) -> None:
    odd = campaign("quick")
    code, said = odd.run("--results", "a b'c%j")
    assert code == 0 and (tmp_path / "a b'c%j" / "slurm" / "0001" / "element-0.log").exists(), said


def test_a_changed_throttle_reaches_an_array_that_was_submitted(
    campaign: Callable[..., Campaign], cluster: Cluster
) -> None:
    slow = campaign(*(f"sleep12-{number}" for number in range(4)), throttle=1)
    assert slow.run("--submit-only")[0] == 0
    waited(lambda: cluster.elements("RUNNING"))
    assert len(cluster.elements("RUNNING")) == 1
    slow.site = {"throttle": 4}
    process = slow.begin()
    waited(lambda: len(cluster.elements("RUNNING")) > 1, why="more elements run at once")
    assert slow.end(process)[0] == 0 and len(slow.batches()) == 1


def test_runs_that_slurm_holds_are_said_once_and_wait(
    campaign: Callable[..., Campaign],
    cluster: Cluster,
    in_process: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = campaign("quick-1", "quick-2", partition="closed")
    process = held.begin()
    assert process.stderr is not None
    said = next(line for line in process.stderr if "Slurm holds" in line)
    assert said.startswith("Slurm holds 2 runs for a reason that may not go away by itself, PartitionDown: c-"), said
    assert f"`max_pending:` in the site file, or end the runs: tunebench cancel {held.results}" in said
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    shown = in_process("status", held.results, "--json")[1]
    assert '"2 pending (PartitionDown)"' in shown and shown.count("Slurm holds 2 runs") == 1, shown
    cluster.call("scontrol", "update", f"jobid={cluster.listed()[0][0]}", "partition=main")
    code, rest = held.end(process)
    assert code == 0 and held.statuses() == ["r1-t1 ok"] * 2 and "Slurm holds" not in rest, rest

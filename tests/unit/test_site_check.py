"""`tunebench site check`: the answers of Slurm's commands, and the comparison of a site file with them.

The answers in golden/slurm/accounting are those of a real cluster with two nodes and accounting (Slurm 22.05.8).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.executors.slurm.cluster import check, facts
from orchestrator.executors.slurm.cluster.check import Level
from orchestrator.executors.slurm.cluster.facts import Cluster
from orchestrator.executors.slurm.site import Site
from orchestrator.records.price import Price

ANSWERS = Path(__file__).parents[1] / "golden" / "slurm" / "accounting"
Golden = Callable[[str, str], None]
Call = Callable[..., tuple[int, str, str]]


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text(encoding="utf-8")


def cluster(nodes: str | None = None, **changes: Any) -> Cluster:
    found = facts.read_nodes(answer("nodes") if nodes is None else nodes)
    values = {
        "settings": facts.read_settings(answer("config")),
        "partitions": facts.read_partitions(answer("partitions"), found),
        "associations": facts.read_associations(answer("associations")),
    }
    return Cluster(**{**values, **changes})


def lines(there: Cluster | None = None, *, node_gpus: int | None = 4, **site: Any) -> dict[str, check.Line]:
    found = check.compare(Site(file="site.yaml", **site), there or cluster(), node_gpus=node_gpus)
    return {line.name: line for line in found}


def missing(there: Cluster | None = None, **site: Any) -> dict[str, str]:
    return {name: line.cluster for name, line in lines(there, **site).items() if line.level is Level.MISSING}


def shown(found: list[check.Line]) -> str:
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(check.as_table(found))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"  # type: ignore[attr-defined]


def test_a_site_that_the_cluster_has(golden: Golden) -> None:
    site = Site(
        file="site.yaml",
        partition="main,long",
        account="team",
        qos="high",
        time_s=7200,
        node="4xH100",
        cpus_per_gpu=2,
        mem_per_gpu="2000M",
        lines=("--exclusive", "--mail-type=END"),
        prologue="module load cuda\n",
        scratch="/scratch/$USER",
        throttle=12,
        max_queued=50,
        pilot=5,
        max_pending_s=3600,
        price=Price(amount=2.5, currency="USD"),
    )
    golden("slurm/site-check.txt", shown(check.compare(site, cluster(), node_gpus=4)))


def test_a_site_that_the_cluster_does_not_have(golden: Golden) -> None:
    site = Site(
        file="site.yaml",
        partition="gpu,old,long",
        account="root",
        qos="low",
        constraint="ib&a100",
        time_s=3 * 86400,
        node="8xH100",
        gpu_type="a100",
        cpus_per_gpu=8,
        mem_per_gpu="64G",
        prologue="module load 'cuda",
    )
    mistake = "bash: ended with exit code 2: unexpected EOF"
    golden("slurm/site-check-missing.txt", shown(check.compare(site, cluster(), node_gpus=8, mistake=mistake)))


def test_without_a_site_file_the_cluster_is_shown(golden: Golden) -> None:
    golden("slurm/site-check-none.txt", shown(check.compare(Site(), cluster(), node_gpus=None)))


def test_the_facts_of_a_cluster_are_read() -> None:
    there = cluster()
    long = there.partitions["long"]
    assert (there.settings["ClusterName"], there.settings["MaxArraySize"]) == ("test", "1001")
    assert there.settings["SLURM_VERSION"] == "22.05.8"
    assert (long.max_s, long.default_s, long.is_default, long.state) == (172800, 3600, False, "UP")
    assert long.accounts == {"team", "other"} and long.qos == {"normal", "high"}
    assert there.partitions["main"].max_s is None and there.partitions["main"].accounts is None
    assert [(one.account, one.qos, one.max_submit) for one in there.associations or ()] == [
        ("team", ("high", "normal"), 50),
        ("root", ("normal",), None),
    ]


def test_answers_with_unexpected_lines_are_read_as_far_as_they_go() -> None:
    assert facts.read_nodes("odd\nmain|2|idle*|8+|x|(null)|(null)\n")["main"][0].cpus == 8
    assert facts.read_partitions("odd\nPartitionName=p MaxTime=odd\n", {})["p"].max_s is None
    assert facts.read_associations("odd\na|||7\n")[0].max_submit == 7
    assert facts.read_settings("Slurmctld(primary) at head is UP\nA = \n") == {"A": ""}


TYPED = "main|2|idle|64|512000|gpu:a100:4(S:0-1)|ib,a100\nmain|1|mixed|32|256000|gpu:v100:2|(null)\n"


@pytest.mark.parametrize(
    ("site", "names"),
    [
        ({"gpu_type": "a100", "constraint": "a100&ib*2"}, {}),
        ({"gpu_type": "h100"}, {"gpu_type": "a100, v100"}),
        ({"gpu_type": "v100"}, {"node": "2 GPUs in a node"}),
        ({"constraint": "[ib|rack1]"}, {"constraint": "a100, ib"}),
        ({"cpus_per_gpu": 16, "mem_per_gpu": "125G"}, {}),
        ({"cpus_per_gpu": 17}, {"cpus_per_gpu": "16 cores for each GPU of a node"}),
        ({"mem_per_gpu": "1T"}, {"mem_per_gpu": "128000 MB for each GPU of a node"}),
    ],
)
def test_gpus_with_types(site: dict[str, Any], names: dict[str, str]) -> None:
    assert missing(cluster(TYPED), **site) == names


def test_gpus_of_several_types_ask_for_a_choice() -> None:
    line = lines(cluster(TYPED))["gpu_type"]
    assert (line.level, line.cluster) == (Level.NOTE, "a100, v100")


def test_an_account_or_a_qos_that_a_partition_refuses_is_missing() -> None:
    assert missing(partition="long", account="root") == {"account": "partition long allows only other, team"}
    assert missing(partition="main", account="root") == {}


def test_without_accounting_an_account_is_only_noted() -> None:
    there = cluster(associations=None, unknown="the cluster has no accounting")
    assert missing(there, account="team", qos="high") == {}
    assert lines(there, account="team")["account"].cluster == "the cluster has no accounting"


def test_a_user_without_an_account_is_told() -> None:
    assert missing(cluster(associations=())) == {"account": "none for you"}


def test_a_time_that_one_of_the_partitions_allows_is_noted_for_the_others() -> None:
    found = check.compare(Site(partition="main,long", time_s=3 * 86400), cluster(), node_gpus=4)
    assert [line.level for line in found if line.name == "time"] == [Level.OK, Level.NOTE]


def test_a_mistake_in_the_prologue_is_found_by_bash() -> None:
    assert facts.prologue_mistake("module load cuda\n") is None
    assert "unexpected EOF" in (facts.prologue_mistake("module load 'cuda") or "")


def test_without_slurm_there_is_one_sentence(in_process: Call, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    code, stdout, stderr = in_process("site", "check", PATH=str(tmp_path / "bin"))
    assert (code, stdout) == (2, "")
    assert stderr == (
        "error: scontrol: there is no such program on PATH; run this on a machine with Slurm's commands, such as the cluster's "
        "login node\n"
    )


@pytest.mark.parametrize("script", ["echo slurm_load error >&2; exit 1", "exec cat /dev/zero", "printf '\\377 odd'"])
def test_a_cluster_that_answers_nonsense_gives_a_sentence_or_an_empty_table(
    in_process: Call, tmp_path: Path, script: str
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("scontrol", "sinfo"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    code, stdout, stderr = in_process("site", "check", PATH=f"{tmp_path / 'bin'}:/bin:{Path(sys.executable).parent}")
    assert code in (1, 2)
    assert ("missing" in stdout) if code == 1 else stderr.startswith("error: scontrol: ")


def test_mistakes_in_the_site_file_come_before_the_cluster(in_process: Call, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("partiton: gpu\n", encoding="utf-8")
    code, _, stderr = in_process("site", "check")
    assert code == 2 and stderr.startswith("error: site.yaml:1:1: unknown key 'partiton'; did you mean 'partition'?")

"""The site file on a real cluster: `site check` reads its answers, and sbatch takes the scripts that a plan shows."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import Cluster, waited

from orchestrator.executors.slurm.batches import Batch
from orchestrator.executors.slurm.cluster import check, facts
from orchestrator.executors.slurm.cluster.check import Level
from orchestrator.executors.slurm.script import batch_script
from orchestrator.executors.slurm.shapes import Shape
from orchestrator.executors.slurm.site import Site
from orchestrator.records import Device

Call = Callable[..., tuple[int, str, str]]

SCENARIOS = """\
scenarios:
  - name: one
    num_gpus: [1, 2]
    arguments: {model_name_or_path: config:tiny-llama, max_steps: 20}
"""


@pytest.fixture(autouse=True)
def uses_the_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)


def test_the_facts_of_the_cluster_are_read() -> None:
    there = facts.ask()
    default = next(partition for partition in there.partitions.values() if partition.is_default)
    assert int(there.settings["MaxArraySize"]) > 1 and there.settings["SLURM_VERSION"]
    assert sum(nodes.number for nodes in default.nodes) >= 1
    assert all(nodes.cpus and nodes.memory_mb and nodes.gpus for nodes in default.nodes)
    lines = check.compare(Site(partition=default.name), there, node_gpus=None)
    assert not [line for line in lines if line.level is Level.MISSING]


def test_what_the_cluster_does_not_have_is_missing(in_process: Call, tmp_path: Path) -> None:
    assert in_process("site", "check")[0] == 0
    (tmp_path / "site.yaml").write_text("partition: gone\ngpu_type: gone\nnode: 999x80GiB\n", encoding="utf-8")
    code, out, _ = in_process("site", "check")
    assert code == 1
    assert re.search(r"^partition +missing +gone +\w+", out, re.MULTILINE), out
    names = ", ".join(facts.ask().partitions)
    (tmp_path / "site.yaml").write_text(f"partition: {names.partition(',')[0]}\nnode: 999x80GiB\n", encoding="utf-8")
    code, out, _ = in_process("site", "check")
    assert code == 1 and re.search(r"^node +missing +999x80GiB +\d+ GPUs? in a node", out, re.MULTILINE), out


def test_sbatch_takes_the_scripts_that_a_plan_shows(in_process: Call, tmp_path: Path) -> None:
    (tmp_path / "scenarios.yaml").write_text(SCENARIOS, encoding="utf-8")
    content = "executor: slurm\ntime: 30m\ncpus_per_gpu: 1\nlines: [--nice=5, --mail-type NONE]\nscratch: /tmp/$USER\n"
    (tmp_path / "site.yaml").write_text(content, encoding="utf-8")
    code, out, err = in_process("plan", "scenarios.yaml", "--commands")
    scripts = ["#!/bin/bash" + text for text in out.split("\n#!/bin/bash")[1:]]
    assert code == 0 and len(scripts) == 2, err
    for script in scripts:
        (tmp_path / "job.sh").write_text(script, encoding="utf-8")
        asked = subprocess.run(["sbatch", "--test-only", "job.sh"], cwd=tmp_path, capture_output=True, text=True)
        assert asked.returncode == 0, asked.stderr


def test_variables_in_scratch_are_replaced_on_the_node(tmp_path: Path) -> None:
    batch = Batch(
        name="scratch",
        shape=Shape(device=Device.CPU, num_gpus=1),
        time_s=60.0,
        elements=(("e/r1-t1",),),
        created_at=0.0,
    )
    site = Site(prologue="export PLACE=here", scratch=f"{tmp_path}/$PLACE-${{SLURM_ARRAY_TASK_ID}}")
    answer = ("bash", "-c", 'stat --format=%F:%n "$TMPDIR" >answer.part && mv answer.part answer')
    (tmp_path / "job.sh").write_text(batch_script(batch, site, folder=tmp_path, run_array=answer), encoding="utf-8")
    subprocess.run(["sbatch", "job.sh"], cwd=tmp_path, check=True, capture_output=True)
    waited((tmp_path / "answer").exists)
    assert (tmp_path / "answer").read_text(encoding="utf-8") == f"directory:{tmp_path}/here-0\n"


def test_doctor_asks_a_node_and_leaves_nothing_behind(in_process: Call, tmp_path: Path) -> None:
    code, out, err = in_process("doctor", "--executor", "slurm", "--json")
    found = {finding["name"]: finding for finding in json.loads(out)}
    assert code == 0, err
    assert re.match(r"n\d answered after", found["job on a node"]["found"])
    assert found["links"]["level"] == found["clock"]["level"] == found["node: torch"]["level"] == "ok"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("site", "said"),
    [("partition: gone", "site.yaml:1:1: Slurm refused the job"), ("prologue: exit 3", "without an answer")],
)
def test_doctor_says_why_no_node_answered(in_process: Call, tmp_path: Path, site: str, said: str) -> None:
    (tmp_path / "site.yaml").write_text(site + "\n", encoding="utf-8")
    code, out, err = in_process("doctor", "--executor", "slurm", "--json")
    assert code in (1, 2) and said in out + err, out + err

"""Runs on two nodes of a real Slurm cluster, submitted by the executor: the built-in trainer, and commands of one's own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster

from orchestrator.records import RunRecord, Status
from orchestrator.results.store import Store

ROOT = Path(__file__).parents[2]
SCENARIOS = """\
executor: slurm
data_processing: {dataset_name: builtin:stdlib-docs, dataset_split: 'train[:48]'}
scenarios:
- name: real
  device: cpu
  num_nodes: 2
  num_gpus_per_node: 2
  arguments:
    model_name_or_path: config:tiny-llama
    per_device_train_batch_size: 2
    max_seq_len: 96
    max_steps: 4
    logging_steps: 1
    dtype: float32
    include_num_input_tokens_seen: all
- &own
  name: own
  device: cpu
  num_nodes: 2
  num_gpus: 4
  trainer: custom
  arguments: {said: "it's $HOME"}
  custom:
    launcher: none
    command: [sh, -c, 'printf "%s " "$0" "$1" "$2" > "$3/node$SLURM_NODEID"; [ "$SLURM_NODEID" = 0 ] || {
              setsid sleep 300 >/dev/null 2>&1 & echo $! > "$3/daemon"; }; echo "{\\"train_loss\\": 1}"',
              "{num_nodes}", "{host}:{port}", "{said}", "{run_dir}"]
    metrics: {train_loss: {key: train_loss}}
- <<: *own
  name: half-fails
  arguments: {}
  custom:
    launcher: none
    # srun may lose the last line of a program that ends at once, because it ends the step then.
    command: [sh, -c, 'if [ "$SLURM_NODEID" = 1 ]; then echo "the disk of node 1 is broken" >&2; sleep 1; exit 3; fi; sleep 300']
- <<: *own
  name: half-hangs
  arguments: {}
  stall_timeout_s: 2
  custom:
    launcher: none
    command: ['{python}', '{scenario_dir}/hangs.py']
"""
# As the instrument does, the program writes its stacks when it gets SIGUSR2.
HANGS = """import faulthandler, os, signal, time
faulthandler.register(signal.SIGUSR2, all_threads=True)
def hangs_in_a_step(): time.sleep(300)
def waits_for_the_other_rank(): time.sleep(300)
print("began", flush=True)
hangs_in_a_step() if os.environ["SLURM_NODEID"] == "1" else waits_for_the_other_rank()
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A campaign that has ended."""

    results: Path
    said: str

    def record(self, part: str) -> RunRecord:
        (found,) = (one for one in Store.resume(self.results).contents().experiments if part in one.experiment.id)
        (record,) = found.records
        return record

    def run_dir(self, part: str) -> Path:
        (found,) = self.results.glob(f"experiments/*{part}*/runs/r1-t1")
        return found

    def numbers(self, part: str) -> dict[str, Any]:
        return {one.name: one.value for one in self.record(part).measurements}


@pytest.fixture(scope="module")
def made(whole_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    (folder / "hangs.py").write_text(HANGS)
    env = {
        **os.environ,
        **whole_cluster.env,
        "PYTHONPATH": str(ROOT),
        "TUNEBENCH_CACHE": str(folder / "cache"),
        "COLUMNS": "200",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    words = [sys.executable, "-m", "orchestrator", "run", "scenarios.yaml"]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=500)
    return Made(results=folder / "results", said=done.stdout + done.stderr)


def test_four_ranks_on_two_nodes_are_one_training(made: Made) -> None:
    record, run_dir = made.record("real"), made.run_dir("real")
    assert record.status is Status.OK, made.said + (record.tail or "")
    assert (record.settings["world_size"], record.settings["global_batch"]) == (4, 8)
    workers = [json.loads((run_dir / f"worker-rank{rank}.json").read_text()) for rank in range(4)]
    assert [(one["rank"], one["local_rank"], one["world_size"]) for one in workers] == [
        (0, 0, 4),
        (1, 1, 4),
        (2, 0, 4),
        (3, 1, 4),
    ]
    assert len({one["pid"] for one in workers}) == 4
    numbers = made.numbers("real")
    assert (numbers["steps"], numbers["samples_processed"], numbers["world_size"]) == (4, 32, 4)
    assert numbers["tokens_processed"] == 32 * 96 == numbers["num_input_tokens_seen"]
    assert [row["tokens_processed"] for row in record.ranks] == [8 * 96] * 4
    for rank in range(4):
        lines = map(json.loads, (run_dir / f"steps-rank{rank}.jsonl").read_text().splitlines())
        assert [line["step"] for line in lines if "step" in line and "loss" not in line] == [1, 2, 3, 4]


def test_the_table_counts_the_nodes(made: Made) -> None:
    with (made.results / "benchmarks.csv").open(newline="") as file:
        rows = {row["scenario"]: row for row in csv.DictReader(file)}
    assert {name: (row["num_gpus"], row["num_nodes"]) for name, row in rows.items()} == dict.fromkeys(rows, ("4", "2"))
    assert rows["real"]["id"].startswith("real-tiny-llama.none.gpus4.nodes2-")


def test_a_command_of_ones_own_is_started_on_each_node_and_told_where_to_meet(made: Made) -> None:
    record = made.record("own")
    assert record.status is Status.OK, record.cause
    told = [(made.run_dir("own") / f"node{rank}").read_text() for rank in (0, 1)]
    assert told[0] == told[1]
    nodes, place, note = told[0].split(" ", 2)
    assert (nodes, note) == ("2", "it's $HOME ")
    host, port = place.split(":")
    assert host and 20_000 <= int(port) < 40_100


def test_a_daemon_on_the_second_node_is_ended(made: Made) -> None:
    pid = int((made.run_dir("own") / "daemon").read_text())
    assert not Path(f"/proc/{pid}/exe").exists()
    assert made.record("own").warnings == ()


def test_what_each_node_is_and_how_its_clock_goes_is_recorded(made: Made) -> None:
    provenance = made.record("own").provenance
    assert [(one["node"], one["number"], one["gpus"]) for one in provenance["nodes"]] == [("n1", 0, []), ("n2", 1, [])]
    assert abs(provenance["largest_clock_offset_s"]) < 1, "all nodes of the test cluster have one clock"
    assert provenance["communication"]["GLOO_SOCKET_IFNAME"] == "lo"
    with (made.results / "raw_summary.csv").open(newline="") as file:
        (row,) = (row for row in csv.DictReader(file) if row["scenario"] == "own")
    assert row["provenance_communication_GLOO_SOCKET_IFNAME"] == "lo"
    assert row["provenance_nodes"].count(",") == 1


def test_a_failure_on_one_node_ends_the_other(made: Made) -> None:
    record = made.record("half-fails")
    assert (record.status, record.exit_code) == (Status.FAILED, 3)
    assert record.wall_s < 60
    assert record.cause == "it ended with exit code 3", "and not with that of the node that srun ended then"
    assert "the disk of node 1 is broken" in (record.tail or "")


def test_the_stacks_of_all_nodes_are_saved_if_a_rank_hangs(made: Made) -> None:
    record = made.record("half-hangs")
    assert (record.status, record.kind) == (Status.STALLED, "stalled"), made.said
    assert record.wall_s < 60
    text = (made.run_dir("half-hangs") / "stacks.txt").read_text()
    stacks = {part.partition(",")[0]: part for part in text.split("# node ")[1:]}
    assert [*stacks] == ["n1", "n2"], text
    assert "waits_for_the_other_rank" in stacks["n1"] and "hangs_in_a_step" not in stacks["n1"]
    assert "hangs_in_a_step" in stacks["n2"] and "waits_for_the_other_rank" not in stacks["n2"]

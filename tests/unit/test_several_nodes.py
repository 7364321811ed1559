"""Several nodes in one run: the axis, what cannot run and why, ids and tables."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import experiment
from factories.suites import EIGHT_GPUS, expanded, planned, suite
from fake_pynvml import FakeGpu, FakeNvml
from rich.console import Console

from orchestrator import monitors
from orchestrator.compare.comparison import Entry
from orchestrator.compare.sides import keys
from orchestrator.errors import ConfigError, LaunchError, SelectionError
from orchestrator.machine import process
from orchestrator.machine.provenance import Machine
from orchestrator.plan.identity.experiment_id import Digester
from orchestrator.plan.placement import cannot_run_here
from orchestrator.plan.view import table
from orchestrator.records import Device, Experiment, Gpu, RunFolder, dump
from orchestrator.results import experiment_file
from orchestrator.results.table.load import of_rows
from orchestrator.results.table.rows import Row, experiment_facts
from orchestrator.run.nodes import communication, companions
from orchestrator.run.nodes.companions import Companions
from orchestrator.run.nodes.rendezvous import meeting_point
from orchestrator.run.nodes.watcher import _Node
from orchestrator.trainers import get

SCENARIO = "scenarios:\n- {{name: s, device: cuda, arguments: {{model_name_or_path: config:tiny-llama}}, {keys}}}\n"


def counts(folder: Path, keys: str, **choices: Any) -> list[tuple[int, int]]:
    """Processes and nodes of each cell that is not skipped."""
    plan = planned(folder, SCENARIO.format(keys=keys), **choices)
    return [(one.num_gpus, one.num_nodes) for one in plan.experiments if one.skip is None]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("num_gpus: 2", [(2, 1)]),
        ("num_gpus: 8, num_nodes: [1, 2]", [(8, 1), (8, 2)]),
        ("num_gpus_per_node: [4, 8], num_nodes: [1, 2]", [(4, 1), (8, 1), (8, 2), (16, 2)]),
        ("num_gpus_per_node: 4", [(4, 1)]),
        ("num_gpus: [2, 3], num_nodes: 2", [(2, 2)]),
        ("zip: {num_nodes: [1, 2], num_gpus: [4, 8]}", [(4, 1), (8, 2)]),
        ("zip: {num_nodes: [1, 2], seed: [1, 2]}, num_gpus_per_node: 2", [(2, 1), (4, 2)]),
        ("num_gpus: 4, num_nodes: [1, 2, 4], exclude: [{num_nodes: '> 2'}]", [(4, 1), (4, 2)]),
        ("num_gpus: 4, include: [{num_nodes: 2}]", [(4, 1), (4, 2)]),
        ("num_gpus_per_node: 4, include: [{num_nodes: 2, num_gpus_per_node: 8}]", [(4, 1), (16, 2)]),
    ],
)
def test_nodes_are_an_axis_and_gpus_are_counted_on_all(
    tmp_path: Path, keys: str, expected: list[tuple[int, int]]
) -> None:
    assert counts(tmp_path, keys) == expected


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"axes": ["num_nodes=1,2"]}, [(4, 1), (4, 2)]),
        ({"axes": ["num_gpus_per_node=4", "num_nodes=3"]}, [(12, 3)]),
        ({"num_gpus": (6,)}, [(6, 2)]),
        ({"settings": ["num_nodes=1"]}, [(4, 1)]),
    ],
)
def test_the_command_line_replaces_the_counts(tmp_path: Path, choices: Any, expected: list[tuple[int, int]]) -> None:
    assert counts(tmp_path, "num_gpus: 4, num_nodes: 2", **choices) == expected
    per_node = "num_gpus_per_node: 2, num_nodes: 2"
    assert counts(tmp_path, per_node, **choices) == expected or "num_gpus" not in choices


def test_a_count_on_the_command_line_leaves_its_group(tmp_path: Path) -> None:
    zipped = "zip: {num_nodes: [1, 2], num_gpus: [4, 8]}"
    assert counts(tmp_path, zipped, num_gpus=(2,)) == [(2, 1), (2, 2)]
    assert counts(tmp_path, zipped, axes=["num_nodes=4"]) == [(4, 4), (8, 4)]


@pytest.mark.parametrize(
    "choices",
    [
        {"axes": ["num_nodes=two"]},
        {"axes": ["num_nodes=1", "num_nodes=2"]},
        {"axes": ["num_gpus_per_node=2"], "num_gpus": (4,)},
    ],
)
def test_what_is_no_count_is_said(tmp_path: Path, choices: Any) -> None:
    with pytest.raises(SelectionError):
        counts(tmp_path, "num_gpus: 4", **choices)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("num_gpus: 4, num_gpus_per_node: 4", "keep one of them"),
        ("num_gpus: 4, zip: {num_gpus_per_node: [1, 2], seed: [1, 2]}", "keep one of them"),
        ("num_nodes: 0", "num_nodes: 0 is invalid"),
        ("zip: {num_nodes: [1, x], seed: [1, 2]}", "zip: num_nodes: 'x' is invalid"),
        ("num_gpus_per_node: 4, include: [{num_gpus: 8}]", "counts its processes by num_gpus_per_node"),
        ("num_gpus_per_node: 4, exclude: [{num_gpus: 8}]", "'num_gpus' is not an axis"),
        ("num_nodes: 2, baseline: {num_nodes: 4}", "the axis num_nodes has no value 4"),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, SCENARIO.format(keys=keys))
    assert message in str(error.value)
    assert "scenarios.yaml:2:" in str(error.value)


def test_the_baseline_counts_the_processes_on_all_nodes(tmp_path: Path) -> None:
    keys = "num_nodes: [1, 2], num_gpus_per_node: 4, baseline: {num_gpus: 8, num_nodes: 2}"
    assert counts(tmp_path, keys) == [(4, 1), (8, 2)]


def test_what_the_nodes_do_not_divide_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (one,) = planned(tmp_path, SCENARIO.format(keys="num_gpus: 3, num_nodes: 2")).experiments
    assert one.skip is not None
    assert one.skip.text == "num_gpus 3 is not divisible by num_nodes 2"


# ------------------------------------------------------------------------------------------------------- placement


@pytest.mark.parametrize(
    ("executor", "gpus", "assumed", "expected"),
    [
        ("local", 8, False, "too_few_nodes"),
        ("slurm", 8, False, None),
        ("slurm", 4, False, "too_few_gpus"),
        ("local", 8, True, None),
        ("local", 4, True, "too_few_gpus"),
    ],
)
def test_each_node_has_its_share_of_the_processes(
    executor: str, gpus: int, assumed: bool, expected: str | None
) -> None:
    one = experiment(num_gpus=16, num_nodes=2, device=Device.CUDA, trainer="custom")
    machine = Machine(gpus=EIGHT_GPUS.gpus[:gpus], assumed=assumed)
    reason = cannot_run_here(one, get("custom"), machine, executor=executor)
    assert (reason.kind if reason else None) == expected


def test_the_scenarios_executor_decides(tmp_path: Path) -> None:
    read = suite(tmp_path, SCENARIO.format(keys="device: cpu, num_gpus: 2, num_nodes: 2").replace("device: cuda, ", ""))
    (here,), (there,) = expanded(read), expanded(replace(read, executor="slurm"))
    assert here.cannot_run_here is not None
    assert "--executor slurm" in here.cannot_run_here.text
    assert there.cannot_run_here is None
    assert here.id == there.id


# ------------------------------------------------------------------------------------------------ ids and files


def test_one_node_is_no_part_of_the_id_and_of_the_file(tmp_path: Path) -> None:
    """The digest is one of a version without `num_nodes`, so that its folders are resumed."""
    one = experiment(id="", arguments={"a": "1"})
    assert Digester(frozenset()).digest(one) == "5f71ea676198"
    assert Digester(frozenset()).digest(replace(one, num_nodes=2)) != "5f71ea676198"
    assert "num_nodes" not in experiment_file.text_of(one)
    (tmp_path / "old.json").write_text(experiment_file.text_of(one))
    (tmp_path / "new.json").write_text(experiment_file.text_of(replace(one, num_nodes=2)))
    assert experiment_file.read(tmp_path / "old.json") == one
    assert experiment_file.read(tmp_path / "new.json").num_nodes == 2
    assert '"num_nodes": 1' in dump(one)


def test_several_nodes_are_in_the_name(tmp_path: Path) -> None:
    ids = [one.id for one in planned(tmp_path, SCENARIO.format(keys="num_gpus: 4, num_nodes: [1, 2]")).experiments]
    assert ids[0].startswith("s-tiny-llama.none.gpus4-")
    assert ids[1].startswith("s-tiny-llama.none.gpus4.nodes2-")
    tag = SCENARIO.format(keys="num_gpus: 4, num_nodes: 2") + "experiment_tag: '{num_nodes}x'\n"
    (own,) = planned(tmp_path, tag).experiments
    assert own.id.startswith("s-2x-")


# ------------------------------------------------------------------------------------------------ where they meet


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that answers as Slurm 22.05 does, for an allocation of n7 and n8."""
    facts = "NodeName=n7 Arch=x86_64 NodeAddr=10.7.7.7 NodeHostName=n7"
    text = f'case "$*" in "show hostnames "*) printf "n7\\nn8\\n" ;; *"node n7") echo "{facts}" ;; *) exit 1 ;; esac'
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("scontrol")
def test_nodes_meet_at_the_address_of_the_first_and_a_free_port() -> None:
    allocation = {"SLURM_JOB_NODELIST": "n[7-8]", "SLURM_JOB_ID": "20123"}
    host, port = meeting_point(2, allocation)
    assert (host, port) == ("10.7.7.7", 20_123)
    with socket.socket() as other:
        other.bind(("", port))
        assert meeting_point(2, allocation)[1] == port + 1
    with pytest.raises(LaunchError, match="4 nodes are needed, and the allocation 20123 has 2: n7 n8"):
        meeting_point(4, allocation)
    with pytest.raises(LaunchError, match="not in a Slurm allocation"):
        meeting_point(2, {})


def test_variables_and_log_of_nccl_are_recorded(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.stdout.write_text(
        "n1:7:7 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n"
        "n1:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
        "n2:8:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>\n"
        "n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
        "n1:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        "n1:7:9 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    )
    one = experiment(env={"NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": None, "HF_HOME": "/h"})
    assert communication.facts(one, folder, {"NCCL_IB_HCA": "mlx5", "GLOO_SOCKET_IFNAME": "eth0"}) == {
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "mlx5",
        "nccl_version": "2.27.5+cuda12.9",
        "transports": "NET/IB, P2P/CUMEM",
        "network_cards": "eth0, mlx5_0, mlx5_3",
    }
    assert communication.facts(experiment(), RunFolder(tmp_path / "none"), {}) == {}
    folder.stdout.unlink()
    folder.stdout.symlink_to("/dev/zero")  # what a program made of its log; its numbers may be elsewhere
    assert communication.facts(experiment(), folder, {}) == {}


# ------------------------------------------------------------------------------------------------------- monitors


def watched(root: Path, *nodes: str, unwatched: str = "") -> Path:
    """The folder of a run on these nodes, with samples of two GPUs on each: 4, 5, 6, 7 GB… are in use."""
    run_dir = root / "experiments" / "x" / "runs" / "r1-t1"
    run_dir.mkdir(parents=True)
    one = experiment(num_gpus=2 * len(nodes), num_nodes=len(nodes), device=Device.CUDA)
    (run_dir.parents[1] / "experiment.json").write_text(experiment_file.text_of(one))
    for number, node in enumerate(nodes):
        folder = run_dir / "nodes" / node
        folder.mkdir(parents=True)
        (folder / "node.json").write_text(json.dumps({"node": node, "number": number}))
        folder = folder if number else run_dir
        used = [(4 + 2 * number + place) * 10**9 for place in (0, 1)]
        nvml = "".join(
            f"{moment}.0,{place},uuid,GPU-{node}-{place}\n{moment}.0,{place},memory,{used[place]}\n"
            for moment in (100, 101)
            for place in (0, 1)
        )
        smi = "".join(
            f"2026/11/25 10:00:0{second}.000, H100, {place}, {1000 * (second + number)} MiB\n"
            for second in (0, 1)
            for place in (0, 1)
        )
        if node != unwatched:
            (folder / "samples-nvml.csv").write_text(f'time,gpu,what,value\n{nvml}# {{"cpu_s": 1.5}}\n')
            (folder / "samples-nvidia-smi.csv").write_text(f"timestamp, name, index, memory.used [MiB]\n{smi}")
    return run_dir


@pytest.mark.parametrize("is_gone", [False, True])
def test_the_gpus_of_all_nodes_count(tmp_path: Path, is_gone: bool) -> None:
    """Node b comes first in the alphabet, but its number is 1. The file `experiment.json` may be gone at the run's end."""
    run_dir = watched(tmp_path, "c", "b")
    if is_gone:
        experiment_file.of_run(run_dir)  # as `run-one` does before the training
        RunFolder(run_dir).experiment.unlink()
    numbers = {
        one.name: one.value for name in ("nvml", "nvidia_smi") for one in monitors.get(name).measurements(run_dir)
    }
    assert numbers["device_peak_used_bytes"] == 7 * 10**9
    assert numbers["device_mean_peak_used_bytes"] == 5.5 * 10**9
    assert numbers["monitor_cpu_s"] == 3
    assert numbers["mem_nvidia_mem_reserved"] == 1000
    rows = monitors.get("nvml").devices(run_dir)
    assert [(row["gpu"], row["host"]) for row in rows] == [
        ("GPU-c-0", "c"),
        ("GPU-c-1", "c"),
        ("GPU-b-0", "b"),
        ("GPU-b-1", "b"),
    ]


def test_a_node_that_was_not_watched_leaves_no_number_of_the_others(tmp_path: Path) -> None:
    """Energy of one node over the tokens of both would be half of what was used."""
    run_dir = watched(tmp_path, "a", "b", unwatched="b")
    for name, metric in (("nvml", "device_peak_used_bytes"), ("nvidia_smi", "mem_nvidia_mem_reserved")):
        (number,) = monitors.get(name).measurements(run_dir)
        assert (number.name, number.value) == (metric, None)
        assert "the GPUs of 1 of 2 nodes were not watched" in number.why_missing
    assert monitors.get("nvml").devices(run_dir) == []


# --------------------------------------------------------------------------------------------------------- tables


def rows(*experiments: Experiment) -> list[Row]:
    return [Row(facts=experiment_facts(one), arguments={}, outcome={"status": "ok"}) for one in experiments]


def test_a_table_has_the_column_only_where_it_is_used() -> None:
    one, two = experiment(id="a", num_gpus=2), experiment(id="b", num_gpus=4, num_nodes=2)
    assert "num_nodes" not in of_rows(rows(one)).experiments
    assert list(of_rows(rows(one, two)).experiments["num_nodes"]) == [1, 2]


def test_a_plan_shows_nodes_only_where_they_are_used(tmp_path: Path) -> None:
    def shown(keys: str) -> str:
        console = Console(width=160, file=io.StringIO())
        with console.capture() as captured:
            console.print(table(planned(tmp_path, SCENARIO.format(keys=keys)), width=160))
        return captured.get()

    assert "nodes" not in shown("num_gpus: [1, 2]")
    assert "nodes  GPUs" in shown("num_gpus: 4, num_nodes: [1, 2]")
    assert "nodes 2" in shown("num_gpus: [2, 4], num_nodes: 2")


def test_one_node_is_compared_with_one_node() -> None:
    """A folder from before the key, a CSV file with the column, and a folder with two nodes."""
    shared = {"scenario": "s", "framework_config": "none", "model_name_or_path": "m", "num_gpus": 8, "trainer": "t"}
    older, csv, two = (
        Entry(key={**shared, **more}, label="", status="ok", whole=True)
        for more in ({}, {"num_nodes": 1}, {"num_nodes": 2})
    )
    names = keys.core([[older], [csv, two]])
    assert "num_nodes" in names
    assert len(keys.groups([older, csv, two], names)) == 2
    assert keys.label(two.key) == "s · none · m · 8 GPUs · 2 nodes"


# --------------------------------------------------------------------------------------------- stacks of other nodes

WATCHERS = """\
import json, sys
for question in sys.stdin:
    if question == "stacks n3\\n":
        told = [{"pid": 7, "heading": "# node n3, 7: python\\n", "text": "in_a_step\\n"},
                {"pid": 8, "heading": "# node n3, 8: python\\n", "text": None}]
        print("not json", json.dumps({"node": "n2", "time": 0}), json.dumps({"node": "n3", "stacks": told}), sep="\\n", flush=True)
    if question == "occupants\\n":
        for node, texts in ("n1", ["of run-one"]), ("n3", ["GPU 1 was in use"]), ("n2", []):
            print(json.dumps({"node": node, "occupants": texts}), flush=True)
    if question == "signal n3 8\\n":
        open(sys.argv[1], "a").write("in_a_barrier\\n")
"""


def test_a_node_that_does_not_answer_holds_up_no_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "stderr.log"
    log.touch()
    with process.companion([sys.executable, "-c", WATCHERS, str(log)], log=tmp_path / "watchers.log") as child:
        watchers = Companions(questions=child.stdin, answers=child.stdout, offsets_s={"n3": 0.0})
        assert len([*companions.stacks(watchers, log)]) == 2  # the process has begun
        monkeypatch.setattr(companions, "_NODE_S", 0.3)
        watchers.offsets_s["n2"] = 0.0
        assert [*companions.stacks(watchers, log)] == [
            "# node n2: it did not answer\n",
            "# node n3, 7: python\nin_a_step\n",
            "# node n3, 8: python\nin_a_barrier\n",
        ]
        assert [*companions.stacks(watchers, log, cancelled=lambda: True)] == []
        child.kill()
        child.wait()
        silent = [f"# node {node}: it did not answer\n" for node in ("n2", "n3")]
        assert [*companions.stacks(watchers, log)] == silent


def test_gpus_in_use_on_other_nodes_are_told_with_their_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeGpu(uuid="GPU-a", used=3 * 2**30)]))
    gpus = (Gpu(index=0, uuid="GPU-a", name="H100"),)
    here = "GPU 0 (H100) was in use (3.0 GiB, by no visible process)"
    with process.companion([sys.executable, "-c", WATCHERS, ""], log=tmp_path / "watchers.log") as child:
        offsets = {"n1": 0.0, "n2": 0.0, "n3": 0.0}
        watchers = Companions(questions=child.stdin, answers=child.stdout, offsets_s=offsets)
        assert companions.occupants(watchers, gpus) == (here, "node n3: GPU 1 was in use")
        monkeypatch.setattr(companions, "_LOOK_S", 0.3)
        watchers.offsets_s["n4"] = 0.0  # it does not answer
        assert companions.occupants(watchers, gpus) == (here, "node n3: GPU 1 was in use")
    assert companions.occupants(Companions(), gpus) == (here,)


def test_a_watcher_looks_at_its_gpus_and_only_the_first_node_leaves_that_to_run_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = [FakeGpu(uuid=f"GPU-{number}", pids=[2**31 - 1] * 20) for number in range(8)]
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(busy))
    gpus = tuple(Gpu(index=index, uuid=gpu.uuid, name="H100") for index, gpu in enumerate(busy))
    for number in (0, 1):
        one = experiment(num_gpus=16, num_nodes=2)
        node = _Node(name="n", number=number, marker="m", experiment=one, gpus=gpus, monitoring=ExitStack())
        told = node.answer(["occupants"], RunFolder(tmp_path))
        assert bool(told) is (number == 1)
    assert told["occupants"][0].startswith("GPU 0 (H100) was in use (1.0 GiB, process 2147483647")
    assert len(json.dumps(told)) < 1024

"""Plans for the executor `slurm`: which executor counts, and the GPUs of a node instead of those of this machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import ended, stored

from orchestrator.executors.slurm.executor import RUN_ARRAY
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import expand
from orchestrator.plan.forecast.assumed_machine import assumed_machine
from orchestrator.plan.selection import Selection

Golden = Callable[[str, str], None]
Call = Callable[..., tuple[int, str, str]]

SCENARIOS = """\
scenarios:
  - name: fixed
    arguments: {model_name_or_path: config:tiny-llama, max_steps: 20}
    num_gpus: [1, 4, 8]
  - name: free
    device: auto
    num_gpus: 2
    arguments: {model_name_or_path: config:tiny-llama, max_steps: 20}
"""
SLURM = "executor: slurm\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "scenarios.yaml"
    file.write_text(SCENARIOS, encoding="utf-8")
    return file


def planned(call: Call, *words: object) -> tuple[dict[str, list[str | None]], list[str]]:
    """Return two values: scenario → for each experiment the reason why it cannot run here, and the notes of the plan."""
    code, out, err = call("plan", *words, "--json")
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    found: dict[str, list[str | None]] = {}
    for one in document["experiments"]:
        reason = one["cannot_run_here"]
        found.setdefault(f"{one['scenario']} {one['device']}", []).append(reason and reason["reason"])
    return found, document["notes"]


def test_the_gpus_of_a_node_count_instead_of_this_machines(in_process: Call, file: Path) -> None:
    site = file.with_name("site.yaml")
    site.write_text(f"{SLURM}node: 4xH100\n", encoding="utf-8")
    found, notes = planned(in_process, file)
    beyond = f"8 GPUs are needed, but only 4 are in a node (`node:` in {site})"
    assert found == {"fixed cuda": [None, None, beyond], "free cuda": [None]}
    assert not [note for note in notes if "node:" in note]


def test_without_node_the_number_of_gpus_is_not_checked_and_a_note_says_so(in_process: Call, file: Path) -> None:
    found, notes = planned(in_process, file, "--executor", "slurm")
    assert found == {"fixed cuda": [None, None, None], "free cpu": [None]}
    assert notes[-1] == (
        "there is no site file, so GPU counts are not checked, and `device: auto` means CPU processes; write the GPUs of one node "
        "into site.yaml, such as `node: 4xH100`"
    )
    site = file.with_name("site.yaml")
    site.write_text(SLURM, encoding="utf-8")
    assert planned(in_process, file)[1][-1].startswith(f"{site} has no `node:`, so GPU counts are not checked")
    assert "node:" not in str(planned(in_process, file, "--set", "device=cpu", "--executor", "local")[1])


def test_files_are_still_checked(in_process: Call, file: Path) -> None:
    file.write_text(
        SCENARIOS + "    python: /gone/bin/python\n" + "data_processing: {dataset_name: ./gone.jsonl}\n",
        encoding="utf-8",
    )
    found, _ = planned(in_process, file, "--executor", "slurm")
    assert "gone.jsonl" in str(found["fixed cuda"][0]) and "/gone/bin/python" in str(found["free cpu"][0])


def test_a_machine_that_is_assumed_comes_before_the_node(in_process: Call, file: Path) -> None:
    file.with_name("site.yaml").write_text(f"{SLURM}node: 4xH100\n", encoding="utf-8")
    found, _ = planned(in_process, file, "--assume", "8xH100")
    assert found == {"fixed cuda": [None, None, None], "free cuda": [None]}


def test_the_site_changes_no_id(in_process: Call, file: Path) -> None:
    def ids(*words: object) -> list[str]:
        document = json.loads(in_process("plan", file, "--scenario", "fixed", "--json", *words)[1])
        return [one["id"] for one in document["experiments"]]

    here = ids()
    assert ids("--executor", "slurm") == here
    content = f"{SLURM}partition: gpu\nnode: 8xH100\ntime: 30m\nprologue: module load x\nprice: 3\n"
    file.with_name("site.yaml").write_text(content, encoding="utf-8")
    assert ids() == here


@pytest.mark.parametrize(
    ("option", "in_suite", "in_site", "slurm"),
    [
        (None, None, None, False),
        (None, None, "slurm", True),
        (None, "local", "slurm", False),
        (None, "slurm", None, True),
        ("local", "slurm", "slurm", False),
        ("slurm", "local", "local", True),
    ],
)
def test_the_option_comes_first_then_the_scenario_file_then_the_site_file(
    in_process: Call, file: Path, option: str | None, in_suite: str | None, in_site: str | None, slurm: bool
) -> None:
    if in_suite:
        file.write_text(f"executor: {in_suite}\n{SCENARIOS}", encoding="utf-8")
    file.with_name("site.yaml").write_text(f"node: 4xH100\n{f'executor: {in_site}' if in_site else ''}\n")
    words = ("--executor", option) if option else ()
    found, _ = planned(in_process, file, *words)
    assert ("in a node" in str(found["fixed cuda"][2])) is slurm


def test_an_unknown_executor_of_the_site_file_has_its_place(in_process: Call, file: Path) -> None:
    file.with_name("site.yaml").write_text("price: 1\nexecutor: sluurm\n", encoding="utf-8")
    for command in ("plan", "run"):
        code, _, err = in_process(command, file)
        assert (code, err) == (
            2,
            f"error: {file.with_name('site.yaml')}:2:1: unknown executor 'sluurm'; did you mean 'slurm'? Allowed: local, slurm\n",
        )


def test_a_site_file_of_another_program_matters_only_if_a_site_is_asked_for(in_process: Call, file: Path) -> None:
    file.with_name("site.yaml").write_text("- hosts: all\n", encoding="utf-8")
    assert in_process("plan", file)[0] == 0
    assert in_process("plan", file, "--executor", "local")[0] == 0
    code, _, err = in_process("plan", file, "--executor", "slurm")
    assert code == 2 and "the file contains a list; write a mapping with these keys: executor, partition" in err


def test_mistakes_in_the_site_file_are_told_before_anything_else(in_process: Call, file: Path) -> None:
    file.with_name("site.yaml").write_text(f"{SLURM}time: soon\nnode: 4x\n", encoding="utf-8")
    code, out, err = in_process("plan", file)
    assert (code, out, len(err.splitlines())) == (2, "", 2)
    assert in_process("plan", file, "--executor", "local")[0] == 0, "it is not read"


def test_fit_only_needs_the_gpus_of_a_node(in_process: Call, file: Path) -> None:
    code, _, err = in_process("plan", file, "--executor", "slurm", "--fit-only")
    assert code == 2 and err.startswith("error: --fit-only needs the GPUs of a node; write them into the site file")
    file.with_name("site.yaml").write_text(f"{SLURM}node: 4x1GiB\n", encoding="utf-8")
    assert in_process("plan", file, "--fit-only")[0] == 0


def test_a_plan_says_which_arrays_would_be_submitted(in_process: Call, file: Path) -> None:
    site = file.with_name("site.yaml")
    site.write_text(f"{SLURM}node: 4xH100\npilot: 2\n", encoding="utf-8")
    lines = [line for line in in_process("plan", file, "--repeats", "3")[1].splitlines() if line.startswith("array:")]
    assert lines == [
        "array: 3 runs with 1 GPU, in 2 allocations of up to 2 runs, the partition's time limit",
        "array: 3 runs with 4 GPUs, in 2 allocations of up to 2 runs, the partition's time limit",
        "array: 3 runs with 2 GPUs, in 2 allocations of up to 2 runs, the partition's time limit",
    ]
    not_asked = "note: a plan does not ask the cluster, so "
    cure = "`tunebench site check` compares the site file with the cluster"
    assert f"{not_asked}its default partition and your account are not checked; {cure}" in in_process("plan", file)[1]
    site.write_text(f"{SLURM}node: 4xH100\ntime: 2h\n", encoding="utf-8")
    code, out, _ = in_process("run", file, "--dry-run", "--scenario", "free")
    assert f"{not_asked}`time:` is not checked; {cure}" in out
    assert (
        code == 0
        and "array: 1 run with 2 GPUs, in 1 allocation, time limit 02:00:00, at most 4 GPU-hours" in out.splitlines()
    )
    assert "array:" not in in_process("plan", file, "--executor", "local")[1]


def test_a_dry_run_counts_only_what_is_due_and_packs_short_runs_together(
    in_process: Call, file: Path, tmp_path: Path
) -> None:
    file.with_name("site.yaml").write_text(f"{SLURM}node: 4xH100\n", encoding="utf-8")
    planned = expand(load_suite(file), Selection(), assumed_machine("4xH100")).experiments
    one_gpu = replace(planned[0], repeats=5)
    stored(tmp_path / "results", (one_gpu, [ended(one_gpu, 1)]))
    words = ("--dry-run", "--scenario", "fixed", "--num-gpus", "1", "--repeats", "5", "--results", tmp_path / "results")
    out = in_process("run", file, *words)[1]
    line = (
        "array: 4 runs with 1 GPU, in 1 allocation of up to 4 runs, the partition's time limit, about 0.0139 GPU-hours"
    )
    assert line in out.splitlines()
    file.with_name("site.yaml").write_text(f"{SLURM}node: 4xH100\nprice: 2.40 USD/GPUh\n", encoding="utf-8")
    assert f"{line}, which cost 0.0333 USD" in in_process("run", file, *words)[1].splitlines()
    assert "max_pending" not in out
    file.with_name("site.yaml").write_text(f"{SLURM}node: 4xH100\nmax_pending: 2h\n", encoding="utf-8")
    waiting = "max_pending: a job that Slurm holds for a reason that stays is cancelled after 02:00:00"
    assert waiting in in_process("run", file, *words)[1].splitlines()


def test_the_commands_of_a_plan_end_with_the_batch_scripts(in_process: Call, file: Path, golden: Golden) -> None:
    content = """\
executor: slurm
partition: gpu,long
account: team
constraint: a100|h100
time: 90
node: 4xH100
gpu_type: h100
cpus_per_gpu: 8
mem_per_gpu: 64G
lines: [--exclusive, --mail-type END]
prologue: |
  module load cuda
  export API_TOKEN=Tr0ub4dor-and-3xtra
scratch: /scratch/$USER
throttle: 12
"""
    file.with_name("site.yaml").write_text(content, encoding="utf-8")
    code, out, err = in_process("plan", file, "--commands", "--repeats", "2")
    assert (code, err) == (0, "")
    scripts = out[out.index("\n# array:") :]
    golden("slurm/plan-scripts.txt", scripts.replace(shlex.join(RUN_ARRAY), "tunebench run-array"))
    assert "Tr0ub4dor" not in out

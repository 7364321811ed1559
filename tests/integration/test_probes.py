"""What is found out before a campaign, by the command: what fits, what runs at once cost, and the largest batch.

One campaign of real trainings, of which one can't fit, and a fake trainer that fits up to a batch.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.machine import cores
from orchestrator.results.contents import StoredExperiment
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--yes")
BATCH = "per_device_train_batch_size"
FITS_UP_TO = """\
import json, sys
if int(sys.argv[1]) > 13:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
print(json.dumps({"train_runtime": 1.0}))
"""


def call(
    folder: Path, scenarios: object, *words: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    (folder / "scenarios.yaml").write_text(json.dumps(scenarios))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TUNEBENCH_CACHE": str(folder / "cache")}
    argv = [*before, *RUN, *words]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=500)


def test_the_largest_batch_is_found_and_each_probe_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(FITS_UP_TO)
    custom = {
        "command": ["{python}", "{scenario_dir}/trainer.py", "{per_device_train_batch_size}"],
        "launcher": "none",
        "metrics": {"train_runtime": {"key": "train_runtime"}},
    }
    scenario = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom}
    scenario["arguments"] = {"per_device_train_batch_size": 4}
    done = call(tmp_path, {"scenarios": [scenario]}, "--find", BATCH)
    assert done.returncode == 0, done.stderr
    assert "per_device_train_batch_size 13 fits, 14 does not" in done.stdout
    probes = Store.resume(tmp_path / "results" / "searches").contents().experiments
    tried = {one.experiment.arguments["per_device_train_batch_size"]: one.records[0].kind for one in probes}
    assert tried == {"4": None, "8": None, "16": "oom_cuda", "12": None, "14": "oom_cuda", "13": None}
    again = call(tmp_path, {"scenarios": [scenario]}, "--find-batch")
    assert again.stdout == done.stdout and "probe:" not in again.stderr, (
        "what was probed is known, by the older option, too"
    )
    told = call(tmp_path, {"scenarios": [scenario]}, "--find-batch", "--retry-failed", "--json-lines")
    assert done.stdout in told.stderr
    events = [json.loads(line) for line in told.stdout.splitlines()]
    ends = [(event["experiment"].rpartition(".")[2], event["kind"]) for event in events if event["event"] == "ended"]
    assert ends == [(f"{BATCH}16", "oom_cuda"), (f"{BATCH}14", "oom_cuda")], "a retry tries what did not fit again"
    assert {"axis": BATCH, "value": 13, "too_large": 14, "failure": None}.items() <= events[-1].items()
    assert events[-1]["event"] == "found" and f"{events[-1]['experiment']}: " in done.stdout


def test_the_search_ends_where_the_data_do(tmp_path: Path) -> None:
    """A batch that there are no rows for would fit anywhere."""
    scenario = {"name": "s", "device": "cpu"}
    arguments = {
        "model_name_or_path": "config:tiny-llama",
        "per_device_train_batch_size": 12,
        "max_seq_len": 32,
        "max_steps": 4,
    }
    data = {"dataset_name": "builtin:synthetic", "samples": 16}
    done = call(
        tmp_path, {"data_processing": data, "scenarios": [{**scenario, "arguments": arguments}]}, "--find-batch"
    )
    assert done.returncode == 0, done.stderr
    assert "per_device_train_batch_size 12 fits, and a larger one could not be tried (not_in_effect: " in done.stdout
    assert "per_device_train_batch_size should be 24 and is 16, all rows of the data" in done.stdout


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A campaign of real trainings, of which one can't fit, on two cores where there are two."""

    store: Store
    code: int
    said: str
    cores: int

    def of(self, vocabulary: int, *folders: str) -> StoredExperiment:
        (found,) = [
            one
            for one in Store.resume(self.store.root.joinpath(*folders)).contents().experiments
            if one.experiment.arguments["vocab_size"] == str(vocabulary)
        ]
        return found


SMALL, HUGE = 4096, 10**12


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Probed:
    folder = tmp_path_factory.mktemp("probed")
    physical = [core for node in cores.physical_cores().values() for core in node]
    two = ",".join(str(core[0]) for core in physical[:2])
    scenario = {
        "name": "s",
        "device": "cpu",
        "repeats": 2,
        "matrix": {"vocab_size": [SMALL, HUGE]},
        "arguments": {"model_name_or_path": "config:tiny-llama", "max_steps": 40, "max_seq_len": 64, "use_cpu": True},
    }
    data = {"dataset_name": "builtin:synthetic", "samples": 64}
    suite = {"data_processing": data, "scenarios": [scenario]}
    pinned = ("taskset", "--cpu-list", two) if len(physical) > 1 else ()
    done = call(folder, suite, "--probe", "--parallel", "auto", before=pinned)
    return Probed(
        store=Store.resume(folder / "results"), code=done.returncode, said=done.stderr, cores=min(2, len(physical))
    )


def test_what_does_not_fit_is_marked_by_its_probe_and_never_run(probed: Probed) -> None:
    assert probed.code == 1, probed.said
    small, huge = probed.of(SMALL), probed.of(HUGE)
    assert [record.status for record in small.records] == ["ok", "ok"], probed.said
    assert [(record.status, record.kind) for record in huge.records] == [("failed", "oom_host")] * 2, huge.records
    assert all("it did not fit in a probe of 2 steps" in (record.cause or "") for record in huge.records)
    assert not list(probed.store.root.glob(f"experiments/{huge.experiment.id}/runs/*/stdout.log"))
    assert [record.status for record in probed.of(SMALL, "probes").records] == ["ok"]


def test_what_packing_costs_is_measured_and_said(probed: Probed) -> None:
    if probed.cores < 2:
        pytest.skip("two cores are needed")
    if "could not be measured" in probed.said:  # no try of three found the machine at rest; see test_parallel_cost.py
        assert re.search(r"could not be measured: \S+: no steady-state speed: ", probed.said), probed.said
        return
    copies = [one.records[-1] for one in Store.resume(probed.store.root / "packing").contents().experiments]
    assert sorted(len(record.beside) for record in copies) == [0, 1, 1]
    measured = {len(record.beside): [] for record in copies}
    for record in copies:
        measured[len(record.beside)] += [one.value for one in record.measurements if one.name == "tokens_per_s"]
    said = re.search(
        r"2 runs at once: ([+-][\d.]+) % tokens/s for each run \(([\d,]+) concurrently, ([\d,]+) by itself", probed.said
    )
    assert said, probed.said
    packed, alone = (float(said[number].replace(",", "")) for number in (2, 3))
    assert (alone, packed) == pytest.approx((measured[0][0], sum(measured[1]) / 2), abs=1)
    # By the numbers as they are: whole tokens are too coarse for a tenth of a percent on a slow machine.
    assert float(said[1]) == pytest.approx((sum(measured[1]) / 2 / measured[0][0] - 1) * 100, abs=0.051)
    assert len(probed.store.contents().experiments) == 2

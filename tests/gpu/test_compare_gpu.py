"""On an NVIDIA GPU: a slowdown of 3 % a step, planted into a real training, is found; the same training against itself is not.

Two results folders in turns, four runs each, so that what drifts drifts for both. The slowdown keeps the GPU busy for 3 % of the
step time that the first run had: a pause of the host would be hidden by the queue of kernels before it. The batch is large for the
same reason: where the GPU waits for a slow host, a pause of the GPU is hidden in that wait.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import planted
import pytest
from campaigns import ROOT, tunebench

from orchestrator.machine.gpus import visible_gpus
from orchestrator.results.store import Store

RUNS = 4
SLOWDOWN = 0.03
PLANT = """\
import os

SECONDS = float(os.environ["PLANTED_SECONDS"])

def around(step):
    import torch
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    cycles = []

    def wrapped(*words, **more):
        if not cycles:  # how long a cycle takes is measured here, at today's clock
            torch.cuda._sleep(10**7)
            start.record(), torch.cuda._sleep(10**8), end.record()
            torch.cuda.synchronize()
            cycles.append(int(10**8 * SECONDS / (start.elapsed_time(end) / 1000)))
        found = step(*words, **more)
        torch.cuda._sleep(cycles[0])
        return found
    return wrapped
"""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not visible_gpus(), reason="no NVIDIA GPU"),
    pytest.mark.timeout(1200),
]


def write(folder: Path, name: str, **env: str) -> None:
    arguments = {
        "model_name_or_path": "config:llama-1b", "num_hidden_layers": 4, "dtype": "bfloat16", "bf16": True,
        "max_seq_len": 2048, "per_device_train_batch_size": 16, "max_steps": 40, "logging_steps": 40,
    }  # fmt: skip
    scenario = {"name": "step", "framework_config": ["baseline"], "arguments": arguments, "env": env}
    data = {"dataset_name": "builtin:synthetic", "samples": 256}
    (folder / f"{name}.yaml").write_text(json.dumps({"data_processing": data, "scenarios": [scenario]}))


def step_time_s(results: Path) -> float:
    (stored,) = Store.resume(results).contents().experiments
    value = {one.name: one.value for one in stored.records[0].measurements}["step_time_s"]
    assert isinstance(value, float)
    return value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    planted.around_steps(folder / "site", PLANT)
    path = os.pathsep.join([str(folder / "site"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    write(folder, "base")
    for runs in range(1, RUNS + 1):
        for name in ("base", "slower"):
            if name == "slower" and runs == 1:
                write(folder, name, PYTHONPATH=path, PLANTED_SECONDS=str(SLOWDOWN * step_time_s(folder / "base")))
            ended = tunebench(folder, "run", f"{name}.yaml", "--results", name, "--repeats", str(runs), "--yes")
            assert ended.code == 0, ended.err
    return folder


def rows(folder: Path, exit_codes: tuple[int, ...], *words: str) -> dict[str, Any]:
    """Return the comparison's rows by metric, and print its table."""
    print(tunebench(folder, "compare", *words, COLUMNS="160").out)
    compared = tunebench(folder, "compare", *words, "--format", "json")
    assert compared.code in exit_codes, compared.said
    return {row["metric"]: row for row in json.loads(compared.out)["rows"]}


def test_a_slowdown_of_three_per_cent_is_found(folder: Path) -> None:
    step_time = rows(folder, (1,), "base", "slower")["step_time_s"]
    assert step_time["verdict"] == "regressed"
    assert step_time["ratio"]["value"] == pytest.approx(1 + SLOWDOWN, abs=0.01)


def test_the_same_against_itself_is_not(folder: Path) -> None:
    """Odd repeats against even ones: at worst not yet certain."""
    found = rows(folder, (0, 3), "--aa", "base")
    assert not {"improved", "regressed"} & {row["verdict"] for row in found.values()}
    assert found["step_time_s"]["ratio"]["value"] == pytest.approx(1, abs=0.01)

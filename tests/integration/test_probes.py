"""`--probe` and `--find-batch` by the command: a training that can't fit, and a fake one that fits up to a batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from orchestrator.store import Store

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--yes")
FITS_UP_TO = """\
import json, sys
if int(sys.argv[1]) > 13:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
print(json.dumps({"train_runtime": 1.0}))
"""


def call(folder: Path, scenarios: object, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "scenarios.yaml").write_text(json.dumps(scenarios))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TUNEBENCH_CACHE": str(folder / "cache")}
    return subprocess.run([*RUN, *words], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)


def test_the_largest_batch_is_found_and_each_probe_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(FITS_UP_TO)
    custom = {
        "command": ["{python}", "{scenario_dir}/trainer.py", "{per_device_train_batch_size}"],
        "launcher": "none",
        "metrics": {"train_runtime": {"key": "train_runtime"}},
    }
    scenario = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom}
    scenario["arguments"] = {"per_device_train_batch_size": 4}
    done = call(tmp_path, {"scenarios": [scenario]}, "--find-batch")
    assert done.returncode == 0, done.stderr
    assert "per_device_train_batch_size 13 fits, 14 does not" in done.stdout
    probes = Store.resume(tmp_path / "results" / "batches").contents().experiments
    tried = {one.experiment.arguments["per_device_train_batch_size"]: one.records[0].kind for one in probes}
    assert tried == {"4": None, "8": None, "16": "oom_cuda", "12": None, "14": "oom_cuda", "13": None}
    again = call(tmp_path, {"scenarios": [scenario]}, "--find-batch")
    assert again.stdout == done.stdout and "probe:" not in again.stderr, "what was probed is known"


def test_what_does_not_fit_is_marked_by_its_probe_and_never_run(tmp_path: Path) -> None:
    scenario = {
        "name": "huge",
        "device": "cpu",
        "repeats": 2,
        "matrix": {"vocab_size": [4096, 10**12]},
        "arguments": {"model_name_or_path": "config:tiny-llama", "max_steps": 6, "max_seq_len": 32, "use_cpu": True},
    }
    data = {"dataset_name": "builtin:synthetic", "samples": 16}
    done = call(tmp_path, {"data_processing": data, "scenarios": [scenario]}, "--probe")
    assert done.returncode == 1, done.stderr
    stored = {
        one.experiment.arguments["vocab_size"]: one for one in Store.resume(tmp_path / "results").contents().experiments
    }
    small, huge = stored["4096"], stored[str(10**12)]
    assert [record.status for record in small.records] == ["ok", "ok"], done.stderr
    assert [(record.status, record.kind) for record in huge.records] == [("failed", "oom_host")] * 2, huge.records
    assert all("it did not fit in a probe of 2 steps" in (record.cause or "") for record in huge.records)
    assert not list((tmp_path / "results/experiments").glob(f"{huge.experiment.id}/runs/*/stdout.log"))
    probes = {
        one.experiment.id: one.records for one in Store.resume(tmp_path / "results/probes").contents().experiments
    }
    assert [record.status for record in probes[small.experiment.id]] == ["ok"]

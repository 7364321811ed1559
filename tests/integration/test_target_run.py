"""A real training with a target, by the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--yes")


def test_a_real_training_reaches_a_loss_that_it_has_from_the_start(tmp_path: Path) -> None:
    """The loss of random weights is about ln(4096), so ten losses are enough."""
    arguments = {"model_name_or_path": "config:tiny-llama", "max_steps": 12, "max_seq_len": 32, "logging_steps": 1}
    arguments["per_device_train_batch_size"] = 4
    scenario = {"name": "s", "device": "cpu", "repeats": 2, "target": {"loss": 9}, "arguments": arguments}
    data = {"dataset_name": "builtin:synthetic", "samples": 64}
    (tmp_path / "scenarios.yaml").write_text(json.dumps({"data_processing": data, "scenarios": [scenario]}))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TUNEBENCH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(RUN, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (stored,) = Store.resume(tmp_path / "results").contents().experiments
    losses = set()
    for record in stored.records:
        found = {number.name: number.value for number in record.measurements}
        assert (found["steps_to_target"], found["tokens_to_target"], found["steps"]) == (10, 10 * 4 * 32, 12)
        assert 0 < float(found["time_to_target_s"] or 0) < float(found["train_runtime"] or 0)
        losses.add(found["logged_losses"])
    assert len(losses) == 2, "each repeat had its own seed"
    assert "steps_to_target" in (tmp_path / "results" / "benchmarks.csv").read_text()

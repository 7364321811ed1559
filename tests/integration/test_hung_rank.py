"""A real training of two ranks of which one hangs in mid-step: it is ended, its stacks are saved, nobody is left."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
from campaigns import tunebench

from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
HANGS = """\
import ctypes, os, threading, time

def hang_in_mid_step():
    steps = os.path.join(os.environ.get("TUNEBENCH_RUN_DIR", ""), "steps-rank1.jsonl")
    while not os.path.exists(steps) or open(steps).read().count('"s"') < 3:
        time.sleep(0.01)
    ctypes.PyDLL(None).sleep(600)  # holds the interpreter's lock, as a library that hangs may do

if os.environ.get("RANK") == "1":
    threading.Thread(target=hang_in_mid_step, daemon=True).start()
"""


def test_a_hung_rank_is_ended_and_its_stacks_are_saved(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(HANGS)
    scenario = {
        "name": "hangs",
        "device": "cpu",
        "num_gpus": 2,
        "stall_timeout_s": 6,
        "startup_timeout_s": 120,
        "env": {"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"},
        "arguments": {"model_name_or_path": "config:tiny-llama", "max_steps": 2000, "max_seq_len": 32},
    }
    data = {"dataset_name": "builtin:synthetic", "samples": 64}
    (tmp_path / "scenarios.yaml").write_text(json.dumps({"data_processing": data, "scenarios": [scenario]}))
    done = tunebench(tmp_path, "run", "scenarios.yaml", "--yes")
    assert done.code == 1, done.err
    (stored,) = Store.resume(done.results).contents().experiments
    (run,) = stored.runs
    assert run.record is not None and (run.record.status, run.record.kind) == ("stalled", "stalled"), run.record
    assert "made no step any more" in (run.record.cause or "")
    stacks = (run.job.run_dir / "stacks.txt").read_text()
    assert "hang_in_mid_step" in stacks, stacks
    # Where in its step the other thread stood is chance; that it stood in the training's loop is not.
    assert stacks.count("_inner_training_loop") == 2, stacks
    left = [one.pid for one in psutil.process_iter() if str(tmp_path) in " ".join(_words(one))]
    assert left == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []

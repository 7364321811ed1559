"""A program writes the rank file of the instrument itself, with values of other types. Its run has a record that can be read."""

from __future__ import annotations

import json
from pathlib import Path

from campaigns import tunebench

PROGRAM = """
import json, sys, time
case, folder = sys.argv[1:]
now = time.time()
stamps = {"process_start": now - 3, "imports_done": now - 2, "train_begin": now - 2, "train_end": now}
tokens = dict.fromkeys(("processed", "real", "labelled", "samples", "squares"), 20000) | {"steps": 20, "micro": 20}
rank = {
    **{"schema": 2, "rank": 0, "world_size": 1, "status": "ok", "clock": "host", "stamps": stamps, "tokens": tokens},
    **{"metrics": {"train_runtime": 2.0}, "memory": {}, "settings": {}, "instrument": "on"},
    "peak": {"allocated_bytes": None, "reserved_bytes": None, "rss_bytes": 1000000},
}
if case == "peak":
    rank["peak"]["reserved_bytes"] = [1]
elif case == "config":
    rank["settings"] = {"max_seq_len": 10**30, "architecture": {"kv_heads": [1, 2], "window": "none", "layers": -1}}
elif case != "fine":
    rank[case] = 5
json.dump(rank, open(folder + "/worker-rank0.json", "w"))
with open(folder + "/steps-rank0.jsonl", "w") as file:
    for at in range(1, 21):
        counts = dict.fromkeys(("tokens", "real", "labelled", "samples", "squares"), 1000)
        times = {"t": now - 2.2 + 0.1 * at, "s": 0.1, "wait_s": 0.0, "compute_s": 0.1}
        print(json.dumps({"step": at, "micro": 1, **counts, **times}), file=file)
print(json.dumps({"loss": 2.0}))
"""
CASES = ("fine", "config", "peak", "versions", "settings", "stamps")


def test_a_wrong_rank_file_is_not_replaced_by_reported_steps(tmp_path: Path) -> None:
    program = PROGRAM.replace("print(json.dumps({", "print(json.dumps({'step': 1, 'seconds': 0.1, ")
    (tmp_path / "program.py").write_text(program)
    command = "['{python}', '{scenario_dir}/program.py', '{case}', '{run_dir}']"
    (tmp_path / "s.yaml").write_text(
        "scenarios:\n- {name: odd, trainer: custom, device: cpu, steps: stdout, matrix: {case: [peak]}, "
        f"custom: {{command: {command}, launcher: none}}}}\n"
    )
    ((record,),) = tunebench(tmp_path, "run", "s.yaml", "--yes").records().values()
    assert record.status.value == "invalid" and record.cause is not None and "peak.reserved_bytes" in record.cause


def test_a_rank_file_of_other_types_costs_no_record(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    scenario = {
        **{"name": "odd", "trainer": "custom", "device": "cpu", "repeats": 1, "matrix": {"case": [*CASES]}},
        "custom": {
            "command": ["{python}", "{scenario_dir}/program.py", "{case}", "{run_dir}"],
            "launcher": "none",
            "metrics": {"train_loss": {"key": "loss"}},
        },
    }
    (tmp_path / "s.yaml").write_text(json.dumps({"scenarios": [scenario]}))
    done = tunebench(tmp_path, "run", "s.yaml", "--yes")
    records = {record.experiment_id: record for (record,) in done.records().values()}
    assert len(records) == len(CASES), done.said
    assert "cannot be read" not in done.said and "lost" not in done.said
    causes = [record.cause for record in records.values() if record.status.value == "invalid"]
    said = {
        "peak": "peak.reserved_bytes: Input should be a valid number",
        "versions": "versions: Input should be an object",
        "settings": "settings: Input should be an object",
        "stamps": "stamps: Input should be an object",
    }
    assert sorted(map(str, causes)) == sorted(f"worker-rank0.json has a wrong value: {text}" for text in said.values())
    assert [record.status.value for record in records.values()].count("ok") == 2, "a model's config may have any values"

"""A run of the trainer `thunder`. A stand-in for the benchmark prints the lines of the real one, and writes its JSON file."""

from __future__ import annotations

from pathlib import Path

from factories.results import experiment
from test_reported_steps import carried_out, values

from orchestrator.records import Device, Measure, Status, StepSource

GOLDEN = Path(__file__).parents[1] / "golden" / "thunder"
STAND_IN = """
import sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert given["--model_name"] == "llama2-like" and given["--return_metrics_as_json"] == "true", given
print("Loading model with {'name': 'llama2-like'}")
for at in range(int(given["--max_iters"])):
    took_ms = 300 if at == 0 else 20 + at % 3 / 10
    time.sleep(took_ms / 1000)
    print(f"iter {at}: loss 4.6875, iter time: {took_ms:.2f}ms, t: 128")
with open(given["--json_path"], "w") as file:
    file.write(open(given["--block_size"]).read())
"""


# Thunder's functions of the same names, without nvFuser.
EXECUTORS = """
class Executor:
    def __init__(self, name): self.name = name
def get_default_executors(): return (Executor("sdpa"), Executor("torchcompile_xentropy"))
def get_all_executors(): return (Executor("python"), *get_default_executors())
"""


def test_a_run_of_the_benchmark_has_a_first_step_and_a_steady_speed(tmp_path: Path) -> None:
    package = tmp_path / "modules" / "thunder" / "benchmarks"
    package.mkdir(parents=True)
    (package / "benchmark_litgpt.py").write_text(STAND_IN)
    (package.parent / "__init__.py").write_text(EXECUTORS)
    one = experiment(
        trainer="thunder",
        model="llama2-like",
        device=Device.CPU,  # the plan refuses this, and the stand-in does not mind
        arguments={"model_name_or_path": "llama2-like", "max_iters": "40", "block_size": str(GOLDEN / "thunder.json")},
        env={"PYTHONPATH": str(tmp_path / "modules")},
        steps=StepSource.STDOUT,
        measure=Measure(discard_steps=1),
    )
    run_dir, record = carried_out(tmp_path, one)
    assert record.status is Status.OK, record.tail
    found = values(record)
    assert (found["steps"], found["discarded_steps"], found["first_step_s"]) == (40, 1, 0.3)
    assert found["step_time_s"] == 0.0201
    assert 128 / 0.0202 < found["tokens_per_s"] < 128 / 0.02
    assert (found["reported_tokens_per_s"], found["saved_for_backward_bytes"]) == (45.50389973397316, 7179776)
    assert found["thunder_executors"] == "sdpa, torchcompile_xentropy"
    assert (run_dir / "thunder.json").exists()

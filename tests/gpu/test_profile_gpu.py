"""The monitors `torch_profiler` and `memory_snapshot` on a GPU: the slow kernel is named first, and the peak is torch's."""

from __future__ import annotations

import pytest
from campaigns import Campaign, tunebench

from orchestrator.machine.gpus import visible_gpus
from orchestrator.report.profile.memory import BEFORE, read
from orchestrator.report.profile.trace import read as read_trace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not visible_gpus(), reason="no NVIDIA GPU"),
    pytest.mark.timeout(600),
]

SCENARIOS = """\
data_processing: {dataset_name: builtin:synthetic, samples: 128}
scenarios:
- &sdpa
  name: sdpa
  monitors: [hf_memory, torch_profiler, memory_snapshot]
  arguments: &arguments
    attn_implementation: sdpa
    model_name_or_path: config:llama-1b
    num_hidden_layers: 4
    dtype: bfloat16
    bf16: true
    max_seq_len: 2048
    per_device_train_batch_size: 4
    max_steps: 20
    logging_steps: 5
- <<: *sdpa
  name: eager
  arguments: {<<: *arguments, attn_implementation: eager}
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    done = tunebench(folder, "run", "scenarios.yaml")
    print(done.said)
    assert done.code == 0, done.said
    return done


def test_the_difference_of_two_traces_is_in_kernels(profiled: Campaign) -> None:
    trace = read_trace(profiled.run_dir("sdpa") / "profile/rank0.json.gz")
    assert trace.steps == 3 and trace.busy_s is not None and 0.5 * trace.step_s < trace.busy_s <= trace.step_s
    said = tunebench(profiled.folder, "profile", "sdpa", "eager")
    print(said.out)
    assert said.code == 0, said.said
    assert "softmax" in said.out.splitlines()[-1].lower() or "elementwise" in said.out.splitlines()[-1].lower()


def test_the_memory_at_the_peak_is_what_torch_says(profiled: Campaign) -> None:
    found = read(profiled.run_dir("eager") / "profile/rank0-memory.pickle")
    said = tunebench(profiled.folder, "profile", "eager", "--snapshot")
    print(said.out)
    assert found.peak_bytes == sum(held.bytes for held in found.held.values())
    assert found.held[BEFORE].bytes > 4 * 2**27, "the weights and the optimizer's state"
    peaks = [float(row["peak_allocated_steady_bytes"]) for row in profiled.rows() if "eager" in row["id"]]
    assert found.peak_bytes == pytest.approx(peaks[0], rel=0.02)
    assert "modeling_llama.py" in said.out

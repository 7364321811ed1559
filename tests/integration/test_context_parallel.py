"""Context parallelism on CPUs: two groups of two ranks. The ranks of a group get the same batch and cut its rows in the step.

Everything but the attention is as on GPUs: accelerate's mesh and data loader, the Trainer's preparation of a batch, torch's cut.
accelerate refuses this mesh on CPUs, and torch has no attention over ranks for CPUs. So the refusal is taken out, and attention is
eager: a rank sees only its own part of a row. The losses mean nothing. The counts do.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from counted_trainings import by_step, counts, steps, trained
from trainings import Run

from orchestrator.measure import throughput
from orchestrator.measure.rank_files import worker_files
from orchestrator.measure.steps import read, together
from orchestrator.trainers import instrumented

RANKS, SIZE = 4, 2
GROUPS = RANKS // SIZE
ON_CPUS = """
from accelerate import ParallelismConfig
ParallelismConfig._validate_accelerator = lambda *_: None
build = sft.build_trainer

def build_trainer(argv):
    trainer = build(argv)
    embedding = trainer.model.get_input_embeddings()
    embedding.register_forward_hook(lambda _, given, __: print(given[0].numel(), file=computed, flush=True))
    return trainer

sft.build_trainer = build_trainer
computed = open(f"{os.environ['TUNEBENCH_RUN_DIR']}/computed-{os.environ['RANK']}.txt", "w")
"""
MESH = {
    "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
    "PARALLELISM_CONFIG_CP_SIZE": str(SIZE),
    "PARALLELISM_CONFIG_DP_SHARD_SIZE": str(GROUPS),
}
STEPS = 4
VARIANT = {"cut": ["--max_steps", str(STEPS), "--attn_implementation", "eager", "--gradient_accumulation_steps", "2"]}


@pytest.fixture(scope="module")
def run(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("cut"), prepared, RANKS, VARIANT, before=ON_CPUS, **MESH)


def test_each_rank_counts_the_whole_batch_of_its_group(run: Run) -> None:
    given = [by_step(run, "cut", rank, 2)[:STEPS] for rank in range(RANKS)]
    assert given[0] == given[1] != given[2] == given[3]
    assert [counts(steps(run, "cut", rank)) for rank in range(RANKS)] == given
    assert all(step["tokens"] % (2 * SIZE) == 0 for step in given[0]), "torch would refuse to cut such rows"
    assert any(step["real"] < step["tokens"] for step in given[0])


def test_the_run_has_as_many_tokens_as_its_ranks_computed(run: Run) -> None:
    """Each rank computes a part of the batch; the parts of all ranks are the tokens that the run reports."""
    parts = [list(map(int, (run.folder / f"computed-{rank}.txt").read_text().split())) for rank in range(RANKS)]
    assert parts[0] == parts[1] and parts[2] == parts[3]
    found = {one.name: one.value for one in instrumented.measurements(run.folder)}
    assert found["tokens_processed"] == sum(map(sum, parts)) == sum(map(sum, parts[::SIZE])) * SIZE
    joint = together(read(run.folder), ranks_per_batch=SIZE)
    assert sum(step.tokens or 0 for step in joint) == found["tokens_processed"]
    assert throughput.read(run.folder, worker_files(run.folder), world_size=RANKS).contradiction is None


def test_the_settings_say_how_many_ranks_have_a_batch_of_their_own(run: Run) -> None:
    for rank in range(RANKS):
        settings = run.worker(rank)["settings"]
        assert (settings["world_size"], settings["data_parallel_ranks"]) == (RANKS, GROUPS)
        assert settings["global_batch"] == 2 * 2 * GROUPS
    assert json.loads((run.folder / "expected-cut-0.json").read_text())[0]["samples"] == 2

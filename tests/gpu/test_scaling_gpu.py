"""examples/scaling.yaml on 1, 2 and 4 GPUs, replicas (DDP) and shards (FSDP 2): the rows of ranks and GPUs add up to the table's.

Every row of the example's data is as long as the longest allowed, so that what each rank must have counted is known without
counting. What needs more GPUs than there are is left out.
"""

from __future__ import annotations

import pandas as pd
import pytest
from campaigns import ROOT, Campaign, tunebench

from orchestrator.machine.gpus import visible_gpus
from orchestrator.results.table.load import ResultsTable, load

GPUS = visible_gpus()
STEPS, ROWS, LENGTH = 40, 8, 2048

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(GPUS) < 2, reason="fewer than two NVIDIA GPUs"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, ResultsTable]:
    folder = tmp_path_factory.mktemp("scaling")
    done = tunebench(folder, "run", str(ROOT / "examples/scaling.yaml"), "--set", f"arguments.max_steps={STEPS}")
    print(done.out)
    found = load([done.results])
    assert done.code == 0, (done.err, found.warnings)
    return done, found


@pytest.fixture(scope="module")
def table(campaign: tuple[Campaign, ResultsTable]) -> ResultsTable:
    return campaign[1]


def rows(table: ResultsTable) -> list[pd.Series]:
    frame = table.experiments
    return [row for _, row in frame[frame["status"] == "ok"].iterrows()]


def of(row: pd.Series, parts: pd.DataFrame) -> pd.DataFrame:
    return parts[parts["id"] == row["id"]]


def test_all_that_there_are_gpus_for_was_run(table: ResultsTable) -> None:
    wanted = [("replicas", 1), ("replicas", 2), ("replicas", 4), ("shards", 2), ("shards", 4)]
    ran = sorted((row["scenario"], row["num_gpus"]) for row in rows(table))
    assert ran == [one for one in wanted if one[1] <= len(GPUS)]


def test_two_gpus_are_wrapped_as_asked_and_learn_the_same(campaign: tuple[Campaign, ResultsTable]) -> None:
    replicas, shards = (campaign[0].record(f"{kind}.gpus2") for kind in ("baseline", "fsdp"))
    assert replicas.settings["world_size"] == shards.settings["world_size"] == 2
    assert (replicas.settings["distributed_type"], shards.settings["distributed_type"]) == ("MULTI_GPU", "FSDP")
    assert "DistributedDataParallel" in replicas.settings["wrapper_classes"]
    assert replicas.settings["total_parameters"] == shards.settings["total_parameters"]
    losses = [{one.name: one.value for one in record.measurements}["train_loss"] for record in (replicas, shards)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_each_rank_counted_its_share_of_the_data(table: ResultsTable) -> None:
    for row in rows(table):
        gpus, ranks = row["num_gpus"], of(row, table.ranks)
        assert list(ranks["rank"]) == list(range(gpus)) and ranks["gpu"].nunique() == gpus
        for column in ("tokens_processed", "real_tokens", "labelled_tokens"):
            assert list(ranks[column]) == [STEPS * ROWS * LENGTH] * gpus, (row["id"], column)
        assert list(ranks["samples_processed"]) == [STEPS * ROWS] * gpus
        assert row["tokens_processed"] == ranks["tokens_processed"].sum()
        assert row["samples_processed"] == ranks["samples_processed"].sum()
        assert row["steps"] == STEPS and set(ranks["steps"]) == {STEPS}


def test_what_the_ranks_say_adds_up_to_the_table(table: ResultsTable) -> None:
    """Their rates are shares of the time that all took together; memory is the highest rank's."""
    for row in rows(table):
        ranks = of(row, table.ranks)
        for column in ("tokens_per_s", "real_tokens_per_s"):
            assert row[column] == pytest.approx(ranks[column].sum(), rel=1e-9)
        for column in ("peak_allocated_bytes", "peak_reserved_bytes"):
            assert row[column] == ranks[column].max()
        assert row["real_tokens_per_s"] == row["tokens_per_s"]
        assert row["tokens_per_s"] == pytest.approx(row["num_gpus"] * row["tokens_per_s_per_gpu"])


def test_what_the_gpus_say_adds_up_to_the_table(table: ResultsTable) -> None:
    for row in rows(table):
        devices = of(row, table.devices)
        assert set(devices["gpu"]) == set(of(row, table.ranks)["gpu"])
        assert row["energy_j"] == pytest.approx(devices["energy_j"].sum())
        assert row["energy_j"] == pytest.approx(row["integrated_energy_j"], rel=0.05)
        assert row["device_peak_used_bytes"] == devices["device_peak_used_bytes"].max()

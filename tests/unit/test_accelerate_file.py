"""The check of accelerate's configuration files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from factories.cases import cases, text

from orchestrator.plan.command.parallelism import REPLICAS, SHARDS
from orchestrator.plan.config.accelerate_file import FSDP, OVERRIDDEN, PARALLELISM, TOP, check

ROOT = Path(__file__).resolve().parents[2]

WRITTEN_BY_ACCELERATE = text("scenarios/accelerate-config.yaml")


def test_a_file_as_people_have_it_is_right() -> None:
    assert check(yaml.safe_load(WRITTEN_BY_ACCELERATE)) == []
    assert check({}) == []


@pytest.mark.parametrize("file", [ROOT / "accelerate.yaml", *sorted((ROOT / "frameworks").glob("*.yaml"))], ids=str)
def test_our_own_files_are_right(file: Path) -> None:
    content = yaml.safe_load(file.read_text())
    assert check(content if file.parent == ROOT else content.get("accelerate", {})) == []


@pytest.mark.parametrize(("content", "path", "part"), cases("accelerate_file/a_mistake_has_its_place_and_its_cure"))
def test_a_mistake_has_its_place_and_its_cure(content: dict[str, Any], path: list[str], part: str) -> None:
    [(where, message)] = check(content)
    assert where == tuple(path)
    assert part in message


def test_the_table_holds_accelerate_s_own_keys() -> None:
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    launch = pytest.importorskip("accelerate.commands.launch")
    theirs = set(config_args.ClusterConfig.__dataclass_fields__)
    assert set(TOP) - {"dynamo_backend", "tpu_env"} <= theirs
    assert theirs >= OVERRIDDEN
    flags = {action.dest for action in launch.launch_command_parser()._actions if action.dest.startswith("fsdp_")}
    assert flags <= set(FSDP)
    sizes = {action.dest for action in launch.launch_command_parser()._actions if action.dest.endswith("p_size")}
    assert sizes | {REPLICAS, SHARDS, "parallelism_config_cp_comm_strategy"} == set(PARALLELISM)
    context = {"parallelism_config_cp_size": 4, "parallelism_config_cp_comm_strategy": "alltoall"}
    assert check({"parallelism_config": context}) == []

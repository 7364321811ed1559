"""The check of accelerate's configuration files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from factories.cases import cases

from orchestrator.plan.config.accelerate_file import FSDP, OVERRIDDEN, TOP, check

ROOT = Path(__file__).resolve().parents[2]

WRITTEN_BY_ACCELERATE = """
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config: {}
distributed_type: FSDP
downcast_bf16: 'no'
dynamo_config: {}
command_file: null
commands: null
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: 1
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_use_orig_params: true
gpu_ids: 0,1
machine_rank: 0
main_process_ip: null
main_process_port: 29500
main_training_function: main
mixed_precision: no
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""


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

"""Command lines and generated accelerate configurations: goldens, and the rules behind them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import results

from orchestrator.errors import SelectionError
from orchestrator.plan import command as launcher
from orchestrator.plan.command import parallelism
from orchestrator.plan.command.parallelism import CONTEXT, REPLICAS
from orchestrator.plan.config.accelerate_file import merged
from orchestrator.records import Command, CustomCommand, Device, Experiment, Framework, Measure, Script, StepSource
from orchestrator.trainers.instrumented import FILE_NAME, single_file

ROOT = Path(__file__).resolve().parents[2]
FSDP = {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": True}}


HSDP = yaml.safe_load((ROOT / "frameworks" / "hsdp.yaml").read_text())["accelerate"]
SHARED = yaml.safe_load((ROOT / "frameworks" / "context-parallel.yaml").read_text())["accelerate"]
BOTH = merged(HSDP, SHARED)
ZERO = yaml.safe_load((ROOT / "frameworks" / "zero3.yaml").read_text())["accelerate"]
WRITTEN_ZERO = merged(ZERO, {"deepspeed_config": {"gradient_accumulation_steps": 4, "gradient_clipping": 1.0}})


def experiment(**changes: Any) -> Experiment:
    plain: dict[str, Any] = {
        "model": "config:tiny-llama",
        "device": Device.CUDA,
        "arguments": {
            "model_name_or_path": "config:tiny-llama",
            "learning_rate": "2e-5",
            "target_modules": ("q_proj", "v_proj"),
            "response_template": "\n### Response:",
            "weight_decay": "-0.1",
            "gradient_checkpointing": "True",
        },
        "accelerate": {"distributed_type": "MULTI_GPU", "mixed_precision": False, "main_process_ip": None},
        "data_path": "/cache/data/docs-1",
    }
    return results.experiment("tag", **{**plain, **changes})


def build(one: Experiment, **changes: Any) -> Command:
    plain: dict[str, Any] = {"python": "/env/bin/python", "gpus": ("3", "5"), "run_dir": Path("/r/run"), "port": 29511}
    host = {"host": "10.0.0.7"} if one.num_nodes > 1 else {}
    return launcher.build_command(one, **{**plain, **host, **changes})


def shown(command: Command) -> str:
    """A command as text that is the same in every checkout; of the instrument the first line."""
    environment = "".join(f"{name}={'(unset)' if value is None else value}\n" for name, value in command.env.items())
    texts = {name: text.splitlines(True)[0] if name == FILE_NAME else text for name, text in command.files.items()}
    files = "".join(f"\n--- {name}\n{text}" for name, text in texts.items())
    words = shlex.join(command.argv).replace(" --", "\n  --")
    return f"{environment}\n{words}\n\nin {command.cwd}\n{files}".replace(str(ROOT), "{repository}")


CASES: Mapping[str, dict[str, Any]] = {
    "huggingface-cuda-1": {},
    "huggingface-cuda-2": {"num_gpus": 2},
    "huggingface-cpu-1": {"device": Device.CPU},
    "huggingface-cpu-2": {"device": Device.CPU, "num_gpus": 2, "env": {"OMP_NUM_THREADS": "2", "HF_HOME": None}},
    "huggingface-fsdp-1": {"accelerate": FSDP},
    "huggingface-fsdp-2": {"accelerate": FSDP, "num_gpus": 2},
    "fms_hf_tuning-2": {
        "trainer": "fms_hf_tuning",
        "num_gpus": 2,
        "framework": Framework(name="foak", digest="0", plugin_file="/conf/foak.yaml"),
    },
    "trl-1": {"trainer": "trl"},
    "trl_dpo-1": {
        "trainer": "trl_dpo",
        "arguments": {"dataset_name": "/data/preferences", "beta": "0.1"},
        "data_path": None,
    },
    "nodes-cuda-2x4": {"num_gpus": 8, "num_nodes": 2},
    "nodes-cpu-2x1": {"num_gpus": 2, "num_nodes": 2, "device": Device.CPU},
    "nodes-fsdp-2x4": {"num_gpus": 8, "num_nodes": 2, "accelerate": FSDP},
    "huggingface-zero-2": {"num_gpus": 2, "accelerate": WRITTEN_ZERO},
    "nodes-hsdp-2x4": {"num_gpus": 8, "num_nodes": 2, "accelerate": HSDP},
    "context-parallel-4": {"num_gpus": 4, "accelerate": SHARED},
    "nodes-hsdp-context-parallel-2x4": {"num_gpus": 8, "num_nodes": 2, "accelerate": BOTH},
    "custom-direct-nodes": {
        "trainer": "custom",
        "num_gpus": 8,
        "num_nodes": 2,
        "custom": CustomCommand(command=("./train", "{num_nodes}", "{num_gpus}", "{host}:{port}"), launcher="none"),
    },
    "huggingface-measured": {"measure": Measure(discard_steps=5, at_most_steps=200, within=0.01)},
    "custom-accelerate-2": {
        "trainer": "custom",
        "num_gpus": 2,
        "custom": CustomCommand(command=("{scenario_dir}/train.py", "--lr={learning_rate}"), folder="/srv/scenarios"),
    },
    "script-2": {
        "trainer": "script",
        "num_gpus": 2,
        "script": Script(script="train.py", folder="/srv/scenarios", files=("data/rows.jsonl",)),
        "arguments": {"data": "data/rows.jsonl", "output_dir": "mine", "bf16": "True"},
    },
    "script-module-in-place": {
        "trainer": "script",
        "device": Device.CPU,
        "script": Script(module="pkg.train", words=("rows.jsonl",), cwd="scenario", folder="/srv/scenarios"),
        "arguments": {},
    },
    "llamafactory-2": {
        "trainer": "llamafactory",
        "num_gpus": 2,
        "arguments": {
            "model_name_or_path": "/models/tiny",
            "dataset_dir": "/data",
            "dataset": "mine",
            "template": "default",
            "lora_target": ("q_proj", "v_proj"),
            "learning_rate": "2e-5",
            "save_strategy": "no",
            "max_steps": "5",
        },
    },
    "axolotl-1": {
        "trainer": "axolotl",
        "arguments": {
            "model_name_or_path": "/models/tiny",
            "datasets": ("{'path': '/data/rows.json', 'ds_type': 'json', 'type': 'alpaca', 'shards': None}",),
            "special_tokens": "{'pad_token': '<|end|>'}",
            "per_device_train_batch_size": "2",
            "bf16": "auto",
            "output_dir": "mine",
        },
    },
    "litgpt-1": {
        "trainer": "litgpt",
        "model": "/models/tiny",
        "steps": StepSource.STDOUT,
        "arguments": {
            "model_name_or_path": "/models/tiny",
            "subcommand": "finetune_full",
            "data": "JSON",
            "train.global_batch_size": "4",
            "train.micro_batch_size": "2",
        },
    },
    "thunder-2": {
        "trainer": "thunder",
        "model": "Llama-3.2-1B",
        "num_gpus": 2,
        "steps": StepSource.STDOUT,
        "arguments": {
            "model_name_or_path": "Llama-3.2-1B",
            "compile": "dynamo_thunder",
            "distributed_mode": "fsdp",
            "checkpoint_activations": "True",
        },
    },
    "custom-direct": {
        "trainer": "custom",
        "custom": CustomCommand(command=("{python}", "-m", "x", "{target_modules}", "{gpus}:{port}"), launcher="none"),
    },
}


@pytest.mark.parametrize("case", CASES)
def test_command(case: str, golden: Callable[[str, str], None]) -> None:
    golden(f"launch/{case}.txt", shown(build(experiment(**CASES[case]))))


def test_the_instrument_lies_beside_the_command_of_whoever_runs_under_it() -> None:
    for case, changes in CASES.items():
        command = build(experiment(**changes))
        written = None if case.startswith(("custom", "litgpt", "thunder")) else single_file()
        assert command.files.get(FILE_NAME) == written
        assert (f"/r/run/{FILE_NAME}" in command.argv) == (written is not None)


@pytest.mark.parametrize("text", ["a $$ b", "$local_rank", "${local_rank}x$1", "cost: $5", "plain"])
def test_words_reach_each_rank_as_they_are(text: str) -> None:
    """torchrun, which starts several processes, replaces macros in the words of the script, its path too."""
    macros = pytest.importorskip("torch.distributed.elastic.utils").macros
    for processes in (1, 2):
        changes: dict[str, Any] = {"arguments": {"note": text}, "num_gpus": processes}
        words = build(experiment(**changes), run_dir=Path(f"/r/{text}")).argv
        told = macros.substitute(list(words), "0") if processes > 1 else words
        assert told[told.index("--note") + 1] == text
        assert {f"/r/{text}/{FILE_NAME}", f"/r/{text}/output"} <= set(told)
    own = CustomCommand(command=("train.py", "{note}"), folder="/srv")
    assert build(experiment(trainer="custom", custom=own, **changes)).argv[-1] == text, "who may mean the macro"


@pytest.mark.parametrize("device", [Device.CUDA, Device.CPU])
def test_one_and_many_processes_get_the_same_settings(device: Device) -> None:
    one, many = build(experiment(device=device)), build(experiment(device=device, num_gpus=2))
    assert one.env == many.env
    assert one.argv == many.argv
    settings = [yaml.safe_load(command.files[launcher.CONFIG_NAME]) for command in (one, many)]
    assert {key for key in settings[0] if settings[0][key] != settings[1][key]} == {"distributed_type", "num_processes"}


def test_one_process_is_never_wrapped() -> None:
    settings = yaml.safe_load(build(experiment(accelerate=FSDP)).files[launcher.CONFIG_NAME])
    assert settings["distributed_type"] == "NO"
    assert "fsdp_config" not in settings


def test_hybrid_shards_on_one_node_are_plain_shards() -> None:
    """So the scaling over nodes has a base, and it is the row of `fsdp`."""
    plain = {name: value for name, value in HSDP.items() if name != "parallelism_config"}
    hybrid, sharded = (launcher.accelerate_config(experiment(accelerate=one, num_gpus=8)) for one in (HSDP, plain))
    assert hybrid == sharded
    assert plain == yaml.safe_load((ROOT / "frameworks" / "fsdp.yaml").read_text())["accelerate"]


@pytest.mark.parametrize(
    ("accelerate", "nodes", "sizes", "dimensions"),
    [
        (HSDP, 2, (2, 4, 1), ["dp_replicate", "dp_shard_cp"]),
        (SHARED, 1, (1, 4, 2), ["dp_shard_cp"]),
        (BOTH, 2, (2, 2, 2), ["dp_replicate", "dp_shard_cp"]),
    ],
)
def test_accelerate_reads_the_sizes_of_the_mesh(
    accelerate: dict[str, Any],
    nodes: int,
    sizes: tuple[int, int, int],
    dimensions: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its launcher takes them from the file, and its processes from the variables of the launcher."""
    launch = pytest.importorskip("accelerate.commands.launch")
    from accelerate import ParallelismConfig
    from accelerate.utils.launch import prepare_multi_gpu_env

    one = experiment(accelerate=accelerate, num_gpus=8, num_nodes=nodes)
    (tmp_path / "accelerate.yaml").write_text(launcher.accelerate_config(one))
    words = ["--config_file", str(tmp_path / "accelerate.yaml"), "--main_process_port", "29500", "train.py"]
    args, *_ = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))
    for name, value in prepare_multi_gpu_env(args).items():
        if name.startswith(("PARALLELISM_", "FSDP_", "ACCELERATE_USE_")):
            monkeypatch.setenv(name, value)
    mesh = ParallelismConfig()
    assert (mesh.dp_replicate_size, mesh.dp_shard_size, mesh.cp_size) == sizes
    assert (mesh.total_size, mesh.fsdp_dim_names) == (8, dimensions)
    ranks = parallelism.data_parallel_ranks(8, accelerate)
    assert ranks == mesh.data_parallel_size == 8 // mesh.non_data_parallel_size
    assert os.environ["ACCELERATE_USE_PARALLELISM_CONFIG"] == "true"
    assert os.environ["FSDP_VERSION"] == "2"


def test_accelerate_reads_the_settings_of_deepspeed(tmp_path: Path) -> None:
    """Accumulation and clipping are left to the trainer's arguments, whatever a user's file says."""
    launch = pytest.importorskip("accelerate.commands.launch")
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    one = experiment(accelerate=WRITTEN_ZERO, num_gpus=4, num_nodes=2)
    (tmp_path / "accelerate.yaml").write_text(launcher.accelerate_config(one))
    words = ["--config_file", str(tmp_path / "accelerate.yaml"), "--main_process_ip", "127.0.0.1"]
    words += ["--machine_rank", "1", "--main_process_port", "29500", "train.py"]
    args, *_ = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))
    args.deepspeed_fields_from_accelerate_config = ""  # the launcher sets it for files of DeepSpeed's own
    command, env = prepare_deepspeed_cmd_env(args)
    assert command is None, "torchrun starts the processes of this node, not DeepSpeed's launcher"
    assert (args.use_deepspeed, args.nproc_per_node, args.nnodes, args.node_rank) == (True, "2", "2", 1)
    read = {name: value for name, value in env.items() if name.startswith("ACCELERATE_") and name not in os.environ}
    assert read["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert read["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "3"
    assert read["ACCELERATE_DEEPSPEED_ZERO3_INIT"] == "false"
    assert not {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "ACCELERATE_GRADIENT_CLIPPING"} & read.keys()


def test_a_file_of_the_reference_is_overridden_where_we_know_better() -> None:
    theirs = {"num_processes": 8, "gpu_ids": "0,1", "main_process_port": 29500, "machine_rank": 1, "use_cpu": True}
    settings = yaml.safe_load(launcher.accelerate_config(experiment(accelerate=theirs, num_gpus=2)))
    assert (settings["num_processes"], settings["machine_rank"], settings["use_cpu"]) == (2, 0, False)
    assert not {"gpu_ids", "main_process_port"} & settings.keys()
    assert settings["mixed_precision"] == "no"


def test_the_experiment_has_the_last_word_on_its_environment() -> None:
    command = build(experiment(env={"OMP_NUM_THREADS": "8", "TOKENIZERS_PARALLELISM": None}))
    assert command.env["OMP_NUM_THREADS"] == "8"
    assert command.env["TOKENIZERS_PARALLELISM"] is None


def test_the_runs_folder_is_tunebenchs_own() -> None:
    assert build(experiment(env={"TUNEBENCH_RUN_DIR": "/home/me/precious"})).env["TUNEBENCH_RUN_DIR"] == "/r/run"


def test_a_users_output_folder_is_not_taken() -> None:
    words = build(experiment(arguments={"output_dir": "/home/me/precious"})).argv
    assert "/home/me/precious" not in words
    assert words[words.index("--output_dir") + 1] == "/r/run/output"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, None),
        ({"accelerate": FSDP, "num_gpus": 2}, None),
        ({"accelerate": FSDP, "num_gpus": 2, "device": Device.CPU}, "fsdp_on_cpu"),
        ({"arguments": {"fsdp": "True"}, "num_gpus": 2, "device": Device.CPU}, "fsdp_on_cpu"),
        ({"accelerate": FSDP, "device": Device.CPU}, None),
        ({"accelerate": HSDP, "num_gpus": 2}, None),
        ({"accelerate": HSDP, "num_gpus": 8, "num_nodes": 2}, None),
        ({"accelerate": HSDP, "num_gpus": 2, "num_nodes": 2}, "replicas"),
        ({"accelerate": {**FSDP, "parallelism_config": {REPLICAS: 4}}, "num_gpus": 8}, None),
        ({"accelerate": {**FSDP, "parallelism_config": {REPLICAS: 4}}, "num_gpus": 6}, "replicas"),
        ({"accelerate": {**HSDP, "fsdp_config": None}, "num_gpus": 8, "num_nodes": 2}, "replicas_of_fsdp_1"),
        ({"accelerate": SHARED, "num_gpus": 2}, None),
        ({"accelerate": SHARED, "num_gpus": 2, "num_nodes": 2}, None),
        ({"accelerate": SHARED, "num_gpus": 2, "device": Device.CPU}, "fsdp_on_cpu"),
        ({"accelerate": BOTH, "num_gpus": 8, "num_nodes": 2}, None),
        ({"accelerate": BOTH, "num_gpus": 4, "num_nodes": 2}, "replicas"),
        ({"accelerate": BOTH, "num_gpus": 6, "num_nodes": 2}, "replicas"),
        ({"accelerate": {"distributed_type": "MEGATRON_LM"}, "num_gpus": 2}, "unsupported_distribution"),
        ({"accelerate": ZERO, "num_gpus": 2}, None),
        ({"accelerate": ZERO, "num_gpus": 2, "device": Device.CPU}, "deepspeed_on_cpu"),
        ({"accelerate": ZERO, "device": Device.CPU}, None),
        ({"accelerate": {"distributed_type": False}, "num_gpus": 2}, None),
        ({"device": Device.CPU, "arguments": {"attn_implementation": "flash_attention_2"}}, "flash_attention_on_cpu"),
        ({"device": Device.CPU, "arguments": {"use_liger_kernel": "True"}}, "liger_on_cpu"),
        ({"device": Device.CPU, "arguments": {"fp16": "True"}}, "precision_on_cpu"),
        ({"device": Device.CPU, "arguments": {"bf16": "True"}}, None),
        ({"device": Device.CPU, "accelerate": {"mixed_precision": "fp8"}}, "precision_on_cpu"),
        ({"trainer": "trl"}, "model_of_other_trainer"),
        ({"trainer": "fms_hf_tuning"}, "model_of_other_trainer"),
        ({"trainer": "trl", "model": "org/a-model"}, None),
    ],
)
def test_what_cannot_work_is_said_in_the_plan(changes: dict[str, Any], kind: str | None) -> None:
    reason = launcher.plan_problems(experiment(**changes))
    assert (reason.kind if reason else None) == kind


PLAIN = {"distributed_type": "MULTI_GPU", "parallelism_config": {CONTEXT: 2}}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_gpus": 1}, f"num_gpus 1 is not divisible by 2 ranks per sequence ({CONTEXT})"),
        ({"num_gpus": 3}, f"num_gpus 3 is not divisible by 2 ranks per sequence ({CONTEXT})"),
        (
            {"accelerate": PLAIN},
            f"{CONTEXT} needs FSDP version 2; write distributed_type: FSDP and fsdp_version: 2",
        ),
        (
            {"accelerate": {**SHARED, "fsdp_config": {"fsdp_version": 1}}},
            f"{CONTEXT} needs FSDP version 2; write distributed_type: FSDP and fsdp_version: 2",
        ),
        (
            {"arguments": {"attn_implementation": "flash_attention_2"}},
            f"{CONTEXT} does not work with attn_implementation flash_attention_2; write sdpa",
        ),
        (
            {"arguments": {"packing": "True"}},
            f"packing needs a mask between the samples of a row, and {CONTEXT} drops this mask; write packing: false",
        ),
        ({"arguments": {"padding_free": "True"}}, "padding_free needs a mask"),
        (
            {"arguments": {"max_seq_len": "4098"}},
            f"rows of 4098 tokens are not divisible by 4, which is 2 × {CONTEXT}; write 4096",
        ),
        ({"arguments": {"max_length": "3"}, "trainer": "trl", "model": "org/m"}, "rows of 3 tokens are not divisible"),
        (
            {"arguments": {"pad_to_multiple_of": "6"}, "trainer": "trl", "model": "org/m"},
            f"trainer trl pads rows to the longest row, and {CONTEXT} divides them; write pad_to_multiple_of: 4",
        ),
        (
            {"accelerate": BOTH, "num_gpus": 4, "num_nodes": 2},
            "each of 2 replicas has a single group of 2 GPUs, which accelerate refuses; use more GPUs per replica",
        ),
        (
            {"accelerate": BOTH, "num_gpus": 6, "num_nodes": 2},
            f"num_gpus 6 ÷ 2 ranks per sequence is not divisible by 2 replicas ({REPLICAS})",
        ),
    ],
)
def test_rows_that_cannot_be_divided_are_refused_in_the_plan(changes: dict[str, Any], text: str) -> None:
    reason = launcher.plan_problems(experiment(**{"accelerate": SHARED, "num_gpus": 2, **changes}))
    assert reason is not None and reason.text.startswith(text)


def test_rows_that_can_be_divided_are_not_refused() -> None:
    arguments = {"max_seq_len": "4096", "attn_implementation": "sdpa", "packing": "False"}
    assert launcher.plan_problems(experiment(accelerate=SHARED, num_gpus=4, arguments=arguments)) is None
    for unknown in ("9" * 5000, "many", "-1"):
        assert (
            launcher.plan_problems(experiment(accelerate=SHARED, num_gpus=2, arguments={"max_seq_len": unknown}))
            is None
        )
    padded = {"max_length": "4096", "pad_to_multiple_of": "8"}
    theirs = experiment(accelerate=SHARED, num_gpus=2, arguments=padded, trainer="trl", model="org/m")
    assert launcher.plan_problems(theirs) is None
    whole = {**PLAIN, "parallelism_config": {CONTEXT: 1}}
    assert launcher.plan_problems(experiment(accelerate=whole, num_gpus=3)) is None


def test_an_unknown_trainer_is_named() -> None:
    with pytest.raises(SelectionError, match="unknown trainer 'hugginface'; did you mean 'huggingface'"):
        build(experiment(trainer="hugginface"))

"""The plan for a machine that is not here: its GPUs, the work of each experiment, GPU-hours, states, and what is shown of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import architecture
import backward
import pytest
from arguments import Own
from factories.results import ended, experiment
from hypothesis import given
from hypothesis import strategies as st
from models import load_config

from orchestrator.errors import SelectionError
from orchestrator.machine.provenance import Machine
from orchestrator.measure.flops import GPU_TYPES, PEAKS, model_flops_per_token
from orchestrator.plan.forecast import outlook, work
from orchestrator.plan.forecast.assumed_machine import assumed_machine
from orchestrator.plan.forecast.earlier_runs import EarlierRuns
from orchestrator.plan.forecast.gpu_hours import FULL, LORA, STARTUP_S, gpu_hours
from orchestrator.plan.forecast.memory_fit.adapters import adapters_of
from orchestrator.plan.forecast.memory_fit.estimate import GIB
from orchestrator.plan.forecast.memory_fit.shapes import NotKnown, read_shape
from orchestrator.plan.forecast.memory_fit.verdict import VISIBLE_SHARE
from orchestrator.plan.forecast.states import State, forecast, leave_out_what_may_not_fit
from orchestrator.records import Device, Experiment, Framework, Gpu, Measure, Reason, Repeats, Text

ROOT = Path(__file__).resolve().parents[2]
PLAN_96 = ROOT / "examples" / "plan-96-cells.yaml"
Call = Callable[..., tuple[int, str, str]]
H100S = assumed_machine("8xH100")
NONE = EarlierRuns()


@pytest.fixture
def call(in_process: Call) -> Call:
    return partial(in_process, width=140)


def planned(model: str = "config:llama-1b", **changes: Any) -> Experiment:
    arguments: dict[str, Text] = {
        "max_seq_len": "2048",
        "per_device_train_batch_size": "8",
        "max_steps": "100",
        "bf16": "True",
        "dtype": "bfloat16",
    }
    given = {name: changes.pop(name) for name in list(changes) if name not in Experiment.__dataclass_fields__}
    return experiment(model=model, device=Device.CUDA, arguments={**arguments, **given}, **changes)


# --- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count", "name", "gib"),
    [
        ("8xH100", 8, "H100 80GB HBM3", 79.2),
        ("1 × a100-40gb", 1, "A100-SXM4-40GB", 39.4),
        ("4xB200", 4, "B200", 178.5),
        ("2x24GiB", 2, "", 24),
        ("16X80 GiB", 16, "", 80),
    ],
)
def test_a_machine_in_words(text: str, count: int, name: str, gib: float) -> None:
    """A capacity is nominal. The memory of a known type is what CUDA can give out there."""
    machine = assumed_machine(text)
    assert machine.assumed and len(machine.gpus) == count and {gpu.name for gpu in machine.gpus} == {name}
    (memory,) = {gpu.memory_bytes or 0 for gpu in machine.gpus}
    assert memory * (VISIBLE_SHARE if name else 1) == pytest.approx(gib * GIB, abs=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("H100", "'H100' is invalid; write a number and a type, such as 8xH100"),
        ("0xH100", "with 1 to 1024 GPUs"),
        ("9999xH100", "with 1 to 1024 GPUs"),
        ("8xH1000", "'H1000' is not a GPU type; did you mean 'H100'?"),
        ("8xH100-80GB", "'H100-80GB' is not a GPU type; did you mean 'H100'?"),
        ("8xh100-pcie-80GB", "did you mean 'H100-PCIe'?"),
        ("8xA100", "'A100' is not a GPU type; write A100-40GB or A100-80GB, or a capacity"),
        ("8x80", "'80' has no unit; write 80GiB"),
    ],
)
def test_what_is_no_machine_is_refused(text: str, said: str) -> None:
    with pytest.raises(SelectionError, match="--assume") as error:
        assumed_machine(text)
    assert said in str(error.value)


def test_every_type_has_a_peak() -> None:
    assert {name for name, _ in GPU_TYPES.values()} <= PEAKS.keys()


# --- work ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "adapter"),
    [
        ("tiny-llama", None),
        ("tiny-llama", "all-linear"),
        ("tiny-moe", None),
        ("tiny-moe", ("q_proj", "v_proj")),
        ("tiny-moe", ("o_proj",)),
        ("tiny-llama", ("k_proj",)),
        ("tiny-llama", ("v_proj",)),
        ("tiny-llama", ("o_proj", "down_proj")),
        ("tiny-llama", ("up_proj",)),
        ("tiny-llama", ("down_proj",)),
    ],
)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_work_is_that_of_the_built_model(model: str, adapter: Any, checkpointed: bool) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    config = load_config(Own(model_name_or_path=f"config:{model}", training_data_path="data"), {})
    with torch.device("meta"):
        real = AutoModelForCausalLM.from_config(config)
    if adapter:
        real = get_peft_model(
            real, LoraConfig(r=4, target_modules=adapter if adapter == "all-linear" else list(adapter))
        )
    if checkpointed:
        real.enable_input_require_grads()
    found = backward.read(SimpleNamespace(model=real), architecture)
    arguments: dict[str, Text] = {"peft_method": "lora", "r": "4", "target_modules": adapter} if adapter else {}
    shape = read_shape(f"config:{model}", arguments, revision=None, hub="")
    ours = work.architecture(shape, adapters_of(arguments, shape), checkpointed=checkpointed)
    assert model_flops_per_token(ours, squares_per_token=512) == model_flops_per_token(found, squares_per_token=512)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, 100),
        ({"measure": Measure(at_most_steps=30)}, 30),
        ({"measure": Measure(at_most_steps=300)}, 100),
        ({"max_steps": "-1", "measure": Measure(at_most_steps=30)}, 30),
    ],
)
def test_steps(changes: dict[str, Any], steps: int) -> None:
    assert work.work_of(planned(**changes)).steps == steps


def test_gpus_that_divide_a_row_divide_its_work() -> None:
    sharing = planned(num_gpus=4, accelerate={"parallelism_config": {"parallelism_config_cp_size": 2}})
    assert work.work_of(sharing).flops_per_step == work.work_of(planned(num_gpus=4)).flops_per_step / 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_steps": "-1"}, "neither max_steps nor measure.at_most_steps"),
        ({"max_steps": "9" * 5000}, "max_steps is '99999"),
        ({"model": "config:mistral-7b", "max_seq_len": "8192"}, "sequences longer than the window of attention"),
        ({"model": "org/none"}, "no config.json of org/none on this machine"),
        ({"trainer": "trl"}, "trainer trl"),
        (
            {"model": "config:tiny-moe", "peft_method": "lora", "target_modules": "all-linear"},
            "adapters of experts",
        ),
        ({"bf16": "False", "dtype": "float32"}, "matrix products in 32 bits"),
        (
            {
                "num_gpus": 2,
                "accelerate": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_offload_params": True}},
            },
            "with weights on the host, the host limits the speed",
        ),
    ],
)
def test_hours_that_are_not_known_say_why(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotKnown, match=reason):
        gpu_hours(planned(**changes), H100S, NONE)
    with pytest.raises(NotKnown, match="no known peak"):
        gpu_hours(planned(), assumed_machine("8x80GiB"), NONE)


# --- hours -----------------------------------------------------------------------------------------------------------


def test_hours_by_hand() -> None:
    """1.1 billion parameters, 32.8 % of an H100's peak measured: 100 steps of 16384 tokens took 34 s (docs/method.md)."""
    one = gpu_hours(planned(repeats=3), H100S, NONE)
    seconds = one.hours * 3600 / 3 - STARTUP_S
    assert (one.mfu, one.runs, one.assumed, one.source) == (FULL, 3, True, "full")
    assert seconds == pytest.approx(100 * 0.3415, rel=0.02)


@given(
    steps=st.integers(1, 10_000),
    gpus=st.sampled_from([1, 2, 4, 8]),
    rows=st.integers(1, 64),
    most=st.integers(1, 10),
    lora=st.booleans(),
)
def test_hours_grow_with_everything_that_is_asked_for(steps: int, gpus: int, rows: int, most: int, lora: bool) -> None:
    def hours(**changes: Any) -> float:
        asked = {"max_steps": str(steps), "num_gpus": gpus, "per_device_train_batch_size": str(rows)}
        asked |= {"adaptive": Repeats(min=1, max=most, within=0.01), "peft_method": "lora" if lora else "none"}
        return gpu_hours(planned(**{**asked, **changes}), H100S, NONE).hours

    now, startup = hours(), STARTUP_S * gpus * most / 3600
    assert hours(max_steps=str(2 * steps)) - startup == pytest.approx(2 * (now - startup))
    assert hours(num_gpus=2 * gpus) == pytest.approx(2 * now)
    assert hours(per_device_train_batch_size=str(rows + 1)) > now
    assert hours(adaptive=Repeats(min=1, max=most + 1, within=0.01)) > now
    assert hours(gradient_checkpointing="True") > now


def test_earlier_runs_give_speed_and_start_up() -> None:
    fast = Framework(name="fast", digest="d")
    values = {"gpu_device_name": "NVIDIA H100 80GB HBM3", "train_runtime": 2.5}
    measured = [
        *((planned(num_gpus=1), ended(planned(), number, tflops_per_s_per_gpu=speed, **values))
          for number, speed in ((1, 400.0), (2, 410.0), (3, 300.0))),
        (planned(num_gpus=2), ended(planned(), 1, tflops_per_s_per_gpu=200.0, **values)),
        (planned(peft_method="lora"), ended(planned(), 1, tflops_per_s_per_gpu=100.0, **values)),
        (planned(framework=fast), ended(planned(), 1, tflops_per_s_per_gpu=500.0, gpu_device_name="NVIDIA X", train_runtime=1.0)),
        (planned(), ended(planned(), 4, tflops_per_s_per_gpu=float("inf"), **values)),
    ]  # fmt: skip
    earlier = EarlierRuns(measured)
    one = gpu_hours(planned(), H100S, earlier)
    assert (one.mfu, one.startup_s) == (pytest.approx(400 / 989), 10.0)
    assert (one.assumed, one.source) == (False, "3 earlier runs on H100 80GB HBM3")
    assert gpu_hours(planned(num_gpus=2), H100S, earlier).mfu == pytest.approx(200 / 989)
    assert gpu_hours(planned(num_gpus=8), H100S, earlier).source == "4 earlier runs on H100 80GB HBM3"
    assert gpu_hours(planned(peft_method="lora"), H100S, earlier).mfu == pytest.approx(100 / 989)
    assert gpu_hours(planned(framework=fast), H100S, earlier).assumed, "the peak of that device is not known"
    assert gpu_hours(planned("config:llama-3-8b", peft_method="lora"), H100S, earlier).mfu == LORA


# --- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, State.RUNS),
        ({"model": "config:llama-3-8b"}, State.DOES_NOT_FIT),
        ({"model": "config:llama-3-8b", "gradient_checkpointing": "True"}, State.MAY_NOT_FIT),
        ({"model": "config:no-such"}, State.UNKNOWN),
        ({"skip": Reason(kind="max_steps", text="max_steps 0 is invalid")}, State.SKIPPED),
        ({"cannot_run_here": Reason(kind="too_few_gpus", text="16 GPUs are needed")}, State.SKIPPED),
    ],
)
def test_one_state_for_each_experiment(changes: dict[str, Any], state: State) -> None:
    one = replace(planned(optim="adamw_torch"), **{k: v for k, v in changes.items() if k != "gradient_checkpointing"})
    if "gradient_checkpointing" in changes:
        one = replace(one, arguments={**one.arguments, "gradient_checkpointing": "True"})
    found = forecast(one, H100S, NONE)
    assert found.state is state
    assert (found.hours is not None) is (state in (State.RUNS, State.MAY_NOT_FIT))
    assert (found.reason is not None) is (state in (State.UNKNOWN, State.SKIPPED))


def test_an_experiment_on_a_cpu_runs_and_takes_no_gpu_hours() -> None:
    found = forecast(replace(planned(), device=Device.CPU), H100S, NONE)
    assert (found.state, found.memory, found.no_hours) == (State.RUNS, None, "the run uses a CPU")


def test_fit_only_leaves_out_what_may_not_fit_on_the_smallest_gpu() -> None:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="H100", memory_bytes=gib << 30) for n, gib in enumerate((141, 80)))
    small, close = planned(optim="adamw_torch"), planned("config:llama-3-8b", gradient_checkpointing="True")
    large, unknown = planned("config:llama-3-70b"), planned("config:no-such")
    given = (small, close, large, unknown)
    kept = leave_out_what_may_not_fit(given, Machine(gpus=gpus))
    assert [one.cannot_run_here and one.cannot_run_here.kind for one in kept] == [
        None,
        "may_not_fit",
        "does_not_fit",
        None,
    ]
    assert kept[2].cannot_run_here and "GiB on GPUs of 80.0 GiB (--fit-only)" in kept[2].cannot_run_here.text
    assert leave_out_what_may_not_fit(given, Machine()) == given, "without GPUs nothing of this can run anyway"
    with pytest.raises(SelectionError, match="leave --fit-only out"):
        leave_out_what_may_not_fit(given, Machine(gpus=(replace(gpus[0], memory_bytes=None),)))


# --- the command -----------------------------------------------------------------------------------------------------


def test_a_plan_of_96_cells_for_a_box_that_is_not_here(call: Call, golden: Callable[[str, str], None]) -> None:
    code, out, err = call("plan", PLAN_96, "--assume", "8xH100")
    assert (code, err) == (0, "")
    lines = (line.rstrip() for line in out.splitlines() if not line.startswith("note: defaults.yaml"))
    golden("cli/plan-96-cells.txt", "\n".join(lines) + "\n")


def test_in_80_columns_the_names_of_a_plan_are_whole_and_the_state_is_last(call: Call) -> None:
    _, out, _ = call("plan", PLAN_96, "--assume", "8xH100", width=80)
    same, _, names, header, *lines = (line.rstrip() for line in out.splitlines())
    assert same.startswith("Same for all: ") and names == "framework · model · arguments"
    assert header.split() == ["GPUs", "batch", "memory", "GPU-hours", "id", "state"]
    rows = [f"{first} {second}" for first, second in zip(lines[:192:2], lines[1:192:2], strict=True)]
    assert lines[192].startswith("96 experiments") and all(len(line) <= 80 for line in lines[:192])
    assert len(set(rows)) == 96 and all(re.search(r" [0-9a-f]{12}  ", row) for row in rows)
    assert rows[-1].startswith("bnb-nf4 · config:llama-3-70b · max_seq_len=8192 ") and rows[-1].endswith("does not fit")


@pytest.mark.parametrize(
    ("hours", "text"),
    [(0.001, "<0.01"), (0.034, "0.03"), (0.996, "1.0"), (1.44, "1.4"), (9.96, "10"), (38.2, "38"), (1240.4, "1,240")],
)
def test_gpu_hours_have_few_digits(hours: float, text: str) -> None:
    assert outlook.hours_text(hours) == text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "config:llama-3-8b", "gradient_checkpointing": "True"}, "may not fit"),
        ({"packing": "True", "attn_implementation": "flash_attention_2"}, "are unknown"),
    ],
)
def test_the_hours_of_a_plan_name_only_states_that_it_has(changes: dict[str, Any], words: str) -> None:
    shown = outlook.MachineOutlook(machine=H100S, earlier=NONE)
    assert [line for line in shown.lines([planned()]) if "hours of those" in line] == [
        "GPU-hours of those that run: 0.03 in 1 run."
    ]
    lines = shown.lines([planned(), planned(**changes, optim="adamw_torch", id="full-another-000000000000")])
    assert [line.partition(":")[0] for line in lines if "hours of those" in line][1:] == [
        f"GPU-hours of those that {words}"
    ]


def test_the_document_of_such_a_plan_adds_up(call: Call) -> None:
    document = json.loads(call("plan", PLAN_96, "--assume", "8xH100", "--json")[1])
    cells, totals = document["experiments"], document["assumed"]
    assert len(cells) == 96 and sum(totals["states"].values()) == 96
    for state, count in totals["states"].items():
        of_state = [cell for cell in cells if cell["state"] == state]
        assert len(of_state) == count
        hours = [cell["gpu_hours"]["hours"] for cell in of_state if cell["gpu_hours"]]
        verdict = "fits" if state == "runs" else state
        assert {cell["memory"]["verdict"] for cell in of_state} == {verdict} or state == "skipped"
        assert len(hours) < count or totals["gpu_hours"][state] == pytest.approx(sum(hours))
    assert all(cell["cannot_run_here"] is None for cell in cells), "packages and models of this machine do not matter"
    few = json.loads(call("plan", PLAN_96, "--assume", "2x80GiB", "--json")[1])
    assert few["assumed"]["gpu"] is None and few["assumed"]["states"]["skipped"] > totals["states"]["skipped"]
    assert {cell["gpu_hours"] for cell in few["experiments"]} == {None}


def test_earlier_results_are_used_and_named(call: Call) -> None:
    words = ("plan", ROOT / "examples" / "frameworks-by-models.yaml", "--assume", "2xH100")
    _, out, _ = call(*words, "--results", ROOT / "docs" / "sample")
    assert "MFU and start-up by 5 earlier runs on H100 80GB HBM3: " in out
    assert "Assumed" in call(*words)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--assume", "8xH100", "--gpu-memory", "80GiB"),
            "--assume already gives the GPUs' memory; leave --gpu-memory out",
        ),
        (("--fit-only", "--gpu-memory", "80GiB"), "leave --gpu-memory out, or write --assume 1x80GiB"),
        (("--results", str(ROOT / "docs")), "this is not a results folder"),
        (("--assume", "8xH100", "--results", str(PLAN_96)), "there is no such folder"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...], said: str, call: Call) -> None:
    code, out, err = call("plan", PLAN_96, *words)
    assert (code, out) == (2, "") and said in err


@pytest.mark.parametrize("words", [(), ("--assume", "8xH100")])
def test_a_plan_for_a_folder_that_does_not_exist_yet_has_new_runs_only(words: tuple[str, ...], call: Call) -> None:
    code, out, _ = call("plan", PLAN_96, *words, "--results", "nowhere")
    assert code == 0 and out.endswith("nowhere: there is no such folder yet, so all runs are new.\n")


def test_fit_only_goes_by_the_gpus_of_this_machine(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(index=0, uuid="GPU-0", name="NVIDIA H100 80GB HBM3", memory_bytes=80 << 30)
    monkeypatch.setattr("orchestrator.machine.provenance.visible_gpus", lambda: (gpu,))
    words = ("run", ROOT / "examples" / "memory-approaches.yaml", "--dry-run", "--axis", "num_hidden_layers=22,80")
    assert "fit" not in call(*words)[1]
    code, out, _ = call(*words, "--fit-only")
    assert code == 0 and "cannot run here (does_not_fit), 1×: does not fit: " in out


def test_a_cell_that_needs_more_than_cuda_gives_out_does_not_run(call: Call) -> None:
    """The cell needs 79.5 GiB. CUDA gives out 79.2 GiB on an H100."""
    words = ("plan", PLAN_96, "--cell", "cd93e662d975", "--json", "--assume")
    (large,), (small,) = (json.loads(call(*words, one)[1])["experiments"] for one in ("8xH200", "8xH100"))
    assert 79.2 < small["memory"]["device_bytes"] / GIB < 79.6
    assert large["state"] == "runs" and small["state"] != "runs"


def test_a_plan_with_fit_only_has_just_the_cells_that_run(call: Call) -> None:
    words = ("plan", PLAN_96, "--assume", "4x80GiB", "--json")
    whole, fitting = (json.loads(call(*words, *more)[1]) for more in ((), ("--fit-only",)))
    running = [cell for cell in whole["experiments"] if cell["state"] in ("runs", "unknown")]
    assert fitting["experiments"] == running and 0 < len(running) < 96
    assert set(fitting["assumed"]["gpu_hours"]) == {"runs", "unknown"}
    (note,) = set(fitting["notes"]) - set(whole["notes"])
    assert note.startswith(f"--fit-only leaves out {96 - len(running)} of 96 experiments: 36× does_not_fit, ")
    _, out, _ = call(*words[:-1], "--fit-only")
    assert f"note: {note}" in out and "does not fit  " not in out


def test_it_needs_no_heavy_module() -> None:
    script = (
        "import sys; from orchestrator.cli import app\n"
        "try: app(['plan', sys.argv[1], '--assume', '8xH100', '--json'])\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    words = [sys.executable, "-c", script, str(PLAN_96)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT)
    assert json.loads(done.stdout)["assumed"]["gpus"] == 8
    assert not {"torch", "transformers", "pandas", "numpy", "scipy"} & set(done.stderr.split())

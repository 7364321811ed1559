"""`tunebench verify` for real: exact values are met on any machine, and a count is the number that a run reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import ROOT, tunebench
from factories.results import ended, stored

from orchestrator.compare.published import counts, judging, values
from orchestrator.compare.published.values import COUNTED
from orchestrator.machine.gpus import visible_gpus
from orchestrator.machine.provenance import this_machine
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import parse_selection
from orchestrator.records import Experiment
from orchestrator.results.store import Store

SCENARIO = """\
data_processing: {dataset_name: "builtin:synthetic", samples: 8}
scenarios:
  - name: small
    framework_config: [baseline]
    device: cpu
    measure: {discard_steps: 2}
    matrix: {peft_method: [none, lora]}
    arguments:
      model_name_or_path: config:tiny-llama
      r: 4
      target_modules: [q_proj, v_proj]
      max_seq_len: 64
      per_device_train_batch_size: 1
      max_steps: 12
      logging_steps: 6
"""
EXACT = [value for value in values.read() if value.metric in COUNTED]


def planned(file: Path, *, slow: bool = False) -> tuple[Experiment, ...]:
    suite = load_suite(file)
    names = tuple(scenario.name for scenario in suite.scenarios) if slow else ()
    return expand(suite, parse_selection(scenarios=names), this_machine()).experiments


def test_all_exact_values_are_met_without_a_gpu(tmp_path: Path) -> None:
    done = tunebench(tmp_path, "verify")
    assert done.code == 0, done.said
    lines = done.out.splitlines()
    for value in EXACT:
        (line,) = (line for line in lines if f" {value.name} " in line)
        assert line.startswith("met  "), line
    state = "not run" if visible_gpus() else "cannot run here"
    others = [line for line in lines if line.startswith(state)]
    if not visible_gpus():
        assert len(others) == len(values.read()) - len(EXACT)
        assert f"{len(values.read())} values: {len(EXACT)} met, {len(others)} cannot run here." in lines
    assert lines[-1].endswith(f"tunebench run {ROOT}/examples/verify.yaml --results verify_results")
    assert not (tmp_path / "verify_results").exists()


def test_numbers_of_runs_decide_the_exit_code(tmp_path: Path) -> None:
    eager, liger = (one for one in planned(ROOT / "examples" / "verify.yaml") if one.scenario == "liger-cross-entropy")
    mib = {"eager": 32_768.1, "liger": 16_384.1}
    cells = [
        (one, [ended(one, 1, peak_allocated_bytes=mib[str(one.arguments["implementation"])] * 2**20)])
        for one in (replace(eager, cannot_run_here=None), replace(liger, cannot_run_here=None))
    ]
    stored(tmp_path / "mine", *cells)
    done = tunebench(tmp_path, "verify", "mine")
    assert done.code == 1, done.said
    starts = {line.split("  ")[0] for line in done.out.splitlines() if "cross entropy, " in line and "MiB ±" in line}
    assert starts == {"explained", "not met"}
    assert "the published call also holds the gradient of the call before it" in done.out
    assert tunebench(tmp_path, "verify", "nowhere").code == 2


def test_a_folder_of_other_runs_is_said_and_nothing_is_wrapped_in_a_pipe(tmp_path: Path) -> None:
    one = planned(ROOT / "examples" / "verify.yaml")[0]
    stored(tmp_path / "mine", (replace(one, id="other-000000000000", cannot_run_here=None), []))
    done = tunebench(tmp_path, "verify", "mine", COLUMNS="")
    assert done.code == 0, done.said
    names = [line for value in values.read() for line in done.out.splitlines() if f"  {value.name}  " in line]
    assert len(names) == len(values.read()), "each value has one line"
    *_, said, cure = done.out.splitlines()
    assert said.startswith("mine: this folder has no ended run of ") and said.endswith(
        ", so no value is compared with its runs."
    )
    assert cure.endswith("examples/verify.yaml --results verify_results")


def test_a_count_is_the_number_that_a_run_reports(tmp_path: Path) -> None:
    (tmp_path / "scenarios.yaml").write_text(SCENARIO)
    done = tunebench(tmp_path, "run", "scenarios.yaml")
    assert done.code == 0, done.said
    contents = Store.resume(done.results).contents()
    counted = counts.count([one.experiment for one in contents.experiments])
    assert len(counted) == 2
    for one in contents.experiments:
        (record,) = one.records
        reported = {measured.name: measured.value for measured in record.measurements}
        # On a busy machine, a run may have no steady state, and then no FLOPs.
        own = {name: reported[name] for name in COUNTED if name in reported}
        assert own.keys() >= {"trainable_parameters", "total_parameters"}
        assert counted[one.experiment.id].numbers.items() >= own.items(), one.experiment.id
    lora, full = sorted(found.numbers["trainable_parameters"] for found in counted.values())
    assert lora < full


@pytest.mark.parametrize("value", EXACT, ids=lambda value: value.name)
def test_an_exact_value_needs_an_experiment_of_the_built_in_trainer(value: values.Value) -> None:
    experiments = planned(ROOT / "examples" / "verify.yaml", slow=True)
    assert judging.experiment_of(value, value.cell, experiments).trainer == "huggingface"
